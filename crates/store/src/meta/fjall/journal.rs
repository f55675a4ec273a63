//! Journals of fjall, read before it reads them: what a crash has torn off is cut, damage is told.
//!
//! fjall takes everything behind the first record that it can not read for the torn end of a crash.
//! So one damaged byte in the middle would silently take back everything committed later. And a
//! large batch with a hole in it, which a power cut may leave, it takes for damage.
//!
//! Here: telling the one from the other. What is there of a journal is at least what was synced ([`super::lengths`]); behind
//! that, what was not written is zeros (the file is made longer ahead) or behind the end of the file; damage is neither.
//! Source: fjall 3.1, its module `journal::entry`: a batch is a start (1, items u32, sequence u64), its items
//! (2, type, compression, keyspace u64, key length u16, value length u32, stored length u32, key,
//! value; or 4, keyspace u64), and an end (3, XXH3 of the items u64, `FJL` 3); little endian.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use super::lengths::ByJournal;
use crate::meta::MetaError;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";
/// Storage writes at least so much at once or not at all.
const SECTOR: u64 = 512;
/// The kernel writes a file back in pages.
const PAGE: u64 = 4096;

/// Checks all journals in `directory`, of which `synced` was synced; cuts a torn end off the last one.
///
/// Where each ends, and the last one as a place to follow from; `None` where there is none.
pub(super) fn check(
    directory: &Path,
    synced: &ByJournal,
) -> Result<Option<(Last, ByJournal)>, MetaError> {
    let fail = |source| MetaError::Io { action: "read", path: directory.to_owned(), source };
    let journals = journals(directory).map_err(fail)?;
    none_is_missing(directory, &journals, synced)?;
    let (mut last, mut earlier) = (None::<Last>, ByJournal::new());
    for (index, (journal, path)) in journals.iter().enumerate() {
        earlier.extend(last.map(|last| (last.journal, last.position)));
        let synced = synced.get(journal).copied().unwrap_or_default();
        let (end, sequence) = scan(path).map_err(fail)?;
        if end.batch < synced {
            return Err(shortened(path, &end, synced));
        }
        if !end.is_clean() {
            // The earlier ones were synced as a whole before the next one was begun.
            if index + 1 < journals.len() || !is_torn(path, &end).map_err(fail)? {
                return Err(damaged(path, end.batch));
            }
            tracing::info!(path = %path.display(), at = end.batch, "a commit that a crash tore off is dropped");
            cut(path, end.batch).map_err(fail)?;
        }
        last = Some(Last { journal: *journal, position: end.batch, sequence });
    }
    Ok(last.map(|last| (last, earlier)))
}

/// fjall removes the first ones when their changes are in tables, and never the last.
fn none_is_missing(
    directory: &Path,
    journals: &[(u64, PathBuf)],
    synced: &ByJournal,
) -> Result<(), MetaError> {
    for pair in journals.windows(2) {
        if pair[0].0 + 1 != pair[1].0 {
            return Err(missing(directory, pair[0].0 + 1));
        }
    }
    let last = journals.last().map(|(last, _)| *last);
    let latest = synced.iter().rfind(|(_, len)| **len > 0).map(|(journal, _)| *journal);
    match latest.filter(|latest| last.is_none_or(|last| last < *latest)) {
        Some(latest) => Err(missing(directory, latest)),
        None => Ok(()),
    }
}

pub(super) fn missing(directory: &Path, journal: u64) -> MetaError {
    let path = directory.join(format!("{journal}.jnl"));
    MetaError::Corrupt { path, detail: "the journal is missing".to_owned() }
}

fn cut(path: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(len)?;
    file.sync_all()
}

fn damaged(path: &Path, at: u64) -> MetaError {
    let detail = format!("the journal can not be read from byte {at}");
    MetaError::Corrupt { path: path.to_owned(), detail }
}

fn shortened(path: &Path, end: &End, synced: u64) -> MetaError {
    let (at, end) = (end.batch, end.used.max(end.batch));
    let detail = format!(
        "the journal can not be read from byte {at}: {synced} bytes of it were synced, and it ends at byte {end}"
    );
    MetaError::Corrupt { path: path.to_owned(), detail }
}

/// The journals by number. Other files are none of ours.
pub(super) fn journals(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(journals),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse().ok());
        journals.extend(number.map(|number| (number, entry.path())));
    }
    journals.sort_unstable();
    Ok(journals)
}

/// Behind the last whole batch of the last journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) journal: u64,
    pub(super) position: u64,
    /// Of the last batch.
    pub(super) sequence: Option<u64>,
}

/// Where whole batches end.
struct End {
    /// The first byte that belongs to no whole batch.
    batch: u64,
    /// Why the next batch is none; `None` when whole batches fill the file.
    broken: Option<Broken>,
    /// Behind the last byte that is not zero.
    used: u64,
}

impl End {
    /// Only zeros follow.
    fn is_clean(&self) -> bool {
        self.broken.is_none() || self.used <= self.batch
    }
}

