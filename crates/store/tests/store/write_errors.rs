//! Storage that fails a write-back: told once by the kernel, and kept by us.

use std::ffi::CStr;
use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_layout::{InodeId, LocalOffset};
use hayase_store::{Part, PartId, Parts, PreadDevice};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::mounted::skip;

const MIB: usize = 1 << 20;
/// What the storage below takes, and what the file system above believes it has, in bytes.
const ROOM: &CStr = c"size=16m";
const BELIEVED: u64 = 256 << 20;
const ID: PartId = PartId { ino: InodeId(7), epoch: 0, index: 0 };

/// A file system on a sparse image that is larger than the storage that it lies on: writes of the kernel fail there, long after
/// those of the program have succeeded.
struct Lying {
    top: tempfile::TempDir,
}

impl Lying {
    fn new() -> Self {
        let lying = Self { top: tempfile::tempdir().unwrap() };
        for name in ["below", "above"] {
            fs::create_dir(lying.path(name)).unwrap();
        }
        mount("write-errors", lying.path("below"), "tmpfs", MountFlags::empty(), Some(ROOM))
            .unwrap();
        let image = lying.path("below/image");
        File::create(&image).unwrap().set_len(BELIEVED).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal", "-E", "nodiscard"])
            .arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(lying.path("above")));
        lying
    }

    /// From here on it takes everything.
    fn grow(&self) {
        run(Command::new("mount").args(["-o", "remount,size=512m"]).arg(self.path("below")));
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.top.path().join(name)
    }
}

impl Drop for Lying {
    fn drop(&mut self) {
        for name in ["above", "below"] {
            let _ = unmount(self.path(name), UnmountFlags::DETACH);
        }
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Writes `count` MiB.
fn write(part: &Part, count: usize) {
    for index in 0..count {
        part.write_at(LocalOffset((index * MIB) as u64), &vec![index as u8 + 1; MIB]).unwrap();
    }
}

fn parts_on(lying: &Lying) -> Parts {
    let device = PreadDevice::open(&lying.path("above/parts")).unwrap();
    Parts::open(Arc::new(device), 4)
}

#[test]
fn an_error_of_write_back_counts_until_the_part_is_emptied() {
    if skip("an_error_of_write_back_counts_until_the_part_is_emptied") {
        return;
    }
    let lying = Lying::new();
    let parts = parts_on(&lying);
    let part = parts.create(ID).unwrap();
    write(&part, 24);
    part.sync(true).unwrap_err();
    lying.grow();
    for _ in 0..2 {
        part.sync(true).unwrap_err();
        parts.get(ID).unwrap().check_written().unwrap_err();
    }
    assert!(parts.has_failed(ID));
    part.truncate(0).unwrap();
    write(&part, 1);
    part.sync(true).unwrap();
    part.check_written().unwrap();
}

/// What is read then is not what was written.
#[test]
fn an_error_of_write_back_is_seen_without_a_sync() {
    if skip("an_error_of_write_back_is_seen_without_a_sync") {
        return;
    }
    let lying = Lying::new();
    let parts = parts_on(&lying);
    let part = parts.create(ID).unwrap();
    write(&part, 24);
    part.begin_writeback(LocalOffset(0), 24 << 20).unwrap();
    let start = Instant::now();
    while part.check_written().is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "it was never told");
    }
    part.sync(true).unwrap_err();
}
