//! Containers in the areas `shared` and `cache` of a job: the mount shows each as the one plain file that it is.
//!
//! Here: finding and making such a file, telling the area of a publication. Not here: the servers that
//! show it (`hayase_server`), what is in a container ([`crate::Container`]).
//!
//! ```text
//! /mnt/job/shared/out.h5                                 the file: size, names, rights
//! /mnt/job/shared/.hayase-recorded/0002000000000017/     its container, named by its inode; never listed
//! /mnt/job/cache/out.h5                                  the same for a file in front of the tier
//! /mnt/job/shared/.hayase-recorded/0002100000000018/     its container: parts are no files of the tier
//! ```
//!
//! A part is made, as every file of an area, on the node of its maker: so each process writes on its own
//! node. Renaming the file moves nothing, removing it removes the container. The mount is spoken to by
//! extended attributes, so no process needs a connection to a server.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, FileType, Mode, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::directory::{Directory, hidden_name, retry, split};
use crate::{ContainerError, inside, mark};
use hayase_layout::InodeId;

/// The directory of all containers of an area, at its root.
pub const AREA_DIRECTORY: &str = ".hayase-recorded";

/// How a file is laid out, or will be in a directory.
const LAYOUT: &str = "user.hayase.layout";

/// Set by a writer that has published, to the name of its index.
const PUBLISHED: &str = "user.hayase.published";

/// What `shared` is called beside `cache`, on every node.
const SHARED: &str = "shared";

/// What the container of a file is called.
pub fn name_of(inode: u64) -> String {
    format!("{inode:016x}")
}

/// The file of a container of this name.
pub fn inode_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name, 16).ok().filter(|inode| name_of(*inode) == name)
}

/// Whether MPI-IO files that are made in `directory` are containers: it is in an area of a job, and has no
/// layout of its own.
pub fn takes(directory: &Path) -> bool {
    layout_of(directory).as_deref() == Some(b"whole") && root_above(directory).is_some()
}

/// The file that stands for a container, held open: it goes on when it is renamed or removed.
#[derive(Debug)]
pub(crate) struct AreaFile {
    file: File,
    /// What it was opened as; for people only.
    path: PathBuf,
}

impl AreaFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Readers of all nodes see what was published in this index when this returns.
    pub(crate) fn tell_published(&self, index: &str) -> Result<(), ContainerError> {
        let index = index.as_bytes();
        let told = retry(|| fs::fsetxattr(&self.file, PUBLISHED, index, XattrFlags::empty()));
        told.map_err(|errno| ContainerError::io("publish in", &self.path, errno.into()))
    }

    /// Its name and its inode are durable afterwards.
    pub(crate) fn sync(&self) -> Result<(), ContainerError> {
        self.file.sync_all().map_err(|source| ContainerError::io("sync", &self.path, source))
    }
}

/// The file at `path` and the container behind it; `None` when it is no such file.
pub(crate) fn behind(path: &Path) -> Result<Option<(AreaFile, PathBuf)>, ContainerError> {
    if layout_of(path).as_deref() != Some(b"recorded") {
        return Ok(None);
    }
    let failed = |source| ContainerError::io("open", path, source);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ContainerError::NotFound { path: path.to_owned() });
        }
        Err(error) => return Err(failed(error)),
    };
    // It may have become a plain file before it was open; now its container stays.
    if descriptor_layout(&file).as_deref() != Some(b"recorded") {
        return Ok(None);
    }
    let inode = file.metadata().map_err(failed)?.ino();
    let real = path.canonicalize().map_err(failed)?;
    let root = real.parent().and_then(root_above);
    let container = root.map(|root| root.join(AREA_DIRECTORY).join(name_of(inode)));
    let file = AreaFile { file, path: path.to_owned() };
    Ok(container.map(|container| (file, container)))
}

