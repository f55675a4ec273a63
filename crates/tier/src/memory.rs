//! A tier in memory: the contract without a disk, for tests and as the model of the others.
//!
//! Rooms: [`tree`] (directories and links), [`xattrs`].

mod tree;
mod xattrs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use hayase_layout::ByteCount;

use crate::xattrs::Kept;
use crate::{
    Action, Attributes, Capabilities, Depth, DirectoryMeta, Entry, EntryKind, Key, ListRequest,
    ObjectMeta, Page, Precondition, Reader, Tier, TierError, Tree, Upload, XattrChanges, Xattrs,
};

/// Objects in memory; clones share them.
#[derive(Clone, Debug)]
pub struct Memory {
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Arc<Object>>,
    /// Of a tree: every directory that was made for an object, with the slash at its end.
    directories: BTreeMap<Vec<u8>, DirectoryMeta>,
    /// Of directories that have any, by the same names.
    directory_xattrs: BTreeMap<Vec<u8>, Xattrs>,
    /// Of a tree: symbolic links and what they say.
    links: BTreeMap<Key, Vec<u8>>,
    /// Counts versions; each gets its own number as identity.
    versions: u64,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<Vec<u8>>,
    mode: u32,
    mtime: SystemTime,
    identity: u64,
    xattrs: Xattrs,
}

impl Object {
    fn meta(&self) -> ObjectMeta {
        let size = ByteCount(self.bytes.len() as u64);
        ObjectMeta { size, mode: self.mode, mtime: self.mtime, identity: self.identity }
    }
}

/// The name of a directory in [`State`].
fn directory_name(key: &Key) -> Vec<u8> {
    [key.as_bytes(), b"/"].concat()
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// Like a file system: names form a tree, objects can be renamed.
    pub fn new() -> Self {
        Self::with(true)
    }

    /// Like an object store: flat names, no rename.
    pub fn flat() -> Self {
        Self::with(false)
    }

    /// Like a file system that keeps no access control lists.
    pub fn without_lists() -> Self {
        let mut memory = Self::with(true);
        memory.capabilities.acls = false;
        memory
    }

    fn with(tree: bool) -> Self {
        let (xattrs, acls) = (tree, tree);
        let core = Capabilities { compares: true, ..Capabilities::CORE };
        let capabilities = Capabilities { rename: tree, tree, xattrs, acls, ..core };
        Self { capabilities, state: Arc::default() }
    }

    fn keeps(&self) -> Kept {
        let Capabilities { xattrs, acls, .. } = self.capabilities;
        Kept { xattrs, acls }
    }

    /// Moves what is at `from` if `check` agrees to that, and to what is at `to`.
    fn rename_if(
        &self,
        from: &Key,
        to: &Key,
        check: impl FnOnce(&Object, Option<&Object>) -> Result<(), TierError>,
    ) -> Result<ObjectMeta, TierError> {
        if !self.capabilities.rename {
            return Err(TierError::Unsupported { action: Action::Rename, path: from.to_string() });
        }
        let mut state = self.state();
        let object = state.get(self.capabilities.tree, Action::Rename, from)?;
        check(&object, state.objects.get(to).map(|there| &**there))?;
        let meta = object.meta();
        if from != to {
            if let Some(refusal) = state.refusal(self.capabilities.tree, Action::Rename, to) {
                return Err(refusal);
            }
            state.make_directories(to);
            state.objects.remove(from);
            state.objects.insert(to.clone(), object);
        }
        Ok(meta)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion or removal after all checks: no panic leaves half of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn get(&self, tree: bool, action: Action, key: &Key) -> Result<Arc<Object>, TierError> {
        match self.objects.get(key) {
            Some(object) => Ok(Arc::clone(object)),
            None => Err(self
                .refusal(tree, action, key)
                .unwrap_or_else(|| TierError::Missing { action, path: key.to_string() })),
        }
    }

    /// Why a tree can have no object under `key` now.
    fn refusal(&self, tree: bool, action: Action, key: &Key) -> Option<TierError> {
        let refuse = |what| Some(TierError::NotObject { action, path: key.to_string(), what });
        if !tree {
            return None;
        }
        if self.directories.contains_key(&[key.as_bytes(), b"/"].concat()) {
            return refuse("it is a directory");
        }
        if self.links.contains_key(key) {
            return refuse("it is a symbolic link, and links are not followed");
        }
        let blocked = key.ancestors().any(|ancestor| {
            Key::new(ancestor).is_ok_and(|ancestor| self.is_no_directory(&ancestor))
        });
        if blocked { refuse("a parent is not a directory") } else { None }
    }

    /// Something stands under `key` that nothing can lie in.
    fn is_no_directory(&self, key: &Key) -> bool {
        self.objects.contains_key(key) || self.links.contains_key(key)
    }

    fn make_directories(&mut self, key: &Key) {
        for ancestor in key.ancestors() {
            let new = DirectoryMeta { mode: 0o755, mtime: SystemTime::now() };
            self.directories.entry([ancestor, b"/"].concat()).or_insert(new);
        }
    }

    fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }
}

