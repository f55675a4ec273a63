//! A disk that is full in the middle: a small tmpfs (mounting one needs root).

use std::path::Path;

use hayase_container::{ContainerError, Durability, Finished, Joining, WriteError, check};
use hayase_layout::{ByteCount, GlobalOffset};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::model::EAGER;
use super::{create, open, published, read_all};

const ROOM: u64 = 256 << 10;

/// A tmpfs that is unmounted when the test ends, however it does.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(test: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let options = c"size=256k";
        match mount("tmpfs", top.path(), "tmpfs", MountFlags::empty(), Some(options)) {
            Ok(()) => Some(Self(top)),
            Err(errno) => {
                println!("SKIP {test}: can not mount a tmpfs: {errno}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_told_with_the_bytes_that_were_written() {
    let Some(disk) = SmallDisk::new("a_full_disk_is_told_with_the_bytes_that_were_written") else {
        return;
    };
    let path = disk.path().join("F");
    let container = create(&path);
    let file = open(&container, 1, 0);
    let data: Vec<u8> = (0..ROOM).map(|byte| (byte % 251) as u8).collect();
    let WriteError { written, source } = file.write_at(GlobalOffset(0), &data).unwrap_err();
    assert!(matches!(source, ContainerError::NoRoom { .. }), "{source:?}");
    assert!(written > ByteCount::ZERO && written < ByteCount(ROOM), "{written}");
    assert_eq!(file.size().unwrap(), written);
    assert_eq!(read_all(&file), &data[..written.get() as usize]);

    // There is no room for the index either; afterwards there is.
    let error = file.publish(Durability::Durable).unwrap_err();
    assert!(matches!(error, ContainerError::NoRoom { .. }), "{error:?}");
    assert!(published(&path).is_empty());
    assert!(check(&path).unwrap().is_sound());
    assert!(file.has_unpublished());
    // A change of size that fails has not happened.
    let error = file.set_size(ByteCount(9), file.proposed_epoch()).unwrap_err();
    assert!(matches!(error, ContainerError::NoRoom { .. }), "{error:?}");
    assert_eq!(file.size().unwrap(), written);
    // Room is made by somebody else: here the tmpfs grows.
    mount_remount(disk.path(), MountFlags::empty(), c"size=512k").unwrap();
    file.publish(Durability::Durable).unwrap();
    file.close(Durability::Durable).unwrap();
    assert!(check(&path).unwrap().is_sound());
    assert_eq!(published(&path), &data[..written.get() as usize]);
}

/// The indexes are merged, and the parts stay where they are.
#[test]
fn without_room_for_a_joined_part_the_indexes_are_merged() {
    let test = "without_room_for_a_joined_part_the_indexes_are_merged";
    let Some(disk) = SmallDisk::new(test) else { return };
    let path = disk.path().join("F");
    let container = create(&path);
    for number in 0..3u32 {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(u64::from(number) << 16), &[number as u8; 50 << 10]).unwrap();
        file.close(Durability::Durable).unwrap();
    }
    let expected = published(&path);
    let files = || std::fs::read_dir(&path).unwrap().count();
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!((told.indexes_removed, told.parts_joined, files()), (3, 0, 2 + 1 + 3));
    assert_eq!(published(&path), expected);

    // Not even for an index: nothing is left of it.
    let file = open(&container, 9, 0);
    file.write_at(GlobalOffset(0), b"new").unwrap();
    file.close(Durability::Durable).unwrap();
    let (expected, before) = (published(&path), files());
    std::fs::write(disk.path().join("filler"), vec![1; ROOM as usize]).unwrap_err();
    let error = container.compact_joining(Finished::Closed, EAGER).unwrap_err();
    assert!(matches!(error, ContainerError::NoRoom { .. }), "{error:?}");
    assert_eq!((published(&path), files()), (expected.clone(), before));
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    container.compact_joining(Finished::Closed, Joining::NONE).unwrap();
    assert_eq!(published(&path), expected);
    assert!(check(&path).unwrap().problems.is_empty());
}

/// Of three parts of 24 KiB each, on a disk of 256 KiB of which 16 are to stay free.
#[test]
fn a_join_leaves_room_for_other_writers() {
    let test = "a_join_leaves_room_for_other_writers";
    let Some(disk) = SmallDisk::new(test) else { return };
    let path = disk.path().join("F");
    let container = create(&path);
    for number in 0..3u32 {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(u64::from(number) << 16), &[number as u8; 24 << 10]).unwrap();
        file.close(Durability::Durable).unwrap();
    }
    let expected = published(&path);
    let free = || {
        let stat = rustix::fs::statvfs(disk.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    let (joined, page) = (72 << 10, 4 << 10);
    let wanted = 2 * joined + (16 << 10);
    let leave = |left: u64| {
        let filler = disk.path().join("filler");
        let _ = std::fs::remove_file(&filler);
        std::fs::write(filler, vec![1; (free() - left) as usize]).unwrap();
        assert_eq!(free(), left);
    };
    // Much more than the joined part needs.
    leave(wanted - page);
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    let why = told.not_joined.unwrap();
    assert!(why.contains("72 KiB") && why.contains("160 KiB"), "{why}");
    assert_eq!((told.parts_joined, told.indexes_removed), (0, 3));
    assert_eq!(published(&path), expected);
    leave(wanted + page); // The merged index has been begun by then.
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!((told.parts_joined, told.not_joined), (3, None));
    assert_eq!(published(&path), expected);
}

#[test]
fn a_publication_that_fails_leaves_the_ones_before() {
    let Some(disk) = SmallDisk::new("a_publication_that_fails_leaves_the_ones_before") else {
        return;
    };
    let path = disk.path().join("F");
    let file = open(&create(&path), 1, 0);
    let mut expected = Vec::new();
    // Irregular on purpose: each write is a record, so the index grows with them.
    let mut at = 0;
    let failed = loop {
        for nth in 0..64u64 {
            file.write_at(GlobalOffset(at), &[7]).unwrap();
            expected.resize(at as usize, 0);
            expected.push(7);
            at += 2 + nth * nth % 13;
        }
        match file.publish(Durability::Durable) {
            Ok(()) => {
                std::fs::write(disk.path().join("filler"), vec![0; (at * 24) as usize]).ok();
            }
            Err(error) => break error,
        }
        assert_eq!(published(&path), expected);
    };
    assert!(matches!(failed, ContainerError::NoRoom { .. }), "{failed:?}");
    let before = published(&path);
    assert!(before.len() < expected.len() && expected.starts_with(&before));
    assert!(check(&path).unwrap().is_sound());
    std::fs::remove_file(disk.path().join("filler")).unwrap();
    file.publish(Durability::Durable).unwrap();
    assert_eq!(published(&path), expected);
}
