//! Which closes the kernel tells, and the locks behind those that it does not.
//!
//! A process's locks on a file end when it closes any descriptor of it. The kernel tells of closes
//! (FLUSH), one more round trip for each, unless the file was opened with `FOPEN_NOFLUSH`. So files
//! are opened with that until the first lock on this node; from then on closes are told.
//! Locks through a file that was opened before end with that open file, and when their process is
//! seen to have fewer descriptors of the inode than it had: looked at each second, while there are any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{FileHandle, FopenFlags, LockOwner};
use hayase_layout::InodeId;
use hayase_wire::message::Access;

use crate::handles::{file_handle, is_untold};

/// Processes with such locks are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// Somebody who holds locks through a file whose closes are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) ino: InodeId,
    pub(crate) owner: LockOwner,
    pid: u32,
    /// Of the inode, when last looked.
    descriptors: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Closes {
    files: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody has locked something.
    told: bool,
    holders: HashMap<u64, Vec<Holder>>,
    watched: bool,
    stopped: bool,
}

impl Closes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a file that is opened now, and what the kernel is told of its closes.
    pub(crate) fn open(&self, access: Access) -> (FileHandle, FopenFlags) {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        match self.lock().told {
            true => (file_handle(number, access, false), FopenFlags::empty()),
            false => (file_handle(number, access, true), FopenFlags::FOPEN_NOFLUSH),
        }
    }

    /// A lock is asked for: from now on closes are told. `released` is called for whoever is seen
    /// later to have closed a descriptor.
    pub(crate) fn locks(
        self: &Arc<Self>,
        ino: InodeId,
        handle: FileHandle,
        (owner, pid): (LockOwner, u32),
        released: impl Fn(&Holder) + Send + 'static,
    ) {
        let mut state = self.lock();
        state.told = true;
        if !is_untold(handle) {
            return;
        }
        let holders = state.holders.entry(handle.0).or_default();
        if holders.iter().any(|holder| holder.owner == owner) {
            return;
        }
        let descriptors = descriptors_of(pid, ino);
        holders.push(Holder { ino, owner, pid, descriptors });
        if !std::mem::replace(&mut state.watched, true) {
            let this = Arc::clone(self);
            let builder = std::thread::Builder::new().name("hayase-closes".into());
            if let Err(error) = builder.spawn(move || this.watch(&released)) {
                tracing::error!(%error, "start a thread that looks for closes");
            }
        }
    }

    /// Who held locks through a file that is closed for good.
    pub(crate) fn released(&self, handle: FileHandle) -> Vec<Holder> {
        match is_untold(handle) {
            true => self.lock().holders.remove(&handle.0).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Until nobody is left to be looked at.
    fn watch(&self, released: &dyn Fn(&Holder)) {
        loop {
            let state = self.lock();
            let state = self.changed.wait_timeout_while(state, LOOK, |state| !state.stopped);
            let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
            if state.stopped || state.holders.is_empty() {
                state.watched = false;
                return;
            }
            let closed = take_closed(&mut state.holders);
            drop(state);
            closed.iter().for_each(released);
        }
    }
}

/// Those who have closed a descriptor since they were looked at last.
fn take_closed(holders: &mut HashMap<u64, Vec<Holder>>) -> Vec<Holder> {
    let mut closed = Vec::new();
    for holders in holders.values_mut() {
        holders.retain_mut(|holder| {
            let now = descriptors_of(holder.pid, holder.ino);
            let fewer = now < holder.descriptors;
            holder.descriptors = now;
            if fewer {
                closed.push(*holder);
            }
            !fewer
        });
    }
    holders.retain(|_, holders| !holders.is_empty());
    closed
}

/// How many descriptors of an inode a process has; 0 of one that is gone. Asks nothing of any file
/// system but `/proc`. Source: proc_pid_fdinfo(5).
fn descriptors_of(pid: u32, ino: InodeId) -> usize {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let is_of = |info: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix("ino:"));
        line.and_then(|number| number.trim().parse().ok()) == Some(ino.0)
    };
    entries
        .flatten()
        .filter(|entry| std::fs::read_to_string(entry.path()).is_ok_and(|info| is_of(&info)))
        .count()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;

    use super::*;

    const READ: Access = Access { read: true, write: false };

    fn holder(closes: &Arc<Closes>, ino: InodeId) -> (FileHandle, mpsc::Receiver<Holder>) {
        let (handle, flags) = closes.open(READ);
        assert_eq!(flags, FopenFlags::FOPEN_NOFLUSH);
        let (send, receive) = mpsc::channel();
        let me = (LockOwner(7), std::process::id());
        closes.locks(ino, handle, me, move |holder| send.send(*holder).unwrap());
        (handle, receive)
    }

    #[test]
    fn closes_are_told_from_the_first_lock_on() {
        let closes = Arc::new(Closes::default());
        let (handle, _) = holder(&closes, InodeId(1));
        let (later, flags) = closes.open(READ);
        assert_eq!(flags, FopenFlags::empty());
        assert_ne!(handle, later);
        assert!(closes.released(later).is_empty());
        let released = closes.released(handle);
        assert!(matches!(released[..], [Holder { owner: LockOwner(7), .. }]));
        assert!(closes.released(handle).is_empty(), "once");
        closes.stop();
    }

    #[test]
    fn a_process_that_closes_a_descriptor_is_seen() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ino = InodeId(file.as_file().metadata().unwrap().ino());
        let other = file.reopen().unwrap();
        let closes = Arc::new(Closes::default());
        let (handle, seen) = holder(&closes, ino);
        assert!(seen.recv_timeout(LOOK + LOOK / 2).is_err(), "both are open");
        drop(other);
        let holder = seen.recv_timeout(10 * LOOK).unwrap();
        assert_eq!((holder.ino, holder.owner), (ino, LockOwner(7)));
        assert!(closes.released(handle).is_empty());
        closes.stop();
    }
}
