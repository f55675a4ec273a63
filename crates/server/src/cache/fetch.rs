//! Bytes of the tier come into the part of a file, in large pieces and several at once.
//!
//! A file that is being fetched has a part of its full length with holes; which pieces are there is
//! known only here, in memory: after a restart the part is thrown away and fetched anew. Nobody is
//! handed such a part: reads pass the server, and wait for their pieces.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::{ByteCount, InodeId, Layout, LocalOffset};
use hayase_store::{FileState, LedgerRecord, Part, PartError, PartId, Parts, SetTime, TierVersion};
use hayase_tier::{ObjectMeta, Reader, Tier};
use hayase_wire::BoxBuffer;
use hayase_wire::message::Refused;
use tokio::sync::Notify;

use super::convert::system_time;
use super::paths::key;
use super::{Cache, tier_refused};
use crate::cache::area::CacheArea;
use crate::convert::part_refused;
use crate::convert::whole_part;
use crate::limits::{FETCH_AHEAD, FETCH_AT_ONCE, FETCH_AT_OPEN, FETCH_BYTES, FETCH_WAIT};
use crate::refusals::libc_errno;

/// One file on its way here.
pub(crate) struct Fetch {
    reader: Arc<dyn Reader>,
    part: Part,
    size: u64,
    pieces: RefCell<Vec<Piece>>,
    /// Pieces that are not here.
    left: Cell<usize>,
    /// Failures so far, and the last one.
    failures: Cell<u64>,
    failed: RefCell<Option<Refused>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Absent,
    Coming,
    Here,
}

impl Fetch {
    /// The pieces with bytes of `start..start + len`.
    fn pieces_of(&self, start: u64, len: u64) -> Range<usize> {
        let end = start.saturating_add(len).min(self.size);
        let first = start.min(end) / FETCH_BYTES;
        first as usize..end.div_ceil(FETCH_BYTES) as usize
    }

    fn is_here(&self, pieces: Range<usize>) -> bool {
        self.pieces.borrow()[pieces].iter().all(|piece| *piece == Piece::Here)
    }

    /// Takes an absent piece: its bytes in the file, for whoever fetches it.
    fn take(&self, piece: usize) -> Option<Range<u64>> {
        let mut pieces = self.pieces.borrow_mut();
        let state = pieces.get_mut(piece).filter(|state| **state == Piece::Absent)?;
        *state = Piece::Coming;
        let start = piece as u64 * FETCH_BYTES;
        Some(start..(start + FETCH_BYTES).min(self.size))
    }

    /// Of the part that will be the file, what nobody has brought or begun to bring.
    pub(super) fn bytes_absent(&self) -> u64 {
        let pieces = self.pieces.borrow();
        let absent = pieces.iter().zip(0..).filter(|(piece, _)| **piece == Piece::Absent);
        absent.map(|(_, number)| FETCH_BYTES.min(self.size - number * FETCH_BYTES)).sum()
    }

    /// Somebody brings its bytes, waits for some or reads past it: not only the file knows it.
    pub(super) fn is_used(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) > 1
    }

    fn came(&self, piece: usize, result: Result<(), Refused>) {
        let state = match result {
            Ok(()) => {
                self.left.set(self.left.get() - 1);
                Piece::Here
            }
            Err(refused) => {
                self.failures.set(self.failures.get() + 1);
                *self.failed.borrow_mut() = Some(refused);
                Piece::Absent
            }
        };
        self.pieces.borrow_mut()[piece] = state;
    }
}

/// An empty part; what an earlier incarnation had begun is gone.
fn empty(parts: &Parts, id: PartId) -> Result<Part, PartError> {
    match parts.create(id) {
        Err(PartError::Exists { .. }) => {
            parts.remove(id)?;
            parts.create(id)
        }
        made => made,
    }
}

/// All bytes of a small file, and its time.
fn copy_all(reader: &dyn Reader, part: &Part, version: TierVersion) -> Result<(), Refused> {
    copy(reader, part, 0..version.size)?;
    let mtime = Some(SetTime::To(version.mtime));
    part.set_times(mtime, mtime).map_err(part_refused)
}

