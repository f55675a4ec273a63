//! The cache area: the tree of a tier, with the nodes' storage in front of it.
//!
//! Its files are inodes, names and parts as those of `shared`, below a root of their own, and marked
//! by their numbers ([`InodeId::is_cached`]). What is added here is where the tier comes in. Rooms:
//! - [`paths`]: from an inode to its name in the tier;
//! - [`import`]: names of the tier become inodes when somebody looks or lists;
//! - [`fetch`]: bytes of the tier come into a part when somebody reads or is about to write;
//! - [`striped_copy`]: they come into stripes, for who writes what no node has room for;
//! - [`names`]: names made, moved and removed here;
//! - [`tombstones`]: names that are gone here, and not yet in the tier;
//! - [`order`]: which files were before which, for who must not overtake;
//! - [`check`]: whether what is here is still what the tier has;
//! - [`xattrs`]: extended attributes and access control lists, where the tier keeps them;
//! - [`lists`]: whether it keeps such lists, and what goes there where it does not;
//! - [`synced`]: which files a power cut can not have changed;
//! - [`recorded`]: files that MPI-IO keeps as one part per writer.
//!
//! What is written comes to the tier by [`crate::flusher`].
//!
//! Invariants:
//! * the ledger of an inode's home decides what its part is worth: `InTier` files have a part only
//!   while they are fetched, and nobody is handed that;
//! * a file is dirty in the ledger before anybody may write it;
//! * the tier's version of a file is replaced only by who holds the inode's `publishing` lock, and
//!   only when it is the one that the ledger knows;
//! * directories are never renamed, so that the path of a directory never changes.
//!
//! Source: `docs/SEMANTICS.md`, "The cache area"; `docs/guide/cache.md`, "What is flushed, and when".

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hayase_layout::{InodeId, Layout};
use hayase_store::{FileState, Ledger, LedgerError, LedgerRecord, LedgerSync, PartStat, Time};
use hayase_tier::{ObjectMeta, Tier, TierError};
use hayase_wire::message::{Place, Refused, Shown};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::boxed::Local;
use crate::disk::Disk;
use crate::flusher::Traffic;
use crate::flusher::leftovers;
use crate::flusher::removal::Settling;
use crate::flusher::space::Marked;
use crate::keyed_lock::KeyedLock;
use crate::limits::{CACHE_MEMO_MAX, TIER_THREADS};
use crate::meta::Tombstones as TombstonesOf;
use crate::refusals::libc_errno;
use crate::settings::{CacheSettings, DurableAt};

pub(crate) mod area;
mod check;
mod convert;
mod fetch;
mod import;
mod lists;
pub(crate) mod name_check;
pub(crate) mod names;
pub(crate) mod object_moves;
pub(crate) mod order;
pub(crate) mod paths;
mod recorded;
pub(crate) mod rewriting;
mod striped_copy;
pub(crate) mod synced;
pub(crate) mod tombstones;
pub(crate) mod xattrs;

pub(crate) use self::convert::{stored_version, system_time, time_of, wire_version};
use self::fetch::Fetch;
use self::lists::Lists;
use self::order::Order;
use self::striped_copy::Striping;
use self::tombstones::Tombstones;

/// The name below the root of `shared` under which the mount finds the cache area; no listing shows it.
pub const CACHE_NAME: &[u8] = b".hayase-cache";

/// What a path of the tier shows: size and time.
type Looks = (Vec<u8>, u64, Time);

