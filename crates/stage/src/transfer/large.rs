//! One large file, in parts that several streams move at the same time; the last one makes it durable.
//!
//! Where storage takes parts as they come each stream sends its own from its buffer, and nothing else is held.
//! Elsewhere parts are written in order, whatever the order in which they were read.
//!
//! Where the target can keep parts of a file that is not finished, a later run moves only the others
//! ([`Tier::resume_parts`]): kept parts are read at the target, or compared with the source, as if they had
//! been moved now. So the checks at the end are the same.
//!
//! That a part changed or came damaged may show only at the end. Then the stream that came last reads the
//! whole file again, alone: this is rare, and the others have gone on to other files.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

#[cfg(doc)]
use hayase_tier::Tier;
use hayase_tier::{PartSum, PartSums, PartsUpload, Precondition, Upload, UploadOf};

use super::asking::Asking;
use super::bytes::{Bytes, Version, is_passing};
use super::next_index::NextIndex;
use super::part_requests::{PartRequests, timed};
use super::part_sums::SentParts;
use super::reading::Reading;
use super::report::Report;
use super::retries::Retries;
use super::writing::Writing;
use crate::checksum::{self, Checksum};
use crate::compare::Step;
use crate::item::Item;
use crate::limits::{
    CACHED_BYTES, CHANGED_TRIES_MAX, PART_BYTES, PARTS_MAX, PIECE_BYTES, RESUMED_BYTES_MIN,
};
use crate::pack::PackError;
use crate::plan::{Task, chosen_part_bytes, part_bytes, parts};
use crate::tuner::PartSize;

/// A file on its way.
pub(super) struct Large {
    task: Task,
    /// It lies beside packs, and their index has a row of it.
    is_loose: bool,
    /// Of each part but the last.
    part_bytes: u64,
    parts: Mutex<Vec<Part>>,
    count: usize,
    open: OnceLock<Option<Open>>,
    waiting: AtomicUsize,
    trouble: Mutex<Option<Trouble>>,
}

#[derive(Clone, Copy)]
struct Part {
    start: u64,
    len: u64,
    /// Once it was read.
    crc32c: Option<u32>,
    /// The same where the store knows sums of parts.
    md5: Option<PartSum>,
}

/// Why parts that are left need not be moved.
enum Trouble {
    /// Another read may go well.
    Passing(PackError),
    /// It was told that the file failed.
    Told,
}

struct Open {
    bytes: Bytes,
    item: Item,
    sums: Option<PartSums>,
    /// The same where it was sent in parts of another size.
    sent: Option<SentParts>,
    way: Way,
}

impl Open {
    fn new(bytes: Bytes, item: Item, way: Way, large: &Large) -> Self {
        let is_alike = |sums: &PartSums| sums.part_bytes() == large.part_bytes;
        let (sums, others) = match bytes.part_sums() {
            Some(sums) if is_alike(&sums) => (Some(sums), None),
            others => (None, others),
        };
        let sent = others.map(|sums| SentParts::new(sums, item.bytes()));
        Self { bytes, item, sums, sent, way }
    }

    fn has_no_part_sums(&self) -> bool {
        self.sums.is_none() && self.sent.is_none()
    }
}

/// Where its parts go.
enum Way {
    /// Nowhere: a killed run brought it and told no index; only its checksum is missing.
    There,
    AnyOrder(RwLock<Option<Box<dyn PartsUpload>>>),
    InOrder(InOrder),
}

struct InOrder {
    /// The part that is written next, and where to.
    upload: Mutex<(usize, Option<Box<dyn Upload>>)>,
    moved_on: Condvar,
}

impl Way {
    /// Gives up what was begun, before another begin or since nothing will become of it.
    fn abandon(&self) {
        match self {
            Self::There => {}
            Self::AnyOrder(upload) => {
                let upload = upload.write().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(upload) = upload {
                    upload.discard();
                }
            }
            Self::InOrder(way) => {
                drop(way.upload.lock().unwrap_or_else(PoisonError::into_inner).1.take());
            }
        }
    }

    /// Part `number` from the target, where an earlier run brought it there.
    fn read_kept(&self, number: u32, data: &mut Vec<u8>) -> bool {
        let Self::AnyOrder(upload) = self else { return false };
        let upload = upload.read().unwrap_or_else(PoisonError::into_inner);
        upload.as_ref().is_some_and(|upload| upload.read_kept(number, data))
    }
}

