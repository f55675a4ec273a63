//! A directory of a Gfarm file system as a tier, through its own library.
//!
//! Here: [`Gfarm`], one call after the other. Rooms: [`library`] (libgfarm, loaded at run time), [`root`] (URLs and paths),
//! [`reader`], [`upload`] (temporary, sync, close, rename), [`replicas`] (where bytes lie and how often), [`names`] (listings and
//! the sweep), [`tree`] (directories and links), [`xattr`], [`owners`], [`error`], [`lane`] (the
//! library's calls in processes of their own, for a mount).
//!
//! A file of Gfarm lies whole on one host, and in copies on others. A new one is put on this host when this host
//! serves files (whatever its load, which Gfarm itself would look at), else where Gfarm chooses; bytes that lie
//! on this host are read and written by the kernel alone.
//! An object is a regular file. What Gfarm promises of power cuts is what the tier promises: bytes are synced on
//! the host that has them, names are in the journal of the metadata server (if it keeps one).
//! Source: libgfarm 2.7 to 2.8 (`gfarm/gfs.h`); MPI-IO/Gfarm, paper 001.

mod error;
pub mod lane;
mod library;
mod names;
mod owners;
mod reader;
mod replicas;
mod root;
mod tree;
mod upload;
mod xattr;

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use hayase_layout::ByteCount;

use self::library::{Kind, Library, Stat};
use self::root::Root;
use crate::key::TEMPORARY_PREFIX;
use crate::owner::Attachment;
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, Location, ObjectMeta, Owner, Page, Reader,
    Tier, TierError, Tree, Upload, XattrChanges, Xattrs,
};

/// A directory of Gfarm.
#[derive(Debug)]
pub struct Gfarm {
    library: &'static Library,
    root: Root,
    /// This host as Gfarm names it; `None` when it serves no files of it.
    own_host: Option<CString>,
    /// Rights that new files and directories do not get; libgfarm does not ask the process.
    umask: u32,
    /// Whose unfinished uploads are known as such.
    own: Option<Attachment>,
}

impl Gfarm {
    /// Opens the directory that `url` names: `gfarm:///path` on the metadata server of Gfarm's settings
    /// (`GFARM_CONFIG_FILE`, `~/.gfarm2rc`, `gfarm2.conf`), or `gfarm://host:port/path`. The first call loads libgfarm and reads
    /// the settings, for the life of the process.
    ///
    /// # Errors
    /// `Refused` (no library, wrong settings, a key that is not accepted; all say what to do), `Unavailable` (no metadata server),
    /// `Missing`, `NotObject` (no directory), `Denied`; nothing is written.
    pub fn attach(url: impl AsRef<OsStr>) -> Result<Self, TierError> {
        let tier = Self::reach(url.as_ref())?;
        let failed = tier.root.failed(Action::Attach, b"");
        let path = tier.root.path(b"");
        let stat = tier.library.stat(&path).map_err(&failed)?;
        if stat.kind != Kind::Directory {
            return Err(no_object(Action::Attach, tier.root.shown(b""), "it is not a directory"));
        }
        let own_host = tier.library.own_host(&path).map_err(&failed)?;
        Ok(Self { own_host, ..tier })
    }

    /// The same as [`Gfarm::attach`] for `owner`, who can then remove what its earlier attachments left
    /// ([`Tier::sweep_own`]).
    ///
    /// # Errors
    /// As [`Gfarm::attach`].
    pub fn attach_owned(url: impl AsRef<OsStr>, owner: &Owner) -> Result<Self, TierError> {
        Ok(Self { own: Some(Attachment::of(owner)), ..Self::attach(url)? })
    }

    /// As [`Gfarm::attach`], but makes the directory when it is missing; what lies above it is there.
    ///
    /// # Errors
    /// As [`Gfarm::attach`].
    pub fn attach_or_make(url: impl AsRef<OsStr>) -> Result<Self, TierError> {
        let url = url.as_ref();
        match Self::attach(url) {
            Err(TierError::Missing { .. }) => {}
            answer => return answer,
        }
        let tier = Self::reach(url)?;
        match tier.library.mkdir(&tier.root.path(b""), 0o777 & !tier.umask) {
            Err(failure) if failure.code != error::code::EXISTS => {
                Err(tier.root.failed(Action::MakeDirectory, b"")(failure))
            }
            _ => Self::attach(url),
        }
    }

    /// The library, and the place meant; nothing is asked of a server.
    fn reach(url: &OsStr) -> Result<Self, TierError> {
        let root = Root::parse(url.as_bytes()).map_err(|why| TierError::Refused {
            action: Action::Attach,
            path: url.to_string_lossy().into_owned(),
            what: why.to_owned(),
            help: "write gfarm:///PATH, or gfarm://HOST:PORT/PATH",
        })?;
        let library = Library::get().map_err(|why| error::not_loaded(why, root.shown(b"")))?;
        Ok(Self { library, root, own_host: None, umask: umask(), own: None })
    }

    /// This host as Gfarm names it; `None` when it serves no files of this Gfarm.
    pub fn own_host(&self) -> Option<&str> {
        self.own_host.as_ref().and_then(|host| host.to_str().ok())
    }

