//! The contract of shared storage: what a tier promises, in words that [`crate::conformance`] checks.
//!
//! Invariants every version keeps:
//! 1. **A key names at most one version of one object.** Versions are replaced whole: whoever opens a
//!    key gets one complete committed version, and goes on reading that one whatever is committed,
//!    renamed or deleted meanwhile (or learns that it is gone, see [`Capabilities::snapshots`]).
//!    Nobody ever sees half of an upload, or bytes of two versions.
//! 2. **Durable means durable.** When `commit`, `delete`, `rename`, `set_attributes` or `change_user_xattrs` return `Ok`,
//!    their effect survives a power cut of this machine and of the storage (bytes, name and the
//!    directories made for it). On `Err` of `commit` the former version is still there, whole;
//!    when the storage failed after the switch itself (`Unavailable`, `Io`), either version is.
//! 3. **An upload that is dropped leaves nothing** that a listing shows; what a killed process leaves
//!    is hidden too, and `sweep` removes it.
//! 4. **Short answers mean the end.** `read_at` returns fewer bytes than asked only at the end of the
//!    object. Interruptions and short writes below never reach the caller.
//! 5. **Extended attributes** ([`Capabilities::xattrs`], [`Capabilities::acls`]) belong to an object, not to its name:
//!    they stay with it over `rename` and `set_attributes`, and a new version has those that [`Upload::set_user_xattrs`]
//!    gave it and no others, from the moment in which it is seen. To carry over what the former version had is the
//!    caller's. A list of access control and the mode change together, as on a local file system; a new version that is
//!    given none may have the one that its directory gives to new files.
//! 6. **What a tier can not do it refuses** with `Unsupported`, as its [`Capabilities`] said before.
//!
//! What is no object (directories, links, devices) is never followed, opened, replaced or removed.
//! A change made to a file in place, behind the tier's back, is outside of this contract; compare
//! [`ObjectMeta::identity`] before and after where that matters.
//! Source: the shape of `object_store` (one contract, one suite, decorators).

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use hayase_layout::ByteCount;

use crate::{
    Action, Attributes, Key, ListRequest, Marks, ObjectMeta, Page, PartSums, TierError, Tree,
    XattrChanges, Xattrs, if_there,
};

/// What a tier can do beyond the contract's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Reading a piece of an object costs about that piece, not the whole object.
    pub ranges: bool,
    /// [`Tier::rename`] works, is atomic and moves no bytes.
    pub rename: bool,
    /// [`Reader::local_descriptor`] gives a plain file descriptor.
    pub local_descriptor: bool,
    /// [`Tier::locations`] knows which hosts hold the bytes.
    pub locations: bool,
    /// Names form a tree: an object `a` and an object `a/b` exclude each other.
    pub tree: bool,
    /// [`Attributes`] are what [`ObjectMeta`] shows. Otherwise it shows the tier's own, those given to
    /// `begin` come back from [`Reader::attributes`], and `set_attributes` is `Unsupported`.
    pub attributes: bool,
    /// An open version stays readable whatever replaces or deletes it. Otherwise a read that meets
    /// another version fails with [`TierError::Changed`]; it never answers bytes of two versions.
    pub snapshots: bool,
    /// A key may hold any bytes. Otherwise one that is not UTF-8 is refused.
    pub any_bytes: bool,
    /// [`Upload::write_at`] takes any order. Otherwise a write must begin less than this behind the end
    /// of what was written so far; one that reaches further back is `Unsupported`.
    pub write_window: Option<ByteCount>,
    /// [`Tier::sweep_own`] finds what an earlier attachment of the same [`crate::Owner`] left.
    pub owned: bool,
    /// [`Tier::resume_parts`] finds what a process that ended, however, had put of the same version.
    pub resumes: bool,
    /// Objects, and directories of a tree, keep the extended attributes of programs ([`Tier::user_xattrs`]). Who
    /// has them has `rename` and `attributes` too, so that nobody copies an object to give it another name or mode.
    pub xattrs: bool,
    /// They keep access control lists, as attributes of the same calls (`system.posix_acl_access`, of directories
    /// `system.posix_acl_default` too).
    pub acls: bool,
    /// Between the look and the switch of [`Precondition::Matches`] nobody else's version can come and be lost. False also
    /// where it is not known before it is tried.
    pub compares: bool,
    /// Largest object that [`Precondition::Absent`] can be asked for; `None`: it never can.
    pub absent_max: Option<ByteCount>,
}

