//! Looking at every byte of a set: packs, headers, entries, the packs' own indexes, loose objects.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::header::{self, padding};
use super::row::Row;
use super::{PackError, PackReader, PackSet};
use crate::checksum::Checksum;
use crate::limits::PIECE_BYTES;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Entries looked at.
    pub entries: u64,
    /// Packs looked at.
    pub packs: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Everything that is wrong, in no order.
    pub damage: Vec<PackError>,
}

/// One unit of work: a pack with its rows by offset, or a loose object.
enum Unit<'a> {
    Pack(u32, Vec<&'a Row>),
    Loose(&'a Row),
}

/// Reads the whole set on `threads` threads; `seen` counts bytes while it goes on.
pub fn verify(set: &PackSet, threads: usize, seen: &AtomicU64) -> Report {
    let units = units(set);
    let (next, damage) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, units.len().max(1)) {
            scope.spawn(|| {
                while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check_unit(set, unit, seen);
                    damage.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found);
                }
            });
        }
    });
    Report {
        entries: set.index.rows.len() as u64,
        packs: set.index.packs.len() as u64,
        bytes: seen.load(Ordering::Relaxed),
        damage: damage.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner),
    }
}

fn units(set: &PackSet) -> Vec<Unit<'_>> {
    let mut packs: BTreeMap<u32, Vec<&Row>> = BTreeMap::new();
    let mut units = Vec::new();
    // A pack without rows is looked at too.
    for number in 0..set.index.packs.len() {
        packs.insert(u32::try_from(number).unwrap_or(u32::MAX), Vec::new());
    }
    for row in &set.index.rows {
        match row.location {
            Some(at) => packs.entry(at.pack).or_default().push(row),
            None => units.push(Unit::Loose(row)),
        }
    }
    units.extend(packs.into_iter().map(|(number, rows)| Unit::Pack(number, rows)));
    units
}

fn check_unit(set: &PackSet, unit: &Unit<'_>, seen: &AtomicU64) -> Vec<PackError> {
    let mut damage = Vec::new();
    match unit {
        Unit::Loose(row) => damage.extend(check_loose(set, row, seen).err()),
        Unit::Pack(number, rows) => match set.pack(*number) {
            Err(error) => damage.push(error),
            Ok(pack) => {
                let mut view = View { pack, whole: Vec::new() };
                damage.extend(check_whole(set, *number, &mut view, seen).err());
                damage.extend(check_own_index(&view.pack, rows).err());
                damage.extend(rows.iter().filter_map(|row| check_entry(&view, row).err()));
            }
        },
    }
    damage
}

/// Packs up to this size are read once and kept while their entries are looked at.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// A pack, and its bytes when they are kept.
struct View {
    pack: PackReader,
    whole: Vec<u8>,
}

impl View {
    fn read_range(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), PackError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match start.checked_add(len).and_then(|end| self.whole.get(start..end)) {
            Some(bytes) => {
                out.clear();
                out.extend_from_slice(bytes);
                Ok(())
            }
            None => self.pack.read_range(offset, len, out),
        }
    }
}

/// The checksum over the whole tar: headers, padding and all.
fn check_whole(
    set: &PackSet,
    number: u32,
    view: &mut View,
    seen: &AtomicU64,
) -> Result<(), PackError> {
    let pack = &view.pack;
    let line = set.index.packs[number as usize];
    let wrong =
        |why: &str| PackError::Damaged { object: pack.object().to_owned(), why: why.to_owned() };
    if pack.len() != line.bytes {
        return Err(wrong(&format!("it has {} bytes instead of {}", pack.len(), line.bytes)));
    }
    let (mut sum, mut piece, mut at) = (Checksum::new(), Vec::new(), 0);
    while at < line.bytes {
        let len = (line.bytes - at).min(PIECE_BYTES as u64) as usize;
        pack.read_range(at, len, &mut piece)?;
        sum.update(&piece);
        if line.bytes <= KEPT_BYTES_MAX {
            view.whole.extend_from_slice(&piece);
        }
        at += len as u64;
        seen.fetch_add(len as u64, Ordering::Relaxed);
    }
    if sum.value() == line.crc32c { Ok(()) } else { Err(wrong("its checksum is another")) }
}

/// What any tar will unpack is what the index says: the header, made again, is the header there.
fn check_entry(view: &View, row: &Row) -> Result<(), PackError> {
    let pack = &view.pack;
    let wrong = |why| PackError::Entry {
        object: pack.object().to_owned(),
        name: row.item.name.to_string(),
        why,
    };
    let at = row.location.ok_or_else(|| wrong("it lies in no pack"))?;
    let expected = header::of(row);
    let Some(start) = at.offset.checked_sub(expected.len() as u64) else {
        return Err(wrong("there is no room for its tar header"));
    };
    let mut bytes = Vec::new();
    view.read_range(start, expected.len(), &mut bytes)?;
    if bytes != expected {
        return Err(wrong("its tar header says something else"));
    }
    let zeros = padding(at.stored) as usize;
    view.read_range(at.offset + at.stored, zeros, &mut bytes)?;
    if bytes.iter().any(|&byte| byte != 0) {
        return Err(wrong("there are bytes behind its end"));
    }
    if at.stored <= PIECE_BYTES as u64 || at.codec == super::Codec::Zstd {
        let stored = usize::try_from(at.stored).map_err(|_| wrong("it is too large"))?;
        view.read_range(at.offset, stored, &mut bytes)?;
        return pack.check(row, &bytes).map(drop);
    }
    let (mut sum, mut offset, end) = (Checksum::new(), at.offset, at.offset + at.stored);
    while offset < end {
        let len = (end - offset).min(PIECE_BYTES as u64) as usize;
        view.read_range(offset, len, &mut bytes)?;
        sum.update(&bytes);
        offset += len as u64;
    }
    if sum.value() == row.crc32c { Ok(()) } else { Err(wrong("its checksum is another")) }
}

/// The pack can tell its entries by itself.
fn check_own_index(pack: &PackReader, rows: &[&Row]) -> Result<(), PackError> {
    let own = pack.own_index()?;
    let mut own = own.rows.into_iter();
    for row in rows {
        let mut expected = (*row).clone();
        if let Some(at) = &mut expected.location {
            at.pack = 0;
        }
        // Both are in order; the pack may hold entries that the set no longer has.
        if !own.any(|row| row == expected) {
            return Err(PackError::Entry {
                object: pack.object().to_owned(),
                name: row.item.name.to_string(),
                why: "the pack's own index says something else",
            });
        }
    }
    Ok(())
}

fn check_loose(set: &PackSet, row: &Row, seen: &AtomicU64) -> Result<(), PackError> {
    let wrong = |why| PackError::Entry {
        object: "its own object".to_owned(),
        name: row.item.name.to_string(),
        why,
    };
    let reader = set.place().tier.open(&set.place().key(row.item.name.as_bytes())?)?;
    if reader.meta().size.get() != row.item.bytes() {
        return Err(wrong("it has another length"));
    }
    let (mut sum, mut offset) = (Checksum::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = reader.read_at(offset, &mut piece)?;
        sum.update(&piece[..count]);
        offset += count as u64;
        seen.fetch_add(count as u64, Ordering::Relaxed);
        if count < piece.len() {
            break;
        }
    }
    if offset != row.item.bytes() {
        return Err(wrong("it has another length"));
    }
    if sum.value() == row.crc32c { Ok(()) } else { Err(wrong("its checksum is another")) }
}
