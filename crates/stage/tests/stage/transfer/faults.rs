//! Damage, changes under the reader, tiers out of reach, sets made to harm: told, and nothing wrong arrives.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::broken::Broken;
use super::*;
use hayase_tier::{Action, Attributes, Key, Precondition, TierError};

#[test]
fn a_damaged_entry_does_not_arrive_and_the_others_do() {
    let trees = Trees::new(|top| fill(top, 10, 1000));
    let tier = Memory::flat();
    let store = of(tier.clone());
    copy_all(&trees.from(), &store, &packs(64 << 10, Compression::None, None));
    let listed = tier.list(&hayase_tier::ListRequest::all(".hayase-packs/pack-")).unwrap();
    let key = listed.entries[0].key().unwrap();
    let reader = tier.open(&key).unwrap();
    let mut bytes = vec![0; reader.meta().size.get() as usize];
    reader.read_at(0, &mut bytes).unwrap();
    let set = hayase_stage::pack::PackSet::open(&store, None).unwrap();
    let row = set.index.rows.iter().rfind(|row| row.item.bytes() > 0).unwrap();
    bytes[row.location.unwrap().offset as usize + 600] ^= 1;
    let mut upload = tier.begin(&key, Attributes::default()).unwrap();
    upload.write_at(0, &bytes).unwrap();
    upload.commit(Precondition::Any).unwrap();
    let summary = copy(&store, &trees.to(), &Options::default());
    assert_eq!(summary.failures_total, 1, "{summary:?}");
    assert!(summary.failures[0].error.to_string().contains("checksum"), "{summary:?}");
    let (from, to) = (snapshot(&trees.from), snapshot(&trees.to));
    assert_eq!(to.len() + 1, from.len());
    assert!(to.iter().all(|(name, what)| from[name].3 == what.3), "wrong bytes arrived");
}

#[test]
fn an_entry_that_was_damaged_on_the_way_is_read_again() {
    let trees = Trees::new(|top| fill(top, 20, 100_000));
    let inner = Memory::flat();
    copy_all(&trees.from(), &of(inner.clone()), &packs(4 << 20, Compression::None, None));
    let set = hayase_stage::pack::PackSet::open(&of(inner.clone()), None).unwrap();
    // Behind what the open of a pack brings.
    let row = set.index.rows.iter().max_by_key(|row| row.location.map(|at| at.offset)).unwrap();
    let byte = row.location.unwrap().offset + 600;
    for options in [Options::default(), packs(4 << 20, Compression::Zstd(1), None)] {
        let times = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&times);
        let tier = Broken::new(inner.clone()).damaged_by(move |key, offset, bytes| {
            let is_pack = key.as_bytes().starts_with(b".hayase-packs/pack-");
            let at = byte.checked_sub(offset).filter(|_| is_pack);
            let at = at.and_then(|at| bytes.get_mut(at as usize));
            if let Some(byte) = at
                && seen.fetch_add(1, Ordering::Relaxed) == 0
            {
                *byte ^= 1;
            }
        });
        let target = store();
        copy_all(&of(tier), &target, &options);
        assert!(times.load(Ordering::Relaxed) > 1, "it is read again");
        let back = Trees::new(|_| ());
        copy_all(&target, &back.to(), &Options::default());
        let (from, to) = (snapshot(&trees.from), snapshot(&back.to));
        let mut files = from.iter().filter(|(_, what)| what.0 == 'f');
        assert!(files.all(|(name, what)| to[name].3 == what.3), "other bytes");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_told() {
    for options in [Options::default(), packs(64 << 10, Compression::None, None)] {
        let trees = Trees::new(|top| fill(top, 5, 1000));
        let busy = trees.from.join("d0/f0000");
        let times = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&times);
        // Somebody writes into the file whenever it was read.
        let tier = Broken::new(Posix::attach(&trees.from).unwrap()).on_read(move |key| {
            if key.as_bytes() == b"d0/f0000" {
                let count = seen.fetch_add(1, Ordering::Relaxed);
                std::fs::write(&busy, vec![count as u8; 1001]).unwrap();
            }
            Ok(())
        });
        let summary = copy(&of(tier), &trees.to(), &options);
        assert_eq!((summary.failures_total, summary.copied), (1, 7), "{summary:?}");
        let error = &summary.failures[0].error;
        assert!(matches!(error, PackError::Changed { .. }), "{error}");
        assert!(times.load(Ordering::Relaxed) > 1, "it is tried more than once");
    }
}