impl Capabilities {
    /// What a version with nothing but the core can do; the others are named where they are had.
    pub const CORE: Self = Self {
        ranges: true,
        rename: false,
        local_descriptor: false,
        locations: false,
        tree: false,
        attributes: true,
        snapshots: true,
        any_bytes: true,
        write_window: None,
        owned: false,
        resumes: false,
        xattrs: false,
        acls: false,
        compares: false,
        absent_max: Some(ByteCount(u64::MAX)),
    };
}

/// How a tier fares, counted since it was attached; for those who choose how much to ask of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests sent, repeated ones included.
    pub requests: u64,
    /// Repeated because one failed on the way or in the server.
    pub repeats: u64,
    /// Repeated because the tier asked us to slow down.
    pub throttled: u64,
    /// Requests about one object that carry no bytes to the tier, and in all how long they waited for the
    /// begin of their answers: what a request costs beside its bytes.
    pub waits: u64,
    /// See [`Traffic::waits`].
    pub wait_micros: u64,
    /// Bytes of bodies that went over the line in either direction, counted as they go.
    pub carried: u64,
}

/// When a commit may take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Always; what is there is replaced.
    Any,
    /// Only where no object is: `Exists` otherwise. Decided in the same step as the switch, so
    /// of two such commits exactly one succeeds.
    Absent,
    /// Only in the place of the version with this identity: `Changed` otherwise, and what is there stays. Decided in the
    /// same step as the switch where the tier [`Capabilities::compares`], just before it elsewhere.
    Matches(u64),
}

impl Precondition {
    /// Where nothing is: an object of `size` bytes that comes there replaces nothing that came meanwhile, if
    /// the tier can promise that.
    pub fn absent(tier: &(impl Tier + ?Sized), size: u64) -> Self {
        match tier.capabilities().absent_max {
            Some(most) if size <= most.get() => Self::Absent,
            _ => Self::Any,
        }
    }
}

/// Bytes of an object that lie on certain hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// First byte.
    pub start: u64,
    /// How many.
    pub len: ByteCount,
    /// Hosts that hold a replica, as the tier names them.
    pub hosts: Vec<String>,
}

/// Shared storage behind the burst buffer. See the module's invariants: they are the contract.
pub trait Tier: Send + Sync + fmt::Debug {
    /// Constant over the life of the value.
    fn capabilities(&self) -> Capabilities;

    /// For people: what and where it is.
    fn describe(&self) -> String;

    /// The server that requests go to, whatever the directory or bucket there; `None` for what is mounted.
    fn endpoint(&self) -> Option<String> {
        None
    }

    /// Counters of a tier that is reached by requests; zeros elsewhere.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Names in bytewise order, a page at a time. A name present during the whole listing appears
    /// exactly once; one that comes or goes meanwhile may appear or not. A prefix under which there is
    /// nothing is an empty page, no error. With [`crate::Depth::One`] a tree shows directories also
    /// when they hold no object.
    fn list(&self, request: &ListRequest) -> Result<Page, TierError>;

    /// Attributes of the version that an `open` would read now.
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError>;

