//! One version of a file, open for reading: from the copy on this host where there is one.
//!
//! Invariant: a reader answers bytes of the inode and generation that it opened. When the host that served it goes
//! away it is opened again, on another copy, and only if it is still the same version.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{self, code};
use super::library::{Failure, File, Kind, Library, Stat};
use super::{Gfarm, meta, no_object};
use crate::descriptor::read_fully;
use crate::{Action, Key, ObjectMeta, Reader, TierError};

/// Looks at a name that changes while it is opened; each try is another change by somebody else.
const OPEN_TRIES_MAX: usize = 8;
/// Openings of one read whose host does not answer: the host that Gfarm chooses next, and one more.
const REOPEN_TRIES_MAX: usize = 2;

pub(super) fn open(tier: &Gfarm, key: &Key) -> Result<Box<dyn Reader>, TierError> {
    tier.root.require_directory(tier.library, Action::Open, key.split_last().0)?;
    let path = tier.root.path(key.as_bytes());
    let shown = tier.root.shown(key.as_bytes());
    let source = Source { library: tier.library, path, shown, own_host: tier.own_host.clone() };
    let (version, stat) = source.open(Action::Open)?;
    Ok(Box::new(GfarmReader { source, meta: meta(&stat), version: Mutex::new(Arc::new(version)) }))
}

/// What is needed to open it, now and again.
struct Source {
    library: &'static Library,
    path: CString,
    shown: String,
    own_host: Option<CString>,
}

/// An open version, and where its bytes come from.
struct Version {
    file: File,
    /// On this host.
    descriptor: Option<OwnedFd>,
}

impl Source {
    fn failed(&self, action: Action) -> impl Fn(Failure) -> TierError {
        move |failure| error::sorted(&failure, action, self.shown.clone())
    }

    /// Whatever version is there now.
    fn open(&self, action: Action) -> Result<(Version, Stat), TierError> {
        for _ in 0..OPEN_TRIES_MAX {
            let named = self.library.lstat(&self.path).map_err(self.failed(action))?;
            match named.kind {
                Kind::File => {}
                Kind::Directory => {
                    return Err(no_object(action, self.shown.clone(), error::IS_DIRECTORY));
                }
                Kind::Link => return Err(no_object(action, self.shown.clone(), error::IS_LINK)),
            }
            let file = self.library.open(&self.path).map_err(self.failed(action))?;
            let stat = file.stat().map_err(self.failed(action))?;
            // Another inode: the name was given away between the two calls, perhaps to a link.
            if stat.ino == named.ino {
                let descriptor = self.place(&file, &stat).map_err(self.failed(action))?;
                return Ok((Version { file, descriptor }, stat));
            }
        }
        Err(TierError::Changed { action, path: self.shown.clone() })
    }

    /// Chooses the copy: on this host where there is one, else as Gfarm likes.
    fn place(&self, file: &File, stat: &Stat) -> Result<Option<OwnedFd>, Failure> {
        if stat.size == 0 {
            return Ok(None); // a file without bytes may lie nowhere
        }
        if let Some(own) = &self.own_host
            && self.is_here(own)?
            && file.place(Some(own)).is_ok()
        {
            return file.descriptor();
        }
        file.place(None)?;
        file.descriptor()
    }

    fn is_here(&self, own: &CStr) -> Result<bool, Failure> {
        match self.library.replicas(&self.path) {
            Ok(hosts) => Ok(hosts.iter().any(|host| host.as_bytes() == own.to_bytes())),
            // Renamed or removed since it was opened: the open file is still there.
            Err(failure) if failure.code == code::NO_SUCH_NAME => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

struct GfarmReader {
    source: Source,
    meta: ObjectMeta,
    version: Mutex<Arc<Version>>,
}

impl GfarmReader {
    fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same version on another host; `stale` is the one whose host does not answer.
    fn reopen(&self, stale: &Arc<Version>) -> Result<Arc<Version>, TierError> {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&version, stale) {
            return Ok(Arc::clone(&version)); // another thread has done it
        }
        let (opened, stat) = self.source.open(Action::Read)?;
        if meta(&stat).identity != self.meta.identity {
            let path = self.source.shown.clone();
            return Err(TierError::Changed { action: Action::Read, path });
        }
        *version = Arc::new(opened);
        Ok(Arc::clone(&version))
    }
}

impl Version {
    fn read_at(&self, source: &Source, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        match &self.descriptor {
            Some(descriptor) => read_fully(descriptor, offset, buffer)
                .map_err(|errno| TierError::from_errno(Action::Read, source.shown.clone(), errno)),
            None => self.file.read_at(offset, buffer).map_err(source.failed(Action::Read)),
        }
    }
}

impl Reader for GfarmReader {
    fn meta(&self) -> ObjectMeta {
        self.meta
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        let left = self.meta.size.get().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if len == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..len];
        let mut version = self.version();
        let mut tries = 0;
        loop {
            match version.read_at(&self.source, offset, buffer) {
                Err(TierError::Unavailable { .. }) if tries < REOPEN_TRIES_MAX => {
                    tries += 1;
                    version = self.reopen(&version)?;
                }
                answer => return answer,
            }
        }
    }

    fn local_descriptor(&self) -> Option<Result<OwnedFd, TierError>> {
        let version = self.version();
        let descriptor = version.descriptor.as_ref()?;
        Some(descriptor.try_clone().map_err(|source| TierError::Io {
            action: Action::Open,
            path: self.source.shown.clone(),
            source,
        }))
    }
}
