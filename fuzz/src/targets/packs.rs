//! Packs and their indexes, as anybody may have put them into a bucket.
//!
//! A checksum at the end of an index and of a pack's own keeps most broken bytes from what reads them: here
//! it is made right again, as somebody with intent would do it.

use std::sync::{Arc, LazyLock};

use hayase_stage::limits::CHUNK_BYTES;
use hayase_stage::pack::seal::{HEADER_BYTES, Opener, Run, Sealer};
use hayase_stage::pack::{
    Compression, DataKey, Index, MasterKey, PackId, PackReader, PackSet, PackWriter, Row,
};
use hayase_stage::{Item, Kind, Mtime, PackVolume, Place};
use hayase_tier::{Attributes, Key, Memory, Precondition, Tier};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;

use super::{way, way_of};

/// Entries of a pack that are read.
const ENTRIES: usize = 16;

/// Bytes of an entry that a hostile row may make us read.
const ENTRY_BYTES: u64 = 1 << 20;

fn items() -> Vec<(Item, Vec<u8>)> {
    let item = |name: &str, kind| {
        let mtime = Mtime::new(1_700_000_000, 5).expect("a time");
        Item { name: Key::new(name).expect("a name"), kind, mode: 0o644, mtime }
    };
    let file = |name: &str, data: &[u8]| {
        (item(name, Kind::File { bytes: data.len() as u64 }), data.to_vec())
    };
    vec![
        file("a-b", b"0123456789"),
        (item("d", Kind::Directory), Vec::new()),
        file("d/empty", b""),
        file("d/zeros", &[0; 5000]),
        (item("link", Kind::Link { target: b"d/zeros".as_slice().into() }), Vec::new()),
    ]
}

/// A set of one pack.
fn set(compression: Compression) -> PackSet {
    let (place, random) = (Place::root(Arc::new(Memory::flat())), SystemRandom::new());
    let mut set = PackSet::open_or_begin(&place, None, &random).expect("memory");
    let mut pack = PackWriter::begin(&place, None, &random).expect("memory");
    for (item, data) in items() {
        pack.entry(&item, &data, compression).expect("memory");
    }
    let written = pack.finish().expect("memory");
    let mut index = Index { packs: vec![written.line], rows: written.rows };
    for row in &mut index.rows {
        row.location.as_mut().expect("all are in the pack").pack = 0;
    }
    set.commit(index, &random, std::time::SystemTime::UNIX_EPOCH).expect("memory");
    set
}

pub(super) fn rows() -> Vec<Vec<u8>> {
    let write = |row: &Row| {
        let mut line = Vec::new();
        row.write(&mut line);
        line.pop();
        line
    };
    set(Compression::Zstd(1)).index.rows.iter().map(write).collect()
}

/// What is read is written as it was.
pub(super) fn row(bytes: &[u8]) -> u64 {
    let read = Row::read(bytes);
    if let Ok(row) = &read {
        let mut again = Vec::new();
        row.write(&mut again);
        assert_eq!(Row::read(&again[..again.len() - 1]).as_ref(), Ok(row));
    }
    way_of(read, |row| way((std::mem::discriminant(&row.item.kind), row.location.is_some())))
}

pub(super) fn indexes() -> Vec<Vec<u8>> {
    let set = set(Compression::None);
    let text = set.index.to_text();
    let end = text.windows(3).rposition(|part| part == b"\ne ").expect("an end line");
    vec![text[..=end].to_vec(), b"hayase-index 1\n".to_vec()]
}

/// The index with an end line that fits.
fn ended(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split(|&byte| byte == b'\n').skip(1);
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with(b"p ")).count();
    let sum: String =
        digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    [bytes, format!("e {rows} {sum}\n").as_bytes()].concat()
}

fn put(place: &Place, name: &str, bytes: &[u8]) {
    let key = place.key(name).expect("a name");
    place.tier.put(&key, Attributes::default(), bytes, Precondition::Any).expect("memory");
}

/// What is read is written as it was, and can be looked at.
pub(super) fn index(bytes: &[u8]) -> u64 {
    let text = ended(bytes);
    let read = Index::read(text.as_slice(), "an index");
    if let Ok(index) = &read {
        assert_eq!(Index::read(index.to_text().as_slice(), "again").as_ref().ok(), Some(index));
        let place = Place::root(Arc::new(Memory::flat()));
        put(&place, ".hayase-packs/index-0000000000000001.txt", &text);
        if let Ok(volume) = PackVolume::open(&place, None) {
            for (name, node) in volume.children(PackVolume::ROOT) {
                assert_eq!(volume.find(PackVolume::ROOT, name), Some(node));
                // There are no packs: every read fails, and comes back.
                let _ = volume.read(node, 0, 10, &mut |_| ());
            }
        }
    }
    way_of(read, |index| way((index.packs.len(), index.rows.len())))
}

