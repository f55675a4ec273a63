//! How many bytes of each journal were synced, in a file of our own next to them.
//!
//! What was never written reads as zeros or is behind the end of the file, and so does what storage has lost: a journal
//! without its end looks like one whose last commits a crash tore off. The file `synced` tells the one from the other.
//!
//! Here: its bytes, drawn in `FORMAT.md`. Not here: what the journals hold ([`super::journal`]), and how far one is
//! written ([`super::tail`]).
//!
//! Invariants:
//! * a length is written after the sync that it tells of, without a sync of its own: what the file says was true when it
//!   was written. After a power cut it may say less than was synced, never more;
//! * the lengths of a journal only grow, so the larger one of the two slots counts;
//! * one slot is written at a time, and each has a sector of its own, also where sectors have 4 KiB.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Of the file.
pub(super) const NAME: &str = "synced";

/// By the number of a journal, its bytes.
pub(super) type ByJournal = BTreeMap<u64, u64>;

/// Journals that a slot has room for: those with the highest numbers. fjall keeps two or three (`JOURNALS_BYTES_MAX`).
pub(super) const JOURNALS_MAX: usize = 24;

const SLOTS: usize = 2;
const SLOT_STRIDE: usize = 4096;
const MAGIC: [u8; 7] = *b"haynsyn";
const FORMAT: u8 = 1;
/// Magic, format, number of journals (u64); then a number and a length (u64 each) of each journal, and a checksum (u64).
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
const SLOT_BYTES_MAX: usize = HEAD_BYTES + JOURNALS_MAX * ENTRY_BYTES + CHECKSUM_BYTES;

// The smallest sector, so that each is written as a whole or not at all.
const _: () = assert!(SLOT_BYTES_MAX <= 512, "a sector");

/// The file, open.
pub(super) struct Lengths {
    pub(super) file: File,
    /// The slot that is written next.
    next: usize,
}

impl Lengths {
    /// Makes the file in `directory`, of a store that has no journal yet. It is durable when this returns.
    pub(super) fn begin(directory: &Path) -> io::Result<()> {
        let file = File::create(directory.join(NAME))?;
        for number in 0..SLOTS {
            file.write_all_at(&slot(number, &ByJournal::new()), at(number))?;
        }
        file.sync_all()?;
        File::open(directory)?.sync_all()
    }