/// The end, and the sequence number of the last batch.
fn scan(path: &Path) -> io::Result<(End, Option<u64>)> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut reader = Reader::at(BufReader::with_capacity(1 << 18, file), 0, len, None);
    loop {
        let batch = reader.position;
        if batch == len {
            return Ok((End { batch, broken: None, used: len }, reader.sequence));
        }
        match reader.batch() {
            Ok(_) => {}
            Err(Broken::Io(error)) => return Err(error),
            Err(broken) => {
                let used = used(path, batch, len)?;
                return Ok((End { batch, broken: Some(broken), used }, reader.sequence));
            }
        }
    }
}

/// The batch was cut off: bytes of it were never written.
fn is_torn(path: &Path, end: &End) -> io::Result<bool> {
    let bad = match end.broken {
        Some(Broken::At(bad)) if bad < end.used => bad,
        // It seems to go on behind everything that was written. If what was written ends with a
        // whole batch, then it has a hole, or its lengths are wrong.
        _ if ends_with_trailer(path, end.used)? => end.used,
        _ => return Ok(true),
    };
    // The rest of the page, as it was written back before the batch was in it.
    let page = (bad / PAGE + 1) * PAGE;
    if bad < end.used && used(path, bad, page)? <= bad {
        return Ok(true);
    }
    for sector in (end.batch.next_multiple_of(SECTOR)..=bad).step_by(SECTOR as usize) {
        if sector < end.used && used(path, sector, sector + SECTOR)? <= sector {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ends_with_trailer(path: &Path, used: u64) -> io::Result<bool> {
    let mut trailer = [0; TRAILER.len()];
    let Some(at) = used.checked_sub(TRAILER.len() as u64) else { return Ok(false) };
    File::open(path)?.read_exact_at(&mut trailer, at)?;
    Ok(trailer == TRAILER)
}

/// Behind the last byte of `start..end` that is not zero; `start` when all are. Skips holes.
fn used(path: &Path, start: u64, end: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    let (mut used, mut at) = (start, start);
    let mut buffer = vec![0; 64 * 1024];
    while at < end {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let part = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let got = file.read_at(&mut buffer[..part], at)?;
        if let Some(last) = buffer[..got].iter().rposition(|byte| *byte != 0) {
            used = at + last as u64 + 1;
        }
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    Ok(used)
}

pub(super) enum Broken {
    /// The byte at this place can not be right.
    At(u64),
    /// It is longer than the file.
    TooLong,
    Io(io::Error),
}

/// Reads a journal batch by batch.
pub(super) struct Reader<F> {
    file: F,
    position: u64,
    len: u64,
    /// Of the batch before.
    sequence: Option<u64>,
}

impl<F: Read> Reader<F> {
    /// `file` is at byte `position` of `len`, behind the batch with the number `sequence`.
    pub(super) fn at(file: F, position: u64, len: u64, sequence: Option<u64>) -> Self {
        Self { file, position, len, sequence }
    }

    /// The byte that is read next; between batches, where one begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Reads one whole batch and checks it; its sequence number.
    pub(super) fn batch(&mut self) -> Result<u64, Broken> {
        let start = self.position;
        let [START] = self.bytes()? else { return Err(Broken::At(start)) };
        let items = u32::from_le_bytes(self.bytes()?);
        let sequence = u64::from_le_bytes(self.bytes()?);
        if self.sequence.is_some_and(|before| before >= sequence) {
            return Err(Broken::At(start + 5));
        }
        let mut hash = Xxh3::new();
        for _ in 0..items {
            self.item(&mut hash)?;
        }
        let end = self.position;
        let [END] = self.bytes()? else { return Err(Broken::At(end)) };
        let checksum = u64::from_le_bytes(self.bytes()?);
        let trailer: [u8; 4] = self.bytes()?;
        if let Some(wrong) = trailer.iter().zip(&TRAILER).position(|(found, right)| found != right)
        {
            return Err(Broken::At(end + 9 + wrong as u64));
        }
        if checksum != hash.digest() {
            return Err(Broken::At(end + 1));
        }
        self.sequence = Some(sequence);
        Ok(sequence)
    }

    fn item(&mut self, hash: &mut Xxh3) -> Result<(), Broken> {
        let start = self.position;
        let [tag] = self.bytes()?;
        hash.update(&[tag]);
        match tag {
            ITEM => {
                let head: [u8; 2 + 8 + 2 + 4 + 4] = self.bytes()?;
                hash.update(&head);
                let key = u64::from(u16::from_le_bytes([head[10], head[11]]));
                let value = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
                self.hashed(key + u64::from(value), hash)
            }
            CLEAR => self.hashed(8, hash),
            _ => Err(Broken::At(start)),
        }
    }

    fn hashed(&mut self, mut count: u64, hash: &mut Xxh3) -> Result<(), Broken> {
        if count > self.len - self.position {
            return Err(Broken::TooLong);
        }
        let mut buffer = [0; 4096];
        while count > 0 {
            let part = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.file.read_exact(&mut buffer[..part]).map_err(Broken::Io)?;
            hash.update(&buffer[..part]);
            self.position += part as u64;
            count -= part as u64;
        }
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        if self.len - self.position < N as u64 {
            return Err(Broken::TooLong);
        }
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(Broken::Io)?;
        self.position += N as u64;
        Ok(bytes)
    }
}
