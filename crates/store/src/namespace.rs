//! Names and inodes of one server, kept in a [`MetaStore`].
//!
//! Here: opening a name space, inode numbers, transactions ([`Txn`]). Rooms: [`inode`] and
//! [`entry`] are the records, [`keys`] their keys, [`ops`] one file for each operation.
//! Not here: the protocol that decides which server does which operation (`hayase_server`); where
//! a record survives what ([`crate::meta`]).
//! Source: the table of authorities in the design of the coherence protocol: a server is *home* of
//! inodes (records `i x b o s`) and *shard* of directory entries (records `e g`).
//!
//! Invariants:
//! * an inode number is given out once: the block it is taken from was synced before;
//! * at most one transaction is open at a time, so a transaction reads what it will change;
//! * what is kept of inodes and names in memory is committed, and the last that was.

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use hayase_layout::{InodeId, NodeId, ServerId};

use crate::meta::{Batch, MetaStore};

mod answer_slot;
mod cache;
mod codec;
pub mod entry;
mod error;
pub mod inode;
pub mod keys;
pub mod ops;
mod txn;

pub use self::answer_slot::AnswerSlot;
pub use self::entry::EntryRecord;
pub use self::error::NamespaceError;
pub use self::inode::{FileKind, Inode, Time};
pub use self::ops::{Intent, IntentKind};
pub use self::txn::Txn;

use self::cache::Recent;

/// Inode numbers are reserved on storage in blocks of this many, one sync each; what is left of a
/// block is skipped after a restart.
pub const INODE_BLOCK: u64 = 16 * 1024;
/// The number of the first inode after the root.
const FIRST_COUNTER: u64 = 2;
/// Version of all records below; a name space with another one is refused.
const FORMAT: u8 = 5;

/// The names and inodes that one server keeps.
pub struct Namespace {
    store: Arc<dyn MetaStore>,
    server: ServerId,
    numbers: Mutex<Numbers>,
    /// Held while more of them are reserved.
    reserving: Mutex<()>,
    /// Held by the open transaction.
    state: Mutex<State>,
    /// Who holds `state`: a second transaction on the same thread would wait for itself.
    holder: Mutex<Option<ThreadId>>,
}

/// Inode counters `next..end` are reserved and not yet given out.
struct Numbers {
    next: u64,
    end: u64,
}

/// What an open transaction has to itself.
struct State {
    inodes: Recent<InodeId, Inode>,
    /// What names stand for, by the keys of their entries; only names that there are.
    entries: Recent<Vec<u8>, EntryRecord>,
}

impl Namespace {
    /// Opens the names of `server` in `store`. A new store of server 0 gets the root directory,
    /// made `now`, mode 0755, owned by the user of this process.
    ///
    /// Fails when the store belongs to another server, or was written in another format.
    pub fn open(
        store: Arc<dyn MetaStore>,
        server: ServerId,
        now: Time,
    ) -> Result<Self, NamespaceError> {
        let identity = codec::encode(&Identity { format: FORMAT, server });
        let key = keys::identity();
        match store.get(&key)? {
            None => {
                let mut batch = Batch::new();
                batch.put(key, identity);
                if server == InodeId::ROOT.home() {
                    let root = codec::encode(&root(InodeId::ROOT, now));
                    batch.put(keys::inode(InodeId::ROOT), root);
                }
                store.commit(batch)?;
                store.sync()?;
            }
            Some(found) if found == identity => {}
            Some(found) => {
                let found: Identity = codec::decode(&key, &found)?;
                if found.format != FORMAT {
                    return Err(NamespaceError::Format { found: found.format, expected: FORMAT });
                }
                return Err(NamespaceError::Foreign { found: found.server, expected: server });
            }
        }
        let next = match store.get(&keys::counter())? {
            None => FIRST_COUNTER,
            Some(bytes) => codec::decode(&keys::counter(), &bytes)?,
        };
        Ok(Self {
            store,
            server,
            numbers: Mutex::new(Numbers { next, end: next }),
            reserving: Mutex::new(()),
            state: Mutex::new(State { inodes: Recent::new(), entries: Recent::new() }),
            holder: Mutex::new(None),
        })
    }

