//! Inodes that the kernel knows: one descriptor and at most one registration each.
//!
//! Invariant: an inode is here while the kernel has looked it up more often than it forgot it; its
//! `O_PATH` descriptor keeps its number from being given to another file meanwhile.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fuser::BackingId;

/// One inode.
#[derive(Debug)]
pub(crate) struct Inode {
    /// `O_PATH`.
    pub(crate) descriptor: Arc<OwnedFd>,
    lookups: u64,
    backing: Weak<BackingId>,
}

#[derive(Debug, Default)]
struct State {
    inodes: HashMap<u64, Inode>,
    open: HashMap<u64, Arc<BackingId>>,
    handles: u64,
}

/// All of them; the root has number 1 and is never forgotten.
#[derive(Debug)]
pub(crate) struct Inodes(Mutex<State>);

impl Inodes {
    /// Only the root.
    pub(crate) fn new(root: OwnedFd) -> Self {
        let root = Inode { descriptor: Arc::new(root), lookups: u64::MAX, backing: Weak::new() };
        let state = State { inodes: HashMap::from([(1, root)]), ..State::default() };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of an inode that the kernel knows.
    pub(crate) fn descriptor(&self, number: u64) -> Option<Arc<OwnedFd>> {
        Some(Arc::clone(&self.state().inodes.get(&number)?.descriptor))
    }

    /// The kernel has looked it up once more.
    pub(crate) fn remember(&self, number: u64, descriptor: OwnedFd) {
        let mut state = self.state();
        let inode = state.inodes.entry(number).or_insert_with(|| Inode {
            descriptor: Arc::new(descriptor),
            lookups: 0,
            backing: Weak::new(),
        });
        inode.lookups = inode.lookups.saturating_add(1);
    }

    /// The kernel forgets `lookups` of them.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut state = self.state();
        let Some(inode) = state.inodes.get_mut(&number).filter(|_| number != 1) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 {
            state.inodes.remove(&number);
        }
    }

    /// A new handle of an inode, and its registration; `register` makes one if there is none.
    pub(crate) fn open(
        &self,
        number: u64,
        register: impl FnOnce(&OwnedFd) -> std::io::Result<BackingId>,
    ) -> std::io::Result<(u64, Arc<BackingId>)> {
        let mut state = self.state();
        let gone = || std::io::Error::from(rustix::io::Errno::STALE);
        let inode = state.inodes.get_mut(&number).ok_or_else(gone)?;
        let backing = match inode.backing.upgrade() {
            Some(backing) => backing,
            None => Arc::new(register(&inode.descriptor)?),
        };
        inode.backing = Arc::downgrade(&backing);
        state.handles += 1;
        let handle = state.handles;
        state.open.insert(handle, Arc::clone(&backing));
        Ok((handle, backing))
    }

    /// A handle is closed.
    pub(crate) fn release(&self, handle: u64) {
        let backing = self.state().open.remove(&handle);
        // Perhaps the last one: the registration ends outside of the lock.
        drop(backing);
    }
}
