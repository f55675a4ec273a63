//! Waits of the names for their disk, before a file is made instead of in the middle of a commit.
//!
//! A commit that waits holds up this server's one thread, and with it its heartbeats: 20 s of that are a lost node. What
//! makes the names grow is new files: they wait here, where nothing else does, while the storage is behind with what was
//! committed, and while no number of an inode is reserved. The next block of numbers is reserved when a quarter of this
//! one is left. Other requests do not wait: others may wait for them, with deadlines and locks.
//!
//! Not here: the same waits as the last bound, for every commit ([`hayase_store::MetaStore::commit`],
//! [`hayase_store::Namespace::allocate`]).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_store::Namespace;
use hayase_store::namespace::INODE_BLOCK;
use hayase_wire::message::Refused;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::convert::meta_refused;
use crate::disk::Disk;

/// Numbers are reserved when no more than this are left.
const NUMBERS_LOW: u64 = INODE_BLOCK / 4;

/// This many are kept for requests that found enough, and have not taken theirs yet.
const NUMBERS_KEPT: u64 = INODE_BLOCK / 16;

/// How long a new file waits for others that wait for the storage.
const TURN_MAX: Duration = Duration::from_secs(10);

/// Names, and the threads where they wait.
pub(crate) struct NamesDisk {
    names: Arc<Namespace>,
    disk: Rc<Disk>,
    /// One thread for disks waits for the storage of the names, everybody else for that one.
    turn: Mutex<()>,
    reserves: Cell<bool>,
}

impl NamesDisk {
    pub(crate) fn new(names: &Arc<Namespace>, disk: &Rc<Disk>) -> Rc<Self> {
        let (names, disk) = (Arc::clone(names), Rc::clone(disk));
        Rc::new(Self { names, disk, turn: Mutex::default(), reserves: Cell::default() })
    }

    /// What was committed survives a power cut. What the cache area has to make durable before is not looked at.
    pub(crate) async fn sync(&self) -> Result<(), Refused> {
        let _turn = self.turn.lock().await;
        let names = Arc::clone(&self.names);
        self.disk.run(move || names.sync().map_err(meta_refused)).await
    }

    /// Waits while the storage of the names is behind, for some time: then the commit says what is wrong.
    pub(crate) async fn keep_up(&self) {
        if !self.names.is_behind() {
            return;
        }
        let Ok(_turn) = timeout(TURN_MAX, self.turn.lock()).await else { return };
        if !self.names.is_behind() {
            return;
        }
        let names = Arc::clone(&self.names);
        if let Err(error) = self.disk.run(move || names.catch_up().map_err(meta_refused)).await {
            tracing::warn!(%error, "names are committed faster than their storage takes them");
        }
    }

    /// Before this number of inodes is made here: waits while there are no numbers for them.
    pub(crate) async fn have_numbers(self: &Rc<Self>, wanted: usize) -> Result<(), Refused> {
        let left = self.names.numbers_left();
        let least = NUMBERS_KEPT + wanted as u64;
        if left < least {
            return self.reserve(least).await;
        }
        if left <= NUMBERS_LOW && !self.reserves.replace(true) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if let Err(error) = this.reserve(NUMBERS_LOW + 1).await {
                    tracing::warn!(%error, "numbers for new files are not reserved yet");
                }
                this.reserves.set(false);
            });
        }
        Ok(())
    }

    async fn reserve(&self, wanted: u64) -> Result<(), Refused> {
        let _turn = self.turn.lock().await;
        let names = Arc::clone(&self.names);
        self.disk.run(move || names.reserve(wanted).map_err(meta_refused)).await
    }
}
