//! What only real files can show.

use std::io::Write;

use hayase_layout::InodeId;

use super::*;

fn at(offset: u64) -> LocalOffset {
    LocalOffset(offset)
}

fn id(ino: u64) -> PartId {
    PartId { ino: InodeId(ino), epoch: 0, index: 0 }
}

fn path(dir: &Path, ino: u64) -> PathBuf {
    dir.join(format!("{:02x}/{}", (ino >> 8) as u8, id(ino)))
}

#[test]
fn passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    super::super::conformance::run(&|| {
        count.set(count.get() + 1);
        Arc::new(PreadDevice::open(&dir.path().join(count.get().to_string())).unwrap())
    });
}

#[test]
fn parts_outlive_the_device() {
    let dir = tempfile::tempdir().unwrap();
    PreadDevice::open(dir.path()).unwrap().create(id(7)).unwrap().write_at(at(0), b"x").unwrap();
    std::fs::write(dir.path().join("00/stranger"), b"").unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    assert_eq!(device.list().unwrap(), [id(7)]);
    let mut byte = [0];
    assert_eq!(device.open(id(7)).unwrap().read_at(at(0), &mut byte).unwrap(), 1);
}

#[test]
fn a_part_unlinked_behind_our_back_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    std::fs::remove_file(path(dir.path(), 7)).unwrap();
    let check = |error: PartError| {
        assert!(matches!(error, PartError::Missing { .. }), "{error}");
        assert!(error.help().unwrap().contains("behind the server's back"));
    };
    check(file.stat().unwrap_err());
    check(device.open(id(7)).err().unwrap());
    check(file.descriptor().unwrap_err());
    check(file.is_quiescent().unwrap_err());
}

#[test]
fn no_directory_is_said() {
    let error = PreadDevice::open(Path::new("/proc/none")).err().unwrap();
    assert_eq!(error.to_string(), "make the directory of parts /proc/none");
}

#[test]
fn descriptors_are_independent_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    file.write_at(at(0), b"0123456789").unwrap();
    let given = file.descriptor().unwrap().unwrap();
    rustix::fs::fcntl_setfl(&given, OFlags::APPEND).unwrap();
    rustix::fs::seek(&given, rustix::fs::SeekFrom::Start(3)).unwrap();
    file.write_at(at(0), b"x").unwrap();
    assert_eq!(file.stat().unwrap().size, 10, "our write went where we said");
    assert_eq!(file.append(b"y").unwrap(), at(10));
}

#[test]
fn a_descriptor_given_away_is_ours_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    file.write_at(at(0), b"0123456789").unwrap();
    let given = file.give_descriptor().unwrap().unwrap();
    assert_eq!(rustix::fs::tell(&given).unwrap(), 0);
    rustix::fs::fcntl_setfl(&given, OFlags::APPEND).unwrap();
    file.write_at(at(0), b"x").unwrap();
    assert_eq!(file.stat().unwrap().size, 10, "our write went where we said");
    drop(given);
    assert!(file.is_quiescent().unwrap(), "nothing is left of what was given");
}

#[test]
fn what_is_given_away_begins_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    file.write_at(at(0), b"0123456789").unwrap();
    assert_eq!(file.seek(0, Whence::Hole).unwrap(), Some(10), "which moves our position");
    let given = file.give_descriptor().unwrap().unwrap();
    assert_eq!(rustix::fs::tell(&given).unwrap(), 0);
}

#[test]
fn quiescence_sees_descriptors_and_the_part_works_on() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    file.write_at(at(0), b"a").unwrap();
    file.append(b"b").unwrap();
    assert!(file.is_quiescent().unwrap(), "our own descriptors do not count");
    let given = file.descriptor().unwrap().unwrap();
    assert!(!file.is_quiescent().unwrap());
    drop(given);
    assert!(file.is_quiescent().unwrap());
    file.write_at(at(2), b"c").unwrap();
    assert_eq!(file.append(b"d").unwrap(), at(3));
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(at(0), &mut bytes).unwrap(), 4);
    assert_eq!(&bytes[..4], b"abcd");
}

#[test]
fn io_goes_on_while_the_part_is_probed() {
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u8)
            .map(|writer| {
                let file = &file;
                scope.spawn(move || {
                    for i in 0..2_000u64 {
                        file.write_at(at(i * 2 + u64::from(writer)), &[writer + 1]).unwrap();
                    }
                })
            })
            .collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert!(file.is_quiescent().unwrap(), "only our own descriptors are there");
        }
    });
    let mut bytes = vec![0; 4_000];
    assert_eq!(file.read_at(at(0), &mut bytes).unwrap(), 4_000);
    assert!(bytes.chunks(2).all(|pair| pair == [1, 2]), "a write was lost");
}

#[test]
fn appends_are_exact_beside_a_local_appender() {
    const RECORD: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let device = PreadDevice::open(dir.path()).unwrap();
    let file = device.create(id(7)).unwrap();
    let mut local = std::fs::OpenOptions::new().append(true).open(path(dir.path(), 7)).unwrap();
    let mut places = std::thread::scope(|scope| {
        let ours: Vec<_> = (1..=2u8)
            .map(|writer| {
                let file = &file;
                scope.spawn(move || {
                    let record = [writer; RECORD];
                    (0..500).map(|_| (file.append(&record).unwrap(), writer)).collect::<Vec<_>>()
                })
            })
            .collect();
        for _ in 0..500 {
            local.write_all(&[9; RECORD]).unwrap();
        }
        ours.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    places.sort_unstable();
    let mut bytes = vec![0; 1_500 * RECORD + 1];
    assert_eq!(file.read_at(at(0), &mut bytes).unwrap(), 1_500 * RECORD);
    for (place, writer) in places {
        let record = &bytes[place.0 as usize..][..RECORD];
        assert!(record.iter().all(|byte| *byte == writer), "not where append said");
    }
    let local = bytes.chunks(RECORD).filter(|record| record == &[9; RECORD]).count();
    assert_eq!(local, 500);
}
