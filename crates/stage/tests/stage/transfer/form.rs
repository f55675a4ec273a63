//! What a target is kept as, and a source that is not there.

use super::*;
use hayase_stage::Form;

fn packed() -> Options {
    packs(64 << 10, Compression::None, None)
}

fn packs_sealed() -> Options {
    packs(64 << 10, Compression::None, Some(master()))
}

#[test]
fn loose_files_are_not_copied_over_packs() {
    let trees = Trees::new(|top| fill(top, 10, 1000));
    for to in [trees.to(), store()] {
        copy_all(&trees.from(), &to, &packed());
        assert_eq!(Form::of(&to).unwrap(), Form::Packed);
        fill(&trees.from, 10, 1001);
        let refused = try_copy(&trees.from(), &to, None, &Options::default());
        assert!(matches!(refused, Err(PackError::TargetPacked { .. })), "{refused:?}");
        copy_all(&trees.from(), &to, &packed());
        let out = Trees::new(|_| ());
        copy_all(&to, &out.to(), &Options::default());
        assert_same(&trees.from, &out.to);
    }
}

#[test]
fn packs_are_not_made_over_loose_files() {
    let trees = Trees::new(|top| fill(top, 10, 1000));
    for to in [trees.to(), store()] {
        assert_eq!(Form::of(&to).unwrap(), Form::Nothing);
        copy_all(&trees.from(), &to, &Options::default());
        assert_eq!(Form::of(&to).unwrap(), Form::Loose);
        for is_dry_run in [true, false] {
            let refused = try_copy(&trees.from(), &to, None, &Options { is_dry_run, ..packed() });
            assert!(matches!(refused, Err(PackError::TargetLoose { .. })), "{refused:?}");
        }
        assert_eq!(Form::of(&to).unwrap(), Form::Loose, "nothing was begun");
    }
}

#[test]
fn large_files_that_a_killed_run_left_beside_its_packs_stop_nobody() {
    let trees = Trees::new(|top| {
        fill(top, 3, 1000);
        std::fs::write(top.join("large"), vec![7; 100_000]).unwrap();
    });
    let to = store();
    let large = std::fs::read(trees.from.join("large")).unwrap();
    let name = to.key("large").unwrap();
    let any = hayase_tier::Precondition::Any;
    to.tier.put(&name, hayase_tier::Attributes::default(), &large, any).unwrap();
    copy_all(&trees.from(), &to, &packed());
    let out = Trees::new(|_| ());
    copy_all(&to, &out.to(), &Options::default());
    assert_same(&trees.from, &out.to);
}

#[test]
fn a_store_without_anything_is_no_tree_to_copy_from() {
    let trees = Trees::new(|_| ());
    fill(&trees.to, 10, 100);
    let delete = Options { delete: true, ..Options::default() };
    let refused = try_copy(&store(), &trees.to(), None, &delete);
    assert!(matches!(refused, Err(PackError::Nothing { .. })), "{refused:?}");
    assert_eq!(snapshot(&trees.to).len(), 13, "nothing was removed");
    let packs = store();
    let sealed = packs_sealed();
    let refused = try_copy(&store(), &packs, None, &sealed);
    assert!(matches!(refused, Err(PackError::Nothing { .. })), "{refused:?}");
    assert_eq!(Form::of(&packs).unwrap(), Form::Nothing, "no key was left");
    // A directory that is empty is a tree, where it is meant.
    let meant = Options { delete_max: Some(13), ..delete };
    assert_eq!(copy_all(&trees.from(), &trees.to(), &meant).removed, 13);
}
