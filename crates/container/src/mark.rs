//! Marks: the small file that says that a directory is a container, or that new files in it become some.
//!
//! Drawn in FORMAT.md. The file decides; the extended attribute beside it is for people and other tools,
//! and may be missing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::directory::Directory;
use crate::format::{VERSION, checksum};
use crate::names::{DIRECTORY_MARK, MARK};
use crate::{ContainerError, ContainerId, names};

/// Extended attribute of a container: its id.
pub const CONTAINER_XATTR: &str = "user.hayase.container";

/// Extended attribute of a directory that is marked.
pub const DIRECTORY_XATTR: &str = "user.hayase.containers";

const MARK_BYTES: usize = 64;
const CONTAINER_MAGIC: &[u8; 8] = b"HAYASECT";
const DIRECTORY_MAGIC: &[u8; 8] = b"HAYASEDR";

/// Marks `directory` as a container; its mark must not exist.
pub(crate) fn write(directory: &Directory, id: ContainerId) -> Result<(), ContainerError> {
    put(directory, MARK, CONTAINER_MAGIC, id)?;
    directory.set_xattr(CONTAINER_XATTR, id.to_string().as_bytes());
    Ok(())
}

/// The id of a container; `NotContainer` when there is no mark.
pub(crate) fn read(directory: &Directory) -> Result<ContainerId, ContainerError> {
    let not = || ContainerError::NotContainer { path: directory.path().to_owned() };
    get(directory, MARK, CONTAINER_MAGIC)?.ok_or_else(not)
}

/// The id of a container whose mark somebody else has read.
pub(crate) fn parse_container(path: &Path, bytes: Vec<u8>) -> Result<ContainerId, ContainerError> {
    parse(path, bytes, CONTAINER_MAGIC)
}

/// The mark of a container is durable afterwards.
pub(crate) fn sync(directory: &Directory) -> Result<(), ContainerError> {
    let failed = |source| ContainerError::io("sync", &directory.shown(MARK), source);
    let sync = |flags| directory.open_file(MARK, flags)?.sync_all();
    let answer = match sync(OFlags::RDONLY) {
        // A mount of Gfarm syncs only what is open for writing.
        Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => {
            sync(OFlags::WRONLY)
        }
        answer => answer,
    };
    answer.map_err(failed)
}

/// Marks a directory: MPI-IO files made in it, and in those below it, become containers.
///
/// `false` when it was marked already. Durable when it returns.
pub fn enable(path: &Path) -> Result<bool, ContainerError> {
    let directory = Directory::open(path)?;
    if get(&directory, MARK, CONTAINER_MAGIC)?.is_some() {
        let what = format!("{} is a container itself", path.display());
        return Err(ContainerError::Invalid { what });
    }
    if get(&directory, DIRECTORY_MARK, DIRECTORY_MAGIC)?.is_some() {
        return Ok(false);
    }
    put(&directory, DIRECTORY_MARK, DIRECTORY_MAGIC, ContainerId([0; 16]))?;
    directory.sync()?;
    directory.set_xattr(DIRECTORY_XATTR, b"1");
    Ok(true)
}

/// Takes the mark away; containers that are there stay containers. `false` when there was none.
pub fn disable(path: &Path) -> Result<bool, ContainerError> {
    let directory = Directory::open(path)?;
    let len = directory.len(DIRECTORY_MARK);
    let shown = directory.shown(DIRECTORY_MARK);
    let was_marked = len.map_err(|source| ContainerError::io("look at", &shown, source))?.is_some();
    directory.remove(DIRECTORY_MARK)?;
    directory.remove_xattr(DIRECTORY_XATTR);
    directory.sync()?;
    Ok(was_marked)
}