#[test]
fn a_large_file_that_changes_does_not_arrive() {
    for master in [None, Some(master())] {
        let trees = Trees::new(|top| std::fs::write(top.join("large"), vec![1; 20 << 20]).unwrap());
        let path = trees.from.join("large");
        let tier = Broken::new(Posix::attach(&trees.from).unwrap()).on_read(move |_| {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_at(&file, b"x", 19 << 20).unwrap();
            Ok(())
        });
        let options = match master {
            None => Options::default(),
            Some(master) => packs(64 << 10, Compression::None, Some(master)),
        };
        let summary = copy(&of(tier), &trees.to(), &options);
        assert_eq!((summary.failures_total, summary.copied), (1, 0), "{summary:?}");
        assert!(snapshot(&trees.to).keys().all(|name| name.starts_with(b".hayase-packs")));
    }
}

#[test]
fn a_large_file_that_changed_once_arrives_as_it_is_now() {
    let plain = packs(64 << 10, Compression::None, None);
    let sealed = packs(64 << 10, Compression::None, Some(master()));
    // In parts and alone, into a directory, beside packs, and into a pack.
    for (options, len) in [
        (Options::default(), 40 << 20),
        (plain.clone(), 40 << 20),
        (plain, 2 << 20),
        (sealed, 20 << 20),
    ] {
        let trees = Trees::new(|top| std::fs::write(top.join("large"), vec![1; len]).unwrap());
        let path = trees.from.join("large");
        let times = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&times);
        let tier = Broken::new(Posix::attach(&trees.from).unwrap()).on_read(move |_| {
            // It gets longer as well.
            if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                std::fs::write(&path, vec![2; len + 9_000_000]).unwrap();
            }
            Ok(())
        });
        let (from, target) = (of(tier), if options.packs.is_some() { store() } else { trees.to() });
        let summary = copy_all(&from, &target, &options);
        assert_eq!(summary.copied, 1);
        if let Some(packs) = &options.packs {
            let back = try_copy(&target, &trees.to(), packs.master.as_ref(), &Options::default());
            assert!(back.unwrap().is_complete());
        }
        assert_same(&trees.from, &trees.to);
    }
}

#[test]
fn a_row_that_lies_about_a_length_delivers_nothing() {
    use hayase_stage::pack::{Index, PackSet, Row};
    use hayase_stage::{Item, Kind};
    let trees = Trees::new(|top| std::fs::write(top.join("loose"), "few bytes").unwrap());
    for bytes in [8, 10, 20 << 20, 1 << 62] {
        let store = store();
        copy_all(&trees.from(), &store, &Options::default());
        let random = SystemRandom::new();
        let mut set = PackSet::open_or_begin(&store, None, &random).unwrap();
        let (name, kind) = (Key::new("loose").unwrap(), Kind::File { bytes });
        let item = Item { name, kind, mode: 0o644, mtime: Mtime::EPOCH };
        let row = Row { item, crc32c: 7, location: None };
        let index = Index { packs: Vec::new(), rows: vec![row] };
        set.commit(index, &random, std::time::SystemTime::now()).unwrap();
        let summary = copy(&store, &trees.to(), &Options::default());
        assert_eq!(summary.failures_total, 1, "{summary:?}");
        let why = summary.failures[0].error.to_string();
        assert!(why.contains("its length is another"), "{why}");
        assert!(snapshot(&trees.to).is_empty(), "something arrived");
    }
}

