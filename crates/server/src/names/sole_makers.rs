//! Directories in which one mount alone has made names so far.
//!
//! Whoever makes a directory knows that it is empty. If that is a mount, it is told so
//! (`Grants::cache` of a new directory) and says by itself of any name that it has not made that it
//! is not there, and of those that it has made that they are: neither costs a lookup at the shard. Before
//! anybody else makes or takes away a name in the directory, on this node or on another, the mount has
//! given that up.
//!
//! Here: at the home of a directory (its maker's own server) which mount it is; at a shard, which
//! directories are free for all. In memory only: after a restart nobody is told anything.
//! Not here: what the mount knows (`hayase_client`).
//! Source: `docs/design/001-coherence.md` "Names".

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use hayase_layout::{InodeId, NodeId};
use hayase_wire::message::{DirectoryRequest, Grants, Refused};

use super::Names;
use crate::clients::Process;
use crate::limits::{FREE_FOR_ALL_MAX, SOLE_MAKERS_MAX};

const NAMES: Grants = Grants { cache: true, attr: false };

#[derive(Default)]
pub(crate) struct SoleMakers {
    /// By directory of this home, the process.
    makers: RefCell<HashMap<InodeId, u64>>,
    /// Directories, of any home, in which anybody may make names here.
    free: RefCell<HashSet<InodeId>>,
}

impl SoleMakers {
    fn maker(&self, dir: InodeId) -> Option<u64> {
        self.makers.borrow().get(&dir).copied()
    }

    /// The directory is gone.
    pub(crate) fn forget(&self, dir: InodeId) {
        self.makers.borrow_mut().remove(&dir);
        self.free.borrow_mut().remove(&dir);
    }

    /// The process is gone, and with it what it knew.
    pub(crate) fn left(&self, process: u64) {
        self.makers.borrow_mut().retain(|_, maker| *maker != process);
    }

    /// Anybody may make names in it, until it is removed.
    pub(crate) fn set_free(&self, dir: InodeId) {
        let mut free = self.free.borrow_mut();
        if free.len() >= FREE_FOR_ALL_MAX {
            free.clear(); // the homes are asked again
        }
        free.insert(dir);
    }
}

impl Names {
    /// `dir` is new: the process that made it may know all its names, if it answers recalls.
    pub(crate) fn grant(&self, dir: InodeId, process: &Process) -> bool {
        let mut makers = self.sole_makers.makers.borrow_mut();
        // In the cache area the tier may have names that nobody here has made.
        let is_shared = dir.is_cached() || self.sole_makers.free.borrow().contains(&dir);
        let granted = process.mount && !is_shared && makers.len() < SOLE_MAKERS_MAX;
        if granted {
            makers.insert(dir, process.id);
        }
        granted
    }

    /// Home: anybody may make names in `dir` when this returns; `except` this process of this node.
    pub(crate) async fn end_sole_maker(&self, dir: InodeId, except: Option<u64>) {
        let is_other = |maker: Option<u64>| maker.is_some() && maker != except;
        if !is_other(self.sole_makers.maker(dir)) {
            return;
        }
        // It counts as the maker until it has given up: whoever comes meanwhile waits too.
        let _turn = self.sole_maker_locks.lock(dir).await;
        if is_other(self.sole_makers.maker(dir)) {
            self.clients.recall(dir, NAMES).await;
            self.sole_makers.makers.borrow_mut().remove(&dir);
        }
    }

    /// Shard: makes sure that `from` may make or take away a name in `dir`.
    pub(crate) async fn may_change(&self, dir: InodeId, from: NodeId) -> Result<(), Refused> {
        let is_free = from.0 == dir.home().0 || self.sole_makers.free.borrow().contains(&dir);
        if !is_free {
            self.rpc.ask(dir.home(), DirectoryRequest::Free { dir }).await?;
            self.sole_makers.set_free(dir);
        }
        Ok(())
    }
}