/// The cache area of one server.
pub(crate) struct Cache {
    pub(crate) tier: Arc<dyn Tier>,
    lists: Lists,
    ledger: RefCell<Ledger>,
    /// Its log may have become long.
    ledger_is_long: Notify,
    /// Files that the tier does not have as the job wrote them.
    not_durable: RefCell<BTreeSet<InodeId>>,
    active: RefCell<HashMap<InodeId, Rc<Active>>>,
    paths: RefCell<HashMap<InodeId, Rc<[u8]>>>,
    /// Names that the tier did not have a moment ago.
    absent: RefCell<HashMap<Place, Instant>>,
    /// Directories whose names were taken from the tier a moment ago.
    listed: RefCell<HashMap<InodeId, Instant>>,
    pub(crate) order: RefCell<Order>,
    tombstones: RefCell<Tombstones>,
    /// The number of the last one that was made.
    pub(crate) last_tombstone: Cell<u64>,
    /// Versions that were removed from the tier a moment ago.
    gone: RefCell<HashMap<(Vec<u8>, u64), Instant>>,
    /// Versions, by size and time, that were about to be renamed in the tier a moment ago.
    moved_away: RefCell<HashMap<Looks, Instant>>,
    /// Held by path while what a tombstone hides is removed or taken over.
    pub(crate) burying: KeyedLock<Vec<u8>>,
    /// By path of a directory: what its removals wait for.
    pub(crate) settling: RefCell<HashMap<Vec<u8>, Settling>>,
    pub(crate) settling_locks: KeyedLock<Vec<u8>>,
    /// Held while what the tier has of an inode, or its name there, changes.
    pub(crate) publishing: KeyedLock<InodeId>,
    /// Threads that wait for the tier: apart from those of the disks, which a tier that hangs must
    /// not take away.
    threads: Disk,
    /// Where the ledger waits for its storage.
    disk: Rc<Disk>,
    pub(crate) durable_at: DurableAt,
    pub(crate) deadline: Option<std::time::SystemTime>,
    /// A file that stays open for so long is flushed as it stands.
    pub(crate) flush_open: Option<std::time::Duration>,
    pub(crate) traffic: Traffic,
    /// Dirty bytes, and all bytes: above their high mark until they reach the low one.
    pub(crate) dirty_mark: Marked,
    pub(crate) space_mark: Marked,
    /// Held while copies are chosen and given up; how often that was, and how many went.
    pub(crate) evicting: tokio::sync::Mutex<()>,
    pub(crate) evicted: Cell<(u64, u64)>,
    /// Dirty bytes, and until when they are taken as that.
    pub(crate) dirty: Cell<Option<(Instant, u64)>>,
    pub(crate) has_warned: Cell<bool>,
    /// Directories in which uploads of an earlier incarnation may lie, until they are swept.
    pub(crate) cut_off: Cell<BTreeSet<Vec<u8>>>,
    /// Something may be flushed.
    pub(crate) work: Notify,
    /// The flusher sleeps for longer than between two looks: requests wake it.
    pub(crate) flusher_rests: Cell<bool>,
}