    /// What the file in `directory` says; `None` where it is not there, or neither slot is as it was written.
    pub(super) fn read(directory: &Path) -> io::Result<Option<(Self, ByJournal)>> {
        let file = match OpenOptions::new().read(true).write(true).open(directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut found: Option<ByJournal> = None;
        let mut bad = None;
        for number in 0..SLOTS {
            let Some(lengths) = read_slot(&file, number)? else {
                bad = Some(number);
                continue;
            };
            let known = found.get_or_insert_default();
            for (journal, len) in lengths {
                let longest = known.entry(journal).or_default();
                *longest = len.max(*longest);
            }
        }
        let Some(lengths) = found else { return Ok(None) };
        if let Some(slot) = bad {
            tracing::warn!(file = %directory.join(NAME).display(), slot, "damaged; the other slot counts");
        }
        Ok(Some((Self { file, next: bad.unwrap_or(0) }, lengths)))
    }

    /// Notes `synced`, which storage has from here on. Costs one small write.
    pub(super) fn write(&mut self, synced: &ByJournal) -> io::Result<()> {
        self.file.write_all_at(&slot(self.next, synced), at(self.next))?;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }
}

fn at(number: usize) -> u64 {
    (number * SLOT_STRIDE) as u64
}

fn slot(number: usize, lengths: &ByJournal) -> Vec<u8> {
    let count = lengths.len().min(JOURNALS_MAX);
    let mut bytes = Vec::with_capacity(SLOT_BYTES_MAX);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(FORMAT);
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
    for (journal, len) in lengths.iter().skip(lengths.len() - count) {
        bytes.extend_from_slice(&journal.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
    }
    let checksum = xxh3_64_with_seed(&bytes, number as u64);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// `None` when it is not as it was written. A sector that can not be read is the same.
fn read_slot(file: &File, number: usize) -> io::Result<Option<ByJournal>> {
    let mut bytes = [0; SLOT_BYTES_MAX];
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], at(number) + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(decode(&bytes[..got], number))
}

fn decode(bytes: &[u8], number: usize) -> Option<ByJournal> {
    let count = u64_at(bytes, MAGIC.len() + 1)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= JOURNALS_MAX)?;
    let end = HEAD_BYTES + count * ENTRY_BYTES;
    let is_whole = u64_at(bytes, end)? == xxh3_64_with_seed(&bytes[..end], number as u64);
    if !is_whole || bytes[..MAGIC.len()] != MAGIC || bytes[MAGIC.len()] != FORMAT {
        return None;
    }
    let entry = |at: usize| Some((u64_at(bytes, at)?, u64_at(bytes, at + 8)?));
    (0..count).map(|i| entry(HEAD_BYTES + i * ENTRY_BYTES)).collect()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lengths: &[ByJournal]) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        Lengths::begin(dir.path()).unwrap();
        let (mut file, none) = Lengths::read(dir.path()).unwrap().unwrap();
        assert!(none.is_empty());
        lengths.iter().for_each(|lengths| file.write(lengths).unwrap());
        let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
        (dir, bytes)
    }

    fn read(dir: &tempfile::TempDir, bytes: &[u8]) -> Option<ByJournal> {
        std::fs::write(dir.path().join(NAME), bytes).unwrap();
        Lengths::read(dir.path()).unwrap().map(|(_, lengths)| lengths)
    }

    #[test]
    fn the_longest_of_each_journal_counts() {
        let all = [[(3, 50)].into(), [(3, 70)].into(), [(3, 90), (4, 10)].into()];
        let (dir, bytes) = written(&all);
        assert_eq!(read(&dir, &bytes), Some(all[2].clone()));
        let many: ByJournal = (0..100).map(|journal| (journal, 1)).collect();
        let (dir, bytes) = written(std::slice::from_ref(&many));
        assert_eq!(read(&dir, &bytes), Some(many.into_iter().skip(100 - JOURNALS_MAX).collect()));
    }

    #[test]
    fn no_flipped_bit_and_no_missing_end_is_believed() {
        let (dir, bytes) = written(&[[(0, 50)].into(), [(0, 70)].into()]);
        let is_used = |bit: &usize| bit / 8 % SLOT_STRIDE < SLOT_BYTES_MAX;
        for bit in (0..8 * bytes.len()).filter(is_used) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = read(&dir, &bad).expect("one slot is whole");
            assert!(found[&0] == 50 || found[&0] == 70, "bit {bit}: {found:?}");
        }
        for len in 0..bytes.len() {
            let found = read(&dir, &bytes[..len]);
            assert!(found.is_none_or(|found| found[&0] == 50), "cut at {len}");
        }
        assert_eq!(read(&dir, &[]), None);
    }

    /// So that the slot that is whole stays so while the other is written.
    #[test]
    fn a_damaged_slot_is_the_next_that_is_written() {
        for bad_slot in 0..SLOTS {
            let (dir, mut bytes) = written(&[[(0, 50)].into(), [(0, 70)].into()]);
            bytes[bad_slot * SLOT_STRIDE] ^= 1;
            std::fs::write(dir.path().join(NAME), &bytes).unwrap();
            let (mut file, _) = Lengths::read(dir.path()).unwrap().unwrap();
            file.write(&[(0, 90)].into()).unwrap();
            let after = std::fs::read(dir.path().join(NAME)).unwrap();
            let other = (1 - bad_slot) * SLOT_STRIDE;
            assert_eq!(after[other..][..40], bytes[other..][..40]);
            assert_eq!(read(&dir, &after).unwrap()[&0], 90);
        }
    }
}