    /// Whether a server has served from `store`: [`Self::open`] finds names there, and does not begin new ones.
    pub fn is_in(store: &dyn MetaStore) -> Result<bool, NamespaceError> {
        Ok(store.get(&keys::identity())?.is_some() && store.get(&keys::boot())?.is_some())
    }

    /// Makes the root of `owner`'s private tree `now`, unless it is there; returns its number.
    pub fn open_private(&self, owner: NodeId, now: Time) -> Result<InodeId, NamespaceError> {
        let ino = InodeId::private_root(self.server, owner);
        let key = keys::inode(ino);
        if self.store.get(&key)?.is_none() {
            let mut batch = Batch::new();
            batch.put(key, codec::encode(&root(ino, now)));
            self.store.commit(batch)?;
        }
        Ok(ino)
    }

    /// The server whose names these are.
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// A new inode number of this home, never given out before, also not before a power cut.
    ///
    /// Costs a commit and a sync once in [`INODE_BLOCK`] calls, unless [`Namespace::reserve`] came before; else nothing.
    pub fn allocate(&self) -> Result<InodeId, NamespaceError> {
        let counter = self.count()?;
        InodeId::new(self.server, counter).ok_or(NamespaceError::NumbersExhausted)
    }

    /// The same in the private tree of `owner`.
    pub fn allocate_private(&self, owner: NodeId) -> Result<InodeId, NamespaceError> {
        let counter = self.count()?;
        InodeId::private(self.server, owner, counter).ok_or(NamespaceError::NumbersExhausted)
    }

    fn count(&self) -> Result<u64, NamespaceError> {
        loop {
            let mut numbers = self.numbers();
            if numbers.next < numbers.end {
                numbers.next += 1;
                return Ok(numbers.next - 1);
            }
            drop(numbers);
            self.reserve(1)?;
        }
    }

    /// Inode numbers that can be given out without a sync.
    pub fn numbers_left(&self) -> u64 {
        let numbers = self.numbers();
        numbers.end - numbers.next
    }

    /// Reserves blocks of inode numbers until this number is left. Numbers that there are may be given out meanwhile.
    pub fn reserve(&self, wanted: u64) -> Result<(), NamespaceError> {
        let _turn = self.reserving.lock().expect("no holder of this lock panics");
        while self.numbers_left() < wanted {
            let end = self.numbers().end + INODE_BLOCK;
            let mut batch = Batch::new();
            batch.put(keys::counter(), codec::encode(&end));
            self.store.commit(batch)?;
            self.store.sync()?;
            self.numbers().end = end;
        }
        Ok(())
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().expect("no holder of this lock panics")
    }

    /// Counts a start of the server: 1 for the first. Survives a power cut when it returns.
    pub fn begin_incarnation(&self) -> Result<u64, NamespaceError> {
        let key = keys::incarnation();
        let last: u64 = match self.store.get(&key)? {
            None => 0,
            Some(bytes) => codec::decode(&key, &bytes)?,
        };
        let mut batch = Batch::new();
        batch.put(key, codec::encode(&(last + 1)));
        if self.has(&keys::sealed())? {
            batch.delete(keys::sealed()); // From here on programs write.
        }
        self.store.commit(batch)?;
        self.store.sync()?;
        Ok(last + 1)
    }

    /// Whether the machine lost power (or was started anew) since the server was started last: then its life
    /// `boot` is another one. What was not synced may be gone, and is noted as that; survives a power cut
    /// when it returns.
    pub fn begin_boot(&self, boot: &str) -> Result<bool, NamespaceError> {
        let key = keys::boot();
        let last: Option<String> = match self.store.get(&key)? {
            None => None,
            Some(bytes) => Some(codec::decode(&key, &bytes)?),
        };
        if last.as_deref() == Some(boot) {
            return Ok(false);
        }
        let mut txn = self.begin();
        txn.mark_essential();
        if last.is_some() {
            ops::power_failed(&mut txn)?;
            if !self.has(&keys::sealed())? {
                txn.put(keys::power_lost(), Vec::new());
            }
        }
        txn.put(key, codec::encode(&boot.to_owned()));
        txn.commit()?;
        self.store.sync()?;
        Ok(last.is_some())
    }

    /// Whether the machine was ever started again while something on it may not have been synced: then only what is noted
    /// as durable ([`ops::durability`]) is known to be as it was written.
    pub fn has_lost_power(&self) -> Result<bool, NamespaceError> {
        self.has(&keys::power_lost())
    }