/// What is known of a file only while the server lives.
pub(crate) struct Active {
    /// Goes up whenever the bytes, the name or the attributes may change: a flush that began before
    /// is worth nothing.
    pub(crate) generation: Cell<u64>,
    /// The bytes on their way here.
    pub(crate) fetch: RefCell<Option<Rc<Fetch>>>,
    /// The bytes on their way into stripes.
    pub(crate) striping: RefCell<Option<Rc<Striping>>>,
    /// Opens and truncates under way: they may be booked nowhere yet.
    pub(crate) openings: Cell<u32>,
    /// When the tier was asked last whether it still has this version.
    checked: Cell<Option<Instant>>,
    /// The tier has another version: nobody opens this one any more.
    pub(crate) is_retired: Cell<bool>,
    /// Its name is in somebody's hands until then.
    pub(crate) held_until: Cell<Option<Instant>>,
    /// Nobody but this server has had its name in hand since this was known: another file may not have taken it
    /// unheard of here, as it may before a restart, or when who took it died.
    pub(crate) is_name_known: Cell<bool>,
    /// Since when it has been another file's: nobody waits for this one.
    pub(crate) taken_since: Cell<Option<Instant>>,
    /// What its shard was told that the tier may show, when the name was about to go.
    pub(crate) told: Cell<Option<Shown>>,
    /// Since when nobody has it open for writing, while it is not safe.
    pub(crate) complete_since: Cell<Option<Instant>>,
    /// Since when somebody has it open for writing without a flush, as far as the flusher has seen.
    pub(crate) open_since: Cell<Option<Instant>>,
    /// After a failure: not before then.
    pub(crate) retry_at: Cell<Option<Instant>>,
    /// When it was begun last and could not go: it waits for another file, or for whoever has it in hand.
    pub(crate) in_vain_at: Cell<Option<Instant>>,
    /// It went as it stood, and goes again not before then, unless it is closed or somebody asks for it.
    pub(crate) rests_until: Cell<Option<Instant>>,
    /// What the tier has of it, while it stays open.
    pub(crate) stood: Cell<Option<Stood>>,
    pub(crate) is_flushing: Cell<bool>,
    /// Flushes that have begun; and which of them was the last that brought what was written before it.
    pub(crate) round: Cell<u64>,
    pub(crate) arrived_round: Cell<u64>,
    /// Bytes of the present flush that were sent so far; counted by the thread that sends.
    pub(crate) sent: Arc<AtomicU64>,
    /// Programs have it open by MPI-IO, as far as was seen; somebody looks again while that is so.
    pub(crate) is_open_by_mpi: Cell<bool>,
    is_watched: Cell<bool>,
    /// It counts as that until then, whatever is seen.
    opening_until: Cell<Option<Instant>>,
    /// When it was renamed over another file.
    pub(crate) renamed: Cell<Option<Instant>>,
    /// Last opened; for choosing what gives its room back.
    pub(crate) used: Cell<Instant>,
}

/// A file that was sent while somebody had it open: as long as this stays the same, so do its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stood {
    generation: u64,
    size: u64,
    mtime: Time,
    /// Nobody can set it: the kernel writes bytes of programs without asking us.
    pub(crate) ctime: Time,
}

impl Stood {
    pub(crate) fn of(generation: u64, part: &PartStat) -> Self {
        Self { generation, size: part.size, mtime: part.mtime, ctime: part.ctime }
    }
}

impl Active {
    fn new() -> Self {
        Self {
            generation: Cell::new(0),
            fetch: RefCell::default(),
            striping: RefCell::default(),
            openings: Cell::default(),
            checked: Cell::default(),
            is_retired: Cell::default(),
            held_until: Cell::default(),
            is_name_known: Cell::default(),
            taken_since: Cell::default(),
            told: Cell::default(),
            complete_since: Cell::default(),
            open_since: Cell::default(),
            retry_at: Cell::default(),
            in_vain_at: Cell::default(),
            rests_until: Cell::default(),
            stood: Cell::default(),
            is_flushing: Cell::default(),
            round: Cell::default(),
            arrived_round: Cell::default(),
            sent: Arc::default(),
            is_open_by_mpi: Cell::default(),
            is_watched: Cell::default(),
            opening_until: Cell::default(),
            renamed: Cell::default(),
            used: Cell::new(Instant::now()),
        }
    }

    /// What was read for a flush before this is not to be published.
    pub(crate) fn changed(&self) {
        self.generation.set(self.generation.get() + 1);
        self.complete_since.set(None);
    }

    /// It could not go now: others first, and then again.
    pub(crate) fn was_in_vain(&self, pause: std::time::Duration) {
        let now = Instant::now();
        self.in_vain_at.set(Some(now));
        self.retry_at.set(Some(now + pause));
    }

    /// Forgotten, it would be as it is.
    fn is_idle(&self) -> bool {
        self.fetch.borrow().is_none()
            && self.striping.borrow().is_none()
            && self.openings.get() == 0
            && !self.is_retired.get()
            && !self.is_flushing.get()
            && !self.is_watched.get()
            && !self.is_held()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held_until.get().is_some_and(|until| Instant::now() < until)
    }
}

