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