    /// As [`Tier::stat`], with mode and time as the writer gave them, also where the tier keeps them beside
    /// the object and lists its own ([`Capabilities::attributes`]).
    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.stat(key)
    }

    /// One version, to be read at leisure.
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError>;

    /// The version that a listing or `stat` told of, to be read at leisure: an `open` that need not ask
    /// again. When another one is there by now, this call or the first read fails with
    /// [`TierError::Changed`].
    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        let reader = self.open(key)?;
        if reader.meta().identity == meta.identity {
            return Ok(reader);
        }
        Err(TierError::Changed { action: Action::Open, path: key.to_string() })
    }

    /// One whole object from memory: `begin`, `write_at` and `commit` in one call, which may cost less.
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        let mut upload = self.begin(key, attributes)?;
        upload.write_at(0, data)?;
        upload.commit(precondition)
    }

    /// Several whole objects, whatever is there; answers in their order. May cost less than [`Tier::put`]
    /// for each, most for objects that follow each other in one directory.
    fn put_each(&self, objects: &[Whole<'_>]) -> Vec<Result<(), TierError>> {
        let put = |object: &Whole<'_>| {
            self.put(object.key, object.attributes, object.data, Precondition::Any).map(|_| ())
        };
        objects.iter().map(put).collect()
    }

    /// Begins a new version; the object is not visible before [`Upload::commit`]. In a tree the
    /// directories of the key are made now, and stay.
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError>;

    /// Most bytes that an upload of `size` bytes by [`Tier::begin`] keeps in memory; 0 where none are left
    /// when `write_at` returns.
    fn upload_memory(&self, size: u64) -> u64 {
        let _ = size;
        0
    }

    /// Begins a new version of `size` bytes that comes in parts of `part_bytes` (the last has what is
    /// left), in any order and from several threads. `None` where there is no such way, at all or for
    /// these sizes: then by [`Tier::begin`].
    fn begin_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        (size, part_bytes): (u64, u64),
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let _ = (key, attributes, size, part_bytes);
        Ok(None)
    }

    /// As [`Tier::begin_parts`], for an upload that outlives this process unless it is committed or discarded:
    /// who asks for the same again, after a kill or just later, finds the parts that were put. What was begun
    /// of something else under this key is given up. `None` also while another process, or this one, is at
    /// such an upload of the key: then by another way.
    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        let _ = (key, attributes, of);
        Ok(None)
    }

    /// In which parts an upload of `size` bytes was begun that [`Tier::resume_parts`] may find. A hint, and no
    /// request.
    fn unfinished_part_bytes(&self, key: &Key, size: u64) -> Option<u64> {
        let _ = (key, size);
        None
    }

    /// Changes attributes of the current version without touching its bytes.
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError>;

    /// Extended attributes of an object, or of a directory of a tree, lists among them. May cost a request for each.
    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        Err(TierError::Unsupported { action: Action::Xattrs, path: key.to_string() })
    }

    /// The same of the directory that is the tier; none where names are flat.
    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        Ok(Xattrs::new())
    }

    /// Sets and removes extended attributes of an object, or of a directory of a tree; others stay. They change one
    /// after the other, and on `Err` some may have changed.
    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        let _ = changes;
        Err(TierError::Unsupported { action: Action::SetXattrs, path: key.to_string() })
    }

    /// Removes the object; `Missing` when there is none. Directories stay.
    fn delete(&self, key: &Key) -> Result<(), TierError>;

    /// Removes the version with this identity; `Changed` when another one is there, which stays, and `Missing` when
    /// there is none. Where the tier does not decide that in one step, it looks just before.
    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        if self.stat(key)?.identity != identity {
            return Err(TierError::Changed { action: Action::Delete, path: key.to_string() });
        }
        self.delete(key)
    }

    /// Moves an object to another key, replacing what is there, in one step. `from == to` is done at once.
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        let _ = to;
        Err(TierError::Unsupported { action: Action::Rename, path: from.to_string() })
    }

    /// Moves one version of an object (the identity after `from`) to another key, in the place of one version only (the
    /// identity after `to`), or of none. Answers what is there then; its identity may be another one than before. `Changed`
    /// when another version is at `from`, or another one or none at `to`, and `Exists` when one is at `to` where none is
    /// expected: what is there stays. Where the tier [`Capabilities::compares`], versions of others that come to either key
    /// meanwhile stay there; elsewhere it looks just before.
    fn rename_version(
        &self,
        (from, identity): (&Key, u64),
        (to, expected): (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        let moved = self.stat(from)?;
        let changed =
            |key: &Key| Err(TierError::Changed { action: Action::Rename, path: key.to_string() });
        if moved.identity != identity {
            return changed(from);
        }
        match (if_there(self.stat(to))?, expected) {
            (Some(_), None) => {
                return Err(TierError::Exists { action: Action::Rename, path: to.to_string() });
            }
            (there, Some(_)) if there.map(|there| there.identity) != expected => {
                return changed(to);
            }
            _ => self.rename(from, to)?,
        }
        let now = if_there(self.stat(to))?;
        let is_ours = |now: &ObjectMeta| (now.size, now.mtime) == (moved.size, moved.mtime);
        Ok(now.filter(is_ours).unwrap_or(moved))
    }

    /// Where the bytes lie, in order, covering the whole object.
    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        Err(TierError::Unsupported { action: Action::Locate, path: key.to_string() })
    }

    /// The directories and symbolic links beside the objects; `None` where names are flat.
    fn tree(&self) -> Option<&dyn Tree> {
        None
    }

    /// Objects that stand for directories and links, where names are flat; `None` where there are none.
    fn marks(&self) -> Option<&dyn Marks> {
        None
    }

    /// Removes unfinished uploads below `prefix` (whole directories: empty, or ends with `/`) that
    /// were last written before `before`; answers how many. Never touches an object.
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError>;

    /// Removes, of the unfinished uploads that lie in `directory` itself (empty: the root), those that earlier
    /// attachments of this one's [`crate::Owner`] began, however young they are; answers how many. 0 without the
    /// capability, and where there is no such directory.
    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        let _ = directory;
        Ok(0)
    }
}