/// Makes the file at `path` with a container behind it. It appears whole, under a name that is free.
pub(crate) fn create(path: &Path) -> Result<(), ContainerError> {
    let (parent, name) = split(path)?;
    let failed = |source| ContainerError::io("create the container", path, source);
    let real = parent.canonicalize().map_err(failed)?;
    let root = root_above(&real)
        .ok_or_else(|| ContainerError::NotContainer { path: parent.to_owned() })?;
    let all = root.join(AREA_DIRECTORY);
    match std::fs::DirBuilder::new().mode(0o700).create(&all) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let hidden = real.join(hidden_name(name));
    let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o666));
    // Not opened: nobody has a descriptor of the plain file that it is until it is furnished.
    fs::mknodat(CWD, &hidden, kind, mode, 0).map_err(|errno| failed(errno.into()))?;
    let made = furnish(&hidden, &all)
        .and_then(|container| appear(&hidden, path).inspect_err(|_| remove_quietly(&container)));
    if made.is_err() {
        // What is left of it takes its container along.
        let _ = std::fs::remove_file(&hidden);
    }
    made
}

/// Gives the empty file `hidden` a container.
fn furnish(hidden: &Path, all: &Path) -> Result<PathBuf, ContainerError> {
    let failed = |source| ContainerError::io("create the container", hidden, source);
    let inode = hidden.metadata().map_err(failed)?.ino();
    let container = all.join(name_of(inode));
    // Nobody sees it yet, so it needs no hidden name.
    std::fs::create_dir(&container).map_err(failed)?;
    let number = inside::fill(&container)
        .and_then(|_| Directory::open(&container)?.inode().map_err(failed))
        .inspect_err(|_| remove_quietly(&container))?;
    let layout = format!("recorded:{number}");
    let set = retry(|| fs::setxattr(hidden, LAYOUT, layout.as_bytes(), XattrFlags::empty()));
    if let Err(errno) = set {
        remove_quietly(&container);
        return Err(failed(errno.into()));
    }
    Ok(container)
}

fn appear(hidden: &Path, path: &Path) -> Result<(), ContainerError> {
    match retry(|| fs::renameat_with(CWD, hidden, CWD, path, RenameFlags::NOREPLACE)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(ContainerError::Exists { path: path.to_owned() }),
        Err(errno) => Err(ContainerError::io("create the container", path, errno.into())),
    }
}

/// Of a container that nobody has seen. What stays is removed with the area.
fn remove_quietly(container: &Path) {
    let _ = Directory::open(container).and_then(|directory| {
        mark::read(&directory)?;
        inside::remove(container, &directory)
    });
}

/// Makes the file at `path` a plain one. `false` when programs have it open by MPI-IO; nothing happens to a
/// file that is one already.
pub fn flatten(path: &Path) -> Result<bool, ContainerError> {
    match retry(|| fs::setxattr(path, LAYOUT, b"whole", XattrFlags::empty())) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => Err(ContainerError::io("make a plain file of", path, errno.into())),
    }
}

fn layout_of(path: &Path) -> Option<Vec<u8>> {
    value_of(|value| fs::getxattr(path, LAYOUT, value))
}

fn descriptor_layout(file: &File) -> Option<Vec<u8>> {
    value_of(|value| fs::fgetxattr(file, LAYOUT, value))
}

fn value_of(get: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Option<Vec<u8>> {
    // Longer ones are of striped files.
    let mut value = [0; 64];
    let len = get(&mut value[..]).ok()?;
    Some(value[..len].to_vec())
}

/// The root of `shared` of the job in whose `shared` or `cache` a directory lies.
fn root_above(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let device = directory.metadata().ok()?.dev();
    let is_inside = |path: &&Path| path.metadata().is_ok_and(|found| found.dev() == device);
    let top = directory.ancestors().take_while(is_inside).last()?;
    let is = |path: &Path, inode: InodeId| {
        path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (device, inode.0))
    };
    if is(top, InodeId::CACHE_ROOT) {
        // A directory of the same mount as `shared`, shown at a place of its own.
        let shared = top.parent()?.join(SHARED);
        return is(&shared, InodeId::ROOT).then_some(shared);
    }
    is(top, InodeId::ROOT).then(|| top.to_owned())
}
