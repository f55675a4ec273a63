//! Every flipped bit and every cut is found by `verify`, and nothing wrong is ever delivered.

use hayase_stage::pack::{Compression, MasterKey, PackSet};
use hayase_tier::Key;
use proptest::prelude::*;

use super::{check, directory, file, link, master, memory, objects, put, write};

/// Damages every object of a small set in every way that `damages` gives.
fn every_damage(
    master: Option<&MasterKey>,
    compression: Compression,
    damages: impl Fn(&[u8]) -> Vec<Vec<u8>>,
) {
    let place = memory();
    let long = "long/".repeat(30) + "name";
    let entries = vec![
        file("a", b"some bytes"),
        directory("d"),
        file("d/zeros", &[0; 700]),
        link("link", b"d/zeros"),
        file(&long, b"x"),
    ];
    let set = write(&place, master, std::slice::from_ref(&entries), compression);
    let pack = objects(&*place.tier).into_iter().find(|(key, _)| key.to_string().contains("pack-"));
    let (pack, good) = pack.unwrap();
    assert!(check(&set).damage.is_empty());
    for (number, bad) in damages(&good).into_iter().enumerate() {
        put(&*place.tier, &pack, &bad);
        assert!(!check(&set).damage.is_empty(), "damage {number} was not found");
        let Ok(reader) = set.pack(0) else { continue };
        for (row, (_, data)) in set.index.rows.iter().zip(&entries) {
            if let Ok(read) = reader.entry(row) {
                assert!(&read == data, "damage {number}: wrong bytes were delivered");
            }
        }
        // What is made of a damaged pack's own index is the truth or nothing.
        if let Ok(own) = reader.own_index() {
            assert_eq!(own.rows, set.index.rows, "damage {number}");
        }
    }
    put(&*place.tier, &pack, &good);
    assert!(check(&set).damage.is_empty());
}

fn flips(good: &[u8]) -> Vec<Vec<u8>> {
    let flip = |bit: usize| {
        let mut bad = good.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        bad
    };
    // One bit of every byte; which one changes from byte to byte.
    (0..good.len()).map(|byte| flip(byte * 8 + byte % 8)).collect()
}

fn cuts(good: &[u8]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = (0..good.len()).step_by(7).map(|at| good[..at].to_vec()).collect();
    cuts.push(good[..good.len() - 1].to_vec());
    cuts.push([good, b"\0"].concat());
    cuts.push([good, good].concat());
    cuts
}

#[test]
fn flips_in_a_plain_pack() {
    every_damage(None, Compression::None, flips);
}

#[test]
fn flips_in_a_compressed_pack() {
    every_damage(None, Compression::Zstd(3), flips);
}

#[test]
fn flips_in_a_sealed_pack() {
    every_damage(Some(&master()), Compression::None, flips);
}

#[test]
fn cuts_of_a_plain_pack() {
    every_damage(None, Compression::None, cuts);
}

#[test]
fn cuts_of_a_sealed_pack() {
    every_damage(Some(&master()), Compression::None, cuts);
}

#[test]
fn a_damaged_index_or_key_opens_nothing() {
    for master in [None, Some(master())] {
        let place = memory();
        write(
            &place,
            master.as_ref(),
            &[vec![file("a", b"1"), file("b", b"2")]],
            Compression::None,
        );
        let good = PackSet::open(&place, master.as_ref()).unwrap().index;
        for (key, bytes) in objects(&*place.tier) {
            if key.to_string().contains("pack-") {
                continue;
            }
            for bad in flips(&bytes).into_iter().chain(cuts(&bytes)) {
                put(&*place.tier, &key, &bad);
                if let Ok(set) = PackSet::open(&place, master.as_ref()) {
                    assert!(key.to_string().contains("key.json"), "{key} was changed, and read");
                    assert_eq!(set.index, good);
                }
            }
            put(&*place.tier, &key, &bytes);
        }
    }
}

#[test]
fn exchanged_objects_of_a_sealed_set_do_not_open() {
    let place = memory();
    let set = write(
        &place,
        Some(&master()),
        &[vec![file("a", b"1")], vec![file("b", b"2")]],
        Compression::None,
    );
    let packs: Vec<(Key, Vec<u8>)> = objects(&*place.tier)
        .into_iter()
        .filter(|(key, _)| key.to_string().contains("pack-"))
        .collect();
    put(&*place.tier, &packs[0].0, &packs[1].1);
    put(&*place.tier, &packs[1].0, &packs[0].1);
    for row in &set.index.rows {
        let read = set.pack(row.location.unwrap().pack).and_then(|pack| pack.entry(row));
        assert!(read.is_err());
    }
}

#[test]
fn a_missing_pack_is_told() {
    let place = memory();
    let set =
        write(&place, None, &[vec![file("a", b"1")], vec![file("b", b"2")]], Compression::None);
    let gone = objects(&*place.tier).into_iter().find(|(key, _)| key.to_string().contains("pack-"));
    place.tier.delete(&gone.unwrap().0).unwrap();
    let damage = check(&set).damage;
    assert_eq!(damage.len(), 1);
    assert!(damage[0].to_string().contains("no such object"), "{}", damage[0]);
}

/// Bytes that look a little like an index: words of its lines in any order, and anything between.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let words =
        ["hayase-index 1\n", "p ", "f ", "d ", "l ", "e ", "\n", " ", "0 ", "- ", "raw ", "zstd "];
    let more =
        ["0644 ", "0.000000000 ", "00000000 ", "18446744073709551615 ", "a", "%2", "%2E", "../"];
    let id = "000102030405060708090a0b0c0d0e0f ";
    let words: Vec<&str> = words.into_iter().chain(more).chain([id]).collect();
    let word = prop_oneof![
        20 => prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(text in any_text(), tail in prop::collection::vec(any::<u8>(), 0..64)) {
        use hayase_stage::pack::{Index, PackId, PackReader, Row};
        // No hash fits by chance, so nothing of this is an index.
        prop_assert!(Index::read(text.as_slice(), "any").is_err());
        let _ = Row::read(&text);
        // A pack of rubbish with the footer of a pack, whose numbers are rubbish too.
        let place = memory();
        let pack = [&text[..], b"HAYASEPK", &tail, &[0; 1056]].concat();
        for cut in [0, tail.len() / 2, tail.len()] {
            let key = Key::new(format!(".hayase-packs/pack-{}.tar", PackId([0; 16]))).unwrap();
            put(&*place.tier, &key, &pack[..pack.len() - cut]);
            prop_assert!(PackReader::open(&place, PackId([0; 16]), None).unwrap().own_index().is_err());
        }
    }
}
