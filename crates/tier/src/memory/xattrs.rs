//! Extended attributes in memory, and what lists have to do with modes.

use std::sync::Arc;

use hayase_layout::Acl;
use hayase_layout::acl::ACCESS_NAME;

use super::{Memory, Object, directory_name};
use crate::{Action, Key, TierError, XattrChanges, Xattrs, change_xattrs};

impl Memory {
    pub(super) fn xattrs_of(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.keeps().require_any(Action::Xattrs, || key.to_string())?;
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
        self.keeps().require_any(Action::SetXattrs, || key.to_string())?;
        self.keeps().require(changes.keys(), || key.to_string())?;
        let mut guard = self.state();
        let state = &mut *guard;
        let name = directory_name(key);
        if let Some(meta) = state.directories.get_mut(&name) {
            let xattrs = state.directory_xattrs.entry(name).or_default();
            change_xattrs(xattrs, changes);
            meta.mode = mode_follows(xattrs, meta.mode);
            return Ok(());
        }
        let old = state.get(self.capabilities.tree, Action::SetXattrs, key)?;
        let identity = state.next_version();
        let mut new = Object { identity, ..Object::clone(&old) };
        change_xattrs(&mut new.xattrs, changes);
        new.mode = mode_follows(&mut new.xattrs, new.mode);
        state.objects.insert(key.clone(), Arc::new(new));
        Ok(())
    }
}

fn list_of(xattrs: &Xattrs) -> Option<Acl> {
    Acl::parse(xattrs.get(ACCESS_NAME)?).ok().flatten()
}

/// A list was set: the mode that it amounts to. One that says no more is not kept.
pub(super) fn mode_follows(xattrs: &mut Xattrs, mode: u32) -> u32 {
    let Some(acl) = list_of(xattrs) else { return mode };
    if acl.is_mode() {
        xattrs.remove(ACCESS_NAME);
    }
    acl.mode()
}

/// A mode was set.
pub(super) fn list_follows(xattrs: &mut Xattrs, mode: u32) {
    if let Some(mut acl) = list_of(xattrs) {
        acl.chmod(mode);
        xattrs.insert(ACCESS_NAME.to_vec(), acl.to_value());
    }
}
