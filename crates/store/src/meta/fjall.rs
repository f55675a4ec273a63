//! The key-value store on storage: one `fjall` database with one keyspace.
//!
//! Here: opening, sizes, translating errors, keeping clear of a full disk. Rooms: [`journal`] looks
//! for damage that fjall would take for the torn end of a crash, [`versions`] for damage that it would not see; [`durable`]
//! knows what is synced, [`lock`] keeps away from a store that is open elsewhere, [`synced`] writes down how long the
//! journals were then, and [`reserve`] keeps room for a full disk.
//! Not here: what keys mean ([`crate::namespace`]).
//! Source: fjall 3.1. A commit there goes to the journal and, with `PersistMode::Buffer`, from the
//! journal's buffer to the operating system before it is applied; that is what survives kill -9.
//! Its one worker thread sleeps on a channel, so an idle store uses no CPU. When its memtables become
//! tables is decided here: left alone, fjall asks its worker at each commit above the limit, and
//! once a thousand such messages wait behind a compaction, the one worker that there is waits for
//! room in its own queue for ever, and memory grows without bound.
//!
//! Invariants: when the file system below is nearly full, commits are refused *before* fjall sees
//! them, because a journal write that fails (or a failed flush in its worker) makes fjall refuse
//! everything until it is opened again ([`MetaError::Failed`]): others can fill the disk between two looks. Growing batches
//! are refused earlier than shrinking ones, so files can still be removed from a full node. Changes that are in no table yet are bounded by
//! [`UNWRITTEN_BYTES_MAX`]: commits wait for the worker then.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use hayase_layout::ByteCount;

use self::free::Free;
pub use self::reserve::RESERVE_BYTES;
use self::reserve::Reserve;
use super::{Batch, MetaError, MetaStore, Pair, says_full};

mod durable;
mod free;
mod journal;
mod lengths;
mod lock;
mod reserve;
mod synced;
mod tail;
#[cfg(test)]
mod tests;
mod versions;

/// Blocks of tables read from storage that are kept in memory.
pub const CACHE_BYTES: ByteCount = ByteCount::mib(16);
/// Changes kept in memory before the worker makes a table of them, as fjall counts them; its
/// skip list takes about twice as much.
pub const MEMTABLE_BYTES: ByteCount = ByteCount::mib(8);
/// Changes that are in no table yet, also those that the worker is about to write. Of these [`LATE_BYTES_MAX`] are of who
/// could not wait before.
pub const UNWRITTEN_BYTES_MAX: ByteCount = ByteCount::mib(32);
/// More than what makes a store be behind, before a commit hands a memtable over, or waits, itself.
pub const LATE_BYTES_MAX: ByteCount = ByteCount::mib(8);
/// All journals together; fjall rotates them at 64 MB each.
pub const JOURNALS_BYTES_MAX: ByteCount = ByteCount::mib(128);
/// Below this much free space a batch that grows the store is refused.
pub const FREE_MIN_TO_GROW: ByteCount = ByteCount::mib(64);
/// Below this much free space every batch is refused.
pub const FREE_MIN_TO_CHANGE: ByteCount = ByteCount::mib(32);

/// Tables that fjall merges at once have so many bytes at most.
const MERGED_BYTES_MAX: ByteCount = ByteCount::mib(256);

/// With so much free every store may grow.
const PLENTY: u64 = FREE_MIN_TO_GROW.get() + MERGED_BYTES_MAX.get();

/// A store is behind with more changes than this that are in no table yet.
const BEHIND_BYTES: u64 = UNWRITTEN_BYTES_MAX.get() - LATE_BYTES_MAX.get();

/// Free space is looked at again after so many committed bytes.
const FREE_CHECK_BYTES: u64 = 256 * 1024;
/// What fjall counts for a change besides its key and value.
const CHANGE_BYTES: usize = 64;
/// So long a commit waits for the worker; then the storage is taken for broken.
const WORKER_WAIT_MAX: Duration = Duration::from_secs(10);
const WORKER_WAIT_STEP: Duration = Duration::from_millis(1);
/// Files of tables that are kept open.
const TABLE_FILES_OPEN_MAX: usize = 64;

