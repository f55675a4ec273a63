//! Extended attributes: `user.` for users, `gfarm.` for Gfarm's own.

use std::ffi::CString;

use super::Gfarm;
use super::error::code;
use crate::{Action, Key, TierError};

impl Gfarm {
    /// Value of the attribute `name`; `None` when the object has none.
    ///
    /// # Errors
    /// As [`crate::Tier::stat`].
    pub fn xattr(&self, key: &Key, name: &[u8]) -> Result<Option<Vec<u8>>, TierError> {
        self.find(Action::Stat, key)?;
        let path = self.root.path(key.as_bytes());
        let name = self.xattr_name(Action::Stat, key, name)?;
        match self.library.xattr(&path, &name) {
            Ok(value) => Ok(Some(value)),
            Err(failure) if is_none(failure.code) => Ok(None),
            Err(failure) => Err(self.failed(Action::Stat, key)(failure)),
        }
    }

    /// Sets the attribute, new or not.
    ///
    /// # Errors
    /// As [`crate::Tier::set_attributes`]; what Gfarm says of a name that it does not take.
    pub fn set_xattr(&self, key: &Key, name: &[u8], value: &[u8]) -> Result<(), TierError> {
        self.find(Action::SetAttributes, key)?;
        let path = self.root.path(key.as_bytes());
        let name = self.xattr_name(Action::SetAttributes, key, name)?;
        let failed = self.failed(Action::SetAttributes, key);
        self.library.set_xattr(&path, &name, value).map_err(failed)
    }

    /// Names of the attributes, in no order.
    ///
    /// # Errors
    /// As [`crate::Tier::stat`].
    pub fn xattrs(&self, key: &Key) -> Result<Vec<Vec<u8>>, TierError> {
        self.find(Action::Stat, key)?;
        let path = self.root.path(key.as_bytes());
        let names = self.library.xattr_names(&path).map_err(self.failed(Action::Stat, key))?;
        let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Removes the attribute; whether there was one.
    ///
    /// # Errors
    /// As [`crate::Tier::set_attributes`].
    pub fn remove_xattr(&self, key: &Key, name: &[u8]) -> Result<bool, TierError> {
        self.find(Action::SetAttributes, key)?;
        let path = self.root.path(key.as_bytes());
        let name = self.xattr_name(Action::SetAttributes, key, name)?;
        match self.library.remove_xattr(&path, &name) {
            Ok(()) => Ok(true),
            Err(failure) if is_none(failure.code) => Ok(false),
            Err(failure) => Err(self.failed(Action::SetAttributes, key)(failure)),
        }
    }

    fn xattr_name(&self, action: Action, key: &Key, name: &[u8]) -> Result<CString, TierError> {
        CString::new(name).map_err(|_| TierError::Refused {
            action,
            path: self.root.shown(key.as_bytes()),
            what: "the name of an attribute holds no NUL byte".to_owned(),
            help: "choose another name",
        })
    }
}

/// The object is there (it was looked at before), so it is the attribute that is not.
fn is_none(number: i32) -> bool {
    matches!(number, code::NO_SUCH_OBJECT | code::NO_SUCH_NAME)
}
