//! Extended attributes that programs give to files and directories: those whose names begin with `user.`.
//!
//! All others (`security.`, `system.`, `trusted.`) say what one machine thinks of a file; a tier shows and keeps
//! none of them.

use std::collections::BTreeMap;

use crate::{Action, TierError};

/// How the names begin.
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

/// Other names are not to be had.
pub(crate) fn require_user<'a>(
    mut names: impl Iterator<Item = &'a Vec<u8>>,
    path: impl FnOnce() -> String,
) -> Result<(), TierError> {
    match names.all(|name| is_user(name)) {
        true => Ok(()),
        false => Err(TierError::Unsupported { action: Action::SetXattrs, path: path() }),
    }
}
