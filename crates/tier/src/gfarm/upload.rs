//! A new version of a file: written beside its target on one host, synced, closed, renamed over it.
//!
//! Closing is part of it: gfmd learns size and generation there, and other nodes see the bytes.
//! Invariant: until the switch the target is untouched; after it the target is the new version, whole.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use super::error::{self, code};
use super::library::{Failure, File, Library};
use super::root::Root;
use super::{Gfarm, apply, meta};
use crate::descriptor::write_fully;
use crate::temporary::with_temporary_name;
use crate::xattrs::Kept;
use crate::{Action, Attributes, Key, ObjectMeta, Precondition, TierError, Upload, Xattrs};

/// A new version of `key` on `host`; where that does not work out, or without one, where Gfarm chooses.
pub(super) fn begin(
    tier: &Gfarm,
    key: &Key,
    attributes: Attributes,
    host: Option<&CStr>,
) -> Result<Box<dyn Upload>, TierError> {
    let mut upload = GfarmUpload::create(tier, key, attributes)?;
    let wished = host.map_or(Ok(()), |host| upload.file().place(Some(host)));
    if host.is_none() || wished.is_err() {
        // This host may be full, or its gfsd not running; another one does as well.
        upload.file().place(None).map_err(upload.failed(Action::Begin))?;
    }
    upload.take_descriptor()?;
    Ok(Box::new(upload))
}

/// A new version of `key` on exactly this host.
pub(super) fn begin_on(
    tier: &Gfarm,
    key: &Key,
    attributes: Attributes,
    host: &CStr,
) -> Result<Box<dyn Upload>, TierError> {
    let mut upload = GfarmUpload::create(tier, key, attributes)?;
    upload.file().place(Some(host)).map_err(upload.failed(Action::Begin))?;
    upload.take_descriptor()?;
    Ok(Box::new(upload))
}

struct GfarmUpload {
    library: &'static Library,
    root: Root,
    key: Key,
    attributes: Attributes,
    /// `None` once it is closed.
    file: Option<File>,
    /// When the bytes lie on this host.
    descriptor: Option<OwnedFd>,
    /// `None` once it is the target.
    temporary: Option<CString>,
    /// Behind the last byte written.
    end: u64,
    /// Names are texts of the library.
    xattrs: Vec<(CString, Vec<u8>)>,
}

impl GfarmUpload {
    fn create(tier: &Gfarm, key: &Key, attributes: Attributes) -> Result<Self, TierError> {
        let (library, root) = (tier.library, tier.root.clone());
        let parent = key.split_last().0;
        root.make_directory(library, Action::Begin, parent, 0o777 & !tier.umask)?;
        // Refused now rather than after gigabytes; checked again before the switch.
        root.require_replaceable(library, Action::Begin, key.as_bytes())?;
        // Closed to others while the final mode is still to be set.
        let mode = if attributes.mode.is_some() { 0o600 } else { 0o666 & !tier.umask };
        let path = |name: &[u8]| match parent {
            b"" => root.path(name),
            parent => root.path(&[parent, b"/", name].concat()),
        };
        let create = |name: &[u8]| library.create(&path(name), mode);
        let is_taken = |failure: &Failure| failure.code == code::EXISTS;
        let (name, file) = with_temporary_name(tier.temporary_prefix(), create, is_taken)
            .map_err(root.failed(Action::Begin, key.as_bytes()))?;
        let temporary = Some(path(&name));
        let (key, file) = (key.clone(), Some(file));
        let (descriptor, end, xattrs) = (None, 0, Vec::new());
        Ok(Self { library, root, key, attributes, file, descriptor, temporary, end, xattrs })
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("it is closed by commit and drop only")
    }

    fn take_descriptor(&mut self) -> Result<(), TierError> {
        self.descriptor = self.file().descriptor().map_err(self.failed(Action::Begin))?;
        Ok(())
    }

