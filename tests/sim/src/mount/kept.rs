//! What a mount keeps and what recalls look at: pages, opens, locks, wishes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, Callback, CallbackReply, HeldLock, HeldOpen, Lock, OpenKind, Opening, StillOpen,
};
use tokio::sync::oneshot;

use super::gathering::Gathering;
use super::{EIO, Failure};

/// What recalls look at.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) files: RefCell<BTreeMap<InodeId, File>>,
    /// Opens that were asked for, the last one's number.
    pub(super) asked: Cell<u64>,
    /// Waits for locks, by ticket.
    pub(super) wishes: RefCell<BTreeMap<u64, Wish>>,
    /// What is held, by file and owner.
    pub(super) locks: RefCell<BTreeMap<(InodeId, u64), Lock>>,
    /// Files of which something could not be given back: EIO until they are closed.
    lost: RefCell<BTreeSet<InodeId>>,
    last_ticket: Cell<u64>,
    pub(super) gathering: Gathering,
}

/// Somebody who waits for a lock.
pub(super) struct Wish {
    pub(super) ino: InodeId,
    pub(super) lock: Lock,
    pub(super) told: oneshot::Sender<Result<(), Failure>>,
}

/// What is known of one inode.
#[derive(Default)]
pub(super) struct File {
    pub(super) readers: u32,
    pub(super) writers: u32,
    pub(super) is_striped: bool,
    /// Being asked for.
    pub(super) coming: Access,
    /// Values at offsets; `None` without a grant.
    pub(super) pages: Option<HashMap<u64, u64>>,
    /// Recalls and own writers so far: an answer asked for before one is not kept.
    pub(super) recalls: u64,
}

impl File {
    pub(super) fn open(&self) -> Access {
        Access { read: self.readers > 0, write: self.writers > 0 }
    }

    fn access(&self) -> Access {
        let open = self.open();
        Access { read: open.read || self.coming.read, write: open.write || self.coming.write }
    }
}

impl Kept {
    pub(super) fn new(gathering: Gathering) -> Self {
        Self { gathering, ..Self::default() }
    }

    pub(super) fn answer(&self, callback: &Callback, gave_back: bool) -> CallbackReply {
        match *callback {
            Callback::Recall { ino, bits } => {
                let mut files = self.files.borrow_mut();
                let file = files.entry(ino).or_default();
                if bits.cache {
                    file.pages = None;
                }
                file.recalls += 1;
                let still_open = StillOpen { access: file.access(), as_of: self.asked.get() };
                CallbackReply::Recalled { still_open, gave_back }
            }
            Callback::InvalName { .. } => CallbackReply::Forgotten,
            Callback::LockGranted { ticket } => {
                self.granted(ticket);
                CallbackReply::Told
            }
            Callback::HomeLost { home } => {
                self.forget(|ino| ino.home() == home);
                CallbackReply::Told
            }
            Callback::LocksAt { home } => {
                let (_, locks) = self.held(|ino| ino.home() == home);
                CallbackReply::Holds { locks }
            }
            Callback::HomeDead { home } => {
                self.end_wishes(|ino| ino.home() == home);
                CallbackReply::Told
            }
            Callback::Lost { ref inodes } => {
                self.not_given_back(inodes);
                CallbackReply::Told
            }
            Callback::Ping => CallbackReply::Pong,
        }
    }

    /// Keeps no pages of these, also none that are on their way, and gathers no more than it has.
    pub(super) fn forget(&self, is_meant: impl Fn(InodeId) -> bool) {
        self.gathering.is_void(&is_meant);
        for (ino, file) in self.files.borrow_mut().iter_mut() {
            if is_meant(*ino) {
                file.pages = None;
                file.recalls += 1;
            }
        }
    }

    pub(super) fn not_given_back(&self, inodes: &[InodeId]) {
        self.lost.borrow_mut().extend(inodes);
    }

    pub(super) fn is_lost(&self, ino: InodeId) -> bool {
        self.lost.borrow().contains(&ino)
    }

    pub(super) fn check(&self, ino: InodeId) -> Result<(), Failure> {
        if self.is_lost(ino) { Err(Failure::Refused(EIO)) } else { Ok(()) }
    }

    pub(super) fn closed(&self, ino: InodeId) {
        self.lost.borrow_mut().remove(&ino);
    }

    /// Opens and locks, as a server that was started anew is told them.
    pub(super) fn held(
        &self,
        is_meant: impl Fn(InodeId) -> bool,
    ) -> (Vec<HeldOpen>, Vec<HeldLock>) {
        let number = self.asked.get();
        let open = |access| Opening { access, kind: OpenKind::Remote, number };
        let files = self.files.borrow();
        let opens = files
            .iter()
            .filter(|(ino, file)| is_meant(**ino) && file.open() != Access::default())
            .map(|(ino, file)| HeldOpen { ino: *ino, open: open(file.open()) });
        let process = 0; // The server knows who tells it.
        let locks = self.locks.borrow();
        let held = locks.iter().map(|((ino, _), lock)| HeldLock {
            ino: *ino,
            process,
            lock: *lock,
            ticket: None,
        });
        let wishes = self.wishes.borrow();
        let waits = wishes.iter().map(|(ticket, wish)| {
            let Wish { ino, lock, .. } = wish;
            HeldLock { ino: *ino, process, lock: *lock, ticket: Some(*ticket) }
        });
        (opens.collect(), held.chain(waits).filter(|held| is_meant(held.ino)).collect())
    }

    /// The ticket is called; one whose asker gave up is not here any more.
    pub(super) fn granted(&self, ticket: u64) {
        let Some(wish) = self.wishes.borrow_mut().remove(&ticket) else { return };
        self.locks.borrow_mut().insert((wish.ino, wish.lock.owner), wish.lock);
        let _waits = wish.told.send(Ok(()));
    }

    pub(super) fn end_wishes(&self, is_meant: impl Fn(InodeId) -> bool) {
        let mut wishes = self.wishes.borrow_mut();
        let meant: Vec<_> =
            wishes.iter().filter(|(_, wish)| is_meant(wish.ino)).map(|(at, _)| *at).collect();
        for wish in meant.into_iter().filter_map(|ticket| wishes.remove(&ticket)) {
            let _gave_up = wish.told.send(Err(Failure::Refused(EIO)));
        }
    }

    pub(super) fn of<T>(&self, ino: InodeId, look: impl FnOnce(&mut File) -> T) -> T {
        look(self.files.borrow_mut().entry(ino).or_default())
    }

    pub(super) fn number(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }

    pub(super) fn ticket(&self) -> u64 {
        self.last_ticket.set(self.last_ticket.get() + 1);
        self.last_ticket.get()
    }
}
