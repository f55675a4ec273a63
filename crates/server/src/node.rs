//! The server's state, and how one role of it asks another, here or on another node.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{Groups, InodeId, NodeId, ServerId};
use hayase_store::{Area, Namespace, Parts, Removal};
use hayase_wire::message::{
    MachineLife, Name, OnceId, PeerReply, PeerRequest, Place, Refused, TimeSpec,
};

use crate::answers::Answers;
use crate::appends::Appends;
use crate::cache::Cache;
use crate::clients::Clients;
use crate::direct::DirectIo;
use crate::directories::Directories;
use crate::disk::Disk;
use crate::files::Files;
use crate::finished::FinishedIntents;
use crate::given_up::GivenUp;
use crate::grace::Grace;
use crate::ground::Clock;
use crate::handed_on::HandedOn;
use crate::history::History;
use crate::homes::Homes;
use crate::kept_names::KeptNames;
use crate::kept_room::KeptRoom;
use crate::keyed_lock::KeyedLock;
use crate::locks::Locks;
use crate::membership::Membership;
use crate::names_disk::NamesDisk;
use crate::network::Network;
use crate::peer_service::rename::RenameHolds;
use crate::peers::Peers;
use crate::ranges::Ranges;
use crate::recorded::RecordedFiles;
use crate::reply_cache::ReplyCache;
use crate::request::once;
use crate::sessions::Sessions;
use crate::sole_makers::SoleMakers;
use crate::turns::Turns;
use crate::unfinished::Unfinished;
use crate::usage::Usage;

/// A boxed future on the server's one thread.
pub(crate) type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// Counters for `hayase status`.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) requests: Cell<u64>,
    pub(crate) bytes_read: Cell<u64>,
    pub(crate) bytes_written: Cell<u64>,
    pub(crate) bytes_gathered: Cell<u64>,
}

/// One server. Lives on one thread; nothing of it is borrowed across an `await`.
pub(crate) struct Node {
    pub(crate) me: ServerId,
    pub(crate) node: NodeId,
    pub(crate) servers: u16,
    pub(crate) groups: Groups,
    pub(crate) host: String,
    pub(crate) start_id: u64,
    pub(crate) started: std::time::Instant,
    pub(crate) names: Arc<Namespace>,
    pub(crate) parts: Arc<Parts>,
    /// Parts on their way out: they go when the end of their names is durable.
    pub(crate) removal: Arc<Removal>,
    pub(crate) area: Box<dyn Area>,
    /// Of a job with a tier.
    pub(crate) cache: Option<Cache>,
    /// Which transport it speaks, and why.
    pub(crate) network: Network,
    pub(crate) disk: Rc<Disk>,
    /// Where the names wait for it.
    pub(crate) names_disk: Rc<NamesDisk>,
    pub(crate) direct: DirectIo,
    /// What moves between parts and buffers.
    pub(crate) ranges: Ranges,
    pub(crate) clock: Clock,
    pub(crate) homes: Homes,
    pub(crate) kept_room: KeptRoom,
    /// What mounts of this node have gathered, on its way to homes.
    pub(crate) handing_on: HandedOn,
    /// What mounts have gathered, on its way into parts.
    pub(crate) handed_on: HandedOn,
    pub(crate) clients: Clients,
    pub(crate) crowd: crate::crowd::Crowd,
    pub(crate) peers: Peers,
    pub(crate) replies: ReplyCache,
    pub(crate) answers: Answers,
    pub(crate) sessions: Sessions,
    pub(crate) membership: Membership,
    pub(crate) grace: Grace,
    /// Starts of this server, this one included.
    pub(crate) incarnation: u64,
    pub(crate) intent_age: Duration,
    pub(crate) kept_names: KeptNames,
    pub(crate) sole_makers: SoleMakers,
    /// Directories whose sole maker is being asked to give that up.
    pub(crate) sole_maker_locks: KeyedLock<InodeId>,
    pub(crate) directories: Directories,
    pub(crate) appends: Appends,
    pub(crate) turns: Turns,
    pub(crate) locks: RefCell<Locks>,
    pub(crate) usage: Usage,
    pub(crate) renames: RenameHolds,
    /// What this node knows of files that its processes read and write.
    pub(crate) files: Files,
    pub(crate) counters: Counters,
    /// What they were before.
    pub(crate) history: RefCell<History>,
    /// Names in the middle of a rename or of a directory's removal.
    pub(crate) name_locks: KeyedLock<Place>,
    /// At the home: inodes whose size changes in several steps, directories being removed.
    pub(crate) inode_locks: KeyedLock<InodeId>,
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
    /// Operations whose names this shard binds no more.
    pub(crate) given_up: GivenUp,
    /// Truncate epochs of striped parts here: writes of earlier ones are refused.
    pub(crate) part_epochs: RefCell<HashMap<InodeId, u32>>,
    /// Parts of striped files of the cache area here that were written since they were synced.
    pub(crate) unsynced: crate::unsynced::UnsyncedParts,
    /// What processes here wrote on other servers and have not synced.
    pub(crate) unsynced_elsewhere: crate::unsynced_elsewhere::UnsyncedElsewhere,
    /// Of this machine.
    pub(crate) life: MachineLife,
}