impl Tier for Memory {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn describe(&self) -> String {
        "memory".into()
    }

    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        let state = self.state();
        let objects = state.objects.iter();
        let objects =
            objects.map(|(key, object)| (key.as_bytes(), EntryKind::Object(object.meta())));
        let directories = state.directories.keys().filter(|_| request.depth == Depth::One);
        let directories = directories.map(|name| (name.as_slice(), EntryKind::Directory));
        let links = state.links.keys();
        let links = links.map(|key| (key.as_bytes(), EntryKind::Other("it is a symbolic link")));
        let mut found = BTreeMap::new();
        for (name, kind) in objects.chain(directories).chain(links) {
            let Some(rest) = name.strip_prefix(request.prefix.as_slice()) else { continue };
            let slash = rest.iter().position(|&byte| byte == b'/');
            match slash.filter(|_| request.depth == Depth::One) {
                Some(at) => found
                    .insert(name[..request.prefix.len() + at + 1].to_vec(), EntryKind::Directory),
                // The directory that was asked for is not in itself.
                None if rest.is_empty() && name.ends_with(b"/") => None,
                None => found.insert(name.to_vec(), kind),
            };
        }
        let limit = request.bounded_limit();
        let ahead = |name: &Vec<u8>| request.after.as_ref().is_none_or(|after| name > after);
        let mut entries = found.into_iter().filter(|(name, _)| ahead(name));
        let entries_now: Vec<Entry> =
            entries.by_ref().take(limit).map(|(name, kind)| Entry { name, kind }).collect();
        let next = entries.next().and(entries_now.last().map(|entry| entry.name.clone()));
        Ok(Page { entries: entries_now, next })
    }

    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.state().get(self.capabilities.tree, Action::Stat, key).map(|object| object.meta())
    }

    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let object = self.state().get(self.capabilities.tree, Action::Open, key)?;
        Ok(Box::new(MemoryReader { object }))
    }

    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        let mut state = self.state();
        if let Some(refusal) = state.refusal(self.capabilities.tree, Action::Begin, key) {
            return Err(refusal);
        }
        state.make_directories(key);
        drop(state);
        let (tier, key) = (self.clone(), key.clone());
        Ok(Box::new(MemoryUpload {
            tier,
            key,
            attributes,
            bytes: Vec::new(),
            xattrs: Xattrs::new(),
        }))
    }

    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let mut state = self.state();
        let old = state.get(self.capabilities.tree, Action::SetAttributes, key)?;
        let identity = state.next_version();
        let mut new = Object {
            bytes: Arc::clone(&old.bytes),
            mode: attributes.mode.map_or(old.mode, |mode| mode & 0o777),
            mtime: attributes.mtime.unwrap_or(old.mtime),
            identity,
            xattrs: old.xattrs.clone(),
        };
        xattrs::list_follows(&mut new.xattrs, new.mode);
        state.objects.insert(key.clone(), Arc::new(new));
        Ok(())
    }

    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.xattrs_of(key)
    }

    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        self.change_xattrs_of(key, changes)
    }

    fn delete(&self, key: &Key) -> Result<(), TierError> {
        let mut state = self.state();
        state.get(self.capabilities.tree, Action::Delete, key)?;
        state.objects.remove(key);
        Ok(())
    }

    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        let mut state = self.state();
        if state.get(self.capabilities.tree, Action::Delete, key)?.identity != identity {
            return Err(TierError::Changed { action: Action::Delete, path: key.to_string() });
        }
        state.objects.remove(key);
        Ok(())
    }

    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        self.rename_if(from, to, |_, _| Ok(())).map(drop)
    }

    fn rename_version(
        &self,
        (from, identity): (&Key, u64),
        (to, expected): (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        self.rename_if(from, to, |moved, there| match (there, expected) {
            _ if moved.identity != identity => {
                Err(TierError::Changed { action: Action::Rename, path: from.to_string() })
            }
            (Some(_), None) => {
                Err(TierError::Exists { action: Action::Rename, path: to.to_string() })
            }
            (there, _) if there.map(|there| there.identity) != expected => {
                Err(TierError::Changed { action: Action::Rename, path: to.to_string() })
            }
            _ => Ok(()),
        })
    }

    fn tree(&self) -> Option<&dyn Tree> {
        self.capabilities.tree.then_some(self)
    }

    fn sweep(&self, _prefix: &[u8], _before: SystemTime) -> Result<usize, TierError> {
        // An upload lives in its own value and leaves nothing behind.
        Ok(0)
    }
}

