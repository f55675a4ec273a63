//! What the server asks of this node.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::{Callback, CallbackReply, Grants, HeldLock, HeldOpen, Name, StillOpen};

use super::gathering::Gatherer;
use super::known::Known;
use super::locks::Locks;
use super::lost::LostFiles;
use super::opens::{Opens, Recalled};
use crate::limits::{DROP_WAIT, NAME_WAIT};
use crate::link::Callbacks;
use crate::made_names::MadeNames;
use crate::open_file::Class;
use crate::volume::Drops;

/// Answers the server.
pub(super) struct Recalls {
    pub(super) known: Arc<Known>,
    pub(super) made: Arc<MadeNames>,
    pub(super) lost: Arc<LostFiles>,
    pub(super) opens: Arc<Opens>,
    pub(super) gatherer: Arc<Gatherer>,
    pub(super) locks: Arc<Locks>,
}

impl Callbacks for Recalls {
    fn answer(&self, callback: Callback) -> CallbackReply {
        match callback {
            Callback::Recall { ino, bits } => {
                // Who takes back less goes on beside what is gathered.
                let gave_back = !bits.cache || self.gatherer.hand_on_recalled(ino);
                CallbackReply::Recalled { still_open: self.recall(ino, bits), gave_back }
            }
            Callback::InvalName { parent, name, busy } => {
                if let Some(kernel) = self.known.kernel() {
                    let wait = if busy { Duration::ZERO } else { NAME_WAIT };
                    kernel.forget_name(parent, &name, wait);
                }
                CallbackReply::Forgotten
            }
            Callback::LockGranted { ticket } => {
                self.locks.granted(ticket);
                CallbackReply::Told
            }
            Callback::HomeLost { home } => {
                self.drop_all(|ino| ino.home() == home);
                CallbackReply::Told
            }
            Callback::LocksAt { home } => {
                let (_, locks) = self.held_where(|ino| ino.home() == home);
                CallbackReply::Holds { locks }
            }
            Callback::HomeDead { home } => {
                self.locks.end_waits(|ino| ino.home() == home);
                CallbackReply::Told
            }
            Callback::Lost { inodes } => {
                self.not_given_back(&inodes);
                CallbackReply::Told
            }
            Callback::Ping => CallbackReply::Pong,
        }
    }

    fn lost(&self) {
        self.drop_all(|_| true);
    }

    fn held(&self) -> (Vec<HeldOpen>, Vec<HeldLock>) {
        self.held_where(|_| true)
    }

    fn not_given_back(&self, inodes: &[InodeId]) {
        for ino in inodes {
            tracing::warn!(%ino, "an open or a lock was lost: this file answers EIO until it is closed");
        }
        self.lost.add(inodes);
    }
}

impl Recalls {
    /// Nothing that was granted of these inodes is used any more when this returns, but pages of files that are written
    /// here, if the kernel has them locked for longer than [`DROP_WAIT`].
    fn drop_all(&self, is_meant: impl Fn(InodeId) -> bool) {
        let (mut known, mut written) = (Vec::new(), Vec::new());
        self.known.table().for_each(|shard| {
            self.known.stamp_all(shard);
            shard.attributes.retain(|ino| !is_meant(ino));
            for (ino, node) in shard.nodes.iter_mut().filter(|(ino, _)| is_meant(**ino)) {
                node.lose_cache();
                if let Some(gathering) = &node.gathering {
                    gathering.make_void();
                }
                let (_, writers) = node.open.handles();
                match drops(node.open.class(), true) {
                    Drops::Pages if writers > 0 => written.push(*ino),
                    drops => known.push((*ino, drops)),
                }
            }
        });
        // After the stamps: what was asked before them begins nothing any more.
        self.made.end_all();
        for (ino, drops) in known {
            self.known.invalidate(ino, drops);
        }
        self.drop_written(written);
    }

    /// Pages of files that are written here, whose kernel asks the home before it reads them when this returns.
    fn drop_written(&self, written: Vec<InodeId>) {
        let Some(kernel) = self.known.kernel().cloned().filter(|_| !written.is_empty()) else {
            return;
        };
        written.iter().for_each(|ino| kernel.invalidate(*ino, Drops::Attributes));
        let (dropped, all) = channel();
        let drop_all = move || {
            written.iter().for_each(|ino| kernel.invalidate(*ino, Drops::Pages));
            // Nobody listens who has waited for too long.
            let _late = dropped.send(());
        };
        let drop_all = Arc::new(drop_all);
        let there = Arc::clone(&drop_all);
        let begun = thread::Builder::new().name("hayase-drop".to_owned()).spawn(move || there());
        if let Err(error) = begun {
            tracing::warn!(%error, "start a thread that drops pages");
            drop_all();
        }
        if all.recv_timeout(DROP_WAIT).is_err() {
            tracing::warn!("what was cached of files that are written here is still there");
        }
    }

    /// What this process holds of these inodes: opens that their homes count, and locks.
    fn held_where(&self, is_meant: impl Fn(InodeId) -> bool) -> (Vec<HeldOpen>, Vec<HeldLock>) {
        let opens = self.opens.held_where(&is_meant);
        let mut locks = self.locks.held();
        locks.retain(|held| is_meant(held.ino));
        (opens, locks)
    }

    /// Nothing is granted any more, then the kernel drops what it has, then this returns.
    fn recall(&self, ino: InodeId, bits: Grants) -> StillOpen {
        let Recalled { access, as_of, class, names } = self.opens.recall(ino, bits);
        self.known.invalidate(ino, drops(class, bits.cache));
        self.forget_names(ino, &names);
        StillOpen { access, as_of }
    }

    /// Names of a directory that the kernel was told from here: nobody else tells it of their end.
    fn forget_names(&self, dir: InodeId, names: &[Name]) {
        let (Some(kernel), Some((last, others))) = (self.known.kernel(), names.split_last()) else {
            return;
        };
        for name in others {
            kernel.forget_name(dir, name, Duration::ZERO);
        }
        // One after the other: with the last one all are forgotten.
        kernel.forget_name(dir, last, NAME_WAIT);
    }
}

/// A file of class L has no pages of its own in the mount.
fn drops(class: Option<Class>, pages: bool) -> Drops {
    if pages && class != Some(Class::Local) { Drops::Pages } else { Drops::Attributes }
}
