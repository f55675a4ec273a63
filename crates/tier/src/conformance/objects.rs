//! Promises about one object: bytes, attributes, where they are.

use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{get, is_missing, key, pattern, put, read_all};
use crate::{Attributes, ObjectMeta, PartSums, Precondition, Tier, TierError, Whole};

pub(super) fn absent(tier: &Arc<dyn Tier>) {
    put(&**tier, &key("there/is"), b"one");
    for name in ["nothing", "there/nothing", "nowhere/at/all"] {
        let name = key(name);
        assert!(is_missing(tier.stat(&name)));
        assert!(is_missing(tier.open(&name)));
        assert!(is_missing(tier.delete(&name)));
        assert!(is_missing(tier.set_attributes(&name, Attributes::default())));
        if tier.capabilities().rename {
            assert!(is_missing(tier.rename(&name, &key("there/is"))));
        }
    }
    assert_eq!(get(&**tier, &key("there/is")), b"one");
}

pub(super) fn round_trip(tier: &Arc<dyn Tier>) {
    for (seed, size) in [0, 1, 4095, 4096, (1 << 20) + 3].into_iter().enumerate() {
        let name = key(format!("dir/of-{size}"));
        let bytes = pattern(seed as u8, size);
        put(&**tier, &name, &bytes);
        assert_eq!(tier.stat(&name).expect("stat").size.get(), size as u64);
        assert!(get(&**tier, &name) == bytes, "{size} bytes differ");
        let reader = tier.open(&name).expect("open");
        for (offset, len) in [(0, 1), (size / 2, 17), (size.saturating_sub(5), 100)] {
            let mut piece = vec![0xee; len];
            let count = reader.read_at(offset as u64, &mut piece).expect("read a range");
            let expected = &bytes[offset.min(size)..(offset + len).min(size)];
            assert_eq!(count, expected.len(), "short before the end of {size} bytes");
            assert_eq!(&piece[..count], expected);
            assert!(piece[count..].iter().all(|&byte| byte == 0xee), "written behind the end");
        }
        for behind in [size as u64, size as u64 + 1, u64::MAX] {
            assert_eq!(reader.read_at(behind, &mut [0; 8]).expect("read behind the end"), 0);
        }
    }
}

pub(super) fn any_order(tier: &Arc<dyn Tier>) {
    let name = key("gaps");
    let mut upload = tier.begin(&name, Attributes::default()).expect("begin");
    let writes: [(u64, &[u8]); 5] =
        [(10, b"tail"), (0, b"head"), (2, b"HE"), (300_000, b"far"), (5, b"")];
    let mut expected = vec![0; 300_003];
    for (offset, data) in writes {
        upload.write_at(offset, data).expect("write");
        expected[offset as usize..][..data.len()].copy_from_slice(data);
    }
    let meta = upload.commit(Precondition::Any).expect("commit");
    assert_eq!(meta.size.get(), 300_003);
    assert!(get(&**tier, &name) == expected, "bytes differ");
}

pub(super) fn attributes(tier: &Arc<dyn Tier>) {
    let name = key("d/a");
    let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let attributes = Attributes { mode: Some(0o640), mtime: Some(time(1_000_000_007)) };
    let mut upload = tier.begin(&name, attributes).expect("begin");
    upload.write_at(0, b"bytes").expect("write");
    let committed = upload.commit(Precondition::Any).expect("commit");
    let meta = tier.stat(&name).expect("stat");
    assert_eq!(
        told(&**tier, committed),
        told(&**tier, meta),
        "commit tells another story than stat"
    );
    assert_eq!(meta, tier.open(&name).expect("open").meta());
    let kept = tier.open(&name).expect("open").attributes().expect("attributes");
    assert_eq!(kept, attributes, "what the writer said is forgotten");
    if !tier.capabilities().attributes {
        let later = Attributes { mode: Some(0o600), mtime: None };
        let refused = tier.set_attributes(&name, later);
        assert!(matches!(refused, Err(TierError::Unsupported { .. })), "{refused:?}");
        return;
    }
    assert_eq!((committed.mode, committed.mtime), (0o640, time(1_000_000_007)));
    let only = |mode, mtime| Attributes { mode, mtime };
    tier.set_attributes(&name, only(Some(0o7604), None)).expect("set the mode");
    let meta = tier.stat(&name).expect("stat");
    assert_eq!(
        (meta.mode, meta.mtime),
        (0o604, time(1_000_000_007)),
        "set-id bits are not carried"
    );
    tier.set_attributes(&name, only(None, Some(time(5)))).expect("set the time");
    let meta = tier.stat(&name).expect("stat");
    assert_eq!((meta.mode, meta.mtime, meta.size.get()), (0o604, time(5), 5));
    assert_eq!(get(&**tier, &name), b"bytes");
}