impl Node {
    /// Asks a server, this one included (nothing travels then). `EIO` when it does not answer.
    pub(crate) fn ask<R: Into<PeerRequest>>(
        self: &Rc<Self>,
        to: ServerId,
        request: R,
    ) -> impl Future<Output = Result<PeerReply, Refused>> + use<R> {
        self.ask_request(to, request.into())
    }

    fn ask_request(
        self: &Rc<Self>,
        to: ServerId,
        request: PeerRequest,
    ) -> impl Future<Output = Result<PeerReply, Refused>> + use<> {
        self.remembers_answer(to, once(&request));
        let this = Rc::clone(self);
        async move {
            let served = if to == this.me {
                let node = this.node;
                this.serve_here(node, request, None).await
            } else {
                this.call(to, &request, None, None).await?
            };
            refusal(served.reply)
        }
    }

    /// `server` may remember an answer to this request of a process of this node.
    pub(crate) fn remembers_answer(&self, server: ServerId, once: Option<OnceId>) {
        if let Some(process) = once.and_then(|once| self.clients.find(once.process)) {
            process.once_at.borrow_mut().insert(server);
        }
    }

    /// The server that takes what this node makes: itself, or its group's where it has no storage.
    pub(crate) fn own_storage(&self) -> ServerId {
        self.groups.server_of(self.node)
    }

    pub(crate) fn all_servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.servers).map(ServerId)
    }

    /// The clock that the local file system stamps its files with, so that times compare.
    pub(crate) fn now(&self) -> TimeSpec {
        self.clock.now()
    }
}

/// Turns a refusal into the error it is.
pub(crate) fn refusal(reply: PeerReply) -> Result<PeerReply, Refused> {
    match reply {
        PeerReply::Refused(refused) => Err(refused),
        other => Ok(other),
    }
}

/// A reply of the wrong shape: a defect, told as `EIO` rather than by a panic.
pub(crate) fn unexpected(reply: &PeerReply) -> Refused {
    tracing::error!(?reply, "a server answered something else than was asked");
    Refused::because(libc_errno::EIO, "a server answered something else than was asked")
}

/// Names that a path may hold; the kernel checks too, other clients may not.
pub(crate) fn check_name(name: &Name) -> Result<(), Refused> {
    match name.as_slice() {
        [] | b"." | b".." => Err(Refused::new(libc_errno::EINVAL)),
        name if name.len() > 255 => Err(Refused::new(libc_errno::ENAMETOOLONG)),
        name if name.contains(&b'/') || name.contains(&0) => Err(Refused::new(libc_errno::EINVAL)),
        _ => Ok(()),
    }
}

/// Errno values by their names.
pub(crate) mod libc_errno {
    use rustix::io::Errno;

    macro_rules! errnos {
        ($($name:ident = $errno:ident),* $(,)?) => {
            $(pub(crate) const $name: i32 = Errno::$errno.raw_os_error();)*
        };
    }
    errnos! {
        EIO = IO, EINVAL = INVAL, ENAMETOOLONG = NAMETOOLONG, ENOENT = NOENT, EEXIST = EXIST,
        ENOTDIR = NOTDIR, EISDIR = ISDIR, ENOTEMPTY = NOTEMPTY, ESTALE = STALE, ENOSPC = NOSPC,
        EOPNOTSUPP = OPNOTSUPP, ENXIO = NXIO, EPROTO = PROTO, EBUSY = BUSY,
        EBADF = BADF, EXDEV = XDEV, EAGAIN = AGAIN, EDEADLK = DEADLK, ENOLCK = NOLCK, EFBIG = FBIG, ENODATA = NODATA, EPERM = PERM, EDQUOT = DQUOT,
        ERANGE = RANGE, E2BIG = TOOBIG, EALREADY = ALREADY,
    }
}