impl Cache {
    /// The cache in front of the tier of `settings`, in this life of the machine; what an earlier incarnation was flushing is
    /// dirty again.
    pub(crate) fn open(
        settings: CacheSettings,
        mut ledger: Ledger,
        life: &str,
        disk: &Rc<Disk>,
    ) -> Result<Self, LedgerError> {
        if ledger.begin_life(life)? {
            copies_are_lost(&mut ledger)?;
        }
        let cut_off = leftovers::directories(ledger.records());
        let interrupted: Vec<LedgerRecord> = ledger
            .records()
            .filter(|record| record.state == FileState::Flushing)
            .cloned()
            .collect();
        for record in interrupted {
            ledger.put(LedgerRecord { state: FileState::Dirty, ..record })?;
        }
        let left = || {
            let is_file = |record: &&LedgerRecord| record.state != FileState::Removed;
            ledger.records().filter(|record| !record.state.is_safe()).filter(is_file)
        };
        let not_durable = left().map(|record| record.ino).collect();
        let mut order = Order::default();
        for record in left() {
            order.restored(record.ino, &record.path, record.after);
        }
        ledger.rewrite_elsewhere();
        let tombstones = Tombstones::of(ledger.records());
        let last_tombstone = tombstones.last();
        Ok(Self {
            lists: Lists::of(&*settings.tier),
            tier: settings.tier,
            ledger: RefCell::new(ledger),
            ledger_is_long: Notify::new(),
            not_durable: RefCell::new(not_durable),
            active: RefCell::default(),
            paths: RefCell::default(),
            absent: RefCell::default(),
            listed: RefCell::default(),
            order: RefCell::new(order),
            tombstones: RefCell::new(tombstones),
            last_tombstone: Cell::new(last_tombstone),
            gone: RefCell::default(),
            moved_away: RefCell::default(),
            burying: KeyedLock::new(),
            settling: RefCell::default(),
            settling_locks: KeyedLock::new(),
            publishing: KeyedLock::new(),
            disk: Rc::clone(disk),
            threads: disk.apart(TIER_THREADS),
            durable_at: settings.durable_at,
            deadline: settings.deadline,
            flush_open: settings.flush_open,
            traffic: Traffic::default(),
            dirty_mark: Marked::default(),
            space_mark: Marked::default(),
            evicting: tokio::sync::Mutex::default(),
            evicted: Cell::default(),
            dirty: Cell::new(None),
            has_warned: Cell::new(false),
            cut_off: Cell::new(cut_off),
            work: Notify::new(),
            flusher_rests: Cell::new(false),
        })
    }

    pub(crate) fn record(&self, ino: InodeId) -> Option<LedgerRecord> {
        self.ledger.borrow().get(ino).cloned()
    }

    /// Removed or replaced, and not ended yet.
    pub(crate) fn is_nameless(&self, ino: InodeId) -> bool {
        self.ledger.borrow().get(ino).is_some_and(|record| record.is_nameless)
    }

    pub(crate) fn state(&self, ino: InodeId) -> Option<FileState> {
        self.ledger.borrow().get(ino).map(|record| record.state)
    }

    /// Adds what is known of a file. Without its name it is never dirty again, whoever says so: it would
    /// come to the tier under a name that is another file's, or nobody's.
    pub(crate) fn put(&self, mut record: LedgerRecord) -> Result<(), Refused> {
        record.is_nameless |= self.is_nameless(record.ino);
        if record.is_nameless && !record.state.is_safe() {
            (record.state, record.version) = (FileState::Clean, None);
        }
        let (ino, state, path) = (record.ino, record.state, record.path.clone());
        self.ledger.borrow_mut().put(record).map_err(ledger_refused)?;
        if self.ledger.borrow().is_long() {
            self.ledger_is_long.notify_one();
        }
        let mut not_durable = self.not_durable.borrow_mut();
        if state.is_safe() {
            not_durable.remove(&ino);
            self.order.borrow_mut().ended(ino);
        } else if state != FileState::Removed {
            not_durable.insert(ino);
            self.order.borrow_mut().begun(ino, &path);
        }
        Ok(())
    }