/// What commit and stat agree on: all, or all but the time of a tier that sets it itself.
fn told(tier: &dyn Tier, meta: ObjectMeta) -> ObjectMeta {
    let mtime = if tier.capabilities().attributes { meta.mtime } else { SystemTime::UNIX_EPOCH };
    ObjectMeta { mtime, ..meta }
}

pub(super) fn put_at_once(tier: &Arc<dyn Tier>) {
    let name = key("d/at-once");
    for size in [0, 1, 70_000] {
        let bytes = pattern(7, size);
        let attributes = Attributes { mode: Some(0o600), mtime: None };
        let meta = tier.put(&name, attributes, &bytes, Precondition::Any).expect("put");
        assert_eq!(told(&**tier, meta), told(&**tier, tier.stat(&name).expect("stat")));
        assert_eq!(tier.open(&name).expect("open").attributes().expect("kept").mode, Some(0o600));
        assert!(get(&**tier, &name) == bytes, "{size} bytes differ");
    }
    if tier.capabilities().absent_max.is_some() {
        let taken = tier.put(&name, Attributes::default(), b"new", Precondition::Absent);
        assert!(matches!(taken, Err(TierError::Exists { .. })), "{taken:?}");
    }
    assert!(get(&**tier, &name) == pattern(7, 70_000));
}

pub(super) fn put_together(tier: &Arc<dyn Tier>) {
    put(&**tier, &key("d/replaced"), b"old");
    put(&**tier, &key("d/directory/below"), b"stays");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
    let names = ["d/a", "d/replaced", "d/directory", "d/e/f", "new/one", "d/z", "top"].map(key);
    let modes = [0o600, 0o644, 0o644, 0o777, 0o400, 0o604, 0o640];
    let data: Vec<_> =
        (0_u8..).zip([0, 5, 5, 70_000, 3, 4096, 1]).map(|(n, len)| pattern(n, len)).collect();
    let whole = |at: usize| {
        let attributes = Attributes { mode: Some(modes[at]), mtime: Some(time) };
        Whole { key: &names[at], attributes, data: &data[at] }
    };
    let objects: Vec<_> = (0..names.len()).map(whole).collect();
    let answers = tier.put_each(&objects);
    assert_eq!(answers.len(), objects.len());
    for (object, answer) in objects.iter().zip(answers) {
        if object.key.as_bytes() == b"d/directory" && tier.capabilities().tree {
            assert!(answer.is_err(), "a directory was replaced");
            continue;
        }
        answer.expect("put");
        assert!(get(&**tier, object.key) == object.data, "{} differs", object.key);
        let kept = tier.open(object.key).expect("open").attributes().expect("attributes");
        assert_eq!(kept, object.attributes, "{}", object.key);
    }
    assert_eq!(get(&**tier, &key("d/directory/below")), b"stays");
    assert!(tier.put_each(&[]).is_empty());
}

