//! Several nodes write packs of one set, each its part; then one makes the index.

use super::*;
use hayase_stage::limits::PARTS_BYTES_MIN;
use hayase_stage::pack::{PackSet, verify};
use hayase_stage::{Overwrite, Share, Sizes};

const NODES: u16 = 3;
/// Enough that the runs that are dealt out come round.
const FILES: usize = 900;
const BYTES: usize = 20_000;

fn small() -> Options {
    let packs =
        PackOptions { bytes: 1 << 20, entries: 40, is_complete: true, ..PackOptions::default() };
    Options { packs: Some(packs), sizes: Sizes::Small, ..Options::default() }
}

/// Copies parts and then all; answers bytes of the parts, and how many packs there are.
fn by_shares(from: &Place, to: &Place, options: &Options) -> (u64, u64) {
    let shares = (0..NODES).map(|node| {
        let share = Some(Share { node, nodes: NODES, directories: false });
        copy_all(from, to, &Options { share, ..options.clone() })
    });
    let shares: Vec<Summary> = shares.collect();
    assert!(shares.iter().all(|share| share.bytes_moved > 0), "{shares:?}");
    assert!(shares.iter().all(|share| share.seen == shares[0].seen), "{shares:?}");
    let error = PackSet::open(to, None).expect_err("parts have no index");
    assert!(matches!(error, PackError::IndexLost { .. }), "{error}");
    let whole = copy_all(from, to, &Options { delete: true, ..options.clone() });
    assert_eq!(whole.bytes_moved, 0, "what parts brought moved again: {whole:?}");
    let sum = |count: fn(&Summary) -> u64| shares.iter().map(count).sum::<u64>();
    (sum(|share| share.bytes_moved), sum(|share| share.packs))
}

#[test]
fn packs_of_several_nodes_become_one_set() {
    let trees = Trees::new(|top| fill(top, FILES, BYTES));
    let (packed, between) = (store(), store());
    copy_all(&trees.from(), &packed, &packs(1 << 20, Compression::Zstd(1), None));
    for source in [trees.from(), packed] {
        let (bytes, packs) = by_shares(&source, &between, &small());
        assert_eq!(bytes, (FILES * BYTES) as u64, "each byte once");
        assert!(packs >= (FILES / 40) as u64, "{packs} packs of 40 names at most");
        let set = PackSet::open(&between, None).unwrap();
        let report = verify::verify(&set, 1, &Default::default());
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        copy_all(&between, &trees.to(), &Options::default());
        assert_same(&trees.from, &trees.to);
        for entry in between.tier.list(&hayase_tier::ListRequest::all("")).unwrap().entries {
            between.tier.delete(&hayase_tier::Key::new(entry.name).unwrap()).unwrap();
        }
        std::fs::remove_dir_all(&trees.to).unwrap();
        std::fs::create_dir(&trees.to).unwrap();
    }
}

#[test]
fn large_files_and_all_the_rest_go_different_ways_into_one_place() {
    let trees = Trees::new(|top| {
        fill(top, 5, 100);
        std::fs::write(top.join("d0/large"), vec![5; PARTS_BYTES_MIN as usize]).unwrap();
        std::fs::write(top.join("small"), vec![6; PARTS_BYTES_MIN as usize - 1]).unwrap();
    });
    let between = tempfile::tempdir().unwrap();
    let place = directory(between.path());
    let mirror = Options { delete: true, ..Options::default() };
    for round in 0..2 {
        let large = Options { sizes: Sizes::Large, ..mirror.clone() };
        let large = copy_all(&trees.from(), &place, &large);
        assert_eq!((large.copied, large.large), (u64::from(round == 0), 1), "{large:?}");
        let rest = copy_all(&trees.from(), &place, &Options { delete: true, ..small() });
        assert_eq!((rest.copied == 0, rest.large), (round > 0, 1), "{rest:?}");
    }
    assert!(between.path().join("d0/large").exists() && !between.path().join("small").exists());
    copy_all(&place, &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

/// What lies beside the packs is not read again for its checksum, and of two packs with one name the later counts.
#[test]
fn what_shares_put_beside_packs_is_told_to_the_last_copy() {
    let trees = Trees::new(|top| {
        fill(top, FILES, BYTES);
        for number in 0..3 {
            std::fs::write(top.join(format!("d0/l{number}")), vec![number; 3 << 20]).unwrap();
        }
    });
    let between = store();
    let options = packs(1 << 20, Compression::None, None);
    let by_shares = |overwrite| {
        let shares: Vec<Summary> = (0..NODES)
            .map(|node| {
                let share = Some(Share { node, nodes: NODES, directories: false });
                copy_all(&trees.from(), &between, &Options { share, overwrite, ..options.clone() })
            })
            .collect();
        let loose = shares.iter().flat_map(|share| share.loose.rows.clone()).collect();
        let whole = Options { loose, trusts_sizes: true, overwrite, ..options.clone() };
        (shares, copy_all(&trees.from(), &between, &whole))
    };
    let loose =
        |shares: &[Summary]| shares.iter().map(|share| share.loose.rows.len()).sum::<usize>();
    let (shares, whole) = by_shares(Overwrite::Changed);
    assert_eq!((loose(&shares), whole.bytes_moved), (3, 0));
    // Only directories: names of the source that nobody dealt out.
    assert_eq!(whole.copied, whole.found - shares.iter().map(|share| share.copied).sum::<u64>());
    let (shares, whole) = by_shares(Overwrite::Changed);
    assert_eq!((loose(&shares), whole.copied), (0, 0), "what an index names is not told");
    let (shares, whole) = by_shares(Overwrite::Always);
    let bytes: u64 = shares.iter().map(|share| share.bytes_moved).sum();
    assert_eq!(bytes, (FILES * BYTES + (9 << 20)) as u64, "everything anew");
    assert_eq!((loose(&shares), whole.bytes_moved), (3, 0), "{whole:?}");
    copy_all(&between, &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}
