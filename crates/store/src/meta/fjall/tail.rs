//! Where the journals end that are written, so that a sync can note how much it made durable ([`super::lengths`]).
//!
//! fjall does not tell where its journal ends, and begins the next one when it likes. So what was written since the last
//! look is read again, from memory that the kernel still has.
//!
//! Here: following the journals from batch to batch. Not here: damage, which is looked for before a store is opened
//! ([`super::journal`]).

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::journal::{Broken, Last, Reader, journals};
use super::lengths::ByJournal;

/// Commits between two syncs are often shorter, and more is read where they are not.
const READ_BYTES: usize = 4 << 10;

/// Follows the journals of an open store.
pub(super) struct Tail {
    directory: PathBuf,
    pub(super) file: File,
    end: Last,
    /// Lengths of the journals before it.
    earlier: ByJournal,
}

impl Tail {
    /// Follows from `end`.
    pub(super) fn from(directory: &Path, end: Last, earlier: ByJournal) -> io::Result<Self> {
        let file = File::open(path(directory, end.journal))?;
        Ok(Self { directory: directory.to_owned(), file, end, earlier })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lengths of all journals, up to the last whole batch that is written now.
    pub(super) fn lengths(&mut self) -> io::Result<ByJournal> {
        loop {
            self.read_on()?;
            let Some((next, file)) = self.next_journal()? else { break };
            // It is written no more, and may have got its last batches since it was read.
            self.read_on()?;
            self.earlier.insert(self.end.journal, self.end.position);
            let directory = &self.directory;
            self.earlier.retain(|journal, _| path(directory, *journal).exists());
            self.file = file;
            self.end = Last { journal: next, position: 0, sequence: None };
        }
        let mut lengths = self.earlier.clone();
        lengths.insert(self.end.journal, self.end.position);
        Ok(lengths)
    }

    fn read_on(&mut self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.end.position))?;
        let file = BufReader::with_capacity(READ_BYTES, file);
        let mut reader = Reader::at(file, self.end.position, len, self.end.sequence);
        while reader.position() < len {
            match reader.batch() {
                Ok(sequence) => {
                    self.end.position = reader.position();
                    self.end.sequence = Some(sequence);
                }
                Err(Broken::Io(error)) => return Err(error),
                // Not written yet, or not as a whole.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// The one after this, when there is one already.
    fn next_journal(&self) -> io::Result<Option<(u64, File)>> {
        let is_last = |journal| -> io::Result<bool> {
            // The last one is never removed.
            Ok(!fs::exists(path(&self.directory, journal + 1))?
                && self.file.metadata()?.nlink() > 0)
        };
        if is_last(self.end.journal)? {
            return Ok(None);
        }
        for (journal, path) in journals(&self.directory)? {
            if journal <= self.end.journal {
                continue;
            }
            match File::open(path) {
                // Its changes came into tables since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                file => return Ok(Some((journal, file?))),
            }
        }
        Ok(None)
    }
}

fn path(directory: &Path, journal: u64) -> PathBuf {
    directory.join(format!("{journal}.jnl"))
}
