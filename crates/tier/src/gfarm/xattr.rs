//! Extended attributes: `user.` for users, `gfarm.` for Gfarm's own.

use std::ffi::CString;

use super::error::{self, code};
use super::library::Kind;
use super::{Gfarm, no_object};
use crate::xattrs::{Kept, is_user};
use crate::{Action, Key, TierError, XattrChanges, Xattrs};

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

    /// Those of programs, of an object or a directory; a request for each.
    pub(super) fn xattrs_of(&self, key: &Key) -> Result<Xattrs, TierError> {
        let (action, failed) = (Action::Xattrs, self.failed(Action::Xattrs, key));
        self.require_bearer(action, key)?;
        let path = self.root.path(key.as_bytes());
        let names = self.library.xattr_names(&path).map_err(&failed)?;
        let mut xattrs = Xattrs::new();
        for name in names.split(|&byte| byte == 0).filter(|name| is_user(name)) {
            match self.library.xattr(&path, &self.xattr_name(action, key, name)?) {
                Ok(value) => drop(xattrs.insert(name.to_vec(), value)),
                Err(failure) if is_none(failure.code) => {} // Removed meanwhile.
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(xattrs)
    }

    pub(super) fn change_xattrs_of(
        &self,
        key: &Key,
        changes: &XattrChanges,
    ) -> Result<(), TierError> {
        let (action, failed) = (Action::SetXattrs, self.failed(Action::SetXattrs, key));
        Kept::OF_PROGRAMS.require(changes.keys(), || self.root.shown(key.as_bytes()))?;
        self.require_bearer(action, key)?;
        let path = self.root.path(key.as_bytes());
        for (name, value) in changes {
            let name = self.xattr_name(action, key, name)?;
            match value {
                Some(value) => self.library.set_xattr(&path, &name, value),
                None => match self.library.remove_xattr(&path, &name) {
                    Err(failure) if is_none(failure.code) => Ok(()),
                    answer => answer,
                },
            }
            .map_err(&failed)?;
        }
        Ok(())
    }

    /// What stands under `key` is a file or a directory.
    fn require_bearer(&self, action: Action, key: &Key) -> Result<(), TierError> {
        self.root.require_directory(self.library, action, key.split_last().0)?;
        let stat = self.library.lstat(&self.root.path(key.as_bytes()));
        match stat.map_err(self.failed(action, key))?.kind {
            Kind::File | Kind::Directory => Ok(()),
            Kind::Link => Err(no_object(action, self.root.shown(key.as_bytes()), error::IS_LINK)),
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
