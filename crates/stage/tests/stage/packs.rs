//! Packs against models, damage, lies and foreign programs.

mod claims;
mod damage;
mod foreign;
mod lies;
mod lost;
mod round_trip;
mod volume;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use hayase_stage::pack::{Compression, Index, MasterKey, PackSet, PackWriter, verify};
use hayase_stage::{Item, Kind, Mtime, Place};
use hayase_tier::{Attributes, Key, Memory, Precondition, Tier};
use ring::rand::SystemRandom;

/// A file, directory or link with its bytes.
type Entry = (Item, Vec<u8>);

fn file(name: impl AsRef<[u8]>, data: &[u8]) -> Entry {
    let kind = Kind::File { bytes: data.len() as u64 };
    let mtime = Mtime::new(1_700_000_000, 5).unwrap();
    (Item { name: Key::new(name).unwrap(), kind, mode: 0o640, mtime }, data.to_vec())
}

fn directory(name: &str) -> Entry {
    let (item, _) = file(name, b"");
    (Item { kind: Kind::Directory, mode: 0o750, ..item }, Vec::new())
}

fn link(name: &str, target: &[u8]) -> Entry {
    let (item, _) = file(name, b"");
    let kind = Kind::Link { target: target.into() };
    (Item { kind, mode: 0o777, mtime: Mtime::EPOCH, ..item }, Vec::new())
}

fn memory() -> Place {
    Place::root(Arc::new(Memory::flat()))
}

/// Dates back all packs of a set in the directory `top`.
fn make_older(top: &std::path::Path, by: std::time::Duration) {
    for entry in std::fs::read_dir(top.join(".hayase-packs")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("pack-") {
            let file = std::fs::File::options().append(true).open(entry.path()).unwrap();
            file.set_modified(SystemTime::now() - by).unwrap();
        }
    }
}

fn master() -> MasterKey {
    MasterKey::parse(&[7; 32]).unwrap()
}

/// Writes one pack per element of `packs` and commits an index of all; entries must ascend throughout.
fn write(
    place: &Place,
    master: Option<&MasterKey>,
    packs: &[Vec<Entry>],
    compression: Compression,
) -> PackSet {
    let random = SystemRandom::new();
    let mut set = PackSet::open_or_begin(place, master, &random).unwrap();
    let mut index = Index::default();
    for (number, entries) in packs.iter().enumerate() {
        let mut pack = PackWriter::begin(place, set.key(), &random).unwrap();
        for (item, data) in entries {
            pack.entry(item, data, compression).unwrap();
        }
        let written = pack.finish().unwrap();
        index.packs.push(written.line);
        index.rows.extend(written.rows.into_iter().map(|mut row| {
            row.location.as_mut().unwrap().pack = number as u32;
            row
        }));
    }
    set.commit(index, &random, SystemTime::now()).unwrap();
    set
}

fn check(set: &PackSet) -> verify::Report {
    verify::verify(set, 2, &AtomicU64::new(0))
}

/// Everything that a tier holds, by key.
fn objects(tier: &dyn Tier) -> Vec<(Key, Vec<u8>)> {
    let page = tier.list(&hayase_tier::ListRequest::all("")).unwrap();
    let keys = page.entries.iter().map(|entry| entry.key().unwrap());
    keys.map(|key| (key.clone(), get(tier, &key))).collect()
}

fn get(tier: &dyn Tier, key: &Key) -> Vec<u8> {
    let reader = tier.open(key).unwrap();
    let mut bytes = vec![0; reader.meta().size.get() as usize];
    reader.read_at(0, &mut bytes).unwrap();
    bytes
}

fn put(tier: &dyn Tier, key: &Key, bytes: &[u8]) {
    let mut upload = tier.begin(key, Attributes::default()).unwrap();
    upload.write_at(0, bytes).unwrap();
    upload.commit(Precondition::Any).unwrap();
}