/// Parts of an upload that was begun in other circumstances: large enough, and not too large for this run.
fn is_usable(part_bytes: u64, bytes: u64, memory: u64) -> bool {
    let least = (PIECE_BYTES as u64).max(bytes.div_ceil(PARTS_MAX));
    (least..=memory.max(PART_BYTES)).contains(&part_bytes)
}

/// How often a stream that waits for the part before its own looks whether that has failed.
const LOOK: Duration = Duration::from_millis(50);

impl Large {
    /// In parts of `part_bytes`.
    pub(super) fn new(task: Task, is_loose: bool, part_bytes: u64) -> Self {
        let part = |(start, len)| Part { start, len, crc32c: None, md5: None };
        let parts: Vec<_> = parts(task.item.bytes(), part_bytes).map(part).collect();
        let count = parts.len();
        Self {
            task,
            is_loose,
            part_bytes,
            parts: Mutex::new(parts),
            count,
            open: OnceLock::new(),
            waiting: AtomicUsize::new(count),
            trouble: Mutex::new(None),
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_in_trouble(&self) -> bool {
        self.trouble().is_some()
    }

    pub(super) fn parts(&self) -> usize {
        self.count
    }

    /// Of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.task.item.bytes()
    }

    /// Of each part but the last; a file may be smaller.
    pub(super) fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Of the largest part.
    pub(super) fn largest_part_bytes(&self) -> u64 {
        self.part_bytes.min(self.task.item.bytes())
    }
}

/// Moves large files, part by part.
pub(super) struct LargeFiles<'a> {
    pub(super) reading: &'a Reading<'a>,
    pub(super) writing: &'a Writing<'a>,
    pub(super) asking: &'a Asking<'a>,
    pub(super) requests: &'a PartRequests,
    pub(super) next_index: &'a NextIndex,
    pub(super) report: &'a Report<'a>,
    pub(super) retries: &'a Retries<'a>,
    pub(super) part_size: PartSize,
    /// What all streams hold together, in bytes.
    pub(super) memory: u64,
}

