//! Pieces of packs and loose objects that are kept for a while, and read before they are asked for.
//!
//! Rooms: [`ahead`] (who reads in order, and how far ahead; pure). A piece is read once, however many
//! ask for it: who comes second waits. Pieces that lie side by side are read by one request.
//!
//! Invariant: what is kept is at most [`PIECES_BYTES`], beside what is being read; the oldest go first.

mod ahead;

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use hayase_tier::Reader;

use self::ahead::Cursors;
use crate::limits::{
    AHEAD_THREADS, AHEAD_WAITING_MAX, PIECE_KEPT_BYTES, PIECES_BYTES, READERS_OPEN_MAX,
};
use crate::pack::{PackError, PackReader, PackSet};

const PIECE: u64 = PIECE_KEPT_BYTES as u64;
const PIECES_MAX: usize = PIECES_BYTES / PIECE_KEPT_BYTES;

/// An object with bytes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ObjectId {
    /// By its place in the index.
    Pack(u32),
    /// By the row of the one file that it is.
    Loose(u32),
}

/// An object, open.
enum Object {
    Pack(Box<PackReader>),
    Loose(Box<dyn Reader>),
}

enum Slot {
    /// Somebody reads it.
    Awaited,
    Here(Piece),
}

/// A piece that was read.
#[derive(Clone)]
struct Piece {
    bytes: Arc<[u8]>,
    /// When it came, and when it was last of use; of a count that never stands still.
    loaded: u64,
    used: u64,
}

/// Bytes of an object, side by side.
pub(super) struct Gathered {
    bytes: Held,
    /// Which pieces they came from.
    pub(super) stamps: Stamps,
}

/// Pieces side by side, each as it came at some moment: pieces with equal stamps are the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    /// The number of the first piece in its object.
    pub(super) first: u64,
    /// When each came, of a count that never stands still.
    pub(super) loaded: Vec<u64>,
}

impl Stamps {
    /// No piece that both know came at different times, and `others` together know all of these.
    pub(super) fn are_those_of(&self, others: &[&Self]) -> bool {
        self.loaded.iter().enumerate().all(|(at, loaded)| {
            let number = self.first + at as u64;
            let known = others.iter().filter_map(|other| {
                other.loaded.get(usize::try_from(number.checked_sub(other.first)?).ok()?)
            });
            let mut known = known.peekable();
            known.peek().is_some() && known.all(|known| known == loaded)
        })
    }
}

enum Held {
    /// Of one piece.
    Shared(Arc<[u8]>, Range<usize>),
    Own(Vec<u8>),
}

impl Deref for Gathered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Held::Shared(bytes, range) => &bytes[range.clone()],
            Held::Own(bytes) => bytes,
        }
    }
}

#[derive(Default)]
struct Kept {
    slots: HashMap<(ObjectId, u64), Slot>,
    cursors: HashMap<ObjectId, Cursors>,
    objects: HashMap<ObjectId, Arc<Object>>,
    /// Which version of a loose object is shown: the one that was opened first.
    versions: HashMap<ObjectId, u64>,
    /// Counts uses.
    clock: u64,
}

struct Shared {
    set: Arc<PackSet>,
    kept: Mutex<Kept>,
    arrived: Condvar,
}

/// Pieces that a thread shall read: the caller has marked them as awaited.
type Wanted = (ObjectId, Range<u64>);

