//! A power cut at any moment: the block device of a running store is copied as it is at one instant
//! (by a reflink of the image), and a new store is opened on the copy.
//!
//! What was synced is there, bytes and names; the names are a prefix of what was done, in order;
//! and each of them has its inode, its back pointer and its part.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hayase_layout::{ByteCount, InodeId, Layout, LocalOffset, ServerId};
use hayase_store::namespace::ops;
use hayase_store::{
    Area, EntryRecord, FileKind, FjallStore, ImageArea, Inode, MountedArea, Namespace, PartId,
    Parts, Time,
};

use crate::mounted::{Mounted, skip};

const CUTS: u32 = 6;
const FILE_BYTES: usize = 10_000;
const SYNC_EACH: u64 = 7;

fn now(file: u64) -> Time {
    Time { seconds: file.cast_signed(), nanos: 0 }
}

fn name(file: u64) -> Vec<u8> {
    format!("file-{file}").into_bytes()
}

fn part_id(ino: InodeId) -> PartId {
    PartId { ino, epoch: 0, index: 0 }
}

struct Store {
    names: Namespace,
    parts: Parts,
}

impl Store {
    fn open(root: &Path) -> Self {
        let area = MountedArea::open(root).unwrap();
        let meta = Arc::new(FjallStore::open(&root.join("meta")).unwrap());
        let names = Namespace::open(meta, ServerId(0), now(0)).unwrap();
        Self { names, parts: Parts::open(area.parts().unwrap(), 16) }
    }

    /// As a server does it: the part, then inode, back pointer and name in one commit.
    fn create(&self, file: u64) -> PartId {
        let ino = self.names.allocate().unwrap();
        let part = self.parts.create(part_id(ino)).unwrap();
        part.write_at(LocalOffset(0), &[file as u8; FILE_BYTES]).unwrap();
        let inode = Inode {
            mode: 0o644,
            size: file,
            layout: Layout::Whole,
            name: Some((InodeId::ROOT, name(file))),
            ..Inode::new(ino, FileKind::Regular, now(file))
        };
        let mut txn = self.names.begin();
        ops::create(&mut txn, &inode, None).unwrap();
        let entry = EntryRecord { ino, kind: FileKind::Regular };
        ops::insert(&mut txn, InodeId::ROOT, &name(file), entry).unwrap().unwrap();
        txn.commit().unwrap();
        part.id()
    }

    fn run(&self, synced: &AtomicU64, stop: &AtomicBool) {
        let mut unsynced = Vec::new();
        for file in 0.. {
            if stop.load(Ordering::Acquire) {
                return;
            }
            unsynced.push(self.create(file));
            if unsynced.len() as u64 == SYNC_EACH {
                for part in unsynced.drain(..) {
                    self.parts.get(part).unwrap().sync(true).unwrap();
                }
                self.names.sync().unwrap();
                synced.store(file + 1, Ordering::Release);
            }
        }
    }

    /// How many files there are; checks that they are the first ones, and whole.
    fn check(&self, synced: u64) -> u64 {
        let txn = self.names.begin();
        let entries = ops::list(&txn, InodeId::ROOT, 0, usize::MAX).unwrap();
        let count = entries.len() as u64;
        assert!(count >= synced, "{count} names are left of {synced} that were synced");
        for file in 0..count {
            let entry = ops::lookup(&txn, InodeId::ROOT, &name(file)).unwrap();
            let entry =
                entry.unwrap_or_else(|| panic!("no prefix: name {file} of {count} is missing"));
            let inode = ops::get_inode(&txn, entry.ino).unwrap().expect("a name has an inode");
            assert_eq!(inode.size, file);
            let names = ops::names_of(&txn, entry.ino).unwrap();
            assert_eq!(names, [(InodeId::ROOT, name(file))]);
            let part = self.parts.get(part_id(entry.ino)).unwrap();
            let mut bytes = vec![0; FILE_BYTES];
            let len = part.read_at(LocalOffset(0), &mut bytes).unwrap();
            if file < synced {
                assert!(len == FILE_BYTES, "file {file} of {synced} synced ones has {len} bytes");
                assert!(bytes.iter().all(|byte| *byte == file as u8), "file {file} lost bytes");
            }
        }
        count
    }
}

/// A mounted copy of an image. Its file system has the number of the original, which a mount
/// namespace made meanwhile by somebody else may still hold: hence not by [`ImageArea`].
struct MountedCopy<'a> {
    root: &'a Path,
}

impl<'a> MountedCopy<'a> {
    fn new(image: &Path, root: &'a Path) -> Self {
        let mounted =
            Command::new("mount").args(["-o", "loop,nouuid"]).arg(image).arg(root).status();
        assert!(mounted.unwrap().success());
        Self { root }
    }
}

impl Drop for MountedCopy<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.root).status();
    }
}

#[test]
fn a_power_cut_loses_nothing_synced_and_leaves_a_prefix() {
    if skip("a_power_cut_loses_nothing_synced_and_leaves_a_prefix") {
        return;
    }
    // The image lies on a file system that can copy a file at one instant.
    let outer = Mounted::new(ByteCount::mib(600));
    let (image, root) = (outer.root.join("node.img"), outer.root.parent().unwrap().join("node"));
    let area = ImageArea::create(&image, &root, ByteCount::mib(200)).unwrap();
    let (synced, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut cuts = Vec::new();
    std::thread::scope(|scope| {
        let store = Store::open(&root);
        scope.spawn(|| {
            let store = store;
            store.run(&synced, &stop);
        });
        let source = File::open(&image).unwrap();
        for cut in 0..CUTS {
            std::thread::sleep(Duration::from_millis(40 + 30 * u64::from(cut % 3)));
            let copy = outer.root.join(format!("cut-{cut}.img"));
            let before = synced.load(Ordering::Acquire);
            rustix::fs::ioctl_ficlone(File::create(&copy).unwrap(), &source).unwrap();
            cuts.push((copy, before));
        }
        stop.store(true, Ordering::Release);
    });
    area.unmount().unwrap();
    let mut last = 0;
    for (copy, synced) in cuts {
        // Direct I/O on a file with shared blocks has another unit, so: a copy with its own.
        let plain = outer.root.parent().unwrap().join("plain.img");
        let copied = Command::new("cp")
            .args(["--reflink=never".as_ref(), "--sparse=always".as_ref(), copy.as_os_str()])
            .arg(&plain)
            .status();
        assert!(copied.unwrap().success());
        let mounted = MountedCopy::new(&plain, &root);
        let store = Store::open(&root);
        let count = store.check(synced);
        assert!(count >= last, "an earlier cut left more");
        last = count;
        // And it works on.
        store.create(count);
        assert_eq!(store.check(synced), count + 1);
        drop(store);
        drop(mounted);
        std::fs::remove_file(plain).unwrap();
    }
    assert!(last > SYNC_EACH, "the writer hardly wrote: {last} files");
}
