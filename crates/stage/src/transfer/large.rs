//! One large file, in parts that several streams read at the same time; the last one makes it durable.
//!
//! Parts are written in order, whatever the order in which they were read: some storage takes no other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hayase_tier::{Precondition, Upload};

use super::Shared;
use super::bytes::{Bytes, Version, check_sum};
use super::streams::attributes;
use crate::checksum;
use crate::compare::Step;
use crate::item::Item;
use crate::pack::PackError;
use crate::plan::{Task, parts};

/// A file on its way.
pub(super) struct Large {
    task: Task,
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
    /// The part that is written next, and where to.
    upload: Mutex<(usize, Option<Box<dyn Upload>>)>,
    moved_on: Condvar,
}

/// How often a stream that waits for the part before its own looks whether that has failed.
const LOOK: Duration = Duration::from_millis(50);

impl Large {
    pub(super) fn new(task: Task) -> Self {
        let parts: Vec<_> =
            parts(task.item.bytes()).map(|(start, len)| (start, len, None)).collect();
        let count = parts.len();
        Self {
            task,
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
}

impl Shared<'_> {
    /// Moves one part; the stream that comes last ends the file.
    pub(super) fn part(&self, large: &Large, part: usize) {
        let open = large.open.get_or_init(|| match self.again(|| self.open_large(large)) {
            Ok(open) => Some(open),
            Err(error) => {
                self.large_failed(large, error);
                None
            }
        });
        let Some(open) = open else { return };
        if !large.has_failed.load(Ordering::Relaxed)
            && let Err(error) = self.move_part(large, open, part)
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
        if large.task.step == Step::Replace {
            self.remove_other(&large.task)?;
        }
        let key = self.target.key(item.name.as_bytes())?;
        let upload = self.target.tier.begin(&key, attributes(&item))?;
        let upload = Mutex::new((0, Some(upload)));
        Ok(Open { bytes, item, upload, moved_on: Condvar::new() })
    }

    fn move_part(&self, large: &Large, open: &Open, part: usize) -> Result<(), PackError> {
        let lock = || large.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, len, _) = lock()[part];
        let mut data = Vec::new();
        let len = usize::try_from(len).expect("a part is small");
        self.again(|| open.bytes.read(start, len, &mut data))?;
        self.moves(len);
        lock()[part].2 = Some(checksum::of(&data));
        let mut place = open.upload.lock().unwrap_or_else(PoisonError::into_inner);
        while place.0 != part {
            if large.has_failed.load(Ordering::Relaxed) || self.is_stopped() {
                return Ok(());
            }
            let waited = open.moved_on.wait_timeout(place, LOOK);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (next, upload) = &mut *place;
        upload.as_mut().expect("it is taken after the last part").write_at(start, &data)?;
        *next += 1;
        drop(place);
        open.moved_on.notify_all();
        Ok(())
    }

    fn end_large(&self, large: &Large, open: &Open) -> Result<(), PackError> {
        open.bytes.check_unchanged(self)?;
        let parts = large.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = parts.iter().fold(checksum::of(b""), |sum, (_, len, part)| {
            checksum::combine(sum, part.expect("every part was read"), *len)
        });
        check_sum(&open.bytes, &open.item, sum)?;
        let mut place = open.upload.lock().unwrap_or_else(PoisonError::into_inner);
        let upload = place.1.take();
        upload.expect("nobody took it before").commit(Precondition::Any)?;
        Ok(())
    }
}
