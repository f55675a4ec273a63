//! Containers: one N-1 file kept as a directory of parts and indexes.
//!
//! Here: making, finding and deleting one. Not here: its bytes ([`crate::ContainerFile`]), what is published in it
//! ([`crate::Snapshot`]).
//!
//! A container appears and disappears whole: it is made under a hidden name and renamed, and renamed
//! before it is removed. What a kill in between leaves is such a hidden directory, and no container.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayase_layout::ByteCount;
use rustix::fs::{self, CWD, RenameFlags};
use rustix::io::Errno;

use crate::area::{self, AreaFile};
use crate::directory::{Directory, hidden_name, retry, split};
use crate::names::{self, Kind, STUB};
use crate::{ContainerError, ContainerId, inside, mark};

/// What to do when the name is free, and when it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It must exist.
    Never,
    /// Made when it does not exist.
    IfAbsent,
    /// It must not exist (`MPI_MODE_EXCL`).
    Exclusive,
}

/// What a container takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all indexes.
    pub index_bytes: ByteCount,
    /// Bytes of all parts.
    pub part_bytes: ByteCount,
}

/// One N-1 file. Cheap to clone; holds one descriptor.
#[derive(Clone, Debug)]
pub struct Container {
    directory: Arc<Directory>,
    id: ContainerId,
    /// In an area: the file that stands for it.
    file: Option<Arc<AreaFile>>,
}

impl Container {
    /// The container at `path`. Reads 64 bytes; parts and indexes are looked at when they are needed.
    ///
    /// Fails with `NotFound`, `Exists`, and `NotContainer` when something else has the name.
    /// Atomic, also between nodes: of several callers that create exclusively one succeeds.
    pub fn open(path: &Path, creation: Creation) -> Result<Self, ContainerError> {
        if creation != Creation::Exclusive {
            match Self::open_existing(path) {
                Err(ContainerError::NotFound { .. }) if creation == Creation::IfAbsent => {}
                answer => return answer,
            }
        }
        match Self::create(path) {
            // Somebody was faster.
            Err(ContainerError::Exists { .. }) if creation == Creation::IfAbsent => {
                Self::open_existing(path)
            }
            answer => answer,
        }
    }

    fn open_existing(path: &Path) -> Result<Self, ContainerError> {
        let (directory, file) = match Directory::open(path) {
            Err(ContainerError::NotContainer { path }) => match area::behind(&path)? {
                Some((file, directory)) => (Directory::open(&directory)?, Some(Arc::new(file))),
                None => return Err(ContainerError::NotContainer { path }),
            },
            directory => (directory?, None),
        };
        let id = mark::read(&directory)?;
        Ok(Self { directory: Arc::new(directory), id, file })
    }

    fn create(path: &Path) -> Result<Self, ContainerError> {
        let (parent, name) = split(path)?;
        if area::takes(parent) {
            area::create(path)?;
            return Self::open_existing(path);
        }
        let hidden = parent.join(hidden_name(name));
        let made = std::fs::create_dir(&hidden)
            .map_err(|source| ContainerError::io("create the container", path, source))
            .and_then(|()| inside::fill(&hidden))
            .and_then(|id| {
                rename_no_replace(&hidden, path)?;
                Ok(Self { directory: Arc::new(Directory::open(path)?), id, file: None })
            });
        if made.is_err() {
            // Only what was made above; nothing when it has its final name.
            let _ = std::fs::remove_dir_all(&hidden);
        }
        made
    }

    /// Whether a container is at `path`; `false` when nothing or something else is.
    ///
    /// Fails on marks that are damaged or newer.
    pub fn is_at(path: &Path) -> Result<bool, ContainerError> {
        match Self::open_existing(path) {
            Ok(_) => Ok(true),
            Err(ContainerError::NotFound { .. } | ContainerError::NotContainer { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the container at `path` with all its parts (`MPI_File_delete`).
    ///
    /// The name is free at once. Who has it open goes on reading parts that it has open.
    /// Fails before anything is touched when a file in it is not of a container.
    pub fn delete(path: &Path) -> Result<(), ContainerError> {
        let container = Self::open_existing(path)?;
        if container.file.is_some() {
            // The area removes what is behind it.
            let removed = std::fs::remove_file(path);
            return removed.map_err(|source| ContainerError::io("delete", path, source));
        }
        inside::remove(path, &container.directory)
    }

    /// What it was opened as.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or_else(|| self.directory.path(), |file| file.path())
    }

    /// The directory of its parts and indexes.
    pub fn inside(&self) -> &Path {
        self.directory.path()
    }

    /// In an area: the file that stands for it.
    pub(crate) fn area_file(&self) -> Option<&AreaFile> {
        self.file.as_deref()
    }

    /// Whether it is in the area of a job, and shown as one plain file there.
    pub fn is_in_area(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it was opened by the path at which an area keeps it, so that the file that stands for it is not known.
    /// `true` where its path can not be told.
    pub(crate) fn is_behind_area(&self) -> bool {
        let is_in = |real: PathBuf| {
            real.parent().and_then(Path::file_name).is_some_and(|name| name == area::AREA_DIRECTORY)
        };
        self.directory.real_path().ok().is_none_or(is_in)
    }

    /// What it is called for ever.
    pub fn id(&self) -> ContainerId {
        self.id
    }

    /// An empty file in it: what an MPI library opens (without `CREATE`, `EXCL` and `DELETE_ON_CLOSE`)
    /// to have a handle.
    pub fn stub(&self) -> PathBuf {
        self.directory.shown(STUB)
    }

    /// What it takes on the disk: one listing, one stat for each file.
    pub fn usage(&self) -> Result<Usage, ContainerError> {
        let mut usage = Usage::default();
        for name in self.directory.names()? {
            let failed =
                |source| ContainerError::io("look at", &self.directory.shown(&name), source);
            let bytes = match names::kind(&name) {
                Kind::Part(_) => &mut usage.part_bytes,
                Kind::Index(_) | Kind::Merged(_) | Kind::Begun(_) => &mut usage.index_bytes,
                Kind::Mark | Kind::Stub | Kind::Removed | Kind::Foreign => continue,
            };
            bytes.0 += self.directory.len(&name).map_err(failed)?.unwrap_or(0);
        }
        Ok(usage)
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }
}

fn rename_no_replace(from: &Path, to: &Path) -> Result<(), ContainerError> {
    let exists = || ContainerError::Exists { path: to.to_owned() };
    let renamed = retry(|| fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE));
    // File systems that can not refuse to replace: a directory then replaces an empty one only.
    let renamed = match renamed {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => retry(|| fs::rename(from, to)),
        answer => answer,
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => Err(exists()),
        Err(errno) => Err(ContainerError::io("create the container", to, errno.into())),
    }
}