pub(super) fn parts(tier: &Arc<dyn Tier>) {
    const PART: u64 = 5 << 20;
    let (name, size) = (key("d/parts"), 2 * PART + 17);
    let attributes = Attributes { mode: Some(0o640), mtime: None };
    let begin = || tier.begin_parts(&name, attributes, (size, PART)).expect("begin");
    let Some(upload) = begin() else { return };
    let bytes = pattern(3, size as usize);
    let part = |number: u32| {
        let start = u64::from(number) * PART;
        &bytes[start as usize..(start + PART).min(size) as usize]
    };
    std::thread::scope(|scope| {
        for number in [2, 0] {
            let (upload, data) = (&upload, part(number));
            scope.spawn(move || upload.put_part(number, data).expect("put a part"));
        }
    });
    // One that is too short, or that is not there.
    for (number, data) in [(1, part(2)), (3, part(2))] {
        let refused = upload.put_part(number, data);
        assert!(matches!(refused, Err(TierError::Unsupported { .. })), "{refused:?}");
    }
    assert!(is_missing(tier.stat(&name)), "it is seen before commit");
    upload.put_part(1, part(0)).expect("put a part");
    upload.put_part(1, part(1)).expect("put it again");
    assert_eq!(upload.commit(Precondition::Any).expect("commit").size.get(), size);
    assert!(get(&**tier, &name) == bytes, "bytes differ");
    let reader = tier.open(&name).expect("open");
    assert_eq!(reader.attributes().expect("attributes").mode, Some(0o640));
    if let Some(sums) = reader.part_sums() {
        assert_eq!(sums.part_bytes(), PART);
        let read = [0, 1, 2].map(|number| PartSums::of_part(part(number)));
        assert!(sums.fit(&read), "other parts");
    }
    // Incomplete or dropped: the former version stays.
    let incomplete = begin().expect("it could be begun before");
    incomplete.put_part(0, part(1)).expect("put a part");
    assert!(incomplete.commit(Precondition::Any).is_err());
    drop(begin());
    assert!(get(&**tier, &name) == bytes, "a part of another version is seen");
}

pub(super) fn known_checksum(tier: &Arc<dyn Tier>) {
    let name = key("d/summed");
    let check = |bytes: &[u8]| {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
        let opened = tier.open(&name).expect("open");
        let listed = tier.open_listed(&name, tier.stat(&name).expect("stat")).expect("open");
        for reader in [opened, listed] {
            let known = reader.crc32c().expect("its checksum");
            assert!(known.is_none_or(|known| u64::from(known) == crc), "{known:?} for {crc}");
        }
    };
    for size in [0, 1, 70_000, (2 << 20) + 1] {
        let bytes = pattern(size as u8, size);
        put(&**tier, &name, &bytes);
        check(&bytes);
        tier.put(&name, Attributes::default(), &bytes[..size / 2], Precondition::Any).expect("put");
        check(&bytes[..size / 2]);
    }
}

pub(super) fn window(tier: &Arc<dyn Tier>) {
    let Some(window) = tier.capabilities().write_window else { return };
    let name = key("windowed");
    let mut upload = tier.begin(&name, Attributes::default()).expect("begin");
    let end = window.get() * 3;
    upload.write_at(end, b"end").expect("a gap");
    upload.write_at(end + 4 - window.get(), b"inside the window").expect("write");
    let outside = upload.write_at(0, b"too far back");
    assert!(matches!(outside, Err(TierError::Unsupported { .. })), "{outside:?}");
    drop(upload);
    assert!(is_missing(tier.stat(&name)));
}

pub(super) fn local_descriptor(tier: &Arc<dyn Tier>) {
    let name = key("plain");
    let bytes = pattern(9, 10_000);
    put(&**tier, &name, &bytes);
    let reader = tier.open(&name).expect("open");
    assert_eq!(reader.local_descriptor().is_some(), tier.capabilities().local_descriptor);
    if let Some(descriptor) = reader.local_descriptor() {
        let mut file = std::fs::File::from(descriptor.expect("a descriptor"));
        let mut seen = Vec::new();
        file.rewind().expect("a plain file");
        file.read_to_end(&mut seen).expect("read the descriptor");
        assert!(seen == bytes, "the descriptor holds other bytes");
    }
    assert!(read_all(&*reader) == bytes, "reading moved under the descriptor's position");
}

pub(super) fn locations(tier: &Arc<dyn Tier>) {
    let name = key("somewhere");
    put(&**tier, &name, &pattern(1, 70_000));
    match tier.locations(&name) {
        Err(TierError::Unsupported { .. }) => assert!(!tier.capabilities().locations),
        Err(error) => panic!("locations: {error}"),
        Ok(locations) => {
            assert!(tier.capabilities().locations);
            let mut end = 0;
            for location in locations {
                assert_eq!(location.start, end, "a gap or an overlap");
                assert!(!location.hosts.is_empty());
                end += location.len.get();
            }
            assert_eq!(end, 70_000);
        }
    }
}
