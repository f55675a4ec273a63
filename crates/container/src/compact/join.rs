//! Joining: the bytes of many small parts in one, so that a file that is opened often has few parts.
//!
//! Here: which parts, copying their bytes. Not here: the index that tells of it, and what is removed then
//! ([`super`]).
//!
//! A log keeps its writer, rank and epochs, so what wins where writes overlap stays; it only names another part,
//! and other places in it. The new part is on the disk before the index that names it counts. A kill before that
//! leaves a part that nothing names.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use hayase_layout::{ByteCount, LocalExtent, LocalOffset, WriterId, WriterLog};

use crate::limits::{
    JOIN_BYTES_AT_CLOSE, JOIN_FREE_FRACTION, JOIN_FREE_MAX, JOIN_PARTS_AT_CLOSE, JOIN_PARTS_MAX,
    JOIN_SMALL,
};
use crate::names::{self, JOINED};
use crate::parts::Parts;
use crate::snapshot::first_byte;
use crate::{Container, ContainerError, Snapshot};

/// Which parts a compaction joins: where there are many small ones, they become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Up to this number small parts stay as they are.
    pub parts_max: usize,
    /// A part with fewer bytes is small.
    pub small: ByteCount,
    /// Most bytes that are copied: the smallest parts come first.
    pub bytes_max: ByteCount,
    /// Most parts that are joined at once.
    pub joined_max: usize,
}

impl Default for Joining {
    fn default() -> Self {
        let (bytes_max, joined_max) = (ByteCount(u64::MAX), usize::MAX);
        Self { parts_max: JOIN_PARTS_MAX, small: JOIN_SMALL, bytes_max, joined_max }
    }
}

impl Joining {
    /// By a program that closes a container: it has other work to do.
    pub const AT_CLOSE: Self = Self {
        parts_max: JOIN_PARTS_MAX,
        small: JOIN_SMALL,
        bytes_max: JOIN_BYTES_AT_CLOSE,
        joined_max: JOIN_PARTS_AT_CLOSE,
    };

    /// All parts stay.
    pub const NONE: Self = Self { parts_max: usize::MAX, ..Self::AT_CLOSE };

    /// The parts of `merged` that are joined, among those that `may_join`.
    pub(super) fn choose(
        &self,
        merged: &Snapshot,
        may_join: impl Fn(WriterId) -> bool,
    ) -> BTreeSet<WriterId> {
        let mut bytes: BTreeMap<WriterId, u64> = BTreeMap::new();
        for published in merged.logs().values() {
            let len = stretch(&published.log).map_or(0, |local| local.len().0);
            let len = if published.closed.is_some() { len } else { u64::MAX };
            let all = bytes.entry(published.log.part).or_default();
            *all = all.saturating_add(len);
        }
        let mut small: Vec<(u64, WriterId)> = bytes
            .into_iter()
            .filter(|(part, len)| *len > 0 && *len < self.small.get() && may_join(*part))
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
        let fitting = small.into_iter().take_while(fits).take(self.joined_max);
        let chosen: BTreeSet<_> = fitting.map(|(_, part)| part).collect();
        match chosen.len() > self.parts_max {
            true => chosen,
            false => BTreeSet::new(),
        }
    }
}

/// How much must be free before a join of parts of `joined` bytes begins, on a file system of `total` bytes. The old parts
/// go only after the joined one counts; until then others write, no slower than parts are copied, and other joins
/// may have begun that found the same room.
fn wanted(joined: ByteCount, total: ByteCount) -> ByteCount {
    let stays = (total.0 / JOIN_FREE_FRACTION).min(JOIN_FREE_MAX.get());
    ByteCount(joined.0.saturating_mul(2).saturating_add(stays))
}

/// What the records of a log, folded, have of its part.
fn stretch(log: &WriterLog) -> Option<LocalExtent> {
    let (first, last) = (log.records.first()?, log.records.last()?);
    LocalExtent::between(first.place, last.end()?).ok()
}

/// What a compaction has joined.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// The new part.
    part: Option<WriterId>,
    /// Whose bytes are in it.
    pub(super) sources: BTreeSet<WriterId>,
    /// Why there is no new part.
    pub(super) failed: Option<String>,
}

impl Joined {
    /// Nothing, and nothing is left of it.
    fn failed(error: &ContainerError) -> Self {
        let failed = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        Self { failed: Some(failed), ..Self::default() }
    }

    /// No index names it, and none will.
    pub(super) fn forget(&mut self, container: &Container) -> Result<(), ContainerError> {
        self.sources.clear();
        match self.part.take() {
            Some(part) => container.directory().remove(&names::part(part)),
            None => Ok(()),
        }
    }
}

