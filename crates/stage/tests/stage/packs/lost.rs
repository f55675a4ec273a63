//! An index that is lost: nothing is taken for an empty tree, nothing is given up, and it is made again.

use std::time::Duration;

use hayase_stage::pack::reindex::reindex;
use hayase_stage::pack::{PackError, PackSet};

use super::*;

const DAYS: Duration = Duration::from_secs(48 * 3600);

/// Removes the index of a set.
fn lose(top: &std::path::Path) {
    for entry in std::fs::read_dir(top.join(".hayase-packs")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("index-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

fn directory_place() -> (tempfile::TempDir, Place) {
    let top = tempfile::tempdir().unwrap();
    let place = Place::root(Arc::new(hayase_tier::Posix::attach(top.path()).unwrap()));
    (top, place)
}

#[test]
fn packs_without_an_index_are_no_empty_tree() {
    for master in [None, Some(master())] {
        let (top, place) = directory_place();
        write(&place, master.as_ref(), &[vec![file("a", b"1")]], Compression::None);
        lose(top.path());
        let random = SystemRandom::new();
        let read = PackSet::open(&place, master.as_ref()).map(drop);
        let written = PackSet::open_or_begin(&place, master.as_ref(), &random).map(drop);
        for told in [read.unwrap_err(), written.unwrap_err()] {
            assert!(matches!(told, PackError::IndexLost { .. }), "{told}");
        }
    }
}

#[test]
fn a_first_copy_goes_on_however_long_it_takes() {
    for master in [None, Some(master())] {
        let (top, place) = directory_place();
        let random = SystemRandom::new();
        let mut set = PackSet::open_or_begin(&place, master.as_ref(), &random).unwrap();
        let mut pack = PackWriter::begin(&place, set.key(), &random).unwrap();
        pack.entry(&file("a", b"1").0, b"1", Compression::None).unwrap();
        pack.finish().unwrap();
        make_older(top.path(), DAYS);
        // Nobody can read it yet, and whoever writes goes on with it.
        let told = PackSet::open(&place, master.as_ref()).unwrap_err();
        assert!(matches!(told, PackError::IndexLost { .. }), "{told}");
        let again = PackSet::open_or_begin(&place, master.as_ref(), &random).unwrap();
        assert_eq!(again.unnamed_packs().unwrap().len(), 1);
        set.commit(Index::default(), &random, SystemTime::now()).unwrap();
        assert!(!top.path().join(".hayase-packs/begun").exists());
        // One that was killed just after it wrote the first index left it.
        std::fs::write(top.path().join(".hayase-packs/begun"), "").unwrap();
        set.commit(Index::default(), &random, SystemTime::now()).unwrap();
        assert!(!top.path().join(".hayase-packs/begun").exists());
    }
}

#[test]
fn an_index_is_made_again_of_what_the_packs_say() {
    for master in [None, Some(master())] {
        let (top, place) = directory_place();
        let random = SystemRandom::new();
        let packs = [
            vec![directory("d"), file("d/one", b"1"), link("l", b"d/one")],
            vec![file("two", b"22"), file("z", b"of the first")],
        ];
        let before = write(&place, master.as_ref(), &packs, Compression::None);
        make_older(top.path(), DAYS);
        // Later: another version, and a directory where a file was.
        let mut pack =
            hayase_stage::pack::PackWriter::begin(&place, before.key(), &random).unwrap();
        for (item, bytes) in [directory("two"), file("two/in", b"333"), file("z", b"later")] {
            pack.entry(&item, &bytes, Compression::None).unwrap();
        }
        pack.finish().unwrap();
        assert!(matches!(
            reindex(&place, master.as_ref(), &random),
            Err(PackError::IndexThere { .. })
        ));
        lose(top.path());
        let made = reindex(&place, master.as_ref(), &random).unwrap();
        assert_eq!((made.entries, made.packs, made.doubtful, made.unread.len()), (6, 2, 2, 0));
        let set = PackSet::open(&place, master.as_ref()).unwrap();
        let names: Vec<String> =
            set.index.rows.iter().map(|row| row.item.name.to_string()).collect();
        assert_eq!(names, ["d", "d/one", "l", "two", "two/in", "z"]);
        let last = set.index.rows.last().unwrap();
        let bytes = set.pack(last.location.unwrap().pack).unwrap().entry(last).unwrap();
        assert_eq!(bytes, b"later");
    }
}

#[test]
fn a_pack_that_can_not_be_read_is_told_and_stays() {
    let (top, place) = directory_place();
    write(&place, None, &[vec![file("a", b"1")], vec![file("b", b"2")]], Compression::None);
    lose(top.path());
    let packs = std::fs::read_dir(top.path().join(".hayase-packs")).unwrap();
    let broken = packs.map(|entry| entry.unwrap().path()).min().unwrap();
    let whole = std::fs::read(&broken).unwrap();
    std::fs::write(&broken, &whole[..whole.len() - 700]).unwrap();
    make_older(top.path(), DAYS);
    let made = reindex(&place, None, &SystemRandom::new()).unwrap();
    assert_eq!((made.entries, made.packs, made.unread.len()), (1, 1, 1));
    // Nor does the next writer give it up, however old it is.
    let mut set = PackSet::open(&place, None).unwrap();
    set.commit(Index::default(), &SystemRandom::new(), SystemTime::now()).unwrap();
    assert!(broken.exists());
    let set = PackSet::open(&place, None).unwrap();
    assert_eq!(set.index.rows.len(), 0);
    // Where nothing can be read nothing is made.
    lose(top.path());
    let made = reindex(&place, None, &SystemRandom::new()).unwrap();
    assert_eq!((made.entries, made.packs, made.unread.len()), (0, 0, 1));
    assert!(matches!(PackSet::open(&place, None), Err(PackError::IndexLost { .. })));
    // Nothing at all is no set.
    let (_top, nothing) = directory_place();
    let told = reindex(&nothing, None, &SystemRandom::new()).unwrap_err();
    assert!(matches!(told, PackError::NoPacks { .. }), "{told}");
}
