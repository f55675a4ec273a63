//! Parts that the kernel reads and writes by itself: one registration per inode.
//!
//! Invariants: an inode has at most one registration, shared by its opens; it ends when the volume
//! says that no open of class L is left, never while an answer that names it may be on its way.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fuser::BackingId;
use hayase_layout::InodeId;

use crate::inodes::shard_of;
use crate::limits::SHARDS;

/// Whether files whose part is here are read and written by the kernel, and if not why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PassthroughState {
    /// They are.
    Used,
    /// Registering needs CAP_SYS_ADMIN in the first user namespace.
    NoPrivilege,
    /// The kernel (or the profile) has no passthrough.
    NotOffered,
    /// The kernel refused a part for another reason (its file system is stacked itself).
    Refused,
}

impl PassthroughState {
    /// For `status` and `explain`.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::NoPrivilege => "off: registering a file needs CAP_SYS_ADMIN",
            Self::NotOffered => "off: the kernel (or the kernel profile) does not offer it",
            Self::Refused => "off: the kernel refused a part",
        }
    }

    fn from_u8(state: u8) -> Self {
        match state {
            0 => Self::Used,
            1 => Self::NoPrivilege,
            2 => Self::NotOffered,
            _ => Self::Refused,
        }
    }

    /// What a failed registration means for all later ones.
    pub(crate) fn of_error(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege,
            Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Self::NotOffered,
            _ => Self::Refused,
        }
    }
}

type Shard = Mutex<HashMap<InodeId, Arc<BackingId>>>;

type Listener = Box<dyn Fn(PassthroughState) + Send + Sync>;

/// The registrations of a mount.
pub(crate) struct Backings {
    shards: Box<[Shard]>,
    state: AtomicU8,
    /// Is called with each later state of a mount that serves.
    listener: OnceLock<Listener>,
}

impl std::fmt::Debug for Backings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backings").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Backings {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            state: AtomicU8::new(PassthroughState::NotOffered as u8),
            listener: OnceLock::new(),
        }
    }

    /// Calls `listener` when the state is another than `known`, now or later: before the open that changed it is answered.
    /// Only the first listener counts.
    pub(crate) fn listen(&self, known: PassthroughState, listener: Listener) {
        let _ = self.listener.set(listener);
        let now = self.state();
        if now != known {
            self.report(now);
        }
    }

    fn report(&self, state: PassthroughState) {
        if let Some(listener) = self.listener.get() {
            listener(state);
        }
    }

    pub(crate) fn state(&self) -> PassthroughState {
        PassthroughState::from_u8(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn set_state(&self, state: PassthroughState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// The registration of an inode, made with `register` if there is none. `None`: serve it by
    /// messages, this inode and all that come after it.
    pub(crate) fn get(
        &self,
        ino: InodeId,
        part: Option<&OwnedFd>,
        register: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut shard = self.shards[shard_of(ino)].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shard.get(&ino) {
            return Some(Arc::clone(known));
        }
        if self.state() != PassthroughState::Used {
            return None;
        }
        match register(part?.as_fd()) {
            Ok(id) => {
                let id = Arc::new(id);
                shard.insert(ino, Arc::clone(&id));
                Some(id)
            }
            Err(error) => {
                tracing::warn!(%ino, %error, "no passthrough from now on: plain FUSE");
                let state = PassthroughState::of_error(&error);
                self.set_state(state);
                self.report(state);
                None
            }
        }
    }

    /// No open is left that could use it.
    pub(crate) fn release(&self, ino: InodeId) {
        let mut shard = self.shards[shard_of(ino)].lock().unwrap_or_else(PoisonError::into_inner);
        shard.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn refused(_: BorrowedFd<'_>) -> std::io::Result<BackingId> {
        Err(std::io::Error::from_raw_os_error(libc::ELOOP))
    }

    fn used() -> (Backings, OwnedFd) {
        let backings = Backings::new();
        backings.set_state(PassthroughState::Used);
        (backings, std::fs::File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn the_first_refused_part_is_reported_and_no_other_is_tried() {
        let (backings, part) = used();
        let (reported, reports) = channel();
        let listener = Box::new(move |state| reported.send(state).unwrap());
        backings.listen(PassthroughState::Used, listener);
        assert!(reports.try_recv().is_err(), "nothing has changed yet");
        let ino = |number| InodeId::new(hayase_layout::ServerId(0), number).unwrap();
        assert!(backings.get(ino(5), Some(&part), refused).is_none());
        assert_eq!(reports.try_recv(), Ok(PassthroughState::Refused));
        assert!(backings.get(ino(6), Some(&part), |_| panic!("it is off")).is_none());
        assert!(reports.try_recv().is_err(), "it is off already");
    }

    #[test]
    fn what_changed_before_anybody_listened_is_reported() {
        let (backings, part) = used();
        let ino = InodeId::new(hayase_layout::ServerId(0), 5).unwrap();
        assert!(backings.get(ino, Some(&part), refused).is_none());
        let (reported, reports) = channel();
        let listener = Box::new(move |state| reported.send(state).unwrap());
        backings.listen(PassthroughState::Used, listener);
        assert_eq!(reports.try_recv(), Ok(PassthroughState::Refused));
    }
}