/// Takes bytes, and where they begin in the object.
pub type PieceSink<'a> = dyn FnMut(u64, &[u8]) -> Result<(), TierError> + 'a;

/// One version of one object, open for reading. Reads need no order and may run on several threads.
pub trait Reader: Send + Sync {
    /// As they were at the open.
    fn meta(&self) -> ObjectMeta;

    /// What is open as it is now, where that is known without asking by name: a change behind the tier's back,
    /// a replacement and a removal show in its identity.
    fn meta_now(&self) -> Option<Result<ObjectMeta, TierError>> {
        None
    }

    /// What the writer said about the object, as far as the tier kept it. Costs at most one request, and
    /// none after a read.
    fn attributes(&self) -> Result<Attributes, TierError> {
        let ObjectMeta { mode, mtime, .. } = self.meta();
        Ok(Attributes { mode: Some(mode), mtime: Some(mtime) })
    }

    /// The object stands for a symbolic link, which says the object's bytes ([`Marks`]). Costs at most one
    /// request, and none after a read.
    fn is_link(&self) -> Result<bool, TierError> {
        Ok(false)
    }

    /// CRC32C of the whole object, where the storage knows it: for those who read it piece by piece, and
    /// compare. What one `read_at` brings of a whole object the tier compares itself. Costs at most one
    /// request.
    fn crc32c(&self) -> Result<Option<u32>, TierError> {
        Ok(None)
    }

    /// The same for those who read an object in the parts in which it was written, where no CRC32C is known
    /// and nothing else vouches for the way. No request after an `open` or a read.
    fn part_sums(&self) -> Option<PartSums> {
        None
    }

    /// Fills `buffer` from byte `offset` on; fewer bytes only at the end, 0 at or behind it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError>;

    /// The same by one request, however large `buffer` is: for those who read with several streams themselves.
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        self.read_at(offset, buffer)
    }

    /// The `len` bytes from `offset` on by one request, where that is possible, piece by piece: each comes by way of
    /// `buffer` and is given to `sink` with its place in the object, in order. Whatever is asked for again after a
    /// failure begins anew at `offset`. Fewer bytes only at the end. What `sink` fails with ends it.
    fn read_pieces(
        &self,
        offset: u64,
        len: u64,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<(), TierError> {
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            match self.read_at(at, &mut buffer[..most])? {
                0 => break,
                count => {
                    sink(at, &buffer[..count])?;
                    at += count as u64;
                }
            }
        }
        Ok(())
    }

    /// A descriptor of a plain file that holds exactly these bytes, to be read only; `None` without
    /// the capability, and where these bytes lie on another host.
    fn local_descriptor(&self) -> Option<Result<OwnedFd, TierError>> {
        None
    }
}

/// A new version on its way. Dropping it abandons it.
pub trait Upload: Send {
    /// Puts all of `data` at `offset`; in any order (see [`Capabilities::write_window`]), later bytes
    /// win, gaps read as zeros.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError>;

    /// The version has these extended attributes when it is seen. Said at most once, before `commit`.
    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        let _ = xattrs;
        let path = "the new version".to_owned();
        Err(TierError::Unsupported { action: Action::SetXattrs, path })
    }

    /// Makes the version durable, then visible in one step, then its name durable. Where attributes
    /// are not kept the time in the answer is the tier's clock, some seconds from what `stat` tells.
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError>;
}

/// An object that is all in memory.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its name.
    pub key: &'a Key,
    /// What its writer says of it.
    pub attributes: Attributes,
    /// All of it.
    pub data: &'a [u8],
}

/// What an upload is of; two of the same are one, whoever began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadOf {
    /// Stands for the bytes of the source: another one where they may differ.
    pub version: u128,
    /// All of it.
    pub size: u64,
    /// Of each part but the last.
    pub part_bytes: u64,
}