/// See the module.
pub(super) struct Pieces {
    shared: Arc<Shared>,
    /// `None` when the threads are told to end.
    ahead: Option<SyncSender<Wanted>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pieces {
    /// Starts the threads that read ahead; where none can be had, nothing is read ahead.
    pub(super) fn new(set: Arc<PackSet>) -> Self {
        let shared = Shared { set, kept: Mutex::default(), arrived: Condvar::new() };
        let (shared, (ahead, wanted)) = (Arc::new(shared), sync_channel(AHEAD_WAITING_MAX));
        let wanted = Arc::new(Mutex::new(wanted));
        let start = |_| {
            let (shared, wanted) = (Arc::clone(&shared), Arc::clone(&wanted));
            let thread = std::thread::Builder::new().name("read-ahead".to_owned());
            thread.spawn(move || shared.read_ahead(&wanted)).ok()
        };
        let threads: Vec<_> = (0..AHEAD_THREADS).filter_map(start).collect();
        let ahead = (!threads.is_empty()).then_some(ahead);
        Self { shared, ahead, threads }
    }

    /// For errors: how people call the object.
    pub(super) fn shown(&self, object: ObjectId) -> String {
        self.shared.shown(object)
    }

    /// Bytes `start..start + len` of an object, all of them.
    pub(super) fn read(
        &self,
        object: ObjectId,
        start: u64,
        len: usize,
    ) -> Result<Gathered, PackError> {
        let end = start + len as u64;
        let numbers = start / PIECE..end.div_ceil(PIECE).max(start / PIECE + 1);
        self.look_ahead(object, &numbers);
        let first = self.shared.piece(object, numbers.clone())?;
        let within = |number: u64, piece: &[u8]| {
            let base = number * PIECE;
            let from = start.max(base) - base;
            let to = end.min(base + PIECE) - base;
            (to <= piece.len() as u64).then_some(from as usize..to as usize)
        };
        let short = || self.shared.short(object);
        if numbers.end - numbers.start == 1 {
            let range = within(numbers.start, &first.bytes).ok_or_else(short)?;
            let stamps = Stamps { first: numbers.start, loaded: vec![first.loaded] };
            return Ok(Gathered { bytes: Held::Shared(first.bytes, range), stamps });
        }
        let (mut all, mut loaded) = (Vec::with_capacity(len), vec![first.loaded]);
        all.extend_from_slice(&first.bytes[within(numbers.start, &first.bytes).ok_or_else(short)?]);
        for number in numbers.start + 1..numbers.end {
            let piece = self.shared.piece(object, number..numbers.end)?;
            all.extend_from_slice(&piece.bytes[within(number, &piece.bytes).ok_or_else(short)?]);
            loaded.push(piece.loaded);
        }
        let stamps = Stamps { first: numbers.start, loaded };
        Ok(Gathered { bytes: Held::Own(all), stamps })
    }

    /// Keeps nothing of these bytes any more: they came damaged, and may come well.
    pub(super) fn forget(&self, object: ObjectId, start: u64, len: usize) {
        let numbers = start / PIECE..(start + len as u64).div_ceil(PIECE);
        let mut kept = self.shared.kept();
        kept.slots.retain(|(of, number), slot| {
            *of != object || !numbers.contains(number) || matches!(slot, Slot::Awaited)
        });
        // The begin of an object is kept by its reader.
        kept.objects.remove(&object);
    }

    /// Asks the threads for what will be wanted next.
    fn look_ahead(&self, object: ObjectId, numbers: &Range<u64>) {
        let Some(ahead) = &self.ahead else { return };
        let mut kept = self.shared.kept();
        let next = kept.cursors.entry(object).or_default().read(numbers.clone());
        let Some(next) = next else { return };
        let last = self.shared.pieces_of(object);
        let next = next.start.min(last)..next.end.min(last);
        for wanted in kept.lacking(object, next) {
            kept.await_all(object, &wanted);
            if ahead.try_send((object, wanted.clone())).is_err() {
                // They have enough to do: who needs it reads it.
                kept.give_up(object, &wanted);
                return;
            }
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.ahead = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every change is complete when it is seen.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_ahead(&self, wanted: &Mutex<Receiver<Wanted>>) {
        loop {
            let next = wanted.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((object, numbers)) = next else { return };
            // Who needs the pieces tries again, and is told what is wrong.
            let _ = self.load(object, &numbers);
        }
    }

    /// The first piece of `numbers`; what lies behind it there is read along when it is not here.
    fn piece(&self, object: ObjectId, numbers: Range<u64>) -> Result<Piece, PackError> {
        let number = numbers.start;
        let mut kept = self.kept();
        loop {
            let now = kept.clock + 1;
            match kept.slots.get_mut(&(object, number)) {
                Some(Slot::Here(piece)) => {
                    piece.used = now;
                    let piece = piece.clone();
                    kept.clock = now;
                    return Ok(piece);
                }
                Some(Slot::Awaited) => {
                    kept = self.arrived.wait(kept).unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    let lacking = kept.lacking(object, numbers).next().expect("the first is one");
                    kept.await_all(object, &lacking);
                    drop(kept);
                    return self.load(object, &lacking);
                }
            }
        }
    }

    /// Reads pieces that were marked as awaited, side by side, and answers the first.
    fn load(&self, object: ObjectId, numbers: &Range<u64>) -> Result<Piece, PackError> {
        let mut loading = Loading { shared: self, object, numbers: numbers.clone() };
        let open = self.object(object)?;
        let (start, end) = (numbers.start * PIECE, (numbers.end * PIECE).min(open.len()));
        let mut bytes = Vec::new();
        let len = end.checked_sub(start).filter(|&len| len > 0);
        let len = len.ok_or_else(|| self.short(object))? as usize;
        open.read_range(start, len, &mut bytes).map_err(|error| match error {
            OpenError::Pack(error) => error,
            OpenError::Short => self.short(object),
        })?;
        let mut kept = self.kept();
        let mut first = None;
        for piece in bytes.chunks(PIECE_KEPT_BYTES) {
            let piece = kept.put(object, loading.numbers.start, piece.into());
            first.get_or_insert(piece);
            loading.numbers.start += 1;
        }
        drop(kept);
        self.arrived.notify_all();
        Ok(first.expect("some bytes were read"))
    }

    fn object(&self, object: ObjectId) -> Result<Arc<Object>, PackError> {
        if let Some(open) = self.kept().objects.get(&object) {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(match object {
            ObjectId::Pack(number) => {
                let pack = self.set.pack(number)?;
                let bytes = self.set.index.packs[number as usize].bytes;
                if pack.len() != bytes {
                    let why = format!("it has {} bytes where the index says {bytes}", pack.len());
                    return Err(PackError::Damaged { object: self.shown(object), why });
                }
                Object::Pack(Box::new(pack))
            }
            ObjectId::Loose(row) => {
                let item = &self.set.index.rows[row as usize].item;
                let place = self.set.place();
                let reader = place.tier.open(&place.key(item.name.as_bytes())?)?;
                let (seen, mut kept) = (reader.meta(), self.kept());
                let version = *kept.versions.entry(object).or_insert(seen.identity);
                if seen.size.get() != item.bytes() || seen.identity != version {
                    return Err(PackError::Changed { name: item.name.to_string() });
                }
                drop(kept);
                Object::Loose(reader)
            }
        });
        let mut kept = self.kept();
        if kept.objects.len() >= READERS_OPEN_MAX {
            // Opened again when it is needed; those that somebody reads stay open meanwhile.
            kept.objects.clear();
            kept.cursors.clear();
        }
        Ok(Arc::clone(kept.objects.entry(object).or_insert(open)))
    }

    /// Pieces of an object, by what the index says of it.
    fn pieces_of(&self, object: ObjectId) -> u64 {
        let bytes = match object {
            ObjectId::Pack(number) => self.set.index.packs[number as usize].bytes,
            ObjectId::Loose(row) => self.set.index.rows[row as usize].item.bytes(),
        };
        bytes.div_ceil(PIECE)
    }

    fn shown(&self, object: ObjectId) -> String {
        match object {
            ObjectId::Pack(number) => format!("pack {}", self.set.index.packs[number as usize].id),
            ObjectId::Loose(row) => self.set.index.rows[row as usize].item.name.to_string(),
        }
    }

    fn short(&self, object: ObjectId) -> PackError {
        PackError::Damaged { object: self.shown(object), why: "it ends too early".to_owned() }
    }
}

/// Awaited pieces: what did not arrive when this goes is nobody's task again.
struct Loading<'a> {
    shared: &'a Shared,
    object: ObjectId,
    numbers: Range<u64>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.numbers.is_empty() {
            self.shared.kept().give_up(self.object, &self.numbers);
            self.shared.arrived.notify_all();
        }
    }
}

impl Kept {
    /// Stretches of `numbers` that are neither here nor awaited.
    fn lacking(
        &self,
        object: ObjectId,
        numbers: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + use<> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for number in numbers.filter(|&number| !self.slots.contains_key(&(object, number))) {
            match stretches.last_mut() {
                Some(last) if last.end == number => last.end = number + 1,
                _ => stretches.push(number..number + 1),
            }
        }
        stretches.into_iter()
    }

    fn await_all(&mut self, object: ObjectId, numbers: &Range<u64>) {
        for number in numbers.clone() {
            self.slots.insert((object, number), Slot::Awaited);
        }
    }

    fn give_up(&mut self, object: ObjectId, numbers: &Range<u64>) {
        for number in numbers.clone() {
            if let Some(Slot::Awaited) = self.slots.get(&(object, number)) {
                self.slots.remove(&(object, number));
            }
        }
    }

    fn put(&mut self, object: ObjectId, number: u64, bytes: Arc<[u8]>) -> Piece {
        self.clock += 1;
        let piece = Piece { bytes, loaded: self.clock, used: self.clock };
        self.slots.insert((object, number), Slot::Here(piece.clone()));
        let used = |slot: &Slot| match slot {
            Slot::Here(piece) => Some(piece.used),
            Slot::Awaited => None,
        };
        if self.slots.values().filter_map(used).count() > PIECES_MAX {
            let ages = self.slots.iter().filter_map(|(key, slot)| Some((used(slot)?, *key)));
            if let Some((_, oldest)) = ages.min_by_key(|(used, _)| *used) {
                self.slots.remove(&oldest);
            }
        }
        piece
    }
}

enum OpenError {
    Pack(PackError),
    Short,
}

impl Object {
    fn len(&self) -> u64 {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Loose(reader) => reader.meta().size.get(),
        }
    }

    fn read_range(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), OpenError> {
        match self {
            Self::Pack(pack) => pack.read_range(offset, len, out).map_err(OpenError::Pack),
            Self::Loose(reader) => {
                out.resize(len, 0);
                match reader.read_at(offset, out) {
                    Ok(count) if count == len => Ok(()),
                    Ok(_) => Err(OpenError::Short),
                    Err(error) => Err(OpenError::Pack(error.into())),
                }
            }
        }
    }
}
