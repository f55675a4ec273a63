//! Looking at every byte of a set: packs, headers, entries, the packs' own indexes, loose objects.
//! Room: [`passing`] (one entry, as the bytes of its pack go by).

mod passing;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use self::passing::Passing;
use super::index::PackLine;
use super::row::Row;
use super::{PackError, PackReader, PackSet};
use crate::checksum::Checksum;
use crate::limits::STREAM_BYTES;

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
                let mut piece = Vec::new();
                while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check_unit(set, unit, &mut piece, seen);
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

fn check_unit(
    set: &PackSet,
    unit: &Unit<'_>,
    piece: &mut Vec<u8>,
    seen: &AtomicU64,
) -> Vec<PackError> {
    let mut damage = Vec::new();
    match unit {
        Unit::Loose(row) => damage.extend(check_loose(set, row, piece, seen).err()),
        Unit::Pack(number, rows) => match set.pack(*number) {
            Err(error) => damage.push(error),
            Ok(pack) => {
                let line = set.index.packs[*number as usize];
                damage.extend(check_whole(&pack, line, rows, piece, seen));
                damage.extend(check_own_index(&pack, rows).err());
            }
        },
    }
    damage
}

/// The checksum over the whole tar, headers, padding and all, and every entry in it; read once.
fn check_whole(
    pack: &PackReader,
    line: PackLine,
    rows: &[&Row],
    piece: &mut Vec<u8>,
    seen: &AtomicU64,
) -> Vec<PackError> {
    let wrong = |why: String| PackError::Damaged { object: pack.object().to_owned(), why };
    let mut entries = Entries::new(pack, rows);
    if pack.len() != line.bytes {
        let why = format!("it has {} bytes instead of {}", pack.len(), line.bytes);
        entries.damage.push(wrong(why));
    }
    let (mut sum, mut at) = (Checksum::new(), 0);
    while at < pack.len() {
        let len = (pack.len() - at).min(STREAM_BYTES as u64) as usize;
        if let Err(error) = pack.read_range(at, len, piece) {
            entries.damage.push(error);
            return entries.each_alone(pack, piece);
        }
        sum.update(piece);
        entries.pass(at, piece);
        at += len as u64;
        seen.fetch_add(len as u64, Ordering::Relaxed);
    }
    if pack.len() == line.bytes && sum.value() != line.crc32c {
        entries.damage.push(wrong("its checksum is another".to_owned()));
    }
    entries.damage
}

/// The entries of a pack whose bytes pass by.
struct Entries<'a> {
    object: &'a str,
    pack_bytes: u64,
    /// By offset.
    rows: std::vec::IntoIter<&'a Row>,
    current: Option<Passing<'a>>,
    damage: Vec<PackError>,
}

impl<'a> Entries<'a> {
    fn new(pack: &'a PackReader, rows: &[&'a Row]) -> Self {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| row.location.map(|at| at.offset));
        let (object, rows) = (pack.object(), rows.into_iter());
        Self { object, pack_bytes: pack.len(), rows, current: None, damage: Vec::new() }
    }

    /// Takes bytes of the pack that begin at `at`, behind those before.
    fn pass(&mut self, mut at: u64, mut bytes: &[u8]) {
        while let Some(mut entry) = self.current.take().or_else(|| self.next(at)) {
            let gap = usize::try_from(entry.offset().saturating_sub(at)).unwrap_or(usize::MAX);
            let (skipped, own) = bytes.split_at(gap.min(bytes.len()));
            let count = skipped.len() + entry.pass(own);
            at += count as u64;
            bytes = &bytes[count..];
            if !entry.is_whole() {
                self.current = Some(entry);
                return;
            }
            self.damage.extend(entry.end().err());
        }
    }

    /// After a read that failed: those that have not passed are read one by one, so that each is told of
    /// for itself. Answers all that is wrong.
    fn each_alone(mut self, pack: &PackReader, piece: &mut Vec<u8>) -> Vec<PackError> {
        let begun = self.current.take().map(|entry| entry.row());
        let rows: Vec<_> = begun.into_iter().chain(self.rows.by_ref()).collect();
        for row in rows {
            self.rows = vec![row].into_iter();
            // A wrong row is told of by `next`.
            let Some(mut entry) = self.next(0) else { continue };
            let checked = entry.read(pack, piece).and_then(|()| entry.end());
            self.damage.extend(checked.err());
        }
        self.damage
    }

    /// The next entry that lies behind byte `from`; those that can not be there are told.
    fn next(&mut self, from: u64) -> Option<Passing<'a>> {
        loop {
            let row = self.rows.next()?;
            if let Some(entry) = Passing::begin(self.object, row, (from, self.pack_bytes)) {
                return Some(entry);
            }
            self.damage.push(PackError::Entry {
                object: self.object.to_owned(),
                name: row.item.name.to_string(),
                why: "it does not lie in its pack, or lies where another entry is",
            });
        }
    }
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

fn check_loose(
    set: &PackSet,
    row: &Row,
    piece: &mut Vec<u8>,
    seen: &AtomicU64,
) -> Result<(), PackError> {
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
    piece.resize(STREAM_BYTES, 0);
    loop {
        let count = reader.read_at(offset, piece)?;
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
