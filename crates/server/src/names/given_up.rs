//! Names that are never bound any more.
//!
//! A home that finds an inode or a link without the name it was made for (`recovery`) may be too early:
//! the `Insert` may be on its way, held up by a silent link or by a name that another operation has in
//! its hands. So the home does not look, it decides: the shard says that the name was bound, or
//! remembers, durably, that this operation binds nothing. Whoever still carries it out is told so, and
//! begins anew.

use std::cell::RefCell;
use std::collections::HashSet;

use hayase_layout::InodeId;
use hayase_store::namespace::NamespaceError;
use hayase_store::{Namespace, ops};
use hayase_wire::message::{PeerReply, Place, Refused};

use super::Names;
use crate::convert::meta_refused;
use crate::refusals::Answer;
use crate::refusals::libc_errno;

/// Operations whose names this shard binds no more. They stay until the job ends: there are as many as
/// crashes came between two steps of a create or a link.
pub(crate) struct GivenUp {
    ops: RefCell<HashSet<u64>>,
}

impl GivenUp {
    /// What the store holds from before a restart.
    pub(crate) fn load(names: &Namespace) -> Result<Self, NamespaceError> {
        let ops = ops::given_up(&names.begin())?;
        Ok(Self { ops: RefCell::new(ops.into_iter().collect()) })
    }

    /// For a server that is going to bind names instead of this one.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.ops.borrow().iter().copied().collect()
    }

    /// Recorded in a transaction that is about to be committed: one too many refuses an insert, which is tried again.
    pub(crate) fn taken_over(&self, ops: &[u64]) {
        self.ops.borrow_mut().extend(ops);
    }

    /// Cost: one look into a set that is nearly always empty.
    pub(crate) fn contains(&self, op: u64) -> bool {
        self.ops.borrow().contains(&op)
    }
}

/// What whoever carries such an operation out tells its process, when it can not begin anew.
pub(crate) fn given_up() -> Refused {
    let why = "the name was not bound in time, and the operation undone: try again";
    Refused::because(libc_errno::EIO, why)
}

impl Names {
    /// As the shard: whether operation `op` has bound this name to `ino`. Without an answer no, it
    /// never will from here on.
    pub(crate) async fn give_up_insert(&self, place: Place, ino: InodeId, op: u64) -> Answer {
        let _held = self.hold_name(&place).await?;
        let is_bound = self.meta.bound(&place)?.is_some_and(|found| found.ino == ino);
        if is_bound || self.meta.intents.is_moved(&place, ino) {
            return Ok(PeerReply::Outcome(Some(true)));
        }
        if !self.given_up.contains(op) {
            let mut txn = self.meta.begin();
            ops::give_up(&mut txn, op);
            txn.commit().map_err(meta_refused)?;
            self.meta.durable().await?;
            self.given_up.ops.borrow_mut().insert(op);
        }
        Ok(PeerReply::Outcome(Some(false)))
    }
}
