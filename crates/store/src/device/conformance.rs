//! The suite that every [`Device`] passes.
//!
//! Here: what can be seen through the traits. Not here: what survives a crash, which a device proves
//! in its own tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_layout::{InodeId, LocalOffset};

use super::{Device, DeviceFile, SetTime, Whence};
use crate::namespace::Time;
use crate::part::{PartError, PartId};

/// Runs all checks, each on a new device made by `make`. Panics at the first that fails.
pub fn run(make: &dyn Fn() -> Arc<dyn Device>) {
    files_are_made_found_and_removed(make().as_ref());
    bytes_come_back(make().as_ref());
    files_grow_with_zeros(make().as_ref());
    appends_tell_their_place(make().as_ref());
    appends_tell_their_place_beside_probes(make().as_ref());
    times_and_size_are_told(make().as_ref());
    ranges_are_allocated_and_zeroed(make().as_ref());
    data_and_holes_are_found(make().as_ref());
    ranges_are_copied(make().as_ref());
    nowait_is_the_same_or_nothing(make().as_ref());
    a_removed_file_lives_for_its_holder(make().as_ref());
    agrees_with_a_vector(make().as_ref());
}

fn id(ino: u64) -> PartId {
    PartId { ino: InodeId(ino), epoch: 3, index: 1 }
}

fn at(offset: u64) -> LocalOffset {
    LocalOffset(offset)
}

fn all(file: &dyn DeviceFile) -> Vec<u8> {
    let mut bytes = vec![0xee; 4096];
    let len = file.read_at(at(0), &mut bytes).expect("read");
    assert!(len < 4096, "these files are small");
    bytes.truncate(len);
    bytes
}

fn files_are_made_found_and_removed(device: &dyn Device) {
    assert!(matches!(device.open(id(1)), Err(PartError::Missing { .. })));
    device.create(id(1)).expect("create").write_at(at(0), b"x").expect("write");
    assert!(matches!(device.create(id(1)), Err(PartError::Exists { .. })));
    device.create(PartId { epoch: 4, ..id(1) }).expect("another epoch is another part");
    device.create(PartId { index: 2, ..id(1) }).expect("another index is another part");
    assert_eq!(all(device.open(id(1)).expect("open").as_ref()), b"x");
    let mut list = device.list().expect("list");
    list.sort_unstable();
    assert_eq!(list, [id(1), PartId { index: 2, ..id(1) }, PartId { epoch: 4, ..id(1) }]);
    device.remove(id(1)).expect("remove");
    device.remove(id(1)).expect("remove again");
    assert!(matches!(device.open(id(1)), Err(PartError::Missing { .. })));
    assert_eq!(device.list().expect("list").len(), 2);
}

fn bytes_come_back(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    assert_eq!(all(file.as_ref()), b"");
    file.write_at(at(0), b"hello").expect("write");
    file.write_at(at(0), b"J").expect("overwrite");
    file.write_at(at(100), b"").expect("write nothing");
    assert_eq!(all(file.as_ref()), b"Jello");
    let mut two = [0; 2];
    assert_eq!(file.read_at(at(4), &mut two).expect("read over the end"), 1);
    assert_eq!(file.read_at(at(5), &mut two).expect("read at the end"), 0);
    assert_eq!(file.read_at(at(1 << 30), &mut two).expect("read behind the end"), 0);
    assert_eq!(file.read_at(at(0), &mut []).expect("read nothing"), 0);
    file.sync(false).expect("sync");
    file.sync(true).expect("sync data");
    let again = device.open(id(1)).expect("open");
    assert_eq!(all(again.as_ref()), b"Jello");
    again.write_at(at(0), b"y").expect("write");
    assert_eq!(all(file.as_ref()), b"yello", "both handles see one file");
}

fn files_grow_with_zeros(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    file.write_at(at(3), b"ab").expect("write behind the end");
    assert_eq!(all(file.as_ref()), b"\0\0\0ab");
    file.truncate(4).expect("cut");
    file.truncate(6).expect("grow");
    assert_eq!(all(file.as_ref()), b"\0\0\0a\0\0", "cut bytes do not come back");
    file.truncate(0).expect("empty");
    assert_eq!(all(file.as_ref()), b"");
}

fn appends_tell_their_place(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    assert_eq!(file.append(b"").expect("append nothing"), at(0));
    assert_eq!(file.append(b"abc").expect("append"), at(0));
    assert_eq!(file.append(b"d").expect("append"), at(3));
    file.truncate(2).expect("cut");
    assert_eq!(file.append(b"e").expect("append"), at(2));
    file.write_at(at(9), b"x").expect("write");
    assert_eq!(file.append(b"f").expect("append"), at(10));
    assert_eq!(all(file.as_ref()), b"abe\0\0\0\0\0\0xf");
}

fn appends_tell_their_place_beside_probes(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    let appended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let append = || {
            for number in 0..2_000 {
                let place = file.append(b"abc").expect("append");
                appended.fetch_add(u64::from(place == at(3 * number)), Ordering::Relaxed);
            }
        };
        let appender = scope.spawn(append);
        while !appender.is_finished() {
            // What it answers beside an open descriptor of the append is not asked here.
            let _ = file.is_quiescent();
        }
    });
    assert_eq!(appended.into_inner(), 2_000, "appends whose place was told");
}