    fn failed(&self, action: Action) -> impl Fn(Failure) -> TierError + use<> {
        let path = self.root.shown(self.key.as_bytes());
        move |failure| error::sorted(&failure, action, path.clone())
    }

    fn temporary(&self) -> &CStr {
        self.temporary.as_deref().expect("it has its own name until the switch")
    }

    /// Durable on its host, and known to gfmd as it is.
    fn finish(&mut self) -> Result<(), Failure> {
        // For bytes that went by the descriptor this is also what tells Gfarm of a change.
        self.file().truncate(self.end)?;
        self.file().sync()?;
        self.descriptor = None;
        self.file.take().expect("it is closed once").close()
    }

    fn switch(&mut self, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        let failed = self.failed(Action::Commit);
        self.finish().map_err(&failed)?;
        for (name, value) in &self.xattrs {
            // Before its mode: one that nobody may write has them all the same.
            let set = self.library.set_xattr(self.temporary(), name, value);
            set.map_err(self.failed(Action::SetXattrs))?;
        }
        apply(self.library, self.temporary(), self.attributes).map_err(&failed)?;
        let stat = self.library.lstat(self.temporary()).map_err(&failed)?;
        self.root.require_replaceable(self.library, Action::Commit, self.key.as_bytes())?;
        let target = self.root.path(self.key.as_bytes());
        match precondition {
            Precondition::Matches(expected) if !self.shows(&target, expected) => {
                let path = self.root.shown(self.key.as_bytes());
                return Err(TierError::Changed { action: Action::Commit, path });
            }
            // Gfarm exchanges no names: what comes between that look and the rename is replaced.
            Precondition::Any | Precondition::Matches(_) => {
                self.library.rename(self.temporary(), &target).map_err(&failed)?;
                self.temporary = None;
            }
            // A second name replaces nothing; the first one goes when this is dropped.
            Precondition::Absent => {
                self.library.link(self.temporary(), &target).map_err(&failed)?;
            }
        }
        Ok(meta(&stat))
    }
}

impl GfarmUpload {
    /// The version `identity` is at `path` now.
    fn shows(&self, path: &CStr, identity: u64) -> bool {
        self.library.lstat(path).is_ok_and(|there| meta(&there).identity == identity)
    }
}

impl Upload for GfarmUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        if data.is_empty() {
            return Ok(());
        }
        match &self.descriptor {
            Some(descriptor) => {
                let write = |at, rest: &[u8]| rustix::io::pwrite(descriptor, rest, at);
                write_fully(offset, data, write).map_err(|errno| {
                    let path = self.root.shown(self.key.as_bytes());
                    TierError::from_errno(Action::Write, path, errno)
                })?;
            }
            None => self.file().write_at(offset, data).map_err(self.failed(Action::Write))?,
        }
        self.end = self.end.max(offset + data.len() as u64);
        Ok(())
    }

    fn set_user_xattrs(&mut self, xattrs: &Xattrs) -> Result<(), TierError> {
        Kept::OF_PROGRAMS.require(xattrs.keys(), || self.root.shown(self.key.as_bytes()))?;
        let text =
            |(name, value): (&Vec<u8>, &Vec<u8>)| Ok((CString::new(&**name)?, value.clone()));
        let texts: Result<_, std::ffi::NulError> = xattrs.iter().map(text).collect();
        self.xattrs = texts.map_err(|_| TierError::Refused {
            action: Action::SetXattrs,
            path: self.root.shown(self.key.as_bytes()),
            what: "the name of an attribute holds no NUL byte".to_owned(),
            help: "choose another name",
        })?;
        Ok(())
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.switch(precondition)
    }
}

impl Drop for GfarmUpload {
    fn drop(&mut self) {
        drop(self.file.take());
        if let Some(temporary) = self.temporary.take() {
            // What can not be removed now is hidden from listings and left to `sweep`.
            let _ = self.library.unlink(&temporary);
        }
    }
}