impl LargeFiles<'_> {
    /// A large file whose turn has come: in parts that are good now, or as it was begun.
    pub(super) fn cut(&self, task: Task, is_loose: bool) -> Large {
        let bytes = task.item.bytes();
        let part = self.begun_part_bytes(&task).unwrap_or_else(|| match self.part_size {
            PartSize::Fixed(wished) => part_bytes(bytes, wished),
            PartSize::Auto { .. } => chosen_part_bytes(bytes, self.requests.size()),
        });
        Large::new(task, is_loose, part)
    }

    /// Of the parts in which an earlier run began the file.
    fn begun_part_bytes(&self, task: &Task) -> Option<u64> {
        let (bytes, target) = (task.item.bytes(), self.writing.place());
        let key = target.key(task.item.name.as_bytes()).ok();
        key.filter(|_| bytes >= RESUMED_BYTES_MIN)
            .and_then(|key| target.tier.unfinished_part_bytes(&key, bytes))
            .filter(|&part| is_usable(part, bytes, self.memory))
    }

    /// Moves one part by way of `buffer`; the stream that comes last ends the file.
    pub(super) fn part(&self, large: &Large, part: usize, buffer: &mut Vec<u8>) {
        let open = large.open.get_or_init(|| match self.retries.again(|| self.open_large(large)) {
            Ok(open) => Some(open),
            Err(error) => {
                self.large_failed(large, error);
                None
            }
        });
        if let Some(open) = open
            && !large.is_in_trouble()
            && let Err(error) = self.move_part(large, open, part, buffer)
        {
            self.large_failed(large, error);
        }
        let is_last = large.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !self.report.is_stopped() {
            self.all_had_their_turn(large, open.as_ref(), buffer);
        }
    }

    /// Of what passes the last stream hears; the rest is told once, by whoever met it first.
    fn large_failed(&self, large: &Large, error: PackError) {
        let mut trouble = large.trouble();
        if matches!(*trouble, Some(Trouble::Told)) {
            return;
        }
        if is_passing(&error) {
            trouble.get_or_insert(Trouble::Passing(error));
            return;
        }
        *trouble = Some(Trouble::Told);
        drop(trouble);
        self.report.failed(&large.task.item.name.to_string(), error);
    }

    /// Ends the file, or reads it again where that may help.
    fn all_had_their_turn(&self, large: &Large, open: Option<&Open>, buffer: &mut Vec<u8>) {
        let trouble = large.trouble().take();
        let mut done = match (trouble, open) {
            (Some(Trouble::Passing(error)), _) => Err(error),
            (None, Some(open)) => self.end_large(large, open).map(|()| true),
            (Some(Trouble::Told), _) | (None, None) => return,
        };
        if let (Err(error), Some(open)) = (&done, open)
            && is_passing(error)
        {
            open.way.abandon();
        }
        for _ in 1..CHANGED_TRIES_MAX {
            if !done.as_ref().is_err_and(is_passing) {
                break;
            }
            self.reading.forget_packs();
            done = self.large_alone(large, buffer);
        }
        match done {
            Ok(true) => self.report.copied(1),
            Ok(false) => {}
            Err(error) => self.report.failed(&large.task.item.name.to_string(), error),
        }
    }

    /// The whole file as it is now, by this stream; `false` when the transfer was stopped meanwhile.
    fn large_alone(&self, former: &Large, buffer: &mut Vec<u8>) -> Result<bool, PackError> {
        let (bytes, item) = self.retries.again(|| self.open_source(&former.task))?;
        let task = Task { item: item.clone(), ..former.task.clone() };
        // It may have grown, and its stream may hold what a part of the former took.
        let part_bytes = part_bytes(item.bytes(), former.largest_part_bytes());
        let large = Large::new(task, former.is_loose, part_bytes);
        let way = self.retries.again(|| self.way(&large, &bytes, &item))?;
        let open = Open::new(bytes, item, way, &large);
        let done = self.all_parts(&large, &open, buffer);
        if done.as_ref().is_err_and(is_passing) {
            open.way.abandon();
        }
        done
    }

    fn all_parts(
        &self,
        large: &Large,
        open: &Open,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, PackError> {
        for part in 0..large.parts() {
            if self.report.is_stopped() {
                return Ok(false);
            }
            self.move_part(large, open, part, buffer)?;
        }
        self.end_large(large, open).map(|()| true)
    }

    fn open_large(&self, large: &Large) -> Result<Open, PackError> {
        let (bytes, item) = self.open_source(&large.task)?;
        if item.bytes() != large.task.item.bytes() {
            return Err(PackError::Changed { name: item.name.to_string() });
        }
        let way = self.way(large, &bytes, &item)?;
        Ok(Open::new(bytes, item, way, large))
    }

    fn open_source(&self, task: &Task) -> Result<(Bytes, Item), PackError> {
        let bytes = self.reading.open(task, Version::Present)?;
        let item = bytes.item(&task.item)?;
        Ok((bytes, item))
    }

    fn way(&self, large: &Large, bytes: &Bytes, item: &Item) -> Result<Way, PackError> {
        match large.is_loose && self.asking.is_there(item) {
            true => Ok(Way::There),
            false => self.begin_large(large, bytes, item),
        }
    }

    fn begin_large(&self, large: &Large, bytes: &Bytes, item: &Item) -> Result<Way, PackError> {
        if large.task.step == Step::Replace {
            self.writing.remove_other(&large.task)?;
        }
        let target = self.writing.place();
        let (key, tier) = (target.key(item.name.as_bytes())?, &target.tier);
        let (size, part_bytes) = (item.bytes(), large.part_bytes());
        let of = UploadOf { version: bytes.version(item), size, part_bytes };
        let mut upload = None;
        if size >= RESUMED_BYTES_MIN {
            upload = tier.resume_parts(&key, item.attributes(), of)?;
        }
        if upload.is_none() {
            upload = tier.begin_parts(&key, item.attributes(), (size, part_bytes))?;
        }
        if let Some(upload) = upload {
            return Ok(Way::AnyOrder(RwLock::new(Some(upload))));
        }
        let upload = Mutex::new((0, Some(tier.begin(&key, item.attributes())?)));
        Ok(Way::InOrder(InOrder { upload, moved_on: Condvar::new() }))
    }

    fn move_part(
        &self,
        large: &Large,
        open: &Open,
        part: usize,
        data: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let lock = || large.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let Part { start, len, .. } = lock()[part];
        let len = usize::try_from(len).expect("a part is small");
        let number = u32::try_from(part).expect("parts are few");
        let is_read = open.way.read_kept(number, data);
        // What one request brings whole the reader compares with whatever is known of it.
        let may_come_in_pieces = !is_read && large.count > 1 && open.has_no_part_sums();
        if may_come_in_pieces
            && let Some(crc32c) = self.move_in_pieces(open, number, (start, len), data)?
        {
            lock()[part].crc32c = Some(crc32c);
            return Ok(());
        }
        let reading = match is_read {
            true => Duration::ZERO,
            false => self.retries.again(|| timed(|| open.bytes.read_part(start, len, data)))?,
        };
        let md5 = open.sums.as_ref().map(|_| PartSums::of_part(data));
        let read = Part { start, len: data.len() as u64, crc32c: Some(checksum::of(data)), md5 };
        lock()[part] = read;
        if let Some(sent) = &open.sent {
            sent.add(start, data, || large.is_in_trouble() || self.report.is_stopped());
        }
        match &open.way {
            Way::There => Ok(()),
            Way::AnyOrder(upload) => {
                let upload = upload.read().unwrap_or_else(PoisonError::into_inner);
                let upload = upload.as_ref().expect("it is taken after the last part");
                if is_read || upload.is_kept(number, data) {
                    self.report.resumed(len);
                    return Ok(());
                }
                self.writing.wait(len);
                let writing =
                    self.retries.again(|| timed(|| Ok(upload.put_part(number, data)?)))?;
                self.report.arrived(len);
                self.requests.ended(len, reading + writing);
                Ok(())
            }
            Way::InOrder(way) => {
                self.writing.wait(len);
                self.requests.ended(len, reading);
                self.write_in_turn(large, way, (part, start), data)
            }
        }
    }

    /// Bytes of which at most the CRC32C is known go from the connection to storage that takes them as they come
    /// through a buffer that a core's cache holds: a part in memory would be written and read there three times.
    /// Their CRC32C; `None`, with nothing done, where that is not possible.
    fn move_in_pieces(
        &self,
        open: &Open,
        number: u32,
        (start, len): (u64, usize),
        buffer: &mut Vec<u8>,
    ) -> Result<Option<u32>, PackError> {
        let Way::AnyOrder(upload) = &open.way else { return Ok(None) };
        let upload = upload.read().unwrap_or_else(PoisonError::into_inner);
        let upload = upload.as_ref().expect("it is taken after the last part");
        if upload.begin_part(number).is_none() {
            return Ok(None);
        }
        buffer.resize(CACHED_BYTES, 0);
        let range = start..start + len as u64;
        let mut crc32c = None;
        let took = self.retries.again(|| {
            timed(|| {
                let (mut sum, mut pieces) = (Checksum::new(), None);
                let come = open.bytes.read_pieces(range.clone(), buffer, &mut |at, piece| {
                    if at == start {
                        (sum, pieces) = (Checksum::new(), upload.begin_part(number));
                    }
                    sum.update(piece);
                    pieces.as_mut().expect("it takes pieces").put(piece)
                })?;
                if come {
                    pieces.expect("a part has bytes").end()?;
                    crc32c = Some(sum.value());
                }
                Ok(())
            })
        })?;
        if crc32c.is_some() {
            self.writing.wait(len);
            self.report.arrived(len);
            self.requests.ended(len, took);
        }
        Ok(crc32c)
    }

    /// Waits for the part before.
    fn write_in_turn(
        &self,
        large: &Large,
        way: &InOrder,
        (part, start): (usize, u64),
        data: &[u8],
    ) -> Result<(), PackError> {
        let mut place = way.upload.lock().unwrap_or_else(PoisonError::into_inner);
        while place.0 != part {
            if large.is_in_trouble() || self.report.is_stopped() {
                return Ok(());
            }
            let waited = way.moved_on.wait_timeout(place, LOOK);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (next, upload) = &mut *place;
        upload.as_mut().expect("it is taken after the last part").write_at(start, data)?;
        self.report.arrived(data.len());
        *next += 1;
        drop(place);
        way.moved_on.notify_all();
        Ok(())
    }

    fn end_large(&self, large: &Large, open: &Open) -> Result<(), PackError> {
        self.reading.check_unchanged(&open.bytes)?;
        let parts = large.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = parts.iter().fold(checksum::of(b""), |sum, part| {
            checksum::combine(sum, part.crc32c.expect("every part was read"), part.len)
        });
        let sums: Vec<PartSum> = parts.iter().filter_map(|part| part.md5).collect();
        let is_other = open.sums.as_ref().is_some_and(|known| !known.fit(&sums))
            || open.sent.as_ref().is_some_and(|sent| !sent.fit());
        if is_other {
            let why = "the MD5 of its parts is not its entity tag (where the server's entity tags are none: HAYASE_S3_ETAG_MD5=no)";
            let object = open.item.name.to_string();
            return Err(PackError::Damaged { object, why: why.to_owned() });
        }
        match open.sums.is_some() || open.sent.is_some() {
            // They speak for all bytes: nobody need be asked for more.
            true => open.bytes.check_row(&open.item, sum)?,
            false => open.bytes.check_sum(&open.item, sum)?,
        }
        match &open.way {
            Way::There => {}
            Way::AnyOrder(upload) => {
                let upload = upload.write().unwrap_or_else(PoisonError::into_inner).take();
                upload.expect("nobody took it before").commit(Precondition::Any)?;
            }
            Way::InOrder(way) => {
                let upload = way.upload.lock().unwrap_or_else(PoisonError::into_inner).1.take();
                upload.expect("nobody took it before").commit(Precondition::Any)?;
            }
        }
        if large.is_loose {
            self.next_index.loose(open.item.clone(), sum);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayase_tier::{Attributes, Key, Memory, ObjectMeta, Tier, TierError};

    use super::*;
    use crate::item::Kind;
    use crate::progress::Silent;
    use crate::source::{Origin, Source};
    use crate::{Options, Place, Progress};

    const PART: u64 = 4 << 20;
    const PUT: Duration = Duration::from_millis(1);

    /// An earlier run put every part but the last.
    struct AllButTheLast;

    impl PartsUpload for AllButTheLast {
        fn is_kept(&self, _: u32, data: &[u8]) -> bool {
            data.len() as u64 == PART
        }
        fn put_part(&self, _: u32, _: &[u8]) -> Result<(), TierError> {
            std::thread::sleep(PUT);
            Ok(())
        }
        fn commit(self: Box<Self>, _: Precondition) -> Result<ObjectMeta, TierError> {
            unreachable!("nobody ends the file")
        }
    }

    #[test]
    fn parts_that_are_only_compared_are_not_timed() {
        let (tier, name) = (Arc::new(Memory::flat()), Key::new("f").unwrap());
        let mut upload = tier.begin(&name, Attributes::default()).unwrap();
        upload.write_at(0, &vec![7; 2 * PART as usize + 1]).unwrap();
        let meta = upload.commit(Precondition::Any).unwrap();
        let kind = Kind::File { bytes: meta.size.get() };
        let item = Item { name, kind, mode: meta.mode, mtime: meta.mtime.into() };
        let place = Place::root(tier);
        let source = Source::open(place.clone(), None).unwrap();
        let (options, progress) = (Options::default(), Progress::default());
        let report = Report::new(&progress, &Silent);
        let retries = Retries::new(&report);
        let files = LargeFiles {
            reading: &Reading::new(&source, &retries),
            writing: &Writing::new(&place, None, &report, &retries),
            asking: &Asking::new((&place, &place), &options, &report, &retries),
            requests: &PartRequests::new(PART),
            next_index: &NextIndex::default(),
            report: &report,
            retries: &retries,
            part_size: options.part_size,
            memory: options.memory,
        };
        let task = Task { item, origin: Origin::Object(None), step: Step::Copy };
        let (bytes, item) = files.open_source(&task).unwrap();
        let large = Large::new(task, false, PART);
        let way = Way::AnyOrder(RwLock::new(Some(Box::new(AllButTheLast))));
        let (open, mut buffer) = (Open::new(bytes, item, way, &large), Vec::new());
        let mut moved = |part| {
            files.move_part(&large, &open, part, &mut buffer).unwrap();
            let seen = files.requests.seen();
            (seen.count, seen.bytes, Duration::from_micros(seen.micros))
        };
        assert_eq!(moved(0), (0, 0, Duration::ZERO));
        assert_eq!(moved(1), (0, 0, Duration::ZERO));
        let (count, bytes, took) = moved(2);
        assert!((count, bytes) == (1, 1) && took >= PUT, "{count} {bytes} {took:?}");
        assert_eq!(Progress::get(&progress.bytes_resumed), 2 * PART);
    }
}