impl Container {
    /// Copies the bytes of these parts into a new one, in the order of the file, and lets the logs name it. Its
    /// bytes are durable when it returns. What can not be read stays where it is: a lost part keeps no other back.
    /// Where it failed, the logs are not to be used.
    pub(super) fn join(
        &self,
        merged: &mut Snapshot,
        chosen: &BTreeSet<WriterId>,
    ) -> Result<Joined, ContainerError> {
        let Some(generation) = generation_behind(chosen) else { return Ok(Joined::default()) };
        let mut logs: Vec<&mut WriterLog> = merged
            .logs_mut()
            .map(|published| &mut published.log)
            .filter(|log| chosen.contains(&log.part))
            .collect();
        if let Some(why) = self.want_of_room(&logs) {
            return Ok(Joined { failed: Some(why), ..Joined::default() });
        }
        let first = |log: &WriterLog| first_byte(log, log.records.first()?);
        logs.sort_by_cached_key(|log| first(log));
        let (id, file) = match self.create_joined(generation) {
            Ok(created) => created,
            Err(error) => return Ok(Joined::failed(&error)),
        };
        let path = self.directory().shown(&names::part(id));
        let mut joined = Joined { part: Some(id), ..Joined::default() };
        let filled = self.fill_joined(&mut logs, id, &file, &path).and_then(|sources| {
            joined.sources = sources;
            let synced = file.sync_all();
            synced.map_err(|source| ContainerError::io("sync the joined part", &path, source))
        });
        if filled.is_err() || joined.sources.is_empty() {
            joined.forget(self)?;
        }
        if let Err(error) = filled {
            return Ok(Joined::failed(&error));
        }
        for published in merged.logs_mut().filter(|published| published.log.part == id) {
            published.closed = stretch(&published.log).map(|local| ByteCount(local.end().0));
        }
        Ok(joined)
    }

    /// Why the parts of these logs are not joined, where other writers would run out of room meanwhile. A quota may be
    /// smaller than what the file system tells, and others take room at the same time: a join may fail all the same.
    fn want_of_room(&self, logs: &[&mut WriterLog]) -> Option<String> {
        let joined = logs.iter().filter_map(|log| stretch(log)).map(|local| local.len().0).sum();
        let (joined, room) = (ByteCount(joined), self.directory().room()?);
        let wanted = wanted(joined, room.total);
        (room.free < wanted).then(|| {
            format!(
                "{} free on the file system of {}: a joined part of {joined} is begun where {wanted} are free",
                room.free,
                self.path().display(),
            )
        })
    }

    /// Which parts are in it: all that their writers have there, or nothing.
    fn fill_joined(
        &self,
        logs: &mut [&mut WriterLog],
        id: WriterId,
        file: &File,
        path: &Path,
    ) -> Result<BTreeSet<WriterId>, ContainerError> {
        let mut target = BufWriter::with_capacity(1 << 20, file);
        let failed = |source| ContainerError::io("write the joined part", path, source);
        let mut sources = BTreeSet::new();
        let (mut bytes, mut end) = (Vec::new(), 0);
        for log in logs {
            let Some(local) = stretch(log) else { continue };
            bytes.resize(local.len().0 as usize, 0);
            // Closed again at once: a program may have few descriptors left.
            match Parts::new(self.clone()).read(log.part, local, &mut bytes) {
                Err(error) if is_of_part(&error) => continue,
                read => read?,
            }
            target.write_all(&bytes).map_err(failed)?;
            for record in &mut log.records {
                record.place = LocalOffset(record.place.0 - local.start().0 + end);
            }
            sources.insert(log.part);
            log.part = id;
            end += local.len().0;
        }
        target.flush().map_err(failed)?;
        Ok(sources)
    }

    /// A part of a name that no part ever had, larger than the names of those that go into it.
    fn create_joined(&self, generation: u32) -> Result<(WriterId, File), ContainerError> {
        let id = WriterId { node: JOINED, process: generation, opening: names::drawn() };
        let name = names::part(id);
        let file = self.directory().create_file(&name).map_err(|source| {
            ContainerError::io("create the joined part", &self.directory().shown(&name), source)
        });
        Ok((id, file?))
    }
}

/// The process in the name of a part into which these are joined. `None` when there are none, and when there is none
/// larger.
fn generation_behind(parts: &BTreeSet<WriterId>) -> Option<u32> {
    let last = parts.last()?;
    match last.node == JOINED {
        true => last.process.checked_add(1),
        false => Some(1),
    }
}

/// Whether this part alone can not be read: it is lost, too short, or its disk is bad.
fn is_of_part(error: &ContainerError) -> bool {
    match error {
        ContainerError::MissingPart { .. } | ContainerError::ShortPart { .. } => true,
        ContainerError::Io { source, .. } => {
            source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As one would say it: the joined part is there, as much again was written by others, and some is still free.
    fn may_begin(joined: ByteCount, free: ByteCount, total: ByteCount) -> bool {
        let left = i128::from(free.0) - 2 * i128::from(joined.0);
        left >= i128::from(total.0 / 16) || left >= 1 << 30
    }

    #[test]
    fn a_join_begins_where_room_stays_for_others() {
        let check = |joined: ByteCount, free: ByteCount, total: ByteCount, expected: bool| {
            let text = format!("{joined} joined, {free} of {total} free");
            assert_eq!(free >= wanted(joined, total), expected, "{text}");
            assert_eq!(may_begin(joined, free, total), expected, "{text}");
        };
        let (kib, mib, gib) = (ByteCount::kib, ByteCount::mib, ByteCount::gib);
        check(kib(100), kib(216), kib(256), true); // 16 of 256 stay
        check(kib(100), kib(215), kib(256), false);
        check(kib(100), kib(150), kib(256), false); // there is room for the joined part alone
        check(kib(100), kib(99), kib(256), false);
        check(mib(64), mib(128 + 512), gib(8), true);
        check(mib(64), mib(128 + 511), gib(8), false);
        // A sixteenth of a large file system would be as much as it ever has free.
        check(mib(64), mib(128 + 1024), ByteCount(1 << 47), true);
        check(mib(64), mib(128 + 1023), ByteCount(1 << 47), false);
        check(gib(600), gib(1200), ByteCount(1 << 47), false);
        check(ByteCount(0), ByteCount(0), ByteCount(0), true);
        check(ByteCount(u64::MAX), ByteCount(1 << 62), ByteCount(1 << 62), false);
    }
}
