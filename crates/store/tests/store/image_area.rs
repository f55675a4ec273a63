//! The area as an XFS image: its size is exact, its errors are clear, nothing is left behind.

use std::io::Write;
use std::path::Path;

use hayase_layout::{ByteCount, InodeId, LocalOffset};
use hayase_store::uring::{Request, Ring, Transfer};
use hayase_store::{
    Area, AreaError, Batch, FjallStore, ImageArea, MetaStore, MountedArea, Part, PartError, PartId,
    Parts, Slot, SlotPool,
};

use crate::mounted::{Mounted, skip, skipped};

/// Loop devices whose file lies below `directory`.
fn loops_of(directory: &Path) -> Vec<String> {
    let output =
        std::process::Command::new("losetup").args(["-l", "-n", "-O", "BACK-FILE"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let directory = directory.to_str().unwrap();
    text.lines().filter(|line| line.contains(directory)).map(str::to_owned).collect()
}

#[test]
fn what_was_asked_for_is_usable_and_nothing_is_left() {
    if skip("what_was_asked_for_is_usable_and_nothing_is_left") {
        return;
    }
    for size in [16, 300, 1000] {
        let mut mounted = Mounted::new(ByteCount::mib(size));
        let area = mounted.area.take().unwrap();
        let usage = area.usage().unwrap();
        assert!(usage.free >= size << 20, "{usage:?} of {size} MiB");
        assert!(usage.free <= (size << 20) * 105 / 100 + (250 << 20), "far too large: {usage:?}");
        assert!(usage.inodes_free > 1000);
        let mut file = std::fs::File::create(mounted.root.join("file")).unwrap();
        if size == 16 {
            let before = area.moved().expect("this kernel counts what XFS moves");
            file.write_all(&vec![1; 16 << 20]).unwrap();
            let after = area.moved().unwrap();
            assert_eq!(after.written - before.written, 16 << 20);
            assert_eq!(std::fs::read(mounted.root.join("file")).unwrap().len(), 16 << 20);
            assert_eq!(area.moved().unwrap().read - after.read, 16 << 20);
        }
        drop(file);
        assert_eq!(loops_of(mounted.root.parent().unwrap()).len(), 1);
        area.unmount().unwrap();
        assert!(
            loops_of(mounted.root.parent().unwrap()).is_empty(),
            "the loop device is still there"
        );
        let again =
            ImageArea::open(&mounted.root.parent().unwrap().join("a.img"), &mounted.root).unwrap();
        assert!(mounted.root.join("file").exists());
        drop(again);
        assert!(loops_of(mounted.root.parent().unwrap()).is_empty(), "dropping unmounts too");
    }
}

/// As a copy of the mount in another namespace keeps it.
#[test]
fn an_image_that_is_mounted_already_is_the_same_file_system() {
    if skip("an_image_that_is_mounted_already_is_the_same_file_system") {
        return;
    }
    let mounted = Mounted::new(ByteCount::mib(16));
    let top = mounted.root.parent().unwrap();
    std::fs::write(mounted.root.join("file"), b"seen").unwrap();
    let again = ImageArea::open(&top.join("a.img"), &top.join("again")).unwrap();
    assert_eq!(loops_of(top).len(), 1);
    assert_eq!(std::fs::read(top.join("again/file")).unwrap(), b"seen");
    again.unmount().unwrap();
    assert_eq!(std::fs::read(mounted.root.join("file")).unwrap(), b"seen");
}

#[test]
fn a_full_area_is_enospc_at_the_write() {
    if skip("a_full_area_is_enospc_at_the_write") {
        return;
    }
    let mounted = Mounted::new(ByteCount::mib(16));
    let area = MountedArea::open(&mounted.root).unwrap();
    let parts = Parts::open(area.parts().unwrap(), 8);
    let names = FjallStore::open(&area.names()).unwrap();
    let id = PartId { ino: InodeId(7), epoch: 0, index: 0 };
    let part = parts.create(id).unwrap();
    let block = vec![1; 1 << 20];
    let mut offset = 0;
    let error = loop {
        match part.write_at(LocalOffset(offset), &block) {
            Ok(()) => offset += 1 << 20,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, PartError::NoRoom { .. }), "{error}");
    assert_eq!(error.errno(), 28);
    assert!(error.help().unwrap().contains("layout set"));
    assert!(offset >= 16 << 20, "full after {offset} bytes");
    part.write_at(LocalOffset(0), &block).unwrap();
    let mut batch = Batch::new();
    batch.delete(b"name".to_vec());
    names.commit(batch).expect("names can be removed from a full area");
    names.sync().unwrap();
    parts.remove(id).unwrap();
    drop(part);
    // XFS gives the blocks back in the background.
    let start = std::time::Instant::now();
    while area.usage().unwrap().free < 15 << 20 {
        assert!(start.elapsed().as_secs() < 20, "the space does not come back");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Writes `len` bytes past the page cache and waits for the end.
fn write_direct(ring: &mut Ring<Slot>, slots: &SlotPool, part: &Part, offset: u64, len: usize) {
    let file = part.direct(Transfer::Write, offset + len as u64).unwrap();
    let buffer = Box::new(slots.try_take().unwrap());
    let begun = ring.begin(Request { file, transfer: Transfer::Write, offset, buffer, len });
    assert!(begun.is_ok());
    let ended = loop {
        match ring.ended() {
            Some(ended) => break ended,
            None => ring.wait().unwrap(),
        }
    };
    assert_eq!(ended.moved.unwrap(), len);
}

/// Nothing is allocated ahead of a part, nor around what is written of it: parts stay open for long, and the kernel
/// would take such room back neither then nor when the disk is full.
#[test]
fn what_passes_by_the_page_cache_takes_its_own_room_only() {
    const PARTS: u64 = 16;
    const MIB: u64 = 1 << 20;
    const PIECE: usize = 256 << 10;
    if skip("what_passes_by_the_page_cache_takes_its_own_room_only") {
        return;
    }
    let slots = SlotPool::new(2).unwrap();
    let mut ring = match Ring::new(2, &slots) {
        Ok(ring) => ring,
        Err(error) => return skipped("its own room only", &error.to_string()),
    };
    let mounted = Mounted::new(ByteCount::mib(300));
    let area = MountedArea::open(&mounted.root).unwrap();
    let parts = Parts::open(area.parts().unwrap(), 64);
    let id = |ino| PartId { ino: InodeId(ino), epoch: 0, index: 0 };
    let open: Vec<Part> = (0..PARTS).map(|ino| parts.create(id(ino)).unwrap()).collect();
    for part in &open {
        write_direct(&mut ring, &slots, part, 0, 1 << 20);
        // Behind a gap: a file with holes keeps them.
        write_direct(&mut ring, &slots, part, 100 * MIB, PIECE);
        assert_eq!(part.stat().unwrap().blocks * 512, MIB + PIECE as u64);
    }
    let (large, block) = (parts.create(id(PARTS)).unwrap(), vec![1; 1 << 20]);
    let mut written = 0;
    while large.write_at(LocalOffset(written), &block).is_ok() {
        written += MIB;
    }
    let all = written + PARTS * (MIB + PIECE as u64);
    assert!(all >= 300 * MIB, "full after {all} bytes");
}

#[test]
fn errors_are_clear_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (image, root) = (directory.path().join("a.img"), directory.path().join("mnt"));
    let check = |image: &Path, size, text: &str, help: &str| {
        let error = ImageArea::create(image, &root, size).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.help().unwrap().contains(help), "{:?}", error.help());
    };
    let missing = Path::new("/nonexistent/a.img");
    check(missing, ByteCount::mib(100), "no such directory", "--storage");
    check(&image, ByteCount::kib(1), "16 MiB is the least", "16 MiB or more");
    check(&image, ByteCount(1 << 60), "are free", "smaller areas");
    assert!(!image.exists());
    std::fs::write(&image, b"somebody's").unwrap();
    check(&image, ByteCount::mib(16), "it exists", "hayase down");
    assert_eq!(std::fs::read(&image).unwrap(), b"somebody's", "it is not ours to remove");
    let error = ImageArea::open(&directory.path().join("none.img"), &root).unwrap_err();
    assert!(matches!(error, AreaError::Io { .. }), "{error}");
}

#[test]
fn what_is_no_image_is_said() {
    if skip("what_is_no_image_is_said") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("a.img");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let error = ImageArea::open(&image, &directory.path().join("mnt")).unwrap_err();
    assert_eq!(error.to_string(), format!("mount {}", image.display()));
    assert!(loops_of(directory.path()).is_empty(), "the loop device is still there");
}

/// A disk with sectors of 4096 bytes and a file system on it.
struct LargeSectors {
    directory: tempfile::TempDir,
    device: String,
}

impl LargeSectors {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk.img");
        std::fs::File::create(&disk).unwrap().set_len(700 << 20).unwrap();
        let disk = disk.to_str().unwrap();
        let device = run("losetup", &["--find", "--show", "--sector-size=4096", disk]);
        let this = Self { directory, device: device.trim().to_owned() };
        run("mkfs.xfs", &["-q", &this.device]);
        std::fs::create_dir(this.root()).unwrap();
        run("mount", &[&this.device, this.root().to_str().unwrap()]);
        this
    }

    fn root(&self) -> std::path::PathBuf {
        self.directory.path().join("mnt")
    }
}

impl Drop for LargeSectors {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.root()).status();
        let _ = std::process::Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_image_fits_storage_with_large_sectors() {
    if skip("an_image_fits_storage_with_large_sectors") {
        return;
    }
    let disk = LargeSectors::new();
    let root = disk.directory.path().join("area");
    let size = ByteCount::mib(300);
    let area = ImageArea::create(&disk.root().join("a.img"), &root, size).unwrap();
    assert!(area.usage().unwrap().free >= size.get());
    area.unmount().unwrap();
}
