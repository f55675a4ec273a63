//! Outlines: what an open for writing needs to know of a container, without reading what was written.
//!
//! A merged index ends with a summary of itself, so an open reads its ends, and the indexes that are not merged
//! yet: a file that was opened very often is opened as fast as others.
//! Not here: all that is published ([`crate::catalogue`]).

use std::os::unix::fs::FileExt;

use hayase_layout::{ByteCount, Epoch, Index};
use rustix::fs::OFlags;

use crate::catalogue::{Loaded, Vanished, indexes, is_settled};
use crate::directory::Directory;
use crate::format::{Entry, HEADER_BYTES, check_header, last_block};
use crate::limits::{LIST_TRIES_MAX, SUMMARY_BLOCK_MAX};
use crate::names::{self, Kind};
use crate::snapshot::Contents;
use crate::{Container, ContainerError};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    /// At least as many as there are.
    pub(crate) writers: usize,
    /// The last epoch that somebody used.
    pub(crate) latest: Epoch,
    /// Length of the file; `None` where a change of size makes it more than the end of the last byte.
    pub(crate) size: Option<ByteCount>,
}

impl Default for Outline {
    fn default() -> Self {
        Self { writers: 0, latest: Epoch(0), size: Some(ByteCount::ZERO) }
    }
}

impl Outline {
    /// Of what one index says. `None` where its records make no file.
    pub(crate) fn of(contents: &Contents) -> Option<Self> {
        let logs = contents.logs.iter().map(|published| &published.log);
        let is_plain = contents.cuts.is_empty() && contents.grows.is_empty();
        let size = match is_plain {
            true => Some(Index::new(logs, &[]).ok()?.size()),
            false => None,
        };
        Some(Self { writers: contents.logs.len(), latest: contents.latest, size })
    }

    fn add(&mut self, other: Self) {
        self.writers += other.writers;
        self.latest = self.latest.max(other.latest);
        self.size = self.size.zip(other.size).map(|(own, other)| own.max(other));
    }
}

impl Container {
    /// `None` where it has to be read: a merged index has no summary, or indexes are merged all the time.
    pub(crate) fn outline(&self) -> Result<Option<Outline>, ContainerError> {
        let mut names = self.directory().names()?;
        for _ in 0..LIST_TRIES_MAX {
            let mut all = Some(Outline::default());
            for name in indexes(&names) {
                let found = match names::kind(name) {
                    Kind::Merged(_) => self.summary(name)?,
                    _ => self.outline_of(name)?,
                };
                match (&mut all, found) {
                    (Some(all), Some(found)) => all.add(found),
                    _ => all = None,
                }
            }
            let again = self.directory().names()?;
            if is_settled(&names, &again) {
                return Ok(all);
            }
            names = again;
        }
        Ok(None)
    }

    /// Of an index that is not merged.
    fn outline_of(&self, name: &str) -> Result<Option<Outline>, ContainerError> {
        let mut loaded = Loaded::default();
        match loaded.read_on(self.directory(), self.id(), name)? {
            Ok(_) => Ok(Outline::of(loaded.contents())),
            Err(Vanished) => Ok(None),
        }
    }

    /// What the end of a merged index says. `None` where it has none, whatever the reason.
    fn summary(&self, name: &str) -> Result<Option<Outline>, ContainerError> {
        let read = read_ends(self.directory(), name);
        let Ok((header, end)) = read else { return Ok(None) };
        if check_header(&header, self.id()).is_err() {
            return Ok(None); // reading all of it says what is wrong
        }
        Ok(match last_block(&end).as_deref() {
            Some([Entry::Summary { writers, latest, size }, Entry::Complete]) => Some(Outline {
                writers: usize::try_from(*writers).unwrap_or(usize::MAX),
                latest: *latest,
                size: *size,
            }),
            _ => None,
        })
    }
}

/// The first and the last bytes of an index.
fn read_ends(directory: &Directory, name: &str) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let file = directory.open_file(name, OFlags::RDONLY)?;
    let len = file.metadata()?.len();
    let mut header = vec![0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let from = len.saturating_sub(SUMMARY_BLOCK_MAX).max(HEADER_BYTES as u64);
    let mut end = vec![0; len.saturating_sub(from) as usize];
    file.read_exact_at(&mut end, from)?;
    Ok((header, end))
}