pub(super) fn packs() -> Vec<Vec<u8>> {
    let tar = |compression| {
        let set = set(compression);
        let pack = set.pack(0).expect("it is there");
        let mut bytes = Vec::new();
        pack.read_range(0, pack.len() as usize, &mut bytes).expect("memory");
        bytes
    };
    vec![tar(Compression::None), tar(Compression::Zstd(1))]
}

/// The name that a pack's own index gives it.
fn id_of(bytes: &[u8]) -> PackId {
    let at = bytes.windows(3).position(|part| part == b"\np ");
    let digits = at.and_then(|at| bytes.get(at + 3..at + 35));
    digits.and_then(PackId::parse).unwrap_or(PackId([0; 16]))
}

/// A pack without an index beside it: its own is read, and what that tells of.
pub(super) fn pack(bytes: &[u8]) -> u64 {
    let (place, id) = (Place::root(Arc::new(Memory::flat())), id_of(bytes));
    put(&place, &format!(".hayase-packs/pack-{id}.tar"), bytes);
    let opened = PackReader::open(&place, id, None);
    let Ok(pack) = &opened else { return way_of(opened, |_| 0) };
    let own = pack.own_index();
    let mut read = 0;
    if let Ok(index) = &own {
        let small = index.rows.iter().filter(|row| row.item.bytes() <= ENTRY_BYTES);
        for row in small.filter(|row| row.location.is_some()).take(ENTRIES) {
            read += u32::from(pack.entry(row).is_ok());
        }
    }
    // Where the index itself is out of reach, entries are tried where a good one has them.
    for (item, data) in items().into_iter().filter(|(item, _)| item.bytes() > 0) {
        let at = hayase_stage::pack::Location {
            pack: 0,
            offset: 512,
            stored: data.len() as u64,
            codec: hayase_stage::pack::Codec::Raw,
        };
        let row = Row { item, crc32c: 0, location: Some(at) };
        read += u32::from(pack.entry(&row).is_ok());
    }
    way_of(own, |index| way((index.rows.len(), read)))
}

fn master() -> MasterKey {
    MasterKey::parse(&[7; 32]).expect("32 bytes")
}

pub(super) fn keys() -> Vec<Vec<u8>> {
    let random = SystemRandom::new();
    let key = DataKey::random(&random).expect("randomness");
    vec![key.wrap(&master(), &random).expect("randomness")]
}

/// A wrapped key that was changed opens nothing.
pub(super) fn key(bytes: &[u8]) -> u64 {
    way_of(DataKey::unwrap(bytes, &master(), "here"), |_| 1)
}

/// Seeds and what is opened have one.
static KEY: LazyLock<DataKey> =
    LazyLock::new(|| DataKey::random(&SystemRandom::new()).expect("random numbers"));

pub(super) fn sealed_objects() -> Vec<Vec<u8>> {
    let seal = |len: usize| {
        let mut sealer = Sealer::new(&KEY, "pack", &SystemRandom::new()).expect("random numbers");
        let mut object = sealer.header().to_vec();
        sealer.update(&vec![7; len], &mut object);
        sealer.finish(&mut object);
        object
    };
    vec![seal(0), seal(5), seal(CHUNK_BYTES + 7)]
}

/// What opens is all that the length promises.
pub(super) fn sealed(bytes: &[u8]) -> u64 {
    let header = &bytes[..bytes.len().min(HEADER_BYTES)];
    let opener = Opener::new(&KEY, "pack", header, bytes.len() as u64, "an object");
    let opened = opener.and_then(|opener| {
        let (first, start, count) = opener.sealed_range(0, opener.len());
        let end = usize::try_from(start + count).expect("inside");
        let mut chunks = bytes[usize::try_from(start).expect("inside")..end].to_vec();
        let mut run = Run::new(first);
        opener.open(&mut run, &mut chunks, usize::MAX)?;
        assert_eq!(run.opened() as u64, opener.len());
        Ok(opener.is_empty())
    });
    way_of(opened, |is_empty| way(is_empty))
}
