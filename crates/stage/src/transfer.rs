//! The copy itself: one thread plans, a bounded number of streams moves bytes, then the rest is set right.
//!
//! Rooms: [`planning`] (source against target, in order), [`gate`] (how many streams, how much memory),
//! [`streams`] (what each stream does),
//! [`group`] (small files that are made together), [`in_the_way`] (a directory where a file is to be, or the reverse), [`open_packs`] (packs that are read),
//! [`tuning`] (asking the tuner), [`units`] (the queue), [`part_requests`] (what parts took),
//! [`part_sums`] (comparing parts with those in which a file was sent), [`bytes`] (reading a source so that a change is noticed), [`asking`] (what only objects themselves tell), [`large`] (one file in parts),
//! [`packing`] (items into packs), [`finish`] (directories, removals, the index).
//!
//! Invariants:
//! 1. A file is at the target whole, checked and dated, or not at all: so a run that was killed at any
//!    point is continued by running it again, and only what is missing moves. What is there of a large file
//!    that is not finished counts only after it was compared.
//! 2. Memory: units that are worked on hold at most [`Options::memory`] together, what their uploads keep
//!    included; those that wait only names. Beside that an index, where packs are read or written.
//! 3. Nothing is removed before everything has arrived, but a file that stands where a directory is to be.

pub(crate) mod asking;
mod bytes;
mod finish;
mod gate;
mod group;
mod in_the_way;
mod large;
mod leftovers;
pub(crate) mod open_packs;
mod packing;
mod part_requests;
mod part_sums;
mod planning;
mod streams;
mod tuning;
mod units;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hayase_tier::{Tier, TierError};
use ring::rand::SecureRandom;

use self::gate::Gate;
use self::open_packs::OpenPacks;
use self::part_requests::PartRequests;
use self::units::{Unit, Units};
use crate::bandwidth::Bandwidth;
use crate::form;
use crate::item::Item;
use crate::limits::{
    BATCH_BYTES, FAILURES_LISTED_MAX, MEMORY_BYTES, PACK_BYTES, PACK_ENTRIES_MAX, PIECE_BYTES,
    TRIES_MAX, UNITS_WAITING,
};
use crate::pack::writer::Compression;
use crate::pack::{Index, MasterKey, PackError, PackId, PackLine, PackSet, Row};
use crate::plan::{Task, Work, pack_bytes};
use crate::source::{Origin, Source};
use crate::tuner::{PartSize, Streams, Tuner};
use crate::walk::{Met, Walk};
use crate::{Observer, Overwrite, Place, Progress, Selection, Share, Sizes};

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which names take part.
    pub selection: Selection,
    /// When what is there is written over.
    pub overwrite: Overwrite,
    /// Remove what the source does not have; what is not selected stays.
    pub delete: bool,
    /// Remove nothing when it would be more than this.
    pub delete_max: Option<u64>,
    /// Change nothing; tell the observer what would be done.
    pub is_dry_run: bool,
    /// How many streams at a time.
    pub streams: Streams,
    /// How large the parts of large files are.
    pub part_size: PartSize,
    /// Bytes per second over all streams.
    pub bandwidth: Option<u64>,
    /// Bytes of data that all streams hold together; one part of a file or one pack always may.
    pub memory: u64,
    /// Make packs at the target.
    pub packs: Option<PackOptions>,
    /// Only what is this node's part; others copy the rest. Packs of a part are in no index: the complete
    /// transfer that follows the parts takes them over.
    pub share: Option<Share>,
    /// Only files of some sizes.
    pub sizes: Sizes,
    /// A file of the right size, of which listings do not tell more, was copied just now: it is not asked.
    pub trusts_sizes: bool,
    /// Rows without packs: files that the parts of this transfer put beside the packs just now
    /// ([`Summary::loose`]). They are not read again for their checksums.
    pub loose: Vec<Row>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            selection: Selection::all(),
            overwrite: Overwrite::default(),
            delete: false,
            delete_max: None,
            is_dry_run: false,
            streams: Streams::default(),
            part_size: PartSize::default(),
            bandwidth: None,
            memory: MEMORY_BYTES,
            packs: None,
            share: None,
            sizes: Sizes::All,
            trusts_sizes: false,
            loose: Vec::new(),
        }
    }
}

/// How packs are made.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// What each is filled to.
    pub bytes: u64,
    /// Most names in each, 1 to [`PACK_ENTRIES_MAX`].
    pub entries: usize,
    /// Entry by entry.
    pub compression: Compression,
    /// Seal the set by a data key that this key wraps.
    pub master: Option<MasterKey>,
    /// Large files are packed as well (each alone), where otherwise they stay loose.
    pub is_complete: bool,
}