/// Names and inodes on this node's storage.
pub struct FjallStore {
    path: PathBuf,
    database: Database,
    names: Keyspace,
    /// Bytes committed since the last memtable was handed to the worker.
    in_memtable: AtomicU64,
    /// Bytes committed since the free space was last looked at.
    unchecked: AtomicU64,
    /// Free space when it was last looked at.
    free: Free,
    durable: durable::Durable,
    synced: synced::Synced,
    /// Makes a journal durable through a descriptor of ours.
    sync_file: fn(&File) -> io::Result<()>,
    /// It said no: what it has lost no later sync tells.
    has_failed: AtomicBool,
    /// Of a store that is to be opened and changed on a full disk as well.
    reserve: Option<Reserve>,
}

impl FjallStore {
    /// Opens the store in the directory `path`, making it if it is not there.
    ///
    /// Costs one read of the journal. Damaged files are an error, never a panic.
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        Self::open_files(path, lock::Lock::take(path)?)
    }

    /// The same with [`RESERVE_BYTES`] of the disk kept back, while there are so many: with them it is opened, and names
    /// can be removed, when the disk is full or the user's quota is used up.
    pub fn open_with_reserve(path: &Path) -> Result<Self, MetaError> {
        let lock = lock::Lock::take(path)?;
        let reserve = Reserve::found(path);
        if reserve::is_full(path) {
            reserve.give();
        }
        let opened = match Self::open_files(path, lock) {
            Err(error) if error.is_full() && reserve.give() => Self::open(path),
            opened => opened,
        };
        let store = Self { reserve: Some(reserve), ..opened? };
        store.reserve.iter().for_each(Reserve::begin);
        Ok(store)
    }

    /// The same when no server will open it any more: what was kept back is free.
    pub fn open_left(path: &Path) -> Result<Self, MetaError> {
        let lock = lock::Lock::take(path)?;
        Reserve::found(path).give();
        Self::open_files(path, lock)
    }

    /// `lock` is held until fjall takes it.
    fn open_files(path: &Path, lock: lock::Lock) -> Result<Self, MetaError> {
        let found = synced::Found::check(path)?;
        versions::check(path)?;
        drop(lock); // fjall takes it
        // fjall panics on some damage (missing settings of a keyspace); that is data from disk.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_database(path)));
        let (database, names) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(translate("open", path, error)),
            Err(_) => {
                let detail = "its tables or settings could not be read".to_owned();
                return Err(MetaError::Corrupt { path: path.to_owned(), detail });
            }
        };
        let in_memtable = AtomicU64::new(database.write_buffer_size());
        let store = Self {
            path: path.to_owned(),
            database,
            names,
            in_memtable,
            unchecked: AtomicU64::new(0),
            free: Free::default(),
            durable: durable::Durable::new(),
            synced: found.follow(path)?,
            sync_file: File::sync_data,
            has_failed: AtomicBool::new(false),
            reserve: None,
        };
        store.look_at_free_space()?;
        store.hand_over(MEMTABLE_BYTES)?; // what the journal brought back may be a lot
        Ok(store)
    }

    fn open_database(path: &Path) -> fjall::Result<(Database, Keyspace)> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES.get())
            .max_journaling_size(JOURNALS_BYTES_MAX.get())
            .max_cached_files(Some(TABLE_FILES_OPEN_MAX))
            .worker_threads(1)
            .journal_compression(fjall::CompressionType::None)
            .open()?;
        let names = database
            .keyspace("names", || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX))?;
        Ok((database, names))
    }

    /// Hands the memtable to the worker when there is so much in it.
    fn hand_over(&self, full: ByteCount) -> Result<(), MetaError> {
        if self.in_memtable.load(Ordering::Relaxed) < full.get()
            || self.in_memtable.swap(0, Ordering::Relaxed) < full.get()
        {
            return Ok(());
        }
        self.synced.follow();
        self.names.rotate_memtable().map_err(|e| self.failed("flush", e))?;
        Ok(())
    }

    /// Waits while the worker has at least so much to write.
    fn wait_for_worker(&self, unwritten: u64) -> Result<(), MetaError> {
        if self.database.write_buffer_size() < unwritten {
            return Ok(());
        }
        let start = Instant::now();
        while self.database.write_buffer_size() >= unwritten {
            // A worker that failed writes nothing more; this tells, and writes nothing that waits.
            self.database.persist(PersistMode::Buffer).map_err(|e| self.failed("flush", e))?;
            if start.elapsed() > WORKER_WAIT_MAX {
                let source = io::Error::from_raw_os_error(libc::ETIMEDOUT);
                return Err(MetaError::Io { action: "flush", path: self.path.clone(), source });
            }
            std::thread::sleep(WORKER_WAIT_STEP);
        }
        tracing::debug!(waited = ?start.elapsed(), "commits were faster than the storage");
        Ok(())
    }

    /// Of a journal, through a descriptor of ours: nobody waits for fjall's meanwhile.
    fn sync_journal(&self, file: &File) -> fjall::Result<()> {
        let synced = (self.sync_file)(file);
        if synced.is_err() {
            self.has_failed.store(true, Ordering::Release);
            // Its own descriptor learns of it as well: it refuses everything from now on, and has said why.
            drop(self.database.persist(PersistMode::SyncData));
        }
        Ok(synced?)
    }

    /// Refuses what comes after a sync that failed.
    fn check_sync(&self, action: &'static str) -> Result<(), MetaError> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(libc::EIO);
        Err(MetaError::Failed { action, path: self.path.clone(), is_whole: false, source })
    }

    fn look_at_free_space(&self) -> Result<(), MetaError> {
        self.free.look(&self.path).map_err(|source| MetaError::Io {
            action: "ask for the free space of",
            path: self.path.clone(),
            source,
        })?;
        self.unchecked.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Of what was to be written: fjall refuses everything from now on.
    fn failed(&self, action: &'static str, error: fjall::Error) -> MetaError {
        let path = self.path.clone();
        match error {
            fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) => {
                MetaError::Failed { action, path, is_whole: says_full(&source), source }
            }
            // Its worker failed, and does not tell why: at a table, of which the journals still have everything, or at a
            // sync of the journal.
            // An error is reported once: to this look, to an earlier one or to a sync that this one has waited for.
            fjall::Error::Poisoned => match (self.synced.check(), self.check_sync(action)) {
                (Ok(()), Ok(())) => {
                    let source = io::Error::other("a table of them could not be written");
                    MetaError::Failed { action, path, is_whole: true, source }
                }
                (Ok(()), Err(failed)) => failed,
                (Err(source), _) => {
                    self.has_failed.store(true, Ordering::Release);
                    MetaError::Failed { action, path, is_whole: false, source }
                }
            },
            other => translate(action, &self.path, other),
        }
    }

    /// What has to be free for the store to grow: also room for the tables that are merged at once.
    fn needed_to_grow(&self) -> ByteCount {
        let merged = self.names.disk_space().min(MERGED_BYTES_MAX.get());
        ByteCount(FREE_MIN_TO_GROW.get() + merged)
    }

    /// Refuses a batch for which the disk may be too full. Looks at the disk rarely while there is
    /// plenty, and each time when there is not.
    fn check_room(&self, batch: &Batch) -> Result<(), MetaError> {
        let unchecked = self.unchecked.load(Ordering::Relaxed);
        if unchecked >= FREE_CHECK_BYTES || self.free.to_grow() < PLENTY {
            self.look_at_free_space()?;
            let is_full = self.free.to_change() < FREE_MIN_TO_CHANGE.get();
            if is_full && self.reserve.as_ref().is_some_and(Reserve::give) {
                self.look_at_free_space()?;
            }
        }
        let no_room = |free, needed| {
            Err(MetaError::NoRoom { path: self.path.clone(), free: ByteCount(free), needed })
        };
        if self.free.to_change() < FREE_MIN_TO_CHANGE.get() {
            return no_room(self.free.to_change(), FREE_MIN_TO_CHANGE);
        }
        let free = self.free.to_grow();
        // What it takes to know more exactly is asked for only where it matters.
        if free < PLENTY {
            let needed = self.needed_to_grow();
            if free < needed.get() && self.grows(batch)? {
                return no_room(free, needed);
            }
        }
        let only_sets = batch.changes().values().all(Option::is_some);
        match self.reserve.as_ref().filter(|_| only_sets).map_or(Ok(()), Reserve::expect) {
            Err(source) if self.grows(batch)? => {
                Err(MetaError::Full { path: self.path.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// Whether `batch` makes keys and removes none. What removes some, as that of unlink(2), makes others for a while.
    /// Costs a read for each of its keys.
    fn grows(&self, batch: &Batch) -> Result<bool, MetaError> {
        if batch.is_essential() {
            return Ok(false);
        }
        let mut makes = false;
        for (key, value) in batch.changes() {
            match (self.get(key)?.is_some(), value.is_some()) {
                (true, false) => return Ok(false),
                (false, true) => makes = true,
                _ => {}
            }
        }
        Ok(makes)
    }
}

impl MetaStore for FjallStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        let value = self.names.get(key).map_err(|e| translate("read", &self.path, e))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
        use fjall::Readable;
        let start = from.max(prefix);
        let mut pairs = Vec::new();
        for guard in self.database.snapshot().range(&self.names, start..) {
            if pairs.len() == limit {
                break;
            }
            let (key, value) = guard.into_inner().map_err(|e| translate("read", &self.path, e))?;
            if !key.starts_with(prefix) {
                break;
            }
            pairs.push((key.to_vec(), value.to_vec()));
        }
        Ok(pairs)
    }

    fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        self.check_sync("change")?;
        self.check_room(&batch)?;
        self.wait_for_worker(UNWRITTEN_BYTES_MAX.get())?;
        let mut changes = self.database.batch();
        let mut bytes = 0;
        for (key, value) in batch.into_changes() {
            bytes += key.len() + CHANGE_BYTES;
            match value {
                Some(value) => {
                    bytes += value.len();
                    changes.insert(&self.names, key, value);
                }
                None => changes.remove(&self.names, key),
            }
        }
        changes
            .durability(Some(PersistMode::Buffer))
            .commit()
            .map_err(|e| self.failed("change", e))?;
        self.durable.committed();
        self.unchecked.fetch_add(bytes as u64, Ordering::Relaxed);
        self.in_memtable.fetch_add(bytes as u64, Ordering::Relaxed);
        self.hand_over(ByteCount(MEMTABLE_BYTES.get() + LATE_BYTES_MAX.get()))
    }

    fn is_behind(&self) -> bool {
        self.in_memtable.load(Ordering::Relaxed) >= MEMTABLE_BYTES.get()
            || self.database.write_buffer_size() >= BEHIND_BYTES
    }

    fn catch_up(&self) -> Result<(), MetaError> {
        if self.in_memtable.load(Ordering::Relaxed) >= MEMTABLE_BYTES.get() {
            // Else the worker does it, and nobody can commit meanwhile.
            self.sync()?;
            self.hand_over(MEMTABLE_BYTES)?;
        }
        self.wait_for_worker(BEHIND_BYTES)
    }

    fn sync(&self) -> Result<(), MetaError> {
        self.check_sync("sync")?;
        let persist = |journal: Option<&File>| {
            match journal {
                Some(journal) => self.sync_journal(journal)?,
                None => self.database.persist(PersistMode::SyncData)?,
            }
            // The worker syncs the same file, and an error is told once: it may have been told there.
            self.database.persist(PersistMode::Buffer)
        };
        let synced = self.durable.sync(|| self.synced.note(persist));
        synced.map_err(|error| match self.failed("sync", error) {
            // What could not be written back is gone from memory too, whatever was the matter.
            MetaError::Failed { action, path, source, .. } if source.raw_os_error().is_some() => {
                MetaError::Failed { action, path, source, is_whole: false }
            }
            error => error,
        })
    }
}

/// Says in our words what fjall says in its own.
fn translate(action: &'static str, path: &Path, error: fjall::Error) -> MetaError {
    let path = path.to_owned();
    let corrupt = |detail: String| MetaError::Corrupt { path: path.clone(), detail };
    match error {
        fjall::Error::Locked => MetaError::Locked { path },
        fjall::Error::Io(source) => io_error(action, path, source),
        fjall::Error::Storage(fjall::LsmError::Io(source)) => io_error(action, path, source),
        fjall::Error::Poisoned => {
            MetaError::Io { action, path, source: io::Error::other("an earlier write failed") }
        }
        fjall::Error::JournalRecovery(reason) => corrupt(format!("its journal: {reason}")),
        fjall::Error::InvalidVersion(_) => corrupt("its version mark is not ours".to_owned()),
        other => corrupt(other.to_string()),
    }
}

/// A file of the store that ends too early, or is not there, is damage; the rest is I/O.
fn io_error(action: &'static str, path: PathBuf, source: io::Error) -> MetaError {
    match source.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound | io::ErrorKind::InvalidData => {
            MetaError::Corrupt { path, detail: format!("{action}: {source}") }
        }
        _ => MetaError::Io { action, path, source },
    }
}
