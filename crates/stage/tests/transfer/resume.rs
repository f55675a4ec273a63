//! A transfer that ended early is continued: what is finished does not move again.

use super::broken::Broken;
use super::*;
use hayase_stage::pack::{PackSet, verify};

const FILES: usize = 60;
const BYTES: usize = 10_000;
const ALL: u64 = (FILES * BYTES) as u64;

/// Copies with a target that is full after some commits, then without; counts what arrives each time.
fn stopped_and_continued(options: &Options, commits: i64, arrived_per_commit: u64) {
    let options = Options { streams: 1, ..options.clone() };
    let trees = Trees::new(|top| fill(top, FILES, BYTES));
    let tier = Memory::flat();
    let full = of(Broken::new(tier.clone()).full_after(commits));
    let first = copy_until_full(&trees.from(), &full, &options);
    assert!(first.is_stopped || !first.is_complete(), "{first:?}");
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

/// The index can not be written either, as after a kill: the packs are all there is.
fn copy_until_full(from: &Place, to: &Place, options: &Options) -> Summary {
    match try_copy(from, to, None, options) {
        Ok(summary) => summary,
        Err(error) => {
            assert!(error.to_string().contains("full"), "{error}");
            Summary { is_stopped: true, ..Summary::default() }
        }
    }
}

#[test]
fn loose_files_are_not_moved_again() {
    for commits in [0, 1, 17, 59] {
        stopped_and_continued(&Options::default(), commits, BYTES as u64);
    }
}

#[test]
fn packs_without_an_index_are_taken_over() {
    // Six files of 10,000 bytes, each 10,240 with padding and a header of 512, fill 64 KiB.
    let options = packs(64 << 10, Compression::None, None);
    for commits in [0, 1, 4, 10] {
        stopped_and_continued(&options, commits, 6 * BYTES as u64);
    }
}

#[test]
fn a_large_file_beside_the_packs_is_not_moved_again() {
    let trees = Trees::new(|top| std::fs::write(top.join("large"), vec![3; 5 << 20]).unwrap());
    let options = packs(64 << 10, Compression::None, None);
    let full = of(Broken::new(Posix::attach(&trees.to).unwrap()).full_after(1));
    try_copy(&trees.from(), &full, None, &options).unwrap_err();
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
