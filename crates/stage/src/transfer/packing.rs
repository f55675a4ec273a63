//! What a stream does to make packs: small files into one, a large file into one of its own or beside.

use std::borrow::Cow;
use std::collections::HashSet;

use hayase_tier::Precondition;

use super::Random;
use super::asking::Asking;
use super::bytes::{Bytes, Version};
use super::next_index::NextIndex;
use super::reading::Reading;
use super::report::Report;
use super::retries::Retries;
use super::stretch::{PackStretch, location, together};
use super::writing::Writing;
use crate::PackOptions;
use crate::checksum::Checksum;
use crate::item::{Item, Kind};
use crate::limits::PIECE_BYTES;
use crate::pack::writer::Compression;
use crate::pack::{PackError, PackSet, PackWriter, Written};
use crate::plan::{Task, pack_bytes};
use crate::source::Origin;

/// Makes packs, and files that lie outside of them.
pub(super) struct Packing<'a> {
    /// `None` where no packs are made.
    pub(super) options: Option<&'a PackOptions>,
    pub(super) set: Option<&'a PackSet>,
    pub(super) random: &'a Random,
    pub(super) reading: &'a Reading<'a>,
    pub(super) writing: &'a Writing<'a>,
    pub(super) asking: &'a Asking<'a>,
    pub(super) next_index: &'a NextIndex,
    pub(super) report: &'a Report<'a>,
    pub(super) retries: &'a Retries<'a>,
}