    /// No server runs, and every file on the node is durable: the machine may be switched off. Counts until a server
    /// starts; survives a power cut when it returns.
    pub fn seal(&self) -> Result<(), NamespaceError> {
        let mut batch = Batch::new();
        batch.mark_essential();
        batch.put(keys::sealed(), Vec::new());
        self.store.commit(batch)?;
        Ok(self.store.sync()?)
    }

    fn has(&self, key: &[u8]) -> Result<bool, NamespaceError> {
        Ok(self.store.get(key)?.is_some())
    }

    /// Keeps what server 0 declared of lost nodes, as its caller writes it. Survives a power cut after [`Namespace::sync`].
    pub fn keep_members(&self, bytes: Vec<u8>) -> Result<(), NamespaceError> {
        let mut batch = Batch::new();
        batch.mark_essential();
        batch.put(keys::members(), bytes);
        Ok(self.store.commit(batch)?)
    }

    /// What [`Namespace::keep_members`] kept last.
    pub fn members(&self) -> Result<Option<Vec<u8>>, NamespaceError> {
        Ok(self.store.get(&keys::members())?)
    }

    /// Keeps which incarnation of this server was declared lost last, as far as its processes were told.
    /// Survives a power cut after [`Namespace::sync`].
    pub fn keep_own_loss(&self, start_id: u64) -> Result<(), NamespaceError> {
        let mut batch = Batch::new();
        batch.mark_essential();
        batch.put(keys::own_loss(), codec::encode(&start_id));
        Ok(self.store.commit(batch)?)
    }

    /// What [`Namespace::keep_own_loss`] kept last.
    pub fn own_loss(&self) -> Result<Option<u64>, NamespaceError> {
        let key = keys::own_loss();
        let kept = self.store.get(&key)?;
        kept.map(|bytes| codec::decode(&key, &bytes)).transpose()
    }

    /// Keeps, instead of what was kept before, of which files which nodes' gathered bytes come too late. Survives a
    /// power cut after [`Namespace::sync`].
    pub fn keep_late(&self, late: &[(InodeId, NodeId)]) -> Result<(), NamespaceError> {
        let mut batch = Batch::new();
        let late: Vec<_> = late.iter().map(|(ino, node)| (ino.0, node.0)).collect();
        batch.mark_essential();
        batch.put(keys::late(), codec::encode(&late));
        Ok(self.store.commit(batch)?)
    }

    /// What [`Namespace::keep_late`] kept last.
    pub fn late(&self) -> Result<Vec<(InodeId, NodeId)>, NamespaceError> {
        let key = keys::late();
        let Some(bytes) = self.store.get(&key)? else { return Ok(Vec::new()) };
        let late: Vec<(u64, u16)> = codec::decode(&key, &bytes)?;
        Ok(late.into_iter().map(|(ino, node)| (InodeId(ino), NodeId(node))).collect())
    }

    /// Starts a transaction; waits while another thread has one open.
    ///
    /// Panics when this thread has one open itself: keep none across an await.
    pub fn begin(&self) -> Txn<'_> {
        let me = std::thread::current().id();
        let holder = *self.holder.lock().expect("no holder of this lock panics");
        assert_ne!(holder, Some(me), "this thread has a transaction open already");
        // A panic inside a transaction leaves the cache as committed: nothing to mistrust.
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *self.holder.lock().expect("no holder of this lock panics") = Some(me);
        Txn::new(self, state)
    }

    /// Makes all transactions committed so far survive a power cut.
    pub fn sync(&self) -> Result<(), NamespaceError> {
        Ok(self.store.sync()?)
    }

    /// Whether transactions come faster than the storage takes them ([`MetaStore::is_behind`]).
    pub fn is_behind(&self) -> bool {
        self.store.is_behind()
    }

    /// Waits until it has taken enough of them.
    pub fn catch_up(&self) -> Result<(), NamespaceError> {
        Ok(self.store.catch_up()?)
    }

    fn release(&self, state: MutexGuard<'_, State>) {
        *self.holder.lock().expect("no holder of this lock panics") = None;
        drop(state);
    }
}

/// Whose names a store holds, and how they are written.
#[derive(serde::Serialize, serde::Deserialize)]
struct Identity {
    format: u8,
    server: ServerId,
}