    /// The directory as libgfarm takes it: an absolute path, or a URL with the metadata server.
    pub fn library_path(&self) -> Vec<u8> {
        self.root.path(b"").into_bytes()
    }

    /// How names of unfinished uploads begin.
    fn temporary_prefix(&self) -> &[u8] {
        self.own.as_ref().map_or(TEMPORARY_PREFIX, Attachment::prefix)
    }

    fn failed(&self, action: Action, key: &Key) -> impl Fn(library::Failure) -> TierError {
        self.root.failed(action, key.as_bytes())
    }

    /// What stands under `key` now, which is an object.
    fn find(&self, action: Action, key: &Key) -> Result<Stat, TierError> {
        self.root.require_directory(self.library, action, key.split_last().0)?;
        let path = self.root.path(key.as_bytes());
        let stat = self.library.lstat(&path).map_err(self.failed(action, key))?;
        self.require_object(action, key, &stat)?;
        Ok(stat)
    }

    fn require_object(&self, action: Action, key: &Key, stat: &Stat) -> Result<(), TierError> {
        let refuse = |what| Err(no_object(action, self.root.shown(key.as_bytes()), what));
        match stat.kind {
            Kind::File => Ok(()),
            Kind::Directory => refuse(error::IS_DIRECTORY),
            Kind::Link => refuse(error::IS_LINK),
        }
    }

    /// Mode and time; `None` stays.
    fn apply(
        &self,
        action: Action,
        relative: &[u8],
        attributes: Attributes,
    ) -> Result<(), TierError> {
        apply(self.library, &self.root.path(relative), attributes)
            .map_err(self.root.failed(action, relative))
    }
}

impl Tier for Gfarm {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            rename: true,
            local_descriptor: self.own_host.is_some(),
            locations: true,
            tree: true,
            owned: self.own.is_some(),
            xattrs: true,
            ..Capabilities::CORE
        }
    }

    fn describe(&self) -> String {
        format!("Gfarm directory {}", self.root.shown(b""))
    }

    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        crate::walk::page(self, request)
    }

    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        self.find(Action::Stat, key).map(|stat| meta(&stat))
    }

    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        reader::open(self, key)
    }

    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        upload::begin(self, key, attributes, self.own_host.as_deref())
    }

    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.find(Action::SetAttributes, key)?;
        self.apply(Action::SetAttributes, key.as_bytes(), attributes)
    }

    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.xattrs_of(key)
    }

    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        self.change_xattrs_of(key, changes)
    }

    fn delete(&self, key: &Key) -> Result<(), TierError> {
        self.find(Action::Delete, key)?;
        let path = self.root.path(key.as_bytes());
        self.library.unlink(&path).map_err(self.failed(Action::Delete, key))
    }

    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        let moved = self.find(Action::Rename, from)?;
        if from == to {
            return Ok(());
        }
        let failed = self.failed(Action::Rename, to);
        let parent = to.split_last().0;
        self.root.make_directory(self.library, Action::Rename, parent, 0o777 & !self.umask)?;
        let (source, target) = (self.root.path(from.as_bytes()), self.root.path(to.as_bytes()));
        match self.library.lstat(&target) {
            Err(failure) if failure.code == error::code::NO_SUCH_NAME => {}
            Err(failure) => return Err(failed(failure)),
            Ok(there) => {
                self.require_object(Action::Rename, to, &there)?;
                if there.ino == moved.ino {
                    // Two names of one file: a rename would do nothing and leave both.
                    return self.library.unlink(&source).map_err(&failed);
                }
            }
        }
        self.library.rename(&source, &target).map_err(&failed)
    }

    fn locations(&self, key: &Key) -> Result<Vec<Location>, TierError> {
        self.whole_location(key)
    }

    fn tree(&self) -> Option<&dyn Tree> {
        Some(self)
    }

    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        names::sweep(self, prefix, before)
    }

    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        names::sweep_own(self, directory)
    }
}

fn no_object(action: Action, path: String, what: &'static str) -> TierError {
    TierError::NotObject { action, path, what }
}

/// Mode and time of what `path` names; `None` stays.
fn apply(library: &Library, path: &CStr, attributes: Attributes) -> Result<(), library::Failure> {
    if let Some(mode) = attributes.mode {
        library.set_mode(path, mode & 0o777)?;
    }
    match attributes.mtime {
        Some(mtime) => library.set_mtime(path, mtime),
        None => Ok(()),
    }
}

fn meta(stat: &Stat) -> ObjectMeta {
    let (seconds, nanos) = crate::timestamp::seconds_and_nanos(stat.mtime);
    // The generation alone tells other bytes of one inode apart; size and time are for changes that are on
    // their way, and for whoever reads the number.
    let mut identity = Vec::with_capacity(36);
    for word in [stat.ino, stat.generation, stat.size] {
        identity.extend_from_slice(&word.to_le_bytes());
    }
    identity.extend_from_slice(&seconds.to_le_bytes());
    identity.extend_from_slice(&nanos.to_le_bytes());
    ObjectMeta {
        size: ByteCount(stat.size),
        mode: stat.mode & 0o777,
        mtime: stat.mtime,
        identity: xxhash_rust::xxh3::xxh3_64(&identity),
    }
}

/// Of this process; asking umask(2) would change it for a moment, for every thread.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}