impl PackOptions {
    /// Large files stay files of their own.
    fn lays_beside(&self) -> bool {
        !self.is_complete && self.master.is_none()
    }
}

impl Default for PackOptions {
    fn default() -> Self {
        let (bytes, compression) = (PACK_BYTES.get(), Compression::None);
        Self { bytes, entries: PACK_ENTRIES_MAX, compression, master: None, is_complete: false }
    }
}

/// One name that did not arrive, or could not be removed.
#[derive(Debug)]
pub struct Failure {
    /// Relative to the tree.
    pub name: String,
    /// Why.
    pub error: PackError,
}

/// How a transfer ended.
#[derive(Debug, Default)]
pub struct Summary {
    /// Names of the source that were looked at, selected or not.
    pub found: u64,
    /// Items that were made or written over.
    pub copied: u64,
    /// Items that were there already.
    pub kept: u64,
    /// Items that differ, and that the rule of overwriting spared.
    pub spared: u64,
    /// Items removed at the target.
    pub removed: u64,
    /// Bytes of files that were moved.
    pub bytes_moved: u64,
    /// Bytes that were there already inside of files that were not finished.
    pub bytes_resumed: u64,
    /// Packs written.
    pub packs: u64,
    /// Of a [`Share`]: nodes that saw the same source have the same number here.
    pub seen: u32,
    /// Of a [`Share`] that makes packs: files that it put beside them, for [`Options::loose`]. An index without
    /// packs.
    pub loose: Index,
    /// Selected files that are large enough to be moved in parts.
    pub large: u64,
    /// Streams at the end: a good begin for the next time.
    pub streams: usize,
    /// Bytes of each part of a large file at the end, the same; 0 when nothing came in parts.
    pub part_bytes: u64,
    /// The most bytes of data that were held together, as they were counted against [`Options::memory`].
    pub memory_peak: u64,
    /// What did not arrive; the first [`FAILURES_LISTED_MAX`].
    pub failures: Vec<Failure>,
    /// All of them.
    pub failures_total: u64,
    /// The transfer ended early, since going on had no sense.
    pub is_stopped: bool,
}

impl Summary {
    /// Everything that was asked for is at the target.
    pub fn is_complete(&self) -> bool {
        self.failures_total == 0 && !self.is_stopped
    }
}

impl Unit {
    /// Bytes of data that it and what it writes to hold while it is worked on, at most.
    fn memory(&self, target: &dyn Tier) -> u64 {
        const PIECE: u64 = PIECE_BYTES as u64;
        const WRITER: u64 = 2 * PIECE;
        let largest =
            |tasks: &[Task]| tasks.iter().map(|task| task.item.bytes()).max().unwrap_or(0);
        match self {
            // With what the open of an object brings.
            Self::Part(large, _) => large.largest_part_bytes() + PIECE,
            // With what a group of files holds that were compressed.
            Self::Work(Work::Copy(tasks)) => streams::stretch_bytes(tasks) + largest(tasks) + PIECE,
            // A file and what zstd makes of it, or entries of the source's packs that lie together.
            Self::Work(Work::Pack(tasks)) => {
                let is_packed = tasks.iter().any(|task| matches!(task.origin, Origin::Row(_)));
                let stretch = if is_packed { BATCH_BYTES } else { 0 };
                let pack = target.upload_memory(pack_bytes(tasks));
                2 * largest(tasks) + stretch + WRITER + pack
            }
            Self::Work(Work::Solo(task) | Work::Loose(task) | Work::Parts(task)) => {
                2 * WRITER + target.upload_memory(task.item.bytes())
            }
        }
    }
}

/// What streams and planning find out, together.
#[derive(Default)]
struct Outcome {
    summary: Summary,
    /// Of the new index, in no order; the pack's name where it has one. Of two of one name the later.
    rows: Vec<(Option<PackId>, Row)>,
    /// The same for entries of the present index that the source does not have.
    former: Vec<(Option<PackId>, Row)>,
    lines: HashMap<PackId, PackLine>,
    /// Directories of the target that get their attributes at the end.
    directories: Vec<Item>,
    /// The same where only marks of the source tell the attributes.
    marked: Vec<Item>,
    /// What the source does not have, in order.
    removals: Vec<Item>,
    /// Files and links in whose places directories stand that are among the removals.
    waiting: Vec<Task>,
}

/// Where random numbers come from, asked by all streams.
pub type Random = dyn SecureRandom + Sync;

