//! The server's state, and how one role of it asks another, here or on another node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{Groups, InodeId, NodeId, ServerId};

use crate::activity::Activity;
use crate::appends::Appends;
use crate::cache::area::CacheArea;
use crate::clients::Clients;
use crate::data::Data;
use crate::files::Files;
use crate::finished::FinishedIntents;
use crate::handed_on::HandedOn;
use crate::homes::Homes;
use crate::keyed_lock::KeyedLock;
use crate::locks::Locks;
use crate::membership::MemberTasks;
use crate::meta::Meta;
use crate::names::Names;
use crate::network::Network;
use crate::peer_service::rename::RenameHolds;
use crate::recorded::RecordedFiles;
use crate::rpc::Servers;
use crate::rpc::reply_cache::ReplyCache;
use crate::turns::Turns;
use crate::unfinished::Unfinished;

/// One server. Lives on one thread; nothing of it is borrowed across an `await`.
pub(crate) struct Node {
    pub(crate) me: ServerId,
    pub(crate) node: NodeId,
    pub(crate) servers: u16,
    pub(crate) groups: Groups,
    pub(crate) host: String,
    pub(crate) start_id: u64,
    pub(crate) started: std::time::Instant,
    pub(crate) activity: Rc<Activity>,
    pub(crate) meta: Rc<Meta>,
    pub(crate) data: Rc<Data>,
    pub(crate) names: Rc<Names>,
    /// Of a job with a tier.
    pub(crate) cache: Rc<CacheArea>,
    /// Which transport it speaks, and why.
    pub(crate) network: Network,
    pub(crate) homes: Homes,
    /// What mounts of this node have gathered, on its way to homes.
    pub(crate) handing_on: HandedOn,
    /// What mounts have gathered, on its way into parts.
    pub(crate) handed_on: HandedOn,
    pub(crate) clients: Rc<Clients>,
    pub(crate) crowd: crate::crowd::Crowd,
    pub(crate) replies: ReplyCache,
    pub(crate) rpc: Rc<Servers>,
    pub(crate) members: Rc<MemberTasks>,
    /// Starts of this server, this one included.
    pub(crate) incarnation: u64,
    pub(crate) intent_age: Duration,
    pub(crate) appends: Appends,
    pub(crate) turns: Turns,
    pub(crate) locks: RefCell<Locks>,
    pub(crate) renames: RenameHolds,
    /// What this node knows of files that its processes read and write.
    pub(crate) files: Files,
    /// At the home: inodes whose size changes in several steps, directories being removed.
    pub(crate) inode_locks: Rc<KeyedLock<InodeId>>,
    /// On the opener's node: opens and closes on their way to a home keep their order.
    pub(crate) inode_locks_of_opens: KeyedLock<InodeId>,
    /// Files that MPI-IO keeps as one part per writer.
    pub(crate) recorded: RecordedFiles,
    /// Turns the first server of striped files.
    pub(crate) turn: Cell<u64>,
    /// Files that a rename replaced a moment ago.
    pub(crate) replaced: RefCell<std::collections::HashSet<InodeId>>,
    pub(crate) finished_intents: FinishedIntents,
    pub(crate) told_renames: crate::told_renames::ToldRenames,
    pub(crate) link_takers: crate::left_links::LinkTakers,
    pub(crate) unfinished: Unfinished,
    /// What processes here wrote on other servers and have not synced.
    pub(crate) unsynced_elsewhere: crate::unsynced_elsewhere::UnsyncedElsewhere,
}
