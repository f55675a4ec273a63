//! Directories and symbolic links in memory.

use std::time::SystemTime;

use super::xattrs::list_follows;
use super::{Memory, State, directory_name};
use crate::{Action, Attributes, DirectoryMeta, Key, TierError, Tree};

impl State {
    /// Why there is no such directory: something else stands there, or nothing.
    fn no_directory(&self, action: Action, key: &Key) -> TierError {
        let path = key.to_string();
        if self.is_no_directory(key) {
            return TierError::NotObject { action, path, what: "it is not a directory" };
        }
        self.refusal(true, action, key).unwrap_or(TierError::Missing { action, path })
    }

    /// Why there is no such link.
    fn no_link(&self, action: Action, key: &Key) -> TierError {
        let path = key.to_string();
        if self.objects.contains_key(key) {
            return TierError::NotObject { action, path, what: "it is not a symbolic link" };
        }
        self.refusal(true, action, key).unwrap_or(TierError::Missing { action, path })
    }
}

impl Tree for Memory {
    fn directory(&self, key: &Key) -> Result<DirectoryMeta, TierError> {
        let state = self.state();
        let found = state.directories.get(&directory_name(key)).copied();
        found.ok_or_else(|| state.no_directory(Action::Directory, key))
    }

    fn make_directory(&self, key: &Key) -> Result<(), TierError> {
        let mut state = self.state();
        if state.directories.contains_key(&directory_name(key)) {
            return Ok(());
        }
        if state.is_no_directory(key) {
            return Err(state.no_directory(Action::MakeDirectory, key));
        }
        if let Some(refusal) = state.refusal(true, Action::MakeDirectory, key) {
            return Err(refusal);
        }
        state.make_directories(key);
        let new = DirectoryMeta { mode: 0o755, mtime: SystemTime::now() };
        state.directories.insert(directory_name(key), new);
        Ok(())
    }

    fn set_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let mut guard = self.state();
        let state = &mut *guard;
        let missing = state.no_directory(Action::Directory, key);
        let name = directory_name(key);
        let meta = state.directories.get_mut(&name).ok_or(missing)?;
        meta.mode = attributes.mode.map_or(meta.mode, |mode| mode & 0o777);
        meta.mtime = attributes.mtime.unwrap_or(meta.mtime);
        if let Some(xattrs) = state.directory_xattrs.get_mut(&name) {
            list_follows(xattrs, meta.mode);
        }
        Ok(())
    }

    fn remove_directory(&self, key: &Key) -> Result<(), TierError> {
        let mut state = self.state();
        let name = directory_name(key);
        if !state.directories.contains_key(&name) {
            return Err(state.no_directory(Action::Delete, key));
        }
        let below = |other: &[u8]| other.len() > name.len() && other.starts_with(&name);
        let used = state.objects.keys().chain(state.links.keys()).any(|key| below(key.as_bytes()));
        if used || state.directories.keys().any(|other| below(other)) {
            let path = key.to_string();
            return Err(TierError::NotObject {
                action: Action::Delete,
                path,
                what: "it is not empty",
            });
        }
        state.directories.remove(&name);
        state.directory_xattrs.remove(&name);
        Ok(())
    }

    fn link(&self, key: &Key) -> Result<Vec<u8>, TierError> {
        let state = self.state();
        let found = state.links.get(key).cloned();
        found.ok_or_else(|| state.no_link(Action::ReadLink, key))
    }

    fn make_link(&self, key: &Key, target: &[u8]) -> Result<(), TierError> {
        let mut state = self.state();
        if !state.links.contains_key(key) {
            if state.objects.contains_key(key) {
                return Err(state.no_link(Action::MakeLink, key));
            }
            if let Some(refusal) = state.refusal(true, Action::MakeLink, key) {
                return Err(refusal);
            }
        }
        state.make_directories(key);
        state.links.insert(key.clone(), target.to_vec());
        Ok(())
    }

    fn remove_link(&self, key: &Key) -> Result<(), TierError> {
        let mut state = self.state();
        if state.links.remove(key).is_some() {
            return Ok(());
        }
        Err(state.no_link(Action::Delete, key))
    }
}
