//! Any tree arrives as it was, by any way; a second time nothing moves.

use super::*;
use hayase_stage::Selection;
use hayase_stage::pack::{PackSet, verify};
use hayase_stage::verify::compare;

#[test]
fn a_directory_arrives_in_a_directory() {
    let trees = Trees::new(fill_oddly);
    let first = copy_all(&trees.from(), &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
    assert!(first.copied > 40 && first.bytes_moved >= 90_000, "{first:?}");
    let second = copy_all(&trees.from(), &trees.to(), &Options::default());
    assert_eq!((second.copied, second.bytes_moved), (0, 0), "{second:?}");
    assert_same(&trees.from, &trees.to);
}

/// Out to a store in packs, checked, in again.
fn there_and_back(options: &Options) {
    let master = options.packs.as_ref().unwrap().master.clone();
    let trees = Trees::new(fill_oddly);
    let store = store();
    let out = copy_all(&trees.from(), &store, options);
    assert!(out.packs > 1, "{out:?}");
    let set = PackSet::open(&store, master.as_ref()).unwrap();
    let report = verify::verify(&set, 2, &Default::default());
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let back = try_copy(&store, &trees.to(), master.as_ref(), &Options::default()).unwrap();
    assert!(back.is_complete(), "{back:?}");
    assert_eq!(back.bytes_moved, out.bytes_moved);
    assert_same(&trees.from, &trees.to);
    let again = copy_all(&trees.from(), &store, options);
    assert_eq!((again.copied, again.bytes_moved, again.packs), (0, 0, 0), "{again:?}");
    let again = try_copy(&store, &trees.to(), master.as_ref(), &Options::default()).unwrap();
    assert_eq!((again.copied, again.bytes_moved), (0, 0), "{again:?}");
    let (a, b) =
        (Source::open(trees.from(), None).unwrap(), Source::open(store, master.as_ref()).unwrap());
    let same = compare(&a, &b, &Selection::all(), true, 2, &Progress::default());
    assert!(same.differences.is_empty(), "{same:?}");
}

/// Names that a careless copy takes for one.
const ALIKE: [&str; 6] = ["File", "file", "FILE", "caf\u{e9}", "cafe\u{301}", "cafe"];

#[test]
fn names_that_look_alike_stay_apart() {
    let trees = Trees::new(|top| {
        for name in ALIKE {
            std::fs::create_dir(top.join(format!("{name}.d"))).unwrap();
            std::fs::write(top.join(format!("{name}.d/{name}")), name).unwrap();
            std::fs::write(top.join(name), name).unwrap();
        }
    });
    copy_all(&trees.from(), &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
    let (store, unpacked) = (store(), Trees::new(|_| ()));
    copy_all(&trees.from(), &store, &packs(64 << 10, Compression::None, None));
    copy_all(&store, &unpacked.to(), &Options::default());
    assert_same(&trees.from, &unpacked.to);
}

#[test]
fn plain_packs() {
    there_and_back(&packs(64 << 10, Compression::None, None));
}

#[test]
fn compressed_packs() {
    there_and_back(&packs(64 << 10, Compression::Zstd(3), None));
}

#[test]
fn sealed_packs() {
    there_and_back(&packs(64 << 10, Compression::Zstd(1), Some(master())));
}

#[test]
fn large_files_by_every_way() {
    let trees = Trees::new(|top| {
        let data: Vec<u8> = (0..40_000_003u32).map(|at| (at ^ (at >> 9)) as u8).collect();
        std::fs::write(top.join("large"), data).unwrap();
        std::fs::write(top.join("middle"), vec![5; 1 << 20]).unwrap();
        std::fs::write(top.join("small"), "small").unwrap();
    });
    copy_all(&trees.from(), &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
    for master in [None, Some(master())] {
        let (store, trees_back) = (store(), Trees::new(|_| ()));
        let options = packs(64 << 10, Compression::Zstd(1), master.clone());
        let out = copy_all(&trees.from(), &store, &options);
        // Loose where names may be seen, else packs of their own.
        assert_eq!(out.packs, if master.is_some() { 3 } else { 1 });
        let back =
            try_copy(&store, &trees_back.to(), master.as_ref(), &Options::default()).unwrap();
        assert!(back.is_complete(), "{back:?}");
        assert_same(&trees.from, &trees_back.to);
        // From packs to packs of another size, and to none.
        let repacked = super::store();
        let other = packs(1 << 20, Compression::None, None);
        let summary = try_copy(&store, &repacked, master.as_ref(), &other).unwrap();
        assert!(summary.is_complete(), "{summary:?}");
        let last = Trees::new(|_| ());
        copy_all(&repacked, &last.to(), &Options::default());
        assert_same(&trees.from, &last.to);
    }
}

#[test]
fn packed_and_loose_together() {
    let trees = Trees::new(|top| fill(top, 9, 100));
    let both = Trees::new(|_| ());
    copy_all(&trees.from(), &both.to(), &packs(64 << 10, Compression::None, None));
    // Somebody put a file beside the packs.
    std::fs::write(both.to.join("beside"), "more").unwrap();
    std::fs::write(trees.from.join("beside"), "more").unwrap();
    let modified = std::fs::metadata(both.to.join("beside")).unwrap().modified().unwrap();
    std::fs::File::open(trees.from.join("beside")).unwrap().set_modified(modified).unwrap();
    copy_all(&both.to(), &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn a_place_inside_a_tier() {
    let trees = Trees::new(|top| fill(top, 5, 100));
    let tier: Arc<dyn Tier> = Arc::new(Memory::flat());
    let place = Place::below(Arc::clone(&tier), b"some/where/").unwrap();
    copy_all(&trees.from(), &place, &packs(64 << 10, Compression::None, None));
    let listed = tier.list(&hayase_tier::ListRequest::all("")).unwrap();
    assert!(
        listed.entries.iter().all(|entry| entry.name.starts_with(b"some/where/.hayase-packs/"))
    );
    copy_all(&place, &trees.to(), &Options::default());
    assert_same(&trees.from, &trees.to);
}

#[test]
fn what_a_store_can_not_hold_is_told() {
    let trees = Trees::new(fill_oddly);
    let summary = copy(&trees.from(), &store(), &Options::default());
    let names: Vec<_> = summary.failures.iter().map(|failure| failure.name.as_str()).collect();
    assert_eq!(names, ["dangling", "empty/deeper", "link"]);
    assert!(summary.failures[0].error.to_string().contains("--pack"));
}