#[test]
fn a_mounted_file_that_is_fetched_again_is_what_it_was() {
    use hayase_stage::limits::PIECES_BYTES;
    use hayase_stage::{Node, PackVolume};
    let bytes = PIECES_BYTES + (8 << 20);
    let trees = Trees::new(|top| {
        std::fs::write(top.join("large"), vec![5; bytes]).unwrap();
        std::fs::write(top.join("small"), vec![6; 5000]).unwrap();
    });
    let mut options = packs(256 << 20, Compression::None, None);
    options.packs.as_mut().unwrap().is_complete = true;
    let inner = Memory::flat();
    copy_all(&trees.from(), &of(inner.clone()), &options);
    // As many reads of packs as this are damaged from now on.
    let wrong = Arc::new(AtomicU32::new(0));
    let left = Arc::clone(&wrong);
    let tier = Broken::new(inner).damaged_by(move |key, _, bytes| {
        let is_pack = key.as_bytes().starts_with(b".hayase-packs/pack-");
        let take = |left: u32| left.checked_sub(1);
        if is_pack && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            bytes.iter_mut().for_each(|byte| *byte ^= 8);
        }
    });
    let volume = PackVolume::open(&of(tier), None).unwrap();
    let file = |name: &str| volume.find(PackVolume::ROOT, name.as_bytes()).unwrap();
    let read = |node: Node, offset: u64| -> Result<Vec<u8>, PackError> {
        let mut read = Vec::new();
        volume.read(node, offset, 4096, &mut |data| read = data.to_vec())?;
        Ok(read)
    };
    let (large, small) = (file("large"), file("small"));
    let read_all = || {
        for at in (0..bytes as u64).step_by(1 << 20) {
            assert_eq!(read(large, at).unwrap(), [5; 4096]);
        }
    };
    read_all();
    // By now its begin is kept no more. Whatever comes damaged is not handed out, and is asked for once more.
    for times in [1, u32::MAX] {
        wrong.store(times, Ordering::Relaxed);
        for node in [large, small] {
            match (times, read(node, 0)) {
                (1, Err(error)) => panic!("it came well at the second time: {error}"),
                (_, Ok(data)) => assert!(data == [5; 4096] || data == [6; 4096], "wrong bytes"),
                (_, Err(error)) => assert!(error.to_string().contains("checksum"), "{error}"),
            }
        }
        wrong.store(0, Ordering::Relaxed);
        read_all();
        assert_eq!(read(small, 0).unwrap(), [6; 4096]);
        read_all();
    }
}

fn away(key: &Key) -> TierError {
    let source = io::Error::from(io::ErrorKind::TimedOut);
    TierError::Unavailable { action: Action::Commit, path: key.to_string(), source }
}

#[test]
fn a_tier_that_comes_back_is_waited_for() {
    let trees = Trees::new(|top| fill(top, 20, 100));
    let calls = AtomicU32::new(0);
    // Out of reach at every fifth commit.
    let tier = Broken::new(Posix::attach(&trees.to).unwrap()).on_commit(move |key| {
        if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
            Err(away(key))
        } else {
            Ok(())
        }
    });
    copy_all(&trees.from(), &of(tier), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn a_tier_that_stays_away_ends_the_transfer() {
    let trees = Trees::new(|top| fill(top, 200, 100));
    let tier = Broken::new(Posix::attach(&trees.to).unwrap()).on_commit(|key| Err(away(key)));
    let summary = copy(
        &trees.from(),
        &of(tier),
        &Options { streams: Streams::Fixed(2), ..Options::default() },
    );
    assert!(summary.is_stopped, "{summary:?}");
    assert!(summary.failures_total < 20, "all 200 were tried: {summary:?}");
}

#[test]
fn a_link_in_a_set_leads_nothing_out_of_the_target() {
    use hayase_stage::pack::{Index, PackSet, PackWriter};
    use hayase_stage::{Item, Kind};
    let trees = Trees::new(|_| ());
    let outside = trees.from.clone();
    let store = store();
    let random = SystemRandom::new();
    let mut set = PackSet::open_or_begin(&store, None, &random).unwrap();
    let mut pack = PackWriter::begin(&store, None, &random).unwrap();
    let item = |name: &str, kind| Item {
        name: Key::new(name).unwrap(),
        kind,
        mode: 0o644,
        mtime: Mtime::EPOCH,
    };
    let target = outside.as_os_str().as_bytes().into();
    pack.entry(&item("a", Kind::Link { target }), b"", Compression::None).unwrap();
    pack.entry(&item("a/evil", Kind::File { bytes: 4 }), b"evil", Compression::None).unwrap();
    let written = pack.finish().unwrap();
    let index = Index { packs: vec![written.line], rows: written.rows };
    set.commit(index, &random, std::time::SystemTime::now()).unwrap();
    let summary =
        copy(&store, &trees.to(), &Options { streams: Streams::Fixed(1), ..Options::default() });
    assert_eq!(summary.failures_total, 1, "{summary:?}");
    assert!(snapshot(&outside).is_empty(), "a file was written outside of the target");
}
