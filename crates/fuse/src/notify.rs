//! Telling the kernel to drop what it keeps, on threads that serve no requests.
//!
//! Dropping pages waits for reads of them in flight; dropping a name waits for the lock of its
//! directory, which a create in progress holds. So both have their own threads, and whoever waits
//! for a name gives up after a while (the kernel drops it when the lock is free).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use hayase_client::volume::{Drops, KernelCaches};
use hayase_layout::InodeId;

use crate::busy::BusyDirectories;
use crate::inodes::Inodes;
use crate::limits::{NAMES_WAITING_MAX, NOTIFIERS};
use crate::passthrough::Backings;
use crate::replies::Replies;
use crate::set_ids::SetIds;

/// The kernel's caches of one mount.
pub(crate) struct Kernel {
    pub(crate) inodes: Inodes,
    pub(crate) replies: Replies,
    pub(crate) backings: Backings,
    pub(crate) busy: BusyDirectories,
    pub(crate) set_ids: SetIds,
    notifier: OnceLock<Notifier>,
    /// Where it asks.
    device: OnceLock<OwnedFd>,
    inode_jobs: Arc<Jobs>,
    name_jobs: Arc<Jobs>,
}

#[derive(Default)]
struct Jobs {
    state: Mutex<JobsState>,
    more: Condvar,
}

#[derive(Default)]
struct JobsState {
    waiting: VecDeque<(Job, SyncSender<()>)>,
    stopped: bool,
}

enum Job {
    Inode { ino: INodeNo, drops: Drops },
    End { ino: INodeNo, offset: u64, byte: u8 },
    Name { parent: INodeNo, name: OsString },
}

impl Kernel {
    pub(crate) fn new() -> Self {
        Self {
            inodes: Inodes::default(),
            replies: Replies::default(),
            backings: Backings::new(),
            busy: BusyDirectories::default(),
            set_ids: SetIds::default(),
            notifier: OnceLock::new(),
            device: OnceLock::new(),
            inode_jobs: Arc::default(),
            name_jobs: Arc::default(),
        }
    }

    /// Its requests come from this descriptor, by which each can be answered. Without a copy of it only this
    /// process answers them.
    pub(crate) fn asks_at(&self, device: BorrowedFd<'_>) {
        match device.try_clone_to_owned() {
            // Set once per mount.
            Ok(device) => drop(self.device.set(device)),
            Err(error) => tracing::debug!(%error, "only this process answers the kernel"),
        }
    }

    /// From now on there is a kernel to tell.
    pub(crate) fn start(&self, notifier: &Notifier) -> std::io::Result<()> {
        for (jobs, what) in [(&self.inode_jobs, "inode"), (&self.name_jobs, "name")] {
            for number in 0..NOTIFIERS {
                let (jobs, notifier) = (Arc::clone(jobs), notifier.clone());
                let builder = std::thread::Builder::new().name(format!("hayase-{what}-{number}"));
                builder.spawn(move || jobs.work(&notifier))?;
            }
        }
        // Set once per mount; a second start would only repeat it.
        let _ = self.notifier.set(notifier.clone());
        Ok(())
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        self.inode_jobs.stop();
        self.name_jobs.stop();
    }

    fn is_started(&self) -> bool {
        self.notifier.get().is_some()
    }

    /// Returns when it is done.
    fn inode_job(&self, job: Job) {
        if let Some(done) = self.inode_jobs.submit(job, usize::MAX) {
            // An error means that the threads are gone, and with them the mount.
            let _ = done.recv();
        }
    }
}

impl KernelCaches for Kernel {
    fn invalidate(&self, ino: InodeId, drops: Drops) {
        self.replies.let_pass(ino);
        if !self.is_started() || !self.inodes.is_known(ino) {
            return;
        }
        self.inode_job(Job::Inode { ino: INodeNo(ino.0), drops });
    }

    fn reaches(&self, ino: InodeId, offset: u64, byte: u8) {
        if self.is_started() && self.inodes.is_known(ino) {
            self.inode_job(Job::End { ino: INodeNo(ino.0), offset, byte });
        }
    }

    fn forget_name(&self, parent: InodeId, name: &[u8], wait: Duration) {
        if !self.is_started() || !self.inodes.is_known(parent) {
            return;
        }
        let name = OsString::from_vec(name.to_vec());
        let job = Job::Name { parent: INodeNo(parent.0), name };
        if let Some(done) = self.name_jobs.submit(job, NAMES_WAITING_MAX) {
            if self.busy.is_busy(parent) {
                return; // The kernel drops it when the directory's lock is free.
            }
            // Late is allowed: a request that we have not read yet may hold the lock.
            let _ = done.recv_timeout(wait);
        }
    }

    fn device(&self) -> Option<OwnedFd> {
        self.device.get().and_then(|device| device.try_clone().ok())
    }

    fn release_descriptor(&self, ino: InodeId) {
        self.backings.release(ino);
    }
}

impl Jobs {
    fn submit(&self, job: Job, waiting_max: usize) -> Option<Receiver<()>> {
        let (done, finished) = sync_channel(1);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.stopped || state.waiting.len() >= waiting_max {
            return None;
        }
        state.waiting.push_back((job, done));
        drop(state);
        self.more.notify_one();
        Some(finished)
    }

    fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        state.waiting.clear();
        drop(state);
        self.more.notify_all();
    }

    fn work(&self, notifier: &Notifier) {
        loop {
            let (job, done) = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                loop {
                    if let Some(next) = state.waiting.pop_front() {
                        break next;
                    }
                    if state.stopped {
                        return;
                    }
                    state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            };
            job.run(notifier);
            // Nobody waits any more: fine.
            let _ = done.try_send(());
        }
    }
}

impl Job {
    fn run(self, notifier: &Notifier) {
        let result = match self {
            // A negative offset means attributes only; length 0, to the end.
            Self::Inode { ino, drops: Drops::Attributes } => notifier.inval_inode(ino, -1, 0),
            Self::Inode { ino, drops: Drops::Pages } => notifier.inval_inode(ino, 0, 0),
            // Stores a byte of a page; the length of the file grows with it.
            Self::End { ino, offset, byte } => notifier.store(ino, offset, &[byte]),
            Self::Name { parent, name } => notifier.inval_entry(parent, &name),
        };
        if let Err(error) = result {
            // ENOTEMPTY: a directory that is still in use there; its TTL ends by itself.
            tracing::debug!(%error, "the kernel did not drop");
        }
    }
}
