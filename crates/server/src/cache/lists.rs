//! Access control lists and the tier: whether it keeps any, and what it gets of a file or directory that has some.
//!
//! Where it keeps none they stay on the nodes, and the mode goes alone: it allows nobody more than the list did.
//! Not here: the ways of lists to the tier and from there ([`super::xattrs`]), what a list says ([`hayase_layout::acl`]).

use std::cell::Cell;

use hayase_layout::acl::{ACCESS_NAME, DEFAULT_NAME};
use hayase_layout::{Acl, Acls};
use hayase_store::{Inode, LedgerRecord};
use hayase_tier::{Tier, XattrChanges};

/// Rights that a tier keeps.
const TIER_MODE: u32 = 0o777;

/// What the tier in front of which this server is does with lists.
pub(crate) struct Lists {
    /// It keeps them.
    pub(super) are_kept: bool,
    tier: String,
    /// The log says that they stay on the nodes.
    is_logged: Cell<bool>,
}

impl Lists {
    pub(super) fn of(tier: &dyn Tier) -> Self {
        let are_kept = tier.capabilities().acls;
        Self { are_kept, tier: tier.describe(), is_logged: Cell::new(false) }
    }

    /// Of an inode that was taken from the tier: lists that nobody has asked for yet.
    pub(super) fn unknown(&self) -> Option<Box<Acls>> {
        self.are_kept.then(Acls::to_be_asked)
    }

    /// The mode that the tier is to show of what has this mode and these lists.
    pub(super) fn mode(&self, mode: u32, acls: Option<&Acls>) -> u32 {
        let access = acls.and_then(|acls| acls.access.as_ref());
        let alone = access.filter(|_| !self.are_kept).map(Acl::mode_alone);
        alone.unwrap_or(mode & TIER_MODE)
    }

    /// The record of a file that the tier does not have, with what it is to get there.
    pub(super) fn record(&self, inode: &Inode, path: Vec<u8>) -> LedgerRecord {
        let acls = inode.acls.as_deref();
        let mut record = LedgerRecord::new(inode.ino, path, self.mode(inode.mode, acls));
        record.layout = inode.layout.clone();
        record.xattrs.changes = self.of_new(acls);
        record
    }

    /// What the tier is to be given with something new that has these lists.
    pub(super) fn of_new(&self, acls: Option<&Acls>) -> XattrChanges {
        if !self.are_kept {
            self.stay_here(acls);
            return XattrChanges::new();
        }
        let list = |name: &[u8]| acls.and_then(|acls| acls.get(name)).map(Acl::to_value);
        let lists = [ACCESS_NAME, DEFAULT_NAME].map(|name| (name.to_vec(), list(name)));
        lists.into_iter().filter(|(_, list)| list.is_some()).collect()
    }

    /// Says so, once.
    pub(super) fn stay_here(&self, acls: Option<&Acls>) {
        if acls.is_some() && !self.is_logged.replace(true) {
            tracing::warn!(
                tier = self.tier,
                "the tier keeps no access control lists: they stay on the nodes, and only modes go there"
            );
        }
    }
}