    /// The file was renamed over another one, and may have to wait for its turn.
    pub(crate) fn has_turn(&self, ino: InodeId) -> bool {
        self.ledger.borrow().get(ino).is_some_and(|record| record.after > 0)
    }

    /// Changes what is known of a file; nothing happens when nothing is.
    pub(crate) fn update(
        &self,
        ino: InodeId,
        change: impl FnOnce(&mut LedgerRecord),
    ) -> Result<(), Refused> {
        let Some(mut record) = self.record(ino) else { return Ok(()) };
        change(&mut record);
        self.put(record)
    }

    /// A flush has ended, and brought nothing.
    pub(crate) fn not_flushing(&self, ino: InodeId) -> Result<(), Refused> {
        self.update(ino, |record| {
            if record.state == FileState::Flushing {
                record.state = FileState::Dirty;
            }
        })
    }

    /// Whoever has it open goes on, but there is nowhere to bring it any more.
    pub(crate) fn lost_its_name(&self, ino: InodeId) -> Result<(), Refused> {
        self.active(ino).changed();
        self.order.borrow_mut().lost(ino);
        self.update(ino, |record| record.is_nameless = true)
    }

    /// It has its name again. What it was when that went is not known any more: as the tier has it only where that
    /// is said.
    pub(crate) fn has_its_name_again(&self, record: LedgerRecord) -> Result<(), LedgerError> {
        let ino = record.ino;
        tracing::info!(%ino, path = %String::from_utf8_lossy(&record.path), "a power cut gave this file its name back");
        let is_in_tier = record.state == FileState::InTier || record.version.is_some();
        let state = if is_in_tier { record.state } else { FileState::Dirty };
        let path = record.path.clone();
        let record = LedgerRecord { state, is_nameless: false, ..record };
        self.ledger.borrow_mut().put(record)?;
        if !state.is_safe() {
            self.not_durable.borrow_mut().insert(ino);
            self.order.borrow_mut().begun(ino, &path);
        }
        Ok(())
    }

    /// The inode is no more.
    pub(crate) fn ended(&self, ino: InodeId) {
        if let Err(error) = self.ledger.borrow_mut().remove(ino) {
            tracing::error!(%ino, %error, "the end of a file could not be written down");
        }
        if self.ledger.borrow().is_long() {
            self.ledger_is_long.notify_one();
        }
        self.not_durable.borrow_mut().remove(&ino);
        self.order.borrow_mut().lost(ino);
        self.active.borrow_mut().remove(&ino);
    }

    /// What is known of the file while this server lives.
    pub(crate) fn active(&self, ino: InodeId) -> Rc<Active> {
        let mut active = self.active.borrow_mut();
        if active.len() >= CACHE_MEMO_MAX && !active.contains_key(&ino) {
            let (files, removals) = (self.not_durable.borrow(), self.tombstones.borrow());
            let is_left = |ino| files.contains(&ino) || removals.contains(ino);
            active.retain(|ino, file| !file.is_idle() || is_left(*ino));
        }
        Rc::clone(active.entry(ino).or_insert_with(|| Rc::new(Active::new())))
    }

    /// The tier has every file; tombstones do not count.
    pub(crate) fn is_durable(&self) -> bool {
        self.not_durable.borrow().is_empty()
    }

    pub(crate) fn not_durable(&self) -> Vec<InodeId> {
        self.not_durable.borrow().iter().copied().collect()
    }

    /// Those after `after`, `most` at most: by inode number, so about as old as they are.
    pub(crate) fn not_durable_after(&self, after: InodeId, most: usize) -> Vec<InodeId> {
        let files = self.not_durable.borrow();
        let from = (Bound::Excluded(after), Bound::Unbounded);
        files.range(from).take(most).copied().collect()
    }

    /// All files for which `wanted` holds.
    pub(crate) fn records_where(
        &self,
        wanted: impl Fn(&LedgerRecord) -> bool,
    ) -> Vec<LedgerRecord> {
        self.ledger.borrow().records().filter(|record| wanted(record)).cloned().collect()
    }