fn root(ino: InodeId, now: Time) -> Inode {
    Inode {
        mode: 0o755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Inode::new(ino, FileKind::Directory, now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ops::testing::at;
    use super::*;
    use crate::meta::{MemoryStore, MetaError};

    #[test]
    fn server_0_has_the_root_and_the_others_do_not() {
        for (server, has_root) in [(0, true), (3, false)] {
            let store = Arc::new(MemoryStore::new());
            let names = Namespace::open(store.clone(), ServerId(server), at(7)).unwrap();
            let root = ops::get_inode(&names.begin(), InodeId::ROOT).unwrap();
            assert_eq!(root.is_some(), has_root);
            assert!(
                root.is_none_or(|root| root.kind == FileKind::Directory && root.ctime == at(7))
            );
            // Opened again, it is the same.
            let names = Namespace::open(store, ServerId(server), at(8)).unwrap();
            let root = ops::get_inode(&names.begin(), InodeId::ROOT).unwrap();
            assert!(root.is_none_or(|root| root.ctime == at(7)));
        }
    }

    #[test]
    fn private_trees_have_roots_and_numbers_of_their_own() {
        let store = Arc::new(MemoryStore::new());
        let names = Namespace::open(store.clone(), ServerId(3), at(7)).unwrap();
        let root = names.open_private(NodeId(5), at(8)).unwrap();
        assert_eq!((root.home(), root.owner()), (ServerId(3), Some(NodeId(5))));
        let found = ops::get_inode(&names.begin(), root).unwrap().unwrap();
        assert_eq!((found.kind, found.ctime), (FileKind::Directory, at(8)));
        let (private, shared) = (names.allocate_private(NodeId(5)), names.allocate());
        assert_eq!(private.unwrap().owner(), Some(NodeId(5)));
        assert_eq!(shared.unwrap().owner(), None);
        // Opened again, it is the same.
        names.open_private(NodeId(5), at(9)).unwrap();
        assert_eq!(ops::get_inode(&names.begin(), root).unwrap(), Some(found));
    }

    #[test]
    fn each_start_is_counted() {
        let store = Arc::new(MemoryStore::new());
        for expected in 1..=3 {
            let names = Namespace::open(store.clone(), ServerId(1), at(0)).unwrap();
            assert_eq!(names.begin_incarnation().unwrap(), expected);
            assert_eq!(store.unsynced(), 0);
        }
    }

    #[test]
    fn a_restart_of_the_machine_counts_unless_everything_was_durable() {
        let open =
            |store: &Arc<MemoryStore>| Namespace::open(store.clone(), ServerId(1), at(0)).unwrap();
        for (is_sealed, runs_again, has_lost) in
            [(false, false, true), (true, false, false), (true, true, true)]
        {
            let store = Arc::new(MemoryStore::new());
            let names = open(&store);
            names.begin_incarnation().unwrap();
            assert!(!names.begin_boot("first").unwrap());
            if is_sealed {
                names.seal().unwrap();
            }
            if runs_again {
                names.begin_incarnation().unwrap();
            }
            assert!(!names.begin_boot("first").unwrap());
            assert!(!names.has_lost_power().unwrap());
            assert!(names.begin_boot("second").unwrap());
            // What was lost stays lost, whoever looks.
            let names = open(&Arc::new(store.after_power_cut(0)));
            assert_eq!(names.has_lost_power().unwrap(), has_lost, "{is_sealed} {runs_again}");
            assert!(!names.begin_boot("second").unwrap());
            names.seal().unwrap();
            names.begin_boot("third").unwrap();
            assert_eq!(names.has_lost_power().unwrap(), has_lost, "{is_sealed} {runs_again}");
        }
    }

    #[test]
    fn names_of_another_server_or_format_are_refused() {
        let store = Arc::new(MemoryStore::new());
        Namespace::open(store.clone(), ServerId(1), at(0)).unwrap();
        let error = Namespace::open(store.clone(), ServerId(2), at(0)).err().unwrap();
        assert_eq!(error.to_string(), "open the names of server 2: they belong to server 1");
        assert!(error.help().is_some());
        let mut batch = Batch::new();
        let later = Identity { format: FORMAT + 1, server: ServerId(1) };
        batch.put(keys::identity(), codec::encode(&later));
        store.commit(batch).unwrap();
        let error = Namespace::open(store.clone(), ServerId(1), at(0)).err().unwrap();
        let told = format!("they are in format {}, this program knows format {FORMAT}", FORMAT + 1);
        assert!(error.to_string().ends_with(&told), "{error}");
        let mut batch = Batch::new();
        batch.put(keys::identity(), b"junk".to_vec());
        store.commit(batch).unwrap();
        let error = Namespace::open(store, ServerId(1), at(0)).err().unwrap();
        assert!(matches!(error, NamespaceError::Corrupt { .. }), "{error}");
    }

    #[test]
    fn inode_numbers_are_given_once_whatever_happens() {
        let mut store = Arc::new(MemoryStore::new());
        let mut given = BTreeSet::new();
        for round in 0..6 {
            let names = Namespace::open(store.clone(), ServerId(5), at(0)).unwrap();
            for _ in 0..3 * INODE_BLOCK / 2 {
                let ino = names.allocate().unwrap();
                assert_eq!(ino.home(), ServerId(5));
                assert!(given.insert(ino), "{ino} was given before");
            }
            store = Arc::new(match round % 2 {
                0 => store.after_power_cut(0),
                _ => store.after_kill(),
            });
        }
        assert!(
            !given.contains(&InodeId::new(ServerId(5), 1).unwrap()),
            "as the root's of server 0"
        );
    }

    #[test]
    fn numbers_that_were_reserved_before_need_no_storage() {
        let store = Arc::new(MemoryStore::new());
        let names = Namespace::open(store.clone(), ServerId(5), at(0)).unwrap();
        assert_eq!(names.numbers_left(), 0);
        let first = names.allocate().unwrap();
        assert_eq!(names.numbers_left(), INODE_BLOCK - 1);
        names.reserve(INODE_BLOCK).unwrap();
        assert_eq!((names.numbers_left(), store.unsynced()), (2 * INODE_BLOCK - 1, 0));
        store.stop_after(0);
        names.reserve(INODE_BLOCK).unwrap();
        let given: BTreeSet<_> = (1..2 * INODE_BLOCK).map(|_| names.allocate().unwrap()).collect();
        assert_eq!(given.len() as u64, 2 * INODE_BLOCK - 1);
        assert!(!given.contains(&first));
        assert!(names.allocate().is_err(), "there are no more");
        let names = Arc::new(store.after_power_cut(0));
        let names = Namespace::open(names, ServerId(5), at(0)).unwrap();
        assert!(!given.contains(&names.allocate().unwrap()));
    }

    #[test]
    fn a_store_that_fails_changes_nothing() {
        let store = Arc::new(MemoryStore::new());
        let names = Namespace::open(store.clone(), ServerId(0), at(0)).unwrap();
        store.stop_after(0);
        let mut txn = names.begin();
        let root = ops::get_inode(&txn, InodeId::ROOT).unwrap().unwrap();
        ops::put_inode(&mut txn, &Inode { mode: 0o700, ..root.clone() }).unwrap();
        let error = txn.commit().unwrap_err();
        assert!(matches!(error, NamespaceError::Store(MetaError::Stopped)));
        assert_eq!(ops::get_inode(&names.begin(), InodeId::ROOT).unwrap(), Some(root));
    }

    #[test]
    #[should_panic = "this thread has a transaction open already"]
    fn a_second_transaction_on_one_thread_is_a_mistake() {
        let names = Namespace::open(Arc::new(MemoryStore::new()), ServerId(0), at(0)).unwrap();
        let _first = names.begin();
        let _second = names.begin();
    }

    #[test]
    fn transactions_of_threads_follow_each_other() {
        let names = Namespace::open(Arc::new(MemoryStore::new()), ServerId(0), at(0)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mut txn = names.begin();
                        let mut root = ops::get_inode(&txn, InodeId::ROOT).unwrap().unwrap();
                        root.size += 1;
                        ops::put_inode(&mut txn, &root).unwrap();
                        txn.commit().unwrap();
                    }
                });
            }
        });
        let root = ops::get_inode(&names.begin(), InodeId::ROOT).unwrap().unwrap();
        assert_eq!(root.size, 2000, "no change is lost");
    }
}