/// What all threads of one transfer share.
struct Shared<'a> {
    source: &'a Source,
    target: &'a Place,
    /// The target's set, when packs are made.
    set: Option<&'a PackSet>,
    options: &'a Options,
    progress: &'a Progress,
    observer: &'a dyn Observer,
    random: &'a Random,
    bandwidth: Bandwidth,
    gate: Gate,
    part_requests: PartRequests,
    open_packs: OpenPacks,
    outcome: Mutex<Outcome>,
    /// Files about which objects were asked.
    asked: AtomicU64,
    stop: AtomicBool,
}

/// Copies what `source` has and `target` lacks.
///
/// Blocks until it is done; uses `options.streams` threads. What fails for one item is listed in the
/// summary and does not stop the others; a full, used-up or unreachable tier does.
///
/// # Errors
/// When nothing could be begun (a wrong key, nothing in a store that is the source, a target of the other
/// [`Form`](crate::Form), a source without a name that would have everything removed), or when another writer changed the packs
/// meanwhile (`Conflict`).
pub fn transfer(
    source: &Source,
    target: &Place,
    options: &Options,
    progress: &Progress,
    observer: &dyn Observer,
    random: &Random,
) -> Result<Summary, PackError> {
    if source.is_nothing() {
        // A wrong name, most likely: nothing is made of it, and nothing removed for it.
        return Err(PackError::Nothing { place: source.place().describe() });
    }
    let is_unbound = options.delete && options.delete_max.is_none();
    if is_unbound && source.is_empty() && would_remove(target, options)? {
        return Err(PackError::RemovesAll { place: source.place().describe() });
    }
    form::check(target, options)?;
    let mut set = match &options.packs {
        None => None,
        Some(packs) if options.is_dry_run => PackSet::open_to_write(target, packs.master.as_ref())?,
        Some(packs) => Some(PackSet::open_or_begin(target, packs.master.as_ref(), random)?),
    };
    let tuner = Tuner::new(options.streams, options.part_size, options.memory);
    let shared = Shared {
        source,
        target,
        set: set.as_ref(),
        options,
        progress,
        observer,
        random,
        bandwidth: Bandwidth::new(options.bandwidth),
        gate: Gate::new(tuner.streams(), options.memory),
        part_requests: PartRequests::new(tuner.part_bytes()),
        open_packs: OpenPacks::default(),
        outcome: Mutex::default(),
        asked: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    shared.run(|sender| shared.plan(sender))?;
    shared.finish()?;
    let (streams, memory_peak) = (shared.gate.streams(), shared.gate.peak());
    let part_bytes = shared.part_requests.size_used();
    let mut outcome = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut unwritten, mut left) = (None, None);
    let is_indexed = !options.is_dry_run && options.share.is_none();
    if let Some(set) = set.as_mut().filter(|_| is_indexed) {
        match finish::commit(set, &mut outcome, random) {
            Err(error @ PackError::Tier(_)) => unwritten = Some(error),
            other => other?,
        }
        if options.delete && unwritten.is_none() && outcome.summary.is_complete() {
            left = finish::remove_leftovers(set, options, &mut outcome).err();
        }
    }
    if let Some(set) = set.as_ref().filter(|_| options.share.is_some()) {
        outcome.summary.loose = finish::loose(set, options.overwrite, &mut outcome);
    }
    let mut summary = outcome.summary;
    // What was packed is there, and the next run takes it over.
    summary.is_stopped |= unwritten.is_some();
    let index = unwritten.map(|error| ("the index of the packs", error));
    let left = left.map(|error| ("what lies beside the packs", error));
    for (name, error) in index.into_iter().chain(left) {
        observer.failed(name, &error);
        Progress::add(&progress.failures, 1);
        summary.failures_total += 1;
        summary.failures.push(Failure { name: name.to_owned(), error });
    }
    summary.streams = streams;
    summary.part_bytes = part_bytes;
    summary.memory_peak = memory_peak;
    summary.found = Progress::get(&progress.found);
    summary.bytes_moved = Progress::get(&progress.bytes_moved);
    summary.bytes_resumed = Progress::get(&progress.bytes_resumed);
    Ok(summary)
}