impl UploadOf {
    /// Bytes of part `number`; 0 where there is none.
    pub(crate) fn len(&self, number: u32) -> u64 {
        let begin = u64::from(number).saturating_mul(self.part_bytes);
        self.size.saturating_sub(begin).min(self.part_bytes)
    }

    /// How many parts there are; 0 where there can be none.
    pub(crate) fn parts(&self) -> u64 {
        self.size.checked_div(self.part_bytes).map_or(0, |_| self.size.div_ceil(self.part_bytes))
    }
}

/// A new version that comes in parts. Dropping it abandons it, but what [`Tier::resume_parts`] began.
pub trait PartsUpload: Send + Sync {
    /// An earlier process put part `number`, and its bytes, which nobody damaged since, lie near: they are in
    /// `buffer`, and the part need not be put.
    fn read_kept(&self, number: u32, buffer: &mut Vec<u8>) -> bool {
        let _ = (number, buffer);
        false
    }

    /// An earlier process put exactly these bytes as part `number`: it need not be put.
    fn is_kept(&self, number: u32, data: &[u8]) -> bool {
        let _ = (number, data);
        false
    }

    /// Gives up for good what dropping would leave to be resumed.
    fn discard(self: Box<Self>) {}

    /// Sends part `number`, counted from 0, and returns when the storage has it: nothing of it is kept in
    /// memory. Of a part that is sent twice the later one counts.
    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError>;

    /// Takes part `number` in pieces, so that they need not lie in memory together; `None` where storage wants a part
    /// whole. One that is begun and not ended counts for nothing.
    fn begin_part(&self, number: u32) -> Option<Box<dyn PartPieces + '_>> {
        let _ = number;
        None
    }

    /// As [`Upload::commit`]; fails when a part is missing.
    fn commit(self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError>;
}

/// A part on its way.
pub trait PartPieces {
    /// The bytes that follow.
    fn put(&mut self, data: &[u8]) -> Result<(), TierError>;

    /// As [`PartsUpload::put_part`] of all of them.
    fn end(self: Box<Self>) -> Result<(), TierError>;
}

impl<T: Tier + ?Sized> Tier for std::sync::Arc<T> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn endpoint(&self) -> Option<String> {
        (**self).endpoint()
    }
    fn traffic(&self) -> Traffic {
        (**self).traffic()
    }
    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        (**self).list(request)
    }
    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        (**self).stat(key)
    }
    fn stat_as_written(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        (**self).stat_as_written(key)
    }
    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        (**self).open(key)
    }
    fn open_listed(&self, key: &Key, meta: ObjectMeta) -> Result<Box<dyn Reader>, TierError> {
        (**self).open_listed(key, meta)
    }
    fn put(
        &self,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        precondition: Precondition,
    ) -> Result<ObjectMeta, TierError> {
        (**self).put(key, attributes, data, precondition)
    }
    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        (**self).begin(key, attributes)
    }
    fn put_each(&self, objects: &[Whole<'_>]) -> Vec<Result<(), TierError>> {
        (**self).put_each(objects)
    }
    fn upload_memory(&self, size: u64) -> u64 {
        (**self).upload_memory(size)
    }
    fn begin_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        sizes: (u64, u64),
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        (**self).begin_parts(key, attributes, sizes)
    }
    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        (**self).resume_parts(key, attributes, of)
    }
    fn unfinished_part_bytes(&self, key: &Key, size: u64) -> Option<u64> {
        (**self).unfinished_part_bytes(key, size)
    }
    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        (**self).set_attributes(key, attributes)
    }
    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        (**self).user_xattrs(key)
    }
    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        (**self).root_xattrs()
    }
    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        (**self).change_user_xattrs(key, changes)
    }
    fn delete(&self, key: &Key) -> Result<(), TierError> {
        (**self).delete(key)
    }
    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        (**self).delete_version(key, identity)
    }
    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        (**self).rename(from, to)
    }
    fn rename_version(
        &self,
        from: (&Key, u64),
        to: (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        (**self).rename_version(from, to)
    }
    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        (**self).locations(key)
    }
    fn tree(&self) -> Option<&dyn Tree> {
        (**self).tree()
    }
    fn marks(&self) -> Option<&dyn Marks> {
        (**self).marks()
    }
    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        (**self).sweep(prefix, before)
    }
    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        (**self).sweep_own(directory)
    }
}