fn copy(reader: &dyn Reader, part: &Part, bytes: Range<u64>) -> Result<(), Refused> {
    let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
    let read = reader.read_at(bytes.start, &mut buffer);
    if read.map_err(|error| tier_refused(&error))? < buffer.len() {
        let why = "the file became shorter in the tier while it was read";
        return Err(Refused::because(libc_errno::EIO, why));
    }
    part.write_at(LocalOffset(bytes.start), &buffer).map_err(part_refused)
}

impl CacheArea {
    /// The file is about to be read: its part with holes, or `None` when all of it is here.
    pub(crate) async fn begin_fetch(&self, ino: InodeId) -> Result<Option<Rc<Fetch>>, Refused> {
        let Some(cache) = self.of(ino) else { return Ok(None) };
        let active = cache.active(ino);
        if let Some(fetch) = active.fetch.borrow().clone() {
            return Ok(Some(fetch));
        }
        if self.is_here(ino) {
            return Ok(None);
        }
        let _held = cache.publishing.lock(ino).await;
        // Somebody else may have done it meanwhile.
        if let Some(fetch) = active.fetch.borrow().clone() {
            return Ok(Some(fetch));
        }
        // One that comes into stripes nobody has open.
        let is_whole = |record: &LedgerRecord| record.layout == Layout::Whole;
        let record = cache
            .record(ino)
            .filter(|record| record.state == FileState::InTier && is_whole(record));
        let Some((record, version)) =
            record.and_then(|record| Some((record.clone(), record.version?)))
        else {
            return Ok(None);
        };
        let key = key(&record.path)?;
        let meta = ObjectMeta {
            size: ByteCount(version.size),
            mode: version.mode,
            mtime: system_time(version.mtime),
            identity: version.identity,
        };
        let (parts, id) = (self.data.parts.clone(), whole_part(ino, 0));
        let begin = move |tier: &dyn Tier| {
            let reader = tier.open_listed(&key, meta).map_err(|error| tier_refused(&error))?;
            let part = empty(&parts, id).map_err(part_refused)?;
            let is_small = (1..=FETCH_AT_ONCE).contains(&version.size);
            if is_small && copy_all(&*reader, &part, version).is_ok() {
                return Ok((Arc::<dyn Reader>::from(reader), part, true));
            }
            // What stood against it is told to who reads, if it is still there.
            part.truncate(version.size).map_err(part_refused)?;
            Ok((Arc::from(reader), part, false))
        };
        let begun = cache.tier_work(begin).await;
        if begun.as_ref().is_err_and(|refused| refused.errno == libc_errno::ESTALE) {
            active.checked.set(None); // the next lookup finds out what is there now
        }
        let (reader, part, is_here) = begun?;
        if is_here {
            cache.traffic.fetched(version.size);
            self.is_now_here(cache, ino);
            return Ok(None);
        }
        let count = version.size.div_ceil(FETCH_BYTES) as usize;
        let fetch = Rc::new(Fetch {
            reader,
            part,
            size: version.size,
            pieces: RefCell::new(vec![Piece::Absent; count]),
            left: Cell::new(count),
            failures: Cell::new(0),
            failed: RefCell::new(None),
            changed: Notify::new(),
        });
        *active.fetch.borrow_mut() = Some(Rc::clone(&fetch));
        if count == 0 {
            self.fetched(ino, &fetch);
            return Ok(None);
        }
        Ok(Some(fetch))
    }

    /// All pieces are here: the part is the file, unless that has come into stripes meanwhile.
    pub(crate) fn fetched(&self, ino: InodeId, fetch: &Rc<Fetch>) {
        let Some(cache) = self.of(ino) else { return };
        let active = cache.active(ino).fetch.borrow().clone();
        if !active.is_some_and(|active| Rc::ptr_eq(&active, fetch)) {
            return;
        }
        let version = cache.record(ino).and_then(|record| record.version);
        let mtime = version.map(|version| SetTime::To(version.mtime));
        if let Err(error) = fetch.part.set_times(mtime, mtime) {
            tracing::warn!(%ino, %error, "the time of a fetched file could not be set");
        }
        self.is_now_here(cache, ino);
    }