/// The target has something that the person's patterns select.
fn would_remove(target: &Place, options: &Options) -> Result<bool, PackError> {
    let is_taken = |item: &Item| options.selection.takes(&item.name, item.is_directory());
    if let Some(packs) = &options.packs {
        let set = PackSet::open_to_write(target, packs.master.as_ref())?;
        return Ok(set.is_some_and(|set| set.index.rows.iter().any(|row| is_taken(&row.item))));
    }
    let mut walk = Walk::new(target);
    while let Some(met) = walk.next() {
        if matches!(met?, Met::Item(item, _) if is_taken(&item)) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Shared<'_> {
    /// Plans on this thread while streams work.
    fn run(
        &self,
        plan: impl FnOnce(&SyncSender<Work>) -> Result<(), PackError>,
    ) -> Result<(), PackError> {
        let streams_max = self.options.streams.range().1;
        let (sender, receiver) = sync_channel(streams_max * UNITS_WAITING);
        let (receiver, done) =
            (Mutex::new(Units::new(receiver, self.gate.next())), channel::<()>());
        std::thread::scope(|scope| {
            let streams: Vec<_> =
                (0..streams_max).map(|_| scope.spawn(|| self.work(&receiver))).collect();
            let tuner = self.tuner();
            if !tuner.is_fixed() {
                scope.spawn(|| self.tune(tuner, done.1));
            }
            let planned = plan(&sender);
            self.progress.is_planned.store(true, Ordering::Relaxed);
            drop(sender);
            for stream in streams {
                if let Err(panic) = stream.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            drop(done.0);
            planned
        })
    }

    /// One stream: takes units until there are no more.
    fn work(&self, units: &Mutex<Units>) {
        let mut turn = self.gate.enter();
        loop {
            turn = turn.next();
            let cut = |task, is_loose| self.cut(task, is_loose);
            let taken = units.lock().unwrap_or_else(PoisonError::into_inner).take(cut);
            let Some((number, unit)) = taken else { return };
            let memory = unit.memory(&*self.target.tier);
            let mut held = self.gate.hold(number, memory);
            if self.is_stopped() {
                continue;
            }
            match unit {
                Unit::Part(large, part) => self.part(&large, part, &mut held.buffer),
                Unit::Work(Work::Copy(tasks)) => self.copy(tasks, &mut held.buffer),
                Unit::Work(Work::Pack(tasks)) => self.pack(&tasks, &mut held.buffer),
                Unit::Work(Work::Solo(task)) => self.solo(&task),
                Unit::Work(Work::Loose(task)) => self.loose(&task),
                Unit::Work(Work::Parts(_)) => {
                    unreachable!("it was cut into parts when it was taken")
                }
            }
            self.gate.ended();
        }
    }

    fn send(&self, sender: &SyncSender<Work>, work: Work) {
        // Streams live until the sender is dropped.
        let _ = sender.send(work);
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        // Every change is one push or one addition.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Items that arrived.
    fn copied(&self, items: u64) {
        self.outcome().summary.copied += items;
        Progress::add(&self.progress.items_done, items);
    }

    /// One name that did not arrive; stops everything when others would fare the same.
    fn failed(&self, name: &str, error: PackError) {
        use TierError::{Full, Quota, Unavailable};
        if let PackError::Tier(Full { .. } | Quota { .. } | Unavailable { .. }) = error {
            self.stop.store(true, Ordering::Relaxed);
            self.outcome().summary.is_stopped = true;
        }
        self.observer.failed(name, &error);
        Progress::add(&self.progress.failures, 1);
        let summary = &mut self.outcome().summary;
        summary.failures_total += 1;
        if summary.failures.len() < FAILURES_LISTED_MAX {
            summary.failures.push(Failure { name: name.to_owned(), error });
        }
    }

    /// Repeats a call while the tier is unreachable, with longer and longer pauses.
    fn again<T>(&self, mut call: impl FnMut() -> Result<T, PackError>) -> Result<T, PackError> {
        let mut tries = 0;
        loop {
            match call() {
                Err(PackError::Tier(TierError::Unavailable { .. }))
                    if tries + 1 < TRIES_MAX && !self.is_stopped() =>
                {
                    self.gate.refused();
                    std::thread::sleep(Duration::from_millis(100 << tries));
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Bytes that have arrived: a connection may hold many that were only handed to it.
    fn arrived(&self, bytes: usize) {
        Progress::add(&self.progress.bytes_moved, bytes as u64);
    }

    fn count(counter: &AtomicU64, by: u64) {
        Progress::add(counter, by);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayase_tier::{Key, Memory};

    use super::large::Large;
    use super::*;
    use crate::Mtime;
    use crate::compare::Step;
    use crate::item::Kind;

    #[test]
    fn a_part_holds_no_more_than_its_file() {
        const MIB: u64 = 1 << 20;
        let check = |bytes: u64, part: u64, memory: u64| {
            let (name, kind) = (Key::new("f").unwrap(), Kind::File { bytes: bytes * MIB });
            let item = Item { name, kind, mode: 0o644, mtime: Mtime::EPOCH };
            let task = Task { item, origin: Origin::Object(None), step: Step::Copy };
            let unit = Unit::Part(Arc::new(Large::new(task, false, part * MIB)), 0);
            assert_eq!(unit.memory(&Memory::flat()), memory * MIB, "{bytes} in {part}");
        };
        check(20, 8, 9); // with what an open brings
        check(20, 512, 21);
        check(512, 512, 513);
        check(600, 512, 513);
    }
}
