//! One large file, in parts that several streams move at the same time; the last one makes it durable.
//!
//! Where storage takes parts as they come each stream sends its own from its buffer, and nothing else is held.
//! Elsewhere parts are written in order, whatever the order in which they were read.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hayase_tier::{PartsUpload, Precondition, Upload};

use super::Shared;
use super::bytes::{Bytes, Version, check_sum};
use super::streams::attributes;
use crate::checksum;
use crate::compare::Step;
use crate::item::Item;
use crate::pack::{PackError, Row};
use crate::plan::{Task, part_bytes, parts};

/// A file on its way.
pub(super) struct Large {
    task: Task,
    /// It lies beside packs, and their index has a row of it.
    is_loose: bool,
    /// Begin, length and, once it was read, the checksum of each part.
    parts: Mutex<Vec<(u64, u64, Option<u32>)>>,
    count: usize,
    open: OnceLock<Option<Open>>,
    waiting: AtomicUsize,
    has_failed: AtomicBool,
}

struct Open {
    bytes: Bytes,
    item: Item,
    way: Way,
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

/// How often a stream that waits for the part before its own looks whether that has failed.
const LOOK: Duration = Duration::from_millis(50);

impl Large {
    pub(super) fn new(task: Task, is_loose: bool) -> Self {
        let parts: Vec<_> =
            parts(task.item.bytes()).map(|(start, len)| (start, len, None)).collect();
        let count = parts.len();
        Self {
            task,
            is_loose,
            parts: Mutex::new(parts),
            count,
            open: OnceLock::new(),
            waiting: AtomicUsize::new(count),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.count
    }

    /// Of the largest part.
    pub(super) fn part_bytes(&self) -> u64 {
        part_bytes(self.task.item.bytes())
    }
}

impl Shared<'_> {
    /// Moves one part by way of `buffer`; the stream that comes last ends the file.
    pub(super) fn part(&self, large: &Large, part: usize, buffer: &mut Vec<u8>) {
        let open = large.open.get_or_init(|| match self.again(|| self.open_large(large)) {
            Ok(open) => Some(open),
            Err(error) => {
                self.large_failed(large, error);
                None
            }
        });
        let Some(open) = open else { return };
        if !large.has_failed.load(Ordering::Relaxed)
            && let Err(error) = self.move_part(large, open, part, buffer)
        {
            self.large_failed(large, error);
        }
        let is_last = large.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !large.has_failed.load(Ordering::Relaxed) && !self.is_stopped() {
            match self.end_large(large, open) {
                Ok(()) => self.copied(1),
                Err(error) => self.large_failed(large, error),
            }
        }
    }

    fn large_failed(&self, large: &Large, error: PackError) {
        // Told once, by whoever met it first.
        if !large.has_failed.swap(true, Ordering::Relaxed) {
            self.failed(&large.task.item.name.to_string(), error);
        }
    }

    fn open_large(&self, large: &Large) -> Result<Open, PackError> {
        let bytes = Bytes::open(self, &large.task, Version::Present)?;
        let item = bytes.item(&large.task.item)?;
        if item.bytes() != large.task.item.bytes() {
            return Err(PackError::Changed { name: item.name.to_string() });
        }
        let way = match large.is_loose && self.is_there(&item) {
            true => Way::There,
            false => self.begin_large(large, &item)?,
        };
        Ok(Open { bytes, item, way })
    }

    fn begin_large(&self, large: &Large, item: &Item) -> Result<Way, PackError> {
        if large.task.step == Step::Replace {
            self.remove_other(&large.task)?;
        }
        let (key, tier) = (self.target.key(item.name.as_bytes())?, &self.target.tier);
        let sizes = (item.bytes(), large.part_bytes());
        if let Some(upload) = tier.begin_parts(&key, attributes(item), sizes)? {
            return Ok(Way::AnyOrder(RwLock::new(Some(upload))));
        }
        let upload = Mutex::new((0, Some(tier.begin(&key, attributes(item))?)));
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
        let (start, len, _) = lock()[part];
        let len = usize::try_from(len).expect("a part is small");
        self.again(|| open.bytes.read(start, len, data))?;
        lock()[part].2 = Some(checksum::of(data));
        match &open.way {
            Way::There => Ok(()),
            Way::AnyOrder(upload) => {
                self.moves(len);
                let upload = upload.read().unwrap_or_else(PoisonError::into_inner);
                let upload = upload.as_ref().expect("it is taken after the last part");
                let number = u32::try_from(part).expect("parts are few");
                self.again(|| Ok(upload.put_part(number, data)?))
            }
            Way::InOrder(way) => {
                self.moves(len);
                self.write_in_turn(large, way, (part, start), data)
            }
        }
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
            if large.has_failed.load(Ordering::Relaxed) || self.is_stopped() {
                return Ok(());
            }
            let waited = way.moved_on.wait_timeout(place, LOOK);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (next, upload) = &mut *place;
        upload.as_mut().expect("it is taken after the last part").write_at(start, data)?;
        *next += 1;
        drop(place);
        way.moved_on.notify_all();
        Ok(())
    }

    fn end_large(&self, large: &Large, open: &Open) -> Result<(), PackError> {
        open.bytes.check_unchanged(self)?;
        let parts = large.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = parts.iter().fold(checksum::of(b""), |sum, (_, len, part)| {
            checksum::combine(sum, part.expect("every part was read"), *len)
        });
        check_sum(&open.bytes, &open.item, sum)?;
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
            let row = Row { item: open.item.clone(), crc32c: sum, location: None };
            self.outcome().rows.push((None, row));
        }
        Ok(())
    }
}
