//! Threads that wait for disks, so that the server's one thread never does.

use std::sync::Arc;

use hayase_wire::message::Refused;
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::limits::DISK_THREADS;

/// Where work is done that waits for a disk.
pub(crate) enum Disk {
    /// On the runtime's blocking threads, at most so many at once.
    Threads(Arc<Semaphore>),
    /// At once: nothing here waits.
    Here,
}

impl Disk {
    pub(crate) fn threads() -> Self {
        Self::Threads(Arc::new(Semaphore::new(DISK_THREADS)))
    }

    /// The same kind, with so many threads of its own: for what must not take those of the disks away.
    pub(crate) fn apart(&self, threads: usize) -> Self {
        match self {
            Self::Threads(_) => Self::Threads(Arc::new(Semaphore::new(threads))),
            Self::Here => Self::Here,
        }
    }

    /// Whether there is anything to wait for.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    /// Runs `work` where it may wait. At most [`DISK_THREADS`] run at once.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let Self::Threads(free) = self else { return work() };
        let permit = Arc::clone(free).acquire_owned().await.expect("never closed");
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        done.await.unwrap_or_else(|_| {
            Err(Refused::because(Errno::IO.raw_os_error(), "a disk thread panicked"))
        })
    }
}
