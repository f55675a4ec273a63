//! Extended attributes in memory.

use std::sync::Arc;

use super::tree::directory_name;
use super::{Memory, Object};
use crate::xattrs::require_user;
use crate::{Action, Key, TierError, XattrChanges, Xattrs, change_xattrs};

impl Memory {
    pub(super) fn require_xattrs(&self, action: Action, key: &Key) -> Result<(), TierError> {
        match self.capabilities.xattrs {
            true => Ok(()),
            false => Err(TierError::Unsupported { action, path: key.to_string() }),
        }
    }

    pub(super) fn xattrs_of(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.require_xattrs(Action::Xattrs, key)?;
        let state = self.state();
        let name = directory_name(key);
        if state.directories.contains_key(&name) {
            return Ok(state.directory_xattrs.get(&name).cloned().unwrap_or_default());
        }
        let object = state.get(self.capabilities.tree, Action::Xattrs, key)?;
        Ok(object.xattrs.clone())
    }

    pub(super) fn change_xattrs_of(
        &self,
        key: &Key,
        changes: &XattrChanges,
    ) -> Result<(), TierError> {
        self.require_xattrs(Action::SetXattrs, key)?;
        require_user(changes.keys(), || key.to_string())?;
        let mut state = self.state();
        let name = directory_name(key);
        if state.directories.contains_key(&name) {
            change_xattrs(state.directory_xattrs.entry(name).or_default(), changes);
            return Ok(());
        }
        let old = state.get(self.capabilities.tree, Action::SetXattrs, key)?;
        let identity = state.next_version();
        let mut new = Object { identity, ..Object::clone(&old) };
        change_xattrs(&mut new.xattrs, changes);
        state.objects.insert(key.clone(), Arc::new(new));
        Ok(())
    }
}
