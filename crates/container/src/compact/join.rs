//! Joining: the bytes of many small parts in one, so that a file that is opened often has few parts.
//!
//! Here: which parts, copying their bytes. Not here: the index that tells of it, and what is removed then
//! ([`super`]).
//!
//! A log keeps its writer, rank and epochs, so what wins where writes overlap stays; it only names another part,
//! and other places in it. The new part is on the disk, with its name, before the index that names it counts. A
//! kill before that leaves a part that nothing names.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use hayase_layout::{ByteCount, LocalExtent, LocalOffset, WriterId, WriterLog};
use rustix::fs::OFlags;

use super::first_byte;
use crate::directory::random;
use crate::limits::{JOIN_BYTES_AT_CLOSE, JOIN_PARTS_MAX, JOIN_SMALL, NAME_TRIES_MAX};
use crate::names::{self, JOINED};
use crate::parts::Parts;
use crate::{Container, ContainerError, Snapshot};

/// Which parts a compaction joins: where there are more than so many small ones, they become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    /// So many small parts stay as they are.
    pub parts_max: usize,
    /// A part with fewer bytes is small.
    pub small: ByteCount,
    /// Most bytes that are copied: the smallest parts come first.
    pub bytes_max: ByteCount,
}

impl Default for Joining {
    fn default() -> Self {
        let bytes_max = ByteCount(u64::MAX);
        Self { parts_max: JOIN_PARTS_MAX, small: JOIN_SMALL, bytes_max }
    }
}

impl Joining {
    /// By a program that closes a container: it has other work to do.
    pub const AT_CLOSE: Self =
        Self { parts_max: JOIN_PARTS_MAX, small: JOIN_SMALL, bytes_max: JOIN_BYTES_AT_CLOSE };

    /// The parts of `merged` that are joined. `outside` are those that other indexes name: they stay.
    pub(super) fn choose(
        &self,
        merged: &Snapshot,
        outside: &HashSet<WriterId>,
    ) -> BTreeSet<WriterId> {
        let mut bytes: BTreeMap<WriterId, u64> = BTreeMap::new();
        for published in merged.logs().values() {
            let is_ended = published.closed.is_some() && !outside.contains(&published.log.part);
            let len = stretch(&published.log).map_or(0, |local| local.len().0);
            let len = if is_ended { len } else { u64::MAX };
            let all = bytes.entry(published.log.part).or_default();
            *all = all.saturating_add(len);
        }
        let mut small: Vec<(u64, WriterId)> = bytes
            .into_iter()
            .filter(|(_, len)| *len > 0 && *len < self.small.get())
            .map(|(part, len)| (len, part))
            .collect();
        small.sort_unstable();
        let mut room = self.bytes_max.get();
        let fits = |(len, _): &(u64, WriterId)| match room.checked_sub(*len) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        let chosen: BTreeSet<_> =
            small.into_iter().take_while(fits).map(|(_, part)| part).collect();
        match chosen.len() > self.parts_max {
            true => chosen,
            false => BTreeSet::new(),
        }
    }
}

/// What the records of a log, folded, have of its part.
fn stretch(log: &WriterLog) -> Option<LocalExtent> {
    let (first, last) = (log.records.first()?, log.records.last()?);
    LocalExtent::between(first.place, last.end()?).ok()
}

impl Container {
    /// Copies the bytes of these parts into a new one, in the order of the file, and lets the logs name it.
    /// Durable when it returns. What can not be read stays where it is: a lost part keeps no other back.
    pub(super) fn join(
        &self,
        merged: &mut Snapshot,
        chosen: &BTreeSet<WriterId>,
    ) -> Result<(), ContainerError> {
        let mut logs: Vec<&mut WriterLog> = merged
            .logs_mut()
            .map(|published| &mut published.log)
            .filter(|log| chosen.contains(&log.part))
            .collect();
        let first = |log: &WriterLog| first_byte(log, &log.records.first()?.selection);
        logs.sort_by_cached_key(|log| first(log));
        let (id, file) = self.create_joined()?;
        let path = self.directory().shown(&names::part(id));
        let filled = self.fill_joined(&mut logs, id, &file, &path).and_then(|()| {
            let synced = file.sync_all();
            synced.map_err(|source| ContainerError::io("sync the joined part", &path, source))?;
            self.directory().sync()
        });
        if filled.is_err() {
            self.directory().remove(&names::part(id))?; // nothing names it
        }
        filled?;
        for published in merged.logs_mut().filter(|published| published.log.part == id) {
            published.closed = stretch(&published.log).map(|local| ByteCount(local.end().0));
        }
        Ok(())
    }

    fn fill_joined(
        &self,
        logs: &mut [&mut WriterLog],
        id: WriterId,
        file: &File,
        path: &Path,
    ) -> Result<(), ContainerError> {
        let parts = Parts::new(self.clone());
        let mut target = BufWriter::with_capacity(1 << 20, file);
        let (mut bytes, mut end) = (Vec::new(), 0);
        for log in logs {
            let Some(local) = stretch(log) else { continue };
            bytes.resize(local.len().0 as usize, 0);
            if parts.read(log.part, local, &mut bytes).is_err() {
                continue;
            }
            let written = target.write_all(&bytes);
            written.map_err(|source| ContainerError::io("write the joined part", path, source))?;
            for record in &mut log.records {
                record.place = LocalOffset(record.place.0 - local.start().0 + end);
            }
            log.part = id;
            end += local.len().0;
        }
        let flushed = target.flush();
        flushed.map_err(|source| ContainerError::io("write the joined part", path, source))
    }

    /// A part of a name that no part ever had.
    fn create_joined(&self) -> Result<(WriterId, File), ContainerError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        for _ in 0..NAME_TRIES_MAX {
            let id = WriterId { node: JOINED, process: std::process::id(), opening: random() };
            let name = names::part(id);
            match self.directory().open_file(&name, flags) {
                Ok(file) => return Ok((id, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => {
                    let path = self.directory().shown(&name);
                    return Err(ContainerError::io("create the joined part", &path, source));
                }
            }
        }
        let what = format!("{NAME_TRIES_MAX} names for a joined part are taken");
        Err(ContainerError::Limit { path: self.path().to_owned(), what })
    }
}

/// Whether a part was made by joining others, by its name.
pub(super) fn is_joined(part: WriterId) -> bool {
    part.node == JOINED
}