/// The directory whose mark counts for a file of this path: the nearest one above it.
///
/// One open for each directory above, up to the root. The file itself need not exist.
pub fn enabled_above(path: &Path) -> Result<Option<PathBuf>, ContainerError> {
    let failed = |source| ContainerError::io("look at", path, source);
    let absolute = std::path::absolute(path).map_err(failed)?;
    for above in absolute.ancestors().skip(1) {
        let mark = above.join(DIRECTORY_MARK);
        match File::open(&mark) {
            Ok(file) => {
                parse(&mark, read_all(&mark, file)?, DIRECTORY_MAGIC)?;
                return Ok(Some(above.to_owned()));
            }
            // Directories above that are closed to us say nothing.
            Err(error) if is_absent(&error) => {}
            Err(source) => return Err(ContainerError::io("read", &mark, source)),
        }
    }
    Ok(None)
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn put(
    directory: &Directory,
    name: &str,
    magic: &[u8; 8],
    id: ContainerId,
) -> Result<(), ContainerError> {
    let shown = directory.shown(name);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ContainerError::Exists { path: shown.clone() },
        _ => ContainerError::io("write", &shown, source),
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = directory.open_file(name, flags).map_err(failed)?;
    file.write_all(&draw(magic, id)).map_err(failed)
}

fn get(
    directory: &Directory,
    name: &str,
    magic: &[u8; 8],
) -> Result<Option<ContainerId>, ContainerError> {
    let shown = directory.shown(name);
    match directory.open_file(name, OFlags::RDONLY) {
        Ok(file) => parse(&shown, read_all(&shown, file)?, magic).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ContainerError::io("read", &shown, source)),
    }
}

fn read_all(path: &Path, file: File) -> Result<Vec<u8>, ContainerError> {
    let mut bytes = Vec::new();
    // One more than there should be: a longer file is none of ours.
    file.take(MARK_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| ContainerError::io("read", path, source))?;
    Ok(bytes)
}

fn draw(magic: &[u8; 8], id: ContainerId) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(magic);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&id.0);
    let sum = checksum(&[&bytes[..56]]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The place of version and checksum is the same in all versions to come.
fn parse(path: &Path, bytes: Vec<u8>, magic: &[u8; 8]) -> Result<ContainerId, ContainerError> {
    let damaged = |at, what: &str| ContainerError::Corrupt {
        path: path.to_owned(),
        at,
        what: what.to_owned(),
    };
    let len = bytes.len() as u64;
    let bytes: [u8; MARK_BYTES] =
        bytes.try_into().map_err(|_| damaged(len, "a mark has 64 bytes"))?;
    if bytes[..8] != magic[..] {
        return Err(damaged(0, "it does not begin as a mark does"));
    }
    let (body, sum) = bytes.split_at(56);
    if checksum(&[body]).to_le_bytes() != sum[..8] {
        return Err(damaged(56, "its checksum does not match"));
    }
    let found = u16::from_le_bytes([bytes[8], bytes[9]]);
    if found > VERSION {
        return Err(ContainerError::NewerFormat { path: path.to_owned(), found, known: VERSION });
    }
    Ok(ContainerId(std::array::from_fn(|at| bytes[16 + at])))
}

/// Whether a name in a directory is a mark; such files are not shown to anybody.
pub fn is_mark(name: &str) -> bool {
    name == names::MARK || name == names::DIRECTORY_MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_damage_from_other_versions() {
        let id = ContainerId::random();
        let path = Path::new("F/.hayase-container");
        let read = |bytes: &[u8]| parse(path, bytes.to_vec(), CONTAINER_MAGIC);
        let good = draw(CONTAINER_MAGIC, id);
        assert_eq!(read(&good).unwrap(), id);
        for at in 0..MARK_BYTES {
            let mut bytes = good;
            bytes[at] ^= 1;
            assert!(matches!(read(&bytes), Err(ContainerError::Corrupt { .. })), "byte {at}");
            assert!(matches!(read(&good[..at]), Err(ContainerError::Corrupt { .. })), "cut {at}");
        }
        let mut newer = good;
        newer[8] = VERSION as u8 + 1;
        let sum = checksum(&[&newer[..56]]);
        newer[56..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(read(&newer), Err(ContainerError::NewerFormat { found: 3, .. })));
    }

    #[test]
    fn the_nearest_mark_above_counts() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        let file = below.join("file");
        assert_eq!(enabled_above(&file).unwrap(), None);
        assert!(enable(&top.path().join("a")).unwrap());
        assert!(!enable(&top.path().join("a")).unwrap(), "it was already");
        assert_eq!(enabled_above(&file).unwrap(), Some(top.path().join("a")));
        assert_eq!(enabled_above(&top.path().join("a")).unwrap(), None, "not for itself");
        assert!(disable(&top.path().join("a")).unwrap());
        assert!(!disable(&top.path().join("a")).unwrap());
        assert_eq!(enabled_above(&file).unwrap(), None);
    }
}
