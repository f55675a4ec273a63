//! A name that is given only while nothing has it.
//!
//! Source: rename(2), RENAME_NOREPLACE; link(2).

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;

pub(super) fn is_taken(errno: &Errno) -> bool {
    *errno == Errno::EXIST
}

/// Gives `from` the name `to`, each in a directory, unless that is taken.
pub(super) fn rename_no_replace(
    (source, from): (impl AsFd, &[u8]),
    (target, to): (impl AsFd, &[u8]),
) -> rustix::io::Result<()> {
    match fs::renameat_with(&source, from, &target, to, RenameFlags::NOREPLACE) {
        // Not every file system has it (NFS); a second link is as exact.
        Err(Errno::INVAL | Errno::NOSYS) => link_no_replace((source, from), (target, to)),
        answer => answer,
    }
}

fn link_no_replace(
    (source, from): (impl AsFd, &[u8]),
    (target, to): (impl AsFd, &[u8]),
) -> rustix::io::Result<()> {
    fs::linkat(&source, from, target, to, AtFlags::empty())?;
    fs::unlinkat(source, from, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn both_ways_to_rename_refuse_a_name_that_is_taken() {
        type Rename = fn(&OwnedFd, &[u8], &[u8]) -> rustix::io::Result<()>;
        let ways: [Rename; 2] = [
            |at, from, to| rename_no_replace((at, from), (at, to)),
            |at, from, to| link_no_replace((at, from), (at, to)),
        ];
        for rename in ways {
            let directory = tempfile::tempdir().unwrap();
            let at = fs::open(directory.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
            let read = |name| std::fs::read(directory.path().join(name));
            std::fs::write(directory.path().join("t"), "new").unwrap();
            std::fs::write(directory.path().join("taken"), "old").unwrap();
            assert_eq!(rename(&at, b"t", b"taken"), Err(Errno::EXIST));
            assert_eq!(rename(&at, b"t", b"free"), Ok(()));
            assert_eq!(read("taken").unwrap(), b"old");
            assert_eq!(read("free").unwrap(), b"new");
            assert!(read("t").is_err());
        }
    }
}
