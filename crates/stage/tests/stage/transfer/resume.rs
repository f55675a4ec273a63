//! A transfer that ended early is continued: what is finished does not move again.

use super::broken::Broken;
use super::*;
use hayase_stage::pack::{PackSet, verify};

const FILES: usize = 60;
const BYTES: usize = 10_000;
const ALL: u64 = (FILES * BYTES) as u64;

/// Copies with a target that is full after some commits, then without; counts what arrives each time.
fn stopped_and_continued(options: &Options, commits: i64, arrived_per_commit: u64) {
    let options = Options { streams: Streams::Fixed(1), ..options.clone() };
    let trees = Trees::new(|top| fill(top, FILES, BYTES));
    let tier = Memory::flat();
    let full = of(Broken::new(tier.clone()).full_after(commits));
    // The index can not be written either, as after a kill: the packs are all there is.
    let first = copy(&trees.from(), &full, &options);
    assert!(first.is_stopped, "{first:?}");
    let whole = of(tier);
    let second = copy_all(&trees.from(), &whole, &options);
    let arrived = commits as u64 * arrived_per_commit;
    assert_eq!(second.bytes_moved, ALL - arrived, "finished bytes moved again: {second:?}");
    let third = copy_all(&trees.from(), &whole, &options);
    assert_eq!(third.bytes_moved, 0);
    copy_all(&whole, &trees.to(), &Options::default());
    // A store shows its own modes for loose files; names and bytes are the same.
    let bytes = |top: &Path| -> BTreeMap<Vec<u8>, Vec<u8>> {
        snapshot(top).into_iter().map(|(name, what)| (name, what.3)).collect()
    };
    assert!(bytes(&trees.from) == bytes(&trees.to));
    if options.packs.is_some() {
        let report = verify::verify(&PackSet::open(&whole, None).unwrap(), 1, &Default::default());
        assert!(report.damage.is_empty(), "{:?}", report.damage);
    }
}

#[test]
fn loose_files_are_not_moved_again() {
    for commits in [1, 17] {
        stopped_and_continued(&Options::default(), commits, BYTES as u64);
    }
}

#[test]
fn packs_without_an_index_are_taken_over() {
    // Six files of 10,000 bytes, each 10,240 with padding and a header of 512, fill 64 KiB.
    let options = packs(64 << 10, Compression::None, None);
    for commits in [0, 1, 4] {
        stopped_and_continued(&options, commits, 6 * BYTES as u64);
    }
}

#[test]
fn a_large_file_beside_the_packs_is_not_moved_again() {
    let trees = Trees::new(|top| std::fs::write(top.join("large"), vec![3; 5 << 20]).unwrap());
    let options = packs(64 << 10, Compression::None, None);
    let full = of(Broken::new(Posix::attach(&trees.to).unwrap()).full_after(1));
    let first = copy(&trees.from(), &full, &options);
    assert_eq!(first.failures[0].name, "the index of the packs", "{first:?}");
    let second = copy_all(&trees.from(), &trees.to(), &options);
    assert_eq!((second.copied, second.bytes_moved), (1, 0), "{second:?}");
    let report = verify::verify(&PackSet::open(&trees.to(), None).unwrap(), 1, &Default::default());
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn a_changed_file_moves_alone() {
    let trees = Trees::new(|top| fill(top, FILES, BYTES));
    let options = packs(64 << 10, Compression::None, None);
    let store = store();
    copy_all(&trees.from(), &store, &options);
    std::fs::write(trees.from.join("d0/f0000"), "shorter").unwrap();
    std::fs::remove_file(trees.from.join("d1/f0001")).unwrap();
    let second = copy_all(&trees.from(), &store, &Options { delete: true, ..options });
    // The file, and the two directories whose times changed.
    assert!(second.bytes_moved == 7 && second.packs == 1 && second.removed == 1, "{second:?}");
    let report = verify::verify(&PackSet::open(&store, None).unwrap(), 1, &Default::default());
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    copy_all(&store, &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn what_a_killed_run_left_half_written_goes_when_it_is_old() {
    for options in [Options::default(), packs(64 << 10, Compression::None, None)] {
        let trees = Trees::new(|top| fill(top, 3, 10));
        copy_all(&trees.from(), &trees.to(), &options);
        let below = if options.packs.is_some() { ".hayase-packs" } else { "d0" };
        let half = |name: &str| trees.to.join(below).join(format!(".hayase-partial-{name}"));
        std::fs::write(half("old"), "half").unwrap();
        std::fs::write(half("new"), "half").unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        let file = std::fs::OpenOptions::new().write(true).open(half("old")).unwrap();
        file.set_modified(long_ago).unwrap();
        copy_all(&trees.from(), &trees.to(), &options);
        assert!(!half("old").exists() && half("new").exists());
    }
}