struct MemoryReader {
    object: Arc<Object>,
}

impl Reader for MemoryReader {
    fn meta(&self) -> ObjectMeta {
        self.object.meta()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let bytes = &self.object.bytes;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }
}

struct MemoryUpload {
    tier: Memory,
    key: Key,
    attributes: Attributes,
    bytes: Vec<u8>,
    xattrs: Xattrs,
}

impl Upload for MemoryUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        let end = usize::try_from(offset).ok().and_then(|start| start.checked_add(data.len()));
        let Some(end) = end.filter(|&end| end <= isize::MAX as usize) else {
            return Err(TierError::Full { action: Action::Write, path: self.key.to_string() });
        };
        if !data.is_empty() {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[end - data.len()..end].copy_from_slice(data);
        }
        Ok(())
    }

    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        self.tier.keeps().require(xattrs.keys(), || self.key.to_string())?;
        self.xattrs.clone_from(xattrs);
        Ok(())
    }

    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let Self { tier, key, attributes, bytes, xattrs } = *self;
        let mut state = tier.state();
        if let Some(refusal) = state.refusal(tier.capabilities.tree, Action::Commit, &key) {
            return Err(refusal);
        }
        if precondition == Precondition::Absent && state.objects.contains_key(&key) {
            return Err(TierError::Exists { action: Action::Commit, path: key.to_string() });
        }
        if let Precondition::Matches(identity) = precondition
            && state.objects.get(&key).is_none_or(|there| there.identity != identity)
        {
            return Err(TierError::Changed { action: Action::Commit, path: key.to_string() });
        }
        let mut object = Object {
            bytes: Arc::new(bytes),
            mode: attributes.mode.unwrap_or(0o644) & 0o777,
            mtime: attributes.mtime.unwrap_or_else(SystemTime::now),
            identity: state.next_version(),
            xattrs,
        };
        let given = xattrs::mode_follows(&mut object.xattrs, object.mode);
        object.mode = attributes.mode.map_or(given, |mode| mode & 0o777);
        xattrs::list_follows(&mut object.xattrs, object.mode);
        let meta = object.meta();
        state.objects.insert(key, Arc::new(object));
        Ok(meta)
    }
}