fn times_and_size_are_told(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    file.write_at(at(0), b"abc").expect("write");
    assert_eq!(file.stat().expect("stat").size, 3);
    let (early, late) =
        (Time { seconds: 5, nanos: 123_456_789 }, Time { seconds: 1 << 32, nanos: 1 });
    file.set_times(Some(SetTime::To(early)), Some(SetTime::To(late))).expect("set both");
    let stat = file.stat().expect("stat");
    assert_eq!((stat.atime, stat.mtime), (early, late));
    file.set_times(None, Some(SetTime::Now)).expect("set one");
    let stat = file.stat().expect("stat");
    assert_eq!(stat.atime, early, "None stays");
    assert!(stat.mtime != late && stat.mtime > early, "now is now: {:?}", stat.mtime);
    file.set_times(None, Some(SetTime::To(early))).expect("set one");
    file.write_at(at(0), b"d").expect("write");
    assert!(file.stat().expect("stat").mtime > early, "a write moves mtime");
}

fn ranges_are_allocated_and_zeroed(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    file.allocate(libc::FALLOC_FL_KEEP_SIZE, 0, 8192).expect("reserve");
    assert_eq!(file.stat().expect("stat").size, 0, "a reservation does not grow the file");
    file.allocate(0, 0, 10).expect("grow");
    assert_eq!(file.stat().expect("stat").size, 10);
    file.write_at(at(0), b"0123456789").expect("write");
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    file.allocate(punch, 2, 3).expect("punch");
    assert_eq!(all(file.as_ref()), b"01\0\0\x0056789");
    file.allocate(punch, 8, 100).expect("punch over the end");
    assert_eq!(all(file.as_ref()), b"01\0\0\x00567\0\0");
    let empty = file.allocate(0, 0, 0).expect_err("nothing");
    assert_eq!(empty.errno(), libc::EINVAL);
}

fn data_and_holes_are_found(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    let seek = |offset, whence| file.seek(offset, whence).expect("seek");
    assert_eq!(seek(0, Whence::Data), None, "an empty file has neither");
    assert_eq!(seek(0, Whence::Hole), None);
    file.write_at(at(0), b"abc").expect("write");
    assert_eq!(seek(1, Whence::Data), Some(1));
    assert_eq!(seek(1, Whence::Hole), Some(3), "there is a hole at the end");
    assert_eq!(seek(3, Whence::Hole), None);
}

fn ranges_are_copied(device: &dyn Device) {
    let (source, target) =
        (device.create(id(1)).expect("create"), device.create(id(2)).expect("create"));
    source.write_at(at(0), b"0123456789").expect("write");
    let copy =
        |offset, into, len| source.copy_range_to(offset, target.as_ref(), into, len).expect("copy");
    assert_eq!(copy(2, 1, 3), 3);
    assert_eq!(all(target.as_ref()), b"\x00234");
    assert_eq!(copy(8, 4, 100), 2, "stops at the end of the source");
    assert_eq!(all(target.as_ref()), b"\x0023489");
    assert_eq!(copy(50, 0, 5), 0);
    assert_eq!(copy(0, 0, 0), 0);
    let bytes: Vec<u8> = (0..700_000u32).map(|i| (i / 251) as u8).collect();
    source.write_at(at(0), &bytes).expect("write");
    assert_eq!(copy(5, 0, 699_995), 699_995);
    let mut copied = vec![0; 699_995];
    target.read_at(at(0), &mut copied).expect("read");
    assert!(copied == bytes[5..], "a long copy is exact");
}

fn nowait_is_the_same_or_nothing(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    file.write_at(at(0), b"hello").expect("write");
    let mut bytes = [0; 9];
    match file.read_nowait(at(1), &mut bytes) {
        Ok(len) => assert_eq!(&bytes[..len], b"ello", "all up to the end"),
        Err(error) => assert!(matches!(error, PartError::WouldWait { .. }), "{error}"),
    }
    match file.write_nowait(at(0), b"J") {
        Ok(()) => assert_eq!(all(file.as_ref()), b"Jello"),
        Err(error) => assert!(matches!(error, PartError::WouldWait { .. }), "{error}"),
    }
}

fn a_removed_file_lives_for_its_holder(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    file.write_at(at(0), b"old").expect("write");
    device.remove(id(1)).expect("remove");
    let new = device.create(id(1)).expect("create again");
    file.write_at(at(0), b"O").expect("write");
    assert_eq!(all(file.as_ref()), b"Old");
    assert_eq!(all(new.as_ref()), b"");
}

fn agrees_with_a_vector(device: &dyn Device) {
    let file = device.create(id(1)).expect("create");
    let mut model: Vec<u8> = Vec::new();
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for round in 0..500u32 {
        let (offset, len) = (next(2_000), next(300) as usize);
        match next(4) {
            0 => {
                file.truncate(offset).expect("truncate");
                model.resize(offset as usize, 0);
            }
            1 => {
                let bytes = vec![round as u8; len];
                assert_eq!(file.append(&bytes).expect("append"), at(model.len() as u64));
                model.extend(bytes);
            }
            _ => {
                let (offset, bytes) = (offset as usize, vec![round as u8; len]);
                file.write_at(at(offset as u64), &bytes).expect("write");
                if len > 0 {
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&bytes);
                }
            }
        }
        model.truncate(4_000);
        if model.len() == 4_000 {
            file.truncate(4_000).expect("truncate");
        }
        assert_eq!(file.stat().expect("stat").size, model.len() as u64);
        assert!(all(file.as_ref()) == model, "round {round}");
    }
}
