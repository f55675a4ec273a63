//! Intents: the log of operations over several servers that this one takes part in (two-phase commit).
//!
//! Here: reading and writing the log. Not here: what each record means and who finishes it (`recovery`).

use std::cell::Cell;
use std::sync::Arc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::namespace::{Intent, IntentKind};
use hayase_store::{Namespace, ops};
use hayase_wire::message::{Binding, OnceId, Place, Refused};

use super::entries::record;
use crate::convert::meta_refused;

/// See the module.
pub(crate) struct Intents {
    me: ServerId,
    incarnation: u64,
    store: Arc<Namespace>,
    operations: Cell<u64>,
}

/// The intent of a directory's removal.
pub(crate) fn removal_of_directory(
    place: &Place,
    found: Binding,
    once: Option<OnceId>,
) -> IntentKind {
    let once = once.map(|once| (once.process, once.slot, once.number));
    let (parent, name) = (place.parent, place.name.clone());
    IntentKind::RemoveDirectory { entry: record(found), parent, name, once }
}

impl Intents {
    pub(super) fn of(me: ServerId, incarnation: u64, store: &Arc<Namespace>) -> Self {
        Self { me, incarnation, store: Arc::clone(store), operations: Cell::new(0) }
    }

    /// Unlike any other in the job, and unlike any inode: server, incarnation, count.
    pub(crate) fn operation_id(&self) -> u64 {
        let count = self.operations.get() + 1;
        self.operations.set(count);
        u64::from(self.me.0) << 48 | 1 << 47 | (self.incarnation & 0x7fff) << 32 | count
    }

    /// All that are here.
    pub(crate) fn all(&self) -> Vec<Intent> {
        ops::intents(&self.store.begin()).unwrap_or_else(|error| {
            tracing::error!(%error, "unfinished operations could not be read");
            Vec::new()
        })
    }

    /// Records what is about to be done.
    pub(crate) fn put(&self, id: u64, what: IntentKind) -> Result<(), Refused> {
        let mut txn = self.store.begin();
        ops::put_intent(&mut txn, &Intent { id, what }).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)
    }

    /// Operations that counted this name and whose end is not known.
    pub(crate) fn links_under_way(&self, ino: InodeId, place: &Place) -> Vec<u64> {
        let is_it = |what: &IntentKind| {
            matches!(what, IntentKind::Link { ino: of, parent, name }
                if *of == ino && *parent == place.parent && *name == place.name)
        };
        let intents = self.all().into_iter();
        intents.filter(|intent| is_it(&intent.what)).map(|intent| intent.id).collect()
    }

    /// Any: whether an operation that is not finished here speaks of this file, or only a rename.
    pub(crate) fn is_spoken_of(&self, ino: InodeId, by_renames: bool) -> bool {
        let is_meant = |what: &IntentKind| {
            let is_rename = matches!(
                what,
                IntentKind::Prepared { .. }
                    | IntentKind::Rename { .. }
                    | IntentKind::Renamed { .. }
            );
            (is_rename || !by_renames) && what.speaks_of(ino)
        };
        self.all().iter().any(|intent| is_meant(&intent.what))
    }

    /// Whether a rename has moved `ino` away from this name and may not have told it.
    pub(crate) fn is_moved(&self, place: &Place, ino: InodeId) -> bool {
        self.all().into_iter().any(|Intent { what, .. }| match what {
            IntentKind::Rename { entry, from, .. } | IntentKind::Renamed { entry, from, .. } => {
                entry.ino == ino && from.0 == place.parent && from.1 == place.name
            }
            _ => false,
        })
    }

    /// Whether operations have left something to be done at names of it. `lasting`: only such that take a second or
    /// longer, as a rename does, for which nobody is to wait.
    pub(crate) fn at(&self, dir: InodeId, lasting: bool) -> bool {
        let is_short = |what: &IntentKind| matches!(what, IntentKind::Remove { .. });
        let is_left = |Intent { what, .. }: &Intent| {
            what.is_at_a_name_in(dir) && !(lasting && is_short(what))
        };
        self.all().iter().any(is_left)
    }
}
