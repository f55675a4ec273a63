//! What goes in comes out: any tree, sealed or not, compressed or not.

use std::collections::BTreeMap;

use hayase_stage::pack::{Compression, PackError, PackSet};
use hayase_stage::{Item, Kind, Mtime};
use hayase_tier::Key;
use proptest::prelude::*;
use ring::rand::SystemRandom;

use super::{
    Arc, Entry, Place, check, directory, file, get, link, make_older, master, memory, objects,
    write,
};

fn any_entry() -> impl Strategy<Value = Entry> {
    let component = prop::collection::vec(1u8..=255, 1..40).prop_map(|mut bytes| {
        bytes.retain(|byte| *byte != b'/');
        bytes
    });
    let plain = "[a-c.%~ -]{1,6}".prop_map(String::into_bytes);
    let component = prop_oneof![3 => plain, 1 => component, 1 => Just(vec![b'n'; 250])];
    let name = prop::collection::vec(component, 1..5).prop_map(|parts| parts.join(&b'/'));
    let name = name.prop_filter_map("no key", |name| Key::new(name).ok());
    let target = prop::collection::vec(1u8..=255, 1..200);
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000),
        (0usize..70_000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ];
    let mtime = (-1_i64 << 40..1 << 40, 0u32..1_000_000_000);
    let mtime = mtime.prop_map(|(seconds, nanos)| Mtime::new(seconds, nanos).unwrap());
    (name, 0..4, target, data, mtime, 0u32..0o1000).prop_map(
        |(name, which, target, data, mtime, mode)| {
            let (kind, data) = match which {
                0 => (Kind::Directory, Vec::new()),
                1 => (Kind::Link { target: target.into() }, Vec::new()),
                _ => (Kind::File { bytes: data.len() as u64 }, data),
            };
            (Item { name, kind, mode, mtime }, data)
        },
    )
}

