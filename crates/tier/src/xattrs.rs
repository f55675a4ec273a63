//! Extended attributes of files and directories that a tier keeps: those that programs give (`user.`), and access control
//! lists, which the kernel shows as attributes (`system.posix_acl_access`, `system.posix_acl_default`).
//!
//! All others (`security.`, `trusted.`) say what one machine thinks of a file; a tier shows and keeps none of them.
//! What a list says is in [`hayase_layout::acl`].

use std::collections::BTreeMap;

use hayase_layout::acl::is_acl;

use crate::{Action, TierError};

/// How the names begin that programs give.
pub const USER_XATTR_PREFIX: &[u8] = b"user.";

/// Values by name; the names have their prefix.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// New values by name; `None` removes.
pub type XattrChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Makes `changes` in `xattrs`; what is to go and is not there is gone.
pub fn change_xattrs(xattrs: &mut Xattrs, changes: &XattrChanges) {
    for (name, value) in changes {
        match value {
            Some(value) => drop(xattrs.insert(name.clone(), value.clone())),
            None => drop(xattrs.remove(name)),
        }
    }
}

pub(crate) fn is_user(name: &[u8]) -> bool {
    name.len() > USER_XATTR_PREFIX.len() && name.starts_with(USER_XATTR_PREFIX)
}

/// Which attributes a tier keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Those of programs.
    pub(crate) xattrs: bool,
    /// Access control lists.
    pub(crate) acls: bool,
}

impl Kept {
    /// Those of programs only.
    pub(crate) const OF_PROGRAMS: Self = Self { xattrs: true, acls: false };

    pub(crate) fn has(self, name: &[u8]) -> bool {
        self.xattrs && is_user(name) || self.acls && is_acl(name)
    }

    /// Other names are not to be had.
    pub(crate) fn require<'a>(
        self,
        mut names: impl Iterator<Item = &'a Vec<u8>>,
        path: impl FnOnce() -> String,
    ) -> Result<(), TierError> {
        match names.all(|name| self.has(name)) {
            true => Ok(()),
            false => Err(TierError::Unsupported { action: Action::SetXattrs, path: path() }),
        }
    }

    /// Nothing is to be had where it keeps none at all.
    pub(crate) fn require_any(
        self,
        action: Action,
        path: impl FnOnce() -> String,
    ) -> Result<(), TierError> {
        match self.xattrs || self.acls {
            true => Ok(()),
            false => Err(TierError::Unsupported { action, path: path() }),
        }
    }
}