    pub(crate) fn is_now_here(&self, cache: &Cache, ino: InodeId) {
        let clean = cache.update(ino, |record| record.state = FileState::Clean);
        if let Err(error) = clean {
            tracing::warn!(%ino, %error, "a fetched file will be fetched again after a restart");
        }
        *cache.active(ino).fetch.borrow_mut() = None;
        self.data.usage.changed();
    }

    /// The bytes `offset..offset + len` of a file of the area are in its part when this returns.
    pub(crate) async fn fetch_range(
        self: &Rc<Self>,
        ino: InodeId,
        offset: u64,
        len: u64,
    ) -> Result<(), Refused> {
        let Some(fetch) = self.begin_fetch(ino).await? else { return Ok(()) };
        let wanted = fetch.pieces_of(offset, len);
        let failures = fetch.failures.get();
        loop {
            let changed = fetch.changed.notified();
            if fetch.is_here(wanted.clone()) {
                return Ok(());
            }
            if fetch.failures.get() > failures {
                let failed = fetch.failed.borrow().clone();
                return Err(failed.unwrap_or_else(|| Refused::new(libc_errno::EIO)));
            }
            // A reader that continues finds the next pieces on their way.
            for piece in wanted.start..wanted.end.saturating_add(FETCH_AHEAD) {
                if let Some(bytes) = fetch.take(piece) {
                    self.fetch_piece(ino, &fetch, piece, bytes);
                }
            }
            changed.await;
        }
    }

    /// A small file that is about to be read: its bytes, now. What stands against it is the answer to its reader.
    pub(crate) async fn fetch_small(self: &Rc<Self>, ino: InodeId) {
        let fetch = self.of(ino).and_then(|cache| cache.active(ino).fetch.borrow().clone());
        if fetch.is_some_and(|fetch| fetch.size <= FETCH_AT_OPEN) {
            let all = self.fetch_range(ino, 0, FETCH_AT_OPEN);
            let _in_time = tokio::time::timeout(FETCH_WAIT, all).await;
        }
    }

    pub(crate) fn fetch_piece(
        self: &Rc<Self>,
        ino: InodeId,
        fetch: &Rc<Fetch>,
        piece: usize,
        bytes: Range<u64>,
    ) {
        let (this, fetch) = (Rc::clone(self), Rc::clone(fetch));
        tokio::task::spawn_local(async move {
            let (reader, part) = (Arc::clone(&fetch.reader), fetch.part.clone());
            let len = bytes.end - bytes.start;
            let work = move |_: &dyn Tier| copy(&*reader, &part, bytes);
            let Ok(cache) = this.need() else { return };
            let result = cache.tier_work(work).await;
            if result.is_ok() {
                cache.traffic.fetched(len);
            }
            fetch.came(piece, result);
            if fetch.left.get() == 0 {
                this.fetched(ino, &fetch);
            }
            fetch.changed.notify_waiters();
        });
    }

    /// Where there is no room for a copy: straight from the tier.
    pub(crate) async fn read_through(
        &self,
        ino: InodeId,
        offset: LocalOffset,
        len: usize,
        mut buffer: BoxBuffer,
    ) -> Result<(BoxBuffer, usize), Refused> {
        let Some(fetch) = self.begin_fetch(ino).await? else {
            return Err(Refused::new(libc_errno::EAGAIN));
        };
        let reader = Arc::clone(&fetch.reader);
        let read = move |_: &dyn Tier| {
            let bytes = &mut (*buffer).as_mut()[..len];
            let read = reader.read_at(offset.0, bytes).map_err(|error| tier_refused(&error))?;
            Ok((buffer, read))
        };
        self.need()?.tier_work(read).await
    }
}