/// In the order of trees, each name once.
fn any_tree() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(any_entry(), 0..30).prop_map(|entries| {
        let unique: BTreeMap<_, _> =
            entries.into_iter().map(|entry| (entry.0.name.clone(), entry)).collect();
        let mut entries: Vec<_> = unique.into_values().collect();
        entries.sort_by(|a, b| a.0.order(&b.0));
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_tree_comes_back(
        tree in any_tree(), is_sealed: bool, is_packed: bool, cut in any::<prop::sample::Index>()
    ) {
        let compression = if is_packed { Compression::Zstd(1) } else { Compression::None };
        let master = is_sealed.then(master);
        let place = memory();
        let cut = cut.index(tree.len() + 1);
        let packs = [tree[..cut].to_vec(), tree[cut..].to_vec()];
        write(&place, master.as_ref(), &packs, compression);
        let set = PackSet::open(&place, master.as_ref()).unwrap();
        prop_assert_eq!(set.index.rows.len(), tree.len());
        for (row, (item, data)) in set.index.rows.iter().zip(&tree) {
            prop_assert_eq!(&row.item, item);
            let pack = set.pack(row.location.unwrap().pack).unwrap();
            prop_assert!(&pack.entry(row).unwrap() == data);
        }
        for (number, entries) in packs.iter().enumerate() {
            let own = set.pack(number as u32).unwrap().own_index().unwrap();
            prop_assert_eq!(own.packs[0], set.index.packs[number]);
            let items: Vec<_> = own.rows.into_iter().map(|row| row.item).collect();
            prop_assert!(items.iter().eq(entries.iter().map(|(item, _)| item)));
        }
        let report = check(&set);
        prop_assert!(report.damage.is_empty(), "{:?}", report.damage);
        prop_assert_eq!(report.entries, tree.len() as u64);
    }
}

#[test]
fn a_file_in_pieces_is_the_same_file() {
    let place = memory();
    let random = SystemRandom::new();
    let data: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let (item, _) = file("big", &data);
    let mut set = PackSet::open_or_begin(&place, Some(&master()), &random).unwrap();
    let mut pack = hayase_stage::pack::PackWriter::begin(&place, set.key(), &random).unwrap();
    pack.begin_file(&item).unwrap();
    for piece in data.chunks(700_001) {
        pack.push(piece).unwrap();
    }
    pack.end_file().unwrap();
    let written = pack.finish().unwrap();
    let index = hayase_stage::pack::Index { packs: vec![written.line], rows: written.rows };
    set.commit(index, &random, std::time::SystemTime::now()).unwrap();
    assert!(check(&set).damage.is_empty());
    assert!(set.pack(0).unwrap().entry(&set.index.rows[0]).unwrap() == data);
}

#[test]
fn a_file_that_is_longer_or_shorter_than_told_is_no_entry() {
    let random = SystemRandom::new();
    let (item, _) = file("ten", &[0; 10]);
    for pieces in [&[5, 6][..], &[9]] {
        let place = memory();
        let set = PackSet::open_or_begin(&place, None, &random).unwrap();
        let mut pack = hayase_stage::pack::PackWriter::begin(&place, set.key(), &random).unwrap();
        pack.begin_file(&item).unwrap();
        let pushed: Result<Vec<()>, _> =
            pieces.iter().map(|&len| pack.push(&vec![0; len])).collect();
        let ended = pushed.and_then(|_| pack.end_file());
        assert!(matches!(ended, Err(PackError::Changed { .. })), "{ended:?}");
        drop(pack);
        let left: Vec<_> =
            objects(&*place.tier).into_iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(left, [".hayase-packs/begun"], "an abandoned pack leaves nothing");
    }
}

#[test]
fn nothing_of_a_sealed_set_can_be_read_without_its_key() {
    let place = memory();
    let entries = vec![
        directory("secret-directory"),
        file("secret-directory/secret-name", b"secret bytes, secret bytes"),
        link("secret-link", b"secret-target"),
    ];
    write(&place, Some(&master()), &[entries], Compression::None);
    for (key, bytes) in objects(&*place.tier) {
        assert!(!key.to_string().contains("secret"), "{key}");
        assert!(!bytes.windows(6).any(|window| window == b"secret"), "{key}");
    }
    let other = hayase_stage::pack::MasterKey::parse(&[8; 32]).unwrap();
    assert!(matches!(PackSet::open(&place, None), Err(PackError::KeyMissing { .. })));
    assert!(matches!(PackSet::open(&place, Some(&other)), Err(PackError::WrongKey { .. })));
    // Another master key, without touching what it seals.
    let before = objects(&*place.tier);
    let set = PackSet::open(&place, Some(&master())).unwrap();
    set.rekey(&other, &SystemRandom::new()).unwrap();
    assert!(matches!(PackSet::open(&place, Some(&master())), Err(PackError::WrongKey { .. })));
    assert!(check(&PackSet::open(&place, Some(&other)).unwrap()).damage.is_empty());
    let changed: Vec<_> = before
        .iter()
        .filter(|(key, bytes)| &get(&*place.tier, key) != bytes)
        .map(|(key, _)| key.to_string())
        .collect();
    assert_eq!(changed, [".hayase-packs/key.json"]);
}

#[test]
fn of_two_writers_one_is_told() {
    let place = memory();
    let random = SystemRandom::new();
    write(&place, None, &[vec![file("a", b"1")]], Compression::None);
    let mut one = PackSet::open(&place, None).unwrap();
    let mut two = PackSet::open(&place, None).unwrap();
    let now = std::time::SystemTime::now();
    one.commit(one.index.clone(), &random, now).unwrap();
    let told = two.commit(two.index.clone(), &random, now).unwrap_err();
    assert!(matches!(told, PackError::Conflict { .. }), "{told}");
    assert!(check(&PackSet::open(&place, None).unwrap()).damage.is_empty());
}

#[test]
fn packs_go_when_no_index_names_them_and_not_before() {
    let top = tempfile::tempdir().unwrap();
    let place = Place::root(Arc::new(hayase_tier::Posix::attach(top.path()).unwrap()));
    let random = SystemRandom::new();
    let mut set = write(&place, None, &[vec![file("a", b"1")]], Compression::None);
    // Another writer's pack, not yet in any index.
    let mut pack = hayase_stage::pack::PackWriter::begin(&place, None, &random).unwrap();
    pack.entry(&file("b", b"2").0, b"2", Compression::None).unwrap();
    let other = pack.finish().unwrap().line.id;
    let unnamed = |set: &PackSet| -> Vec<_> {
        set.unnamed_packs().unwrap().iter().map(|found| found.0).collect()
    };
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(25 * 3600);
    set.commit(Default::default(), &random, now).unwrap();
    assert_eq!(unnamed(&set), [other]);
    // Our clock is ahead of that of the storage: nobody else's pack is old for that.
    set.commit(Default::default(), &random, now + day).unwrap();
    assert_eq!(unnamed(&set), [other]);
    make_older(top.path(), day);
    set.commit(Default::default(), &random, now).unwrap();
    assert!(unnamed(&set).is_empty());
}