    /// What `chosen` makes of records above `after`, by inode: `most` at most.
    pub(crate) fn page_of<T>(
        &self,
        after: InodeId,
        most: usize,
        chosen: impl Fn(&LedgerRecord) -> Option<T>,
    ) -> Vec<T> {
        let ledger = self.ledger.borrow();
        ledger.records_after(after).filter_map(chosen).take(most).collect()
    }

    /// The file may be written from here on; in the ledger before this returns.
    pub(crate) fn becomes_dirty(&self, ino: InodeId) -> Result<(), Refused> {
        self.active(ino).changed();
        self.update(ino, |record| {
            record.synced = None;
            if record.state != FileState::Failed {
                record.state = FileState::Dirty;
            }
        })?;
        self.work.notify_one();
        Ok(())
    }

    /// What the ledger was told so far survives a power cut.
    pub(crate) async fn ledger_durable(&self) -> Result<(), Refused> {
        let ledger = ledger_sync(self)?;
        self.disk.run(move || ledger.sync().map_err(ledger_refused)).await
    }

    /// Asks the tier, on a thread that may wait for it.
    pub(crate) async fn ask_tier<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Tier) -> Result<T, TierError> + Send + 'static,
    ) -> Result<T, Refused> {
        self.tier_work(move |tier| work(tier).map_err(|error| tier_refused(&error))).await
    }

    /// The same for work that uses more than the tier.
    pub(crate) async fn tier_work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Tier) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let tier = Arc::clone(&self.tier);
        self.threads.run(move || work(&*tier)).await
    }
}

/// Tombstones as the records of names know them: durable before a name ends.
pub(crate) struct TombstoneLog(pub(crate) Rc<Cache>);

impl TombstonesOf for TombstoneLog {
    fn last(&self) -> u64 {
        self.0.last_tombstone.get()
    }

    fn durable(self: Rc<Self>) -> Local<Result<(), Refused>> {
        Box::pin(async move { self.0.ledger_durable().await })
    }
}

/// What makes durable what its ledger was told so far.
fn ledger_sync(cache: &Cache) -> Result<LedgerSync, Refused> {
    cache.ledger.borrow_mut().unsynced().map_err(ledger_refused)
}

/// A power cut may have taken bytes of copies, which nobody syncs: those files are in the tier, and fetched again.
fn copies_are_lost(ledger: &mut Ledger) -> Result<(), LedgerError> {
    let is_copy = |record: &&LedgerRecord| {
        let is_here = matches!(record.state, FileState::Clean | FileState::Durable);
        is_here && record.version.is_some() && record.layout == Layout::Whole && !record.is_nameless
    };
    let copies: Vec<LedgerRecord> = ledger.records().filter(is_copy).cloned().collect();
    for record in copies {
        ledger.put(LedgerRecord { state: FileState::InTier, ..record })?;
    }
    Ok(())
}

/// A memo of bounded size: all is forgotten when there is too much.
fn remember<K: std::hash::Hash + Eq, V>(memo: &RefCell<HashMap<K, V>>, key: K, value: V) {
    let mut memo = memo.borrow_mut();
    if memo.len() >= CACHE_MEMO_MAX {
        memo.clear();
    }
    memo.insert(key, value);
}

/// A tier's error as the caller of the file system sees it; its errno is kept.
pub(crate) fn tier_refused(error: &TierError) -> Refused {
    let source = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
    Refused::because(error.errno(), format!("{error}{source}"))
}

#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
pub(crate) fn ledger_refused(error: LedgerError) -> Refused {
    tracing::error!(%error, "the ledger could not be written");
    Refused::because(libc_errno::EIO, error.to_string())
}

/// What a listing or a commit told, as the ledger keeps it.
pub(crate) fn version_of(meta: &ObjectMeta) -> hayase_store::TierVersion {
    hayase_store::TierVersion {
        identity: meta.identity,
        size: meta.size.get(),
        mtime: convert::time_of(meta.mtime),
        mode: meta.mode,
    }
}

#[cfg(test)]
mod tests;
