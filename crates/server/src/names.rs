//! Names of directories: which server decides about each (directory sharding), and what it has to know for that.
//!
//! Here: [`shards`]: who decides, and asking it. [`kept_names`], [`spreading`]: names stay at the home of a young directory, and
//! leave it for their shards once. [`holds`]: names in the hands of an operation. [`homes_of_directories`]: the home of a
//! directory, which nobody removes while others insert. [`directories`]: who looked names up. [`sole_makers`]: directory
//! delegations. [`given_up`]: operations whose names are never bound any more.
//! Not here: entries as records ([`crate::meta`]), operations over several names (`peer_service::rename`).

pub(crate) mod directories;
pub(crate) mod given_up;
mod holds;
mod homes_of_directories;
pub(crate) mod kept_names;
mod shards;
pub(crate) mod sole_makers;
mod spreading;

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Instant;

use hayase_layout::{Groups, InodeId, ServerId};
use hayase_wire::message::{PeerReply, Place};

use self::directories::Directories;
use self::given_up::GivenUp;
use self::kept_names::{KeptNames, KeptUntil};
use self::sole_makers::SoleMakers;
use crate::boxed::Local;
use crate::clients::Clients;
use crate::keyed_lock::KeyedLock;
use crate::meta::Meta;
use crate::rpc::Servers;

/// Who finishes what is left of an operation that has happened.
pub(crate) trait Finisher {
    /// The answer of a request that is repeated, when nothing is left to be done for it. Boxed: that asks a shard too.
    fn nothing_left_of(&self, answered: PeerReply) -> Local<PeerReply>;
}

/// See the module.
pub(crate) struct Names {
    me: ServerId,
    groups: Groups,
    /// Starts of this server, this one included, and when it was.
    incarnation: u64,
    started: Instant,
    meta: Rc<Meta>,
    rpc: Rc<Servers>,
    clients: Rc<Clients>,
    finisher: OnceCell<Rc<dyn Finisher>>,
    pub(crate) kept: KeptNames,
    pub(crate) directories: Directories,
    pub(crate) sole_makers: SoleMakers,
    /// Directories whose sole maker is being asked to give that up.
    sole_maker_locks: KeyedLock<InodeId>,
    /// Names in the middle of a rename or of a directory's removal.
    pub(crate) locks: KeyedLock<Place>,
    /// Directories of this home that are being removed, or whose names are moved; inodes whose size changes in several steps.
    inode_locks: Rc<KeyedLock<InodeId>>,
    /// Operations whose names this shard binds no more.
    pub(crate) given_up: GivenUp,
}

/// This server, as its names know it.
pub(crate) struct Shard {
    pub(crate) me: ServerId,
    pub(crate) groups: Groups,
    pub(crate) incarnation: u64,
    pub(crate) kept_until: KeptUntil,
}

impl Names {
    pub(crate) fn new(
        Shard { me, groups, incarnation, kept_until }: Shard,
        (meta, rpc, clients): (&Rc<Meta>, &Rc<Servers>, &Rc<Clients>),
        inode_locks: &Rc<KeyedLock<InodeId>>,
        given_up: GivenUp,
    ) -> Rc<Self> {
        Rc::new(Self {
            me,
            groups,
            incarnation,
            started: Instant::now(),
            meta: Rc::clone(meta),
            rpc: Rc::clone(rpc),
            clients: Rc::clone(clients),
            finisher: OnceCell::new(),
            kept: KeptNames::new(kept_until),
            directories: Directories::default(),
            sole_makers: SoleMakers::default(),
            sole_maker_locks: KeyedLock::new(),
            locks: KeyedLock::new(),
            inode_locks: Rc::clone(inode_locks),
            given_up,
        })
    }

    /// From now on `finisher` finishes what is left.
    pub(crate) fn finish_by(&self, finisher: Rc<dyn Finisher>) {
        let first = self.finisher.set(finisher);
        debug_assert!(first.is_ok(), "set once");
    }
}