impl Packing<'_> {
    fn options(&self) -> &PackOptions {
        self.options.expect("packs are made only when asked for")
    }

    /// A pack that will have about `bytes`, collected in `buffer` where it goes out whole.
    fn begin_pack(&self, bytes: u64, buffer: &mut Vec<u8>) -> Result<PackWriter, PackError> {
        let key = self.set.and_then(|set| set.key());
        self.retries.again(|| {
            let collected = (bytes, std::mem::take(buffer));
            PackWriter::begin_of(self.writing.place(), key, self.random, collected)
        })
    }

    fn written(&self, written: Written) {
        self.next_index.written(written);
        self.report.packed();
    }

    /// Items become one pack, by way of `buffer`. One that can not be read is left out of it; the others go on.
    pub(super) fn pack(&self, tasks: &[Task], buffer: &mut Vec<u8>) {
        let names: HashSet<&[u8]> = tasks.iter().map(|task| task.item.name.as_bytes()).collect();
        let mut pack = match self.begin_pack(pack_bytes(tasks), buffer) {
            Ok(pack) => pack,
            Err(error) => return self.all_failed(tasks, error),
        };
        let (mut count, mut stretch) = (0, None);
        for (place, task) in tasks.iter().enumerate() {
            if self.report.is_stopped() {
                return;
            }
            let (item, data) = match self.packed_bytes(&tasks[place..], &mut stretch) {
                Ok(read) => read,
                Err(error) => {
                    self.report.failed(&task.item.name.to_string(), error);
                    continue;
                }
            };
            // They arrive with their pack, which is one object of some MiB.
            self.writing.wait_and_count(data.len());
            // Two members of one name help nobody who opens it with tar.
            let is_taken = names.contains([item.name.as_bytes(), b".zst"].concat().as_slice());
            let compression = if is_taken { Compression::None } else { self.options().compression };
            if let Err(error) = pack.entry(&item, &data, compression) {
                return self.all_failed(tasks, error);
            }
            count += 1;
        }
        if pack.is_empty() {
            return;
        }
        match pack.finish_with_buffer() {
            Ok((written, used)) => {
                *buffer = used;
                self.written(written);
                self.report.copied(count);
            }
            Err(error) => self.all_failed(tasks, error),
        }
    }

    /// The pack they were to be in did not come to be.
    fn all_failed(&self, tasks: &[Task], error: PackError) {
        let why = error.to_string();
        let mut error = Some(error);
        for task in tasks {
            let unwritten = || PackError::Unwritten { why: why.clone() };
            let error = error.take().unwrap_or_else(unwritten);
            self.report.failed(&task.item.name.to_string(), error);
        }
    }

    /// Bytes of the first task; where they lie in a pack of the source, those of the next ones come along
    /// in `stretch`.
    fn packed_bytes<'a>(
        &self,
        tasks: &[Task],
        stretch: &'a mut Option<PackStretch>,
    ) -> Result<(Item, Cow<'a, [u8]>), PackError> {
        let task = &tasks[0];
        if !matches!(task.item.kind, Kind::File { .. }) {
            return Ok((self.reading.directory(task)?, Cow::Borrowed(&[])));
        }
        let (Origin::Row(row), Some(at)) = (&task.origin, location(task)) else {
            let (item, data) = self.reading.read_object(task, self.options().bytes)?;
            // A link says its text itself.
            let data = if matches!(item.kind, Kind::File { .. }) { data } else { Vec::new() };
            return Ok((item, Cow::Owned(data)));
        };
        if !stretch.as_ref().is_some_and(|known| known.holds(at)) {
            // Where that fails it is asked for alone: some entries may be whole.
            let buffer = stretch.take().map(PackStretch::into_buffer).unwrap_or_default();
            let read = self.reading.stretch(at, together(tasks, at), buffer);
            *stretch = Some(read.or_else(|_| self.reading.stretch(at, at, Vec::new()))?);
        }
        let opened = stretch.as_mut().expect("it was just read").open_through(at);
        if opened.is_err() {
            // The next entry is read anew, with those behind it.
            *stretch = None;
            return Ok((task.item.clone(), Cow::Owned(self.reading.entry_again(row, at)?)));
        }
        let known = stretch.as_ref().expect("it was just read");
        let data =
            known.entry(row).or_else(|_| self.reading.entry_again(row, at).map(Cow::Owned))?;
        Ok((task.item.clone(), data))
    }

    /// A large file becomes a pack of its own.
    pub(super) fn solo(&self, task: &Task) {
        let write = || -> Result<Written, PackError> {
            let bytes = self.reading.open(task, Version::Present)?;
            let item = bytes.item(&task.item)?;
            let mut pack = self.begin_pack(item.bytes(), &mut Vec::new())?;
            pack.begin_file(&item)?;
            let sum = self.read_through(&bytes, &item, |_, piece| pack.push(piece))?;
            pack.end_file()?;
            self.reading.check_unchanged(&bytes)?;
            bytes.check_sum(&item, sum)?;
            pack.finish()
        };
        match self.reading.until_whole(write) {
            Ok(written) => {
                self.written(written);
                self.report.copied(1);
            }
            Err(error) => self.report.failed(&task.item.name.to_string(), error),
        }
    }

    /// A large file becomes an object beside the packs, with a row in their index.
    pub(super) fn loose(&self, task: &Task) {
        match self.reading.until_whole(|| self.put_loose(task)) {
            Ok((item, crc32c)) => {
                self.next_index.loose(item, crc32c);
                self.report.copied(1);
            }
            Err(error) => self.report.failed(&task.item.name.to_string(), error),
        }
    }

    fn put_loose(&self, task: &Task) -> Result<(Item, u32), PackError> {
        let bytes = self.reading.open(task, Version::Present)?;
        let item = bytes.item(&task.item)?;
        let key = self.writing.place().key(item.name.as_bytes())?;
        if self.asking.is_there(&item) {
            // A killed run brought it and told no index: only its checksum is missing.
            let sum = self.sum_only(&bytes, &item)?;
            return Ok((item, sum));
        }
        let mut upload = self.writing.place().tier.begin(&key, item.attributes())?;
        let sum = self.read_through(&bytes, &item, |at, piece| Ok(upload.write_at(at, piece)?))?;
        self.reading.check_unchanged(&bytes)?;
        bytes.check_sum(&item, sum)?;
        upload.commit(Precondition::Any)?;
        Ok((item, sum))
    }

    /// Reads a file once, piece by piece; answers its checksum.
    fn read_through(
        &self,
        bytes: &Bytes,
        item: &Item,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), PackError>,
    ) -> Result<u32, PackError> {
        let (mut sum, mut piece, mut at) = (Checksum::new(), Vec::new(), 0);
        while at < item.bytes() {
            let len = (item.bytes() - at).min(PIECE_BYTES as u64) as usize;
            bytes.read(at, len, &mut piece)?;
            sum.update(&piece);
            self.writing.wait_and_count(len);
            take(at, &piece)?;
            at += len as u64;
        }
        Ok(sum.value())
    }

    /// As [`Self::read_through`], for bytes that go nowhere.
    fn sum_only(&self, bytes: &Bytes, item: &Item) -> Result<u32, PackError> {
        let (mut sum, mut piece, mut at) = (Checksum::new(), Vec::new(), 0);
        while at < item.bytes() {
            let len = (item.bytes() - at).min(PIECE_BYTES as u64) as usize;
            bytes.read(at, len, &mut piece)?;
            sum.update(&piece);
            at += len as u64;
        }
        bytes.check_sum(item, sum.value())?;
        Ok(sum.value())
    }
}
