//! Threads that wait for disks, so that the server's one thread never does.

use std::sync::Arc;

use hayase_wire::message::Refused;
use tokio::sync::Semaphore;

use crate::limits::DISK_THREADS;
use crate::node::libc_errno::EIO;

/// A bounded way to the runtime's blocking threads.
pub(crate) struct Disk {
    free: Arc<Semaphore>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(DISK_THREADS)) }
    }

    /// Runs `work` on a thread that may wait. At most [`DISK_THREADS`] run at once.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let permit = Arc::clone(&self.free).acquire_owned().await.expect("never closed");
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        done.await.unwrap_or_else(|_| Err(Refused::because(EIO, "a disk thread panicked")))
    }
}
