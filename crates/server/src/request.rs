//! What each request of one server to another is: how long it may take, whether it may be repeated, when it is served.
//!
//! One row for each message, and no arm for the rest: a message without a row does not compile. Who sends looks here
//! ([`crate::rpc::sessions`], [`crate::rpc::peers`]) as well as who serves ([`crate::peer_service`]).

use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::{
    CacheRequest, DirectoryRequest, FileRequest, InodeRequest, LinkRequest, LockRequest,
    MemberRequest, NameRequest, OnceId, OperationRequest, PartRequest, PeerRequest, Place,
    ServerRequest,
};

use self::{Asker::*, Grace::*, Grants::*, Repeat::*, Start::*};
use crate::limits::{
    BEAT_DEADLINE as BEAT, CALL_DEADLINE as CALL, OPEN_DEADLINE as OPEN, RECALL_DEADLINE as RECALL,
    SYNC_DEADLINE as SYNC,
};

/// Whether a request may arrive, and be served, more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Serving it again changes nothing.
    Freely,
    /// The reply cache answers the second one.
    Once,
    /// As [`Self::Once`], and another incarnation of the server is not asked: it may have happened already.
    ByNoOther,
}

/// Whether a request waits for the end of the grace period after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// It neither grants anything nor depends on the opens of other nodes.
    Now,
    /// It reports how many names a file has: it waits until removals of before the restart are counted. (Giving back,
    /// which others do before they reclaim, may wait for it; what is waited for here they say before.)
    Links,
    /// It waits.
    After,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Any server of the job. (Reads too: giving pages back may wait for them.)
    Anybody,
    /// One whose present incarnation has reclaimed what it holds here.
    Met,
    /// Server 0.
    Coordinator,
}

/// Whether the answer leaves something with the sender that others may want back, or a lock. (What it may keep of names
/// ends by itself.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    /// It may.
    Keeps,
    /// It does not.
    Takes,
}

/// What its sender does while the server that is asked is starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The deadline does not run.
    Waits,
    /// It runs: others depend on it.
    Fails,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// How long it may take: those that wait for third parties get more.
    pub(crate) deadline: Duration,
    pub(crate) repeat: Repeat,
    pub(crate) grace: Grace,
    pub(crate) asker: Asker,
    pub(crate) grants: Grants,
    pub(crate) start: Start,
    /// The file that it shows something of, or changes, if others may be gathering what it shows or changes. (Of several
    /// at once those are left out instead.)
    pub(crate) looks_at: Option<InodeId>,
    /// The file that its process has open or locked, for whose sake it is sent: with the session of that file's home the
    /// lock may be lost. (Pieces of a file on other servers follow a call of its home: only that knows what was lost.)
    pub(crate) held: Option<InodeId>,
}

impl Properties {
    pub(crate) fn of(request: &PeerRequest) -> Self {
        match request {
            PeerRequest::Member(request) => of_members(request),
            PeerRequest::Server(request) => of_server(request),
            PeerRequest::Name(request) => of_names(request),
            PeerRequest::Operation(request) => of_operations(request),
            PeerRequest::Directory(request) => of_directories(request),
            PeerRequest::Inode(request) => of_inodes(request),
            PeerRequest::Link(request) => of_links(request),
            PeerRequest::Lock(request) => of_locks(request),
            PeerRequest::File(request) => of_files(request),
            PeerRequest::Part(request) => of_parts(request),
            PeerRequest::Cache(request) => of_cache(request),
        }
    }
}

/// What is done to the name that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Looks,
    Makes,
    Ends,
    Moves,
    /// Finishes what another began. Also the steps of a rename: its coordinator asks for another.
    Finishes,
}

/// The name that a request is about, of those that the server of that name answers: the home of the directory, or, once
/// its names are spread (`Spread`), the shard.
pub(crate) fn visit(request: &NameRequest) -> Option<(&Place, Visit)> {
    use NameRequest as R;
    match request {
        R::Lookup(place) => Some((place, Visit::Looks)),
        R::Insert { place, .. } => Some((place, Visit::Makes)),
        R::Remove { place, .. } => Some((place, Visit::Ends)),
        R::Rename { to, .. } => Some((to, Visit::Moves)),
        R::GiveUpInsert { place, .. }
        | R::RenamePrepare { place, .. }
        | R::RenameFinish { place, .. }
        | R::RenameOutcome { to: place, .. } => Some((place, Visit::Finishes)),
        R::Answered { .. }
        | R::List { .. }
        | R::TakeNames { .. }
        | R::SyncNames { .. }
        | R::DirFreeze { .. }
        | R::DirThaw { .. }
        | R::InvalName(_) => None,
    }
}

/// The call of a process for which a request must happen once.
pub(crate) fn once(request: &PeerRequest) -> Option<OnceId> {
    match request {
        PeerRequest::Name(request) => once_of_name(request),
        PeerRequest::Inode(request) => once_of_inode(request),
        PeerRequest::Member(_)
        | PeerRequest::Server(_)
        | PeerRequest::Operation(_)
        | PeerRequest::Directory(_)
        | PeerRequest::Link(_)
        | PeerRequest::Lock(_)
        | PeerRequest::File(_)
        | PeerRequest::Part(_)
        | PeerRequest::Cache(_) => None,
    }
}

/// The same of a request about a name.
pub(crate) fn once_of_name(request: &NameRequest) -> Option<OnceId> {
    use NameRequest as R;
    match request {
        R::Insert { once, .. } | R::Remove { once, .. } | R::Rename { once, .. } => *once,
        R::Lookup(_)
        | R::GiveUpInsert { .. }
        | R::Answered { .. }
        | R::RenamePrepare { .. }
        | R::RenameFinish { .. }
        | R::RenameOutcome { .. }
        | R::List { .. }
        | R::TakeNames { .. }
        | R::SyncNames { .. }
        | R::DirFreeze { .. }
        | R::DirThaw { .. }
        | R::InvalName(_) => None,
    }
}

fn once_of_inode(request: &InodeRequest) -> Option<OnceId> {
    use InodeRequest as R;
    match request {
        R::SetXattr { once, .. } | R::RemoveXattr { once, .. } => *once,
        R::Create { .. }
        | R::Drop { .. }
        | R::GetAttr { .. }
        | R::GetAttrMany(_)
        | R::SetAttr { .. }
        | R::ReadLink { .. }
        | R::Open { .. }
        | R::Close(_)
        | R::Overtaken { .. }
        | R::Recall { .. }
        | R::GetXattr { .. }
        | R::ListXattr { .. }
        | R::Fsync { .. }
        | R::Explain { .. }
        | R::WhichAreGone(_) => None,
    }
}

#[expect(clippy::too_many_arguments, reason = "the columns of the table")]
const fn row(
    deadline: Duration,
    repeat: Repeat,
    grace: Grace,
    asker: Asker,
    grants: Grants,
    start: Start,
    looks_at: Option<InodeId>,
    held: Option<InodeId>,
) -> Properties {
    debug_assert!(
        !matches!((grants, grace), (Keeps, Now)),
        "nothing is granted before it is known what others hold"
    );
    Properties { deadline, repeat, grace, asker, grants, start, looks_at, held }
}

/// In the cache area it may wait for the tier.
fn tier(ino: &InodeId, elsewhere: Duration) -> Duration {
    if ino.is_cached() { SYNC } else { elsewhere }
}

/// An open that cuts the file does so once.
fn opens(truncate: bool) -> Repeat {
    if truncate { Once } else { Freely }
}

#[rustfmt::skip]
fn of_members(request: &MemberRequest) -> Properties {
    use MemberRequest as R;
    match request {
        R::Reclaim { .. }  => row(CALL, Freely, After, Anybody,     Keeps, Waits, None, None),
        R::Returned { .. } => row(CALL, Freely, Now,   Anybody,     Takes, Waits, None, None),
        R::Beat { .. }     => row(BEAT, Freely, After, Anybody,     Takes, Fails, None, None),
        R::Members(_)      => row(BEAT, Freely, After, Coordinator, Takes, Fails, None, None),
    }
}

#[rustfmt::skip]
fn of_server(request: &ServerRequest) -> Properties {
    use ServerRequest as R;
    match request {
        R::Ping               => row(BEAT, Freely, Now, Anybody, Takes, Fails, None, None),
        R::ProcessGone { .. } => row(CALL, Freely, Now, Anybody, Takes, Waits, None, None),
        R::StatFs             => row(CALL, Freely, Now, Anybody, Takes, Waits, None, None),
        R::Status             => row(CALL, Freely, Now, Anybody, Takes, Waits, None, None),
    }
}

#[rustfmt::skip]
fn of_names(request: &NameRequest) -> Properties {
    use NameRequest as R;
    match request {
        R::Lookup(place)        => row(tier(&place.parent, CALL), Freely, Now,   Met, Takes, Waits, None, None),
        R::Insert { .. }        => row(CALL,                      Once,   After, Met, Takes, Waits, None, None),
        R::GiveUpInsert { .. }  => row(CALL,                      Freely, After, Met, Takes, Waits, None, None),
        R::Answered { .. }      => row(CALL,                      Freely, After, Met, Takes, Waits, None, None),
        R::Remove { .. }        => row(OPEN,                      Once,   After, Met, Takes, Waits, None, None),
        R::Rename { to, .. }    => row(tier(&to.parent, OPEN),    Once,   After, Met, Takes, Waits, None, None),
        R::RenamePrepare { .. } => row(OPEN,                      Once,   After, Met, Takes, Waits, None, None),
        R::RenameFinish { .. }  => row(CALL,                      Once,   After, Met, Takes, Waits, None, None),
        R::RenameOutcome { .. } => row(CALL,                      Freely, After, Met, Takes, Waits, None, None),
        R::List { .. }          => row(CALL,                      Freely, Now,   Met, Takes, Waits, None, None),
        R::TakeNames { .. }     => row(SYNC,                      Freely, Now,   Met, Takes, Waits, None, None),
        R::SyncNames { .. }     => row(SYNC,                      Freely, Now,   Met, Takes, Waits, None, None),
        R::DirFreeze { .. }     => row(CALL,                      Freely, After, Met, Takes, Waits, None, None),
        R::DirThaw { .. }       => row(CALL,                      Freely, After, Met, Takes, Waits, None, None),
        R::InvalName(_)         => row(CALL,                      Freely, Now,   Met, Takes, Waits, None, None),
    }
}

#[rustfmt::skip]
fn of_operations(request: &OperationRequest) -> Properties {
    use OperationRequest as R;
    match request {
        R::HasName { .. }      => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::IsSpokenOf { .. }   => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::Settle { .. }       => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Finished { .. }     => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::RenameLock { .. }   => row(OPEN, Once,   After, Met, Takes, Waits, None, None),
        R::RenameUnlock { .. } => row(CALL, Once,   After, Met, Takes, Waits, None, None),
    }
}

#[rustfmt::skip]
fn of_directories(request: &DirectoryRequest) -> Properties {
    use DirectoryRequest as R;
    match request {
        R::Grant { .. }  => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Free { .. }   => row(OPEN, Freely, After, Met, Takes, Waits, None, None),
        R::Shards { .. } => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::Touch(_)      => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::Parent { .. } => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::Name { .. }   => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::Remove { .. } => row(OPEN, Once,   After, Met, Takes, Waits, None, None),
    }
}

#[rustfmt::skip]
fn of_inodes(request: &InodeRequest) -> Properties {
    use InodeRequest as R;
    match request {
        R::Create { .. }              => row(CALL,            Once,             After, Met, Keeps, Waits, None,       None),
        R::Drop { .. }                => row(CALL,            Once,             After, Met, Takes, Waits, None,       None),
        R::GetAttr { ino, .. }        => row(CALL,            Freely,           Links, Met, Keeps, Waits, Some(*ino), None),
        R::GetAttrMany(_)             => row(CALL,            Freely,           Links, Met, Keeps, Waits, None,       None),
        R::SetAttr { ino, .. }        => row(tier(ino, OPEN), Once,             After, Met, Keeps, Waits, Some(*ino), None),
        R::ReadLink { .. }            => row(CALL,            Freely,           Now,   Met, Takes, Waits, None,       None),
        R::Open { ino, truncate, .. } => row(tier(ino, OPEN), opens(*truncate), After, Met, Keeps, Waits, Some(*ino), None),
        R::Close(_)                   => row(CALL,            Freely,           Now,   Met, Takes, Waits, None,       None),
        R::Overtaken { ino, .. }      => row(CALL,            Freely,           After, Met, Keeps, Waits, Some(*ino), None),
        R::Recall { .. }              => row(RECALL,          Freely,           Now,   Met, Takes, Fails, None,       None),
        R::GetXattr { ino, .. }       => row(tier(ino, CALL), Freely,           Now,   Met, Takes, Waits, None,       None),
        R::SetXattr { ino, .. }       => row(tier(ino, CALL), Once,             After, Met, Takes, Waits, None,       None),
        R::ListXattr { ino, .. }      => row(tier(ino, CALL), Freely,           Now,   Met, Takes, Waits, None,       None),
        R::RemoveXattr { ino, .. }    => row(tier(ino, CALL), Once,             After, Met, Takes, Waits, None,       None),
        R::Fsync { ino, .. }          => row(SYNC,            Freely,           Now,   Met, Takes, Waits, Some(*ino), None),
        R::Explain { ino, .. }        => row(CALL,            Freely,           After, Met, Takes, Waits, Some(*ino), None),
        R::WhichAreGone(_)            => row(CALL,            Freely,           Now,   Met, Takes, Waits, None,       None),
    }
}

#[rustfmt::skip]
fn of_links(request: &LinkRequest) -> Properties {
    use LinkRequest as R;
    match request {
        R::LinkInc { ino, .. }     => row(OPEN,            Once, After, Met, Keeps, Waits, Some(*ino), None),
        R::LinkDec { ino, .. }     => row(tier(ino, OPEN), Once, After, Met, Takes, Waits, None,       None),
        R::LinkDecLate { ino, .. } => row(tier(ino, OPEN), Once, After, Met, Takes, Waits, None,       None),
        R::UndoLink { .. }         => row(OPEN,            Once, After, Met, Takes, Waits, None,       None),
        R::Relink { ino, .. }      => row(tier(ino, OPEN), Once, After, Met, Takes, Waits, None,       None),
    }
}

#[rustfmt::skip]
fn of_locks(request: &LockRequest) -> Properties {
    use LockRequest as R;
    match request {
        R::Lock { .. }    => row(CALL, Once,   After, Met, Keeps, Waits, None, None),
        R::Unlock { .. }  => row(CALL, Once,   Now,   Met, Takes, Waits, None, None),
        R::Test { .. }    => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Cancel { .. }  => row(CALL, Once,   After, Met, Takes, Waits, None, None),
        R::Release { .. } => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Granted { .. } => row(CALL, Once,   Now,   Met, Takes, Waits, None, None),
    }
}

#[rustfmt::skip]
fn of_files(request: &FileRequest) -> Properties {
    use FileRequest as R;
    match request {
        R::Extend { .. }             => row(CALL, Freely,    Now,   Met,     Takes, Waits, None,       None),
        R::SizeOf { ino, .. }        => row(CALL, Freely,    Now,   Anybody, Takes, Waits, Some(*ino), None),
        R::Gather { ino, .. }        => row(CALL, Freely,    After, Met,     Keeps, Waits, Some(*ino), None),
        R::AppendReserve { ino, .. } => row(CALL, Once,      Now,   Met,     Takes, Waits, None,       Some(*ino)),
        R::AppendCommit { .. }       => row(OPEN, ByNoOther, Now,   Met,     Takes, Waits, None,       None),
        R::Allocate { ino, .. }      => row(CALL, Once,      After, Met,     Takes, Waits, Some(*ino), None),
        R::Seek { ino, .. }          => row(CALL, Freely,    Now,   Met,     Takes, Waits, Some(*ino), None),
        R::Recorded { ino, .. }      => row(OPEN, Freely,    After, Met,     Takes, Waits, Some(*ino), None),
        R::RecordedIndex { .. }      => row(OPEN, Freely,    Now,   Met,     Takes, Waits, None,       None),
    }
}

#[rustfmt::skip]
fn of_parts(request: &PartRequest) -> Properties {
    use PartRequest as R;
    match request {
        R::Read { part, .. }          => row(SYNC, Freely,    Now,   Anybody, Takes, Waits, Some(part.ino), None),
        R::Write { part, .. }         => row(SYNC, Once,      Now,   Met,     Takes, Waits, Some(part.ino), Some(part.ino)),
        R::WriteGathered { part, .. } => row(SYNC, Once,      Now,   Met,     Takes, Waits, None,           Some(part.ino)),
        R::Append { ino, .. }         => row(SYNC, ByNoOther, Now,   Met,     Takes, Waits, Some(*ino),     Some(*ino)),
        R::Truncate { part, .. }      => row(CALL, Once,      Now,   Met,     Takes, Waits, Some(part.ino), None),
        R::Sync { part, .. }          => row(SYNC, Freely,    Now,   Met,     Takes, Waits, Some(part.ino), None),
        R::Remove { .. }              => row(CALL, Freely,    After, Met,     Takes, Waits, None,           None),
        R::SyncFiles { .. }           => row(SYNC, Freely,    Now,   Met,     Takes, Waits, None,           None),
        R::Blocks { part, .. }        => row(CALL, Freely,    Now,   Met,     Takes, Waits, Some(part.ino), None),
    }
}

#[rustfmt::skip]
fn of_cache(request: &CacheRequest) -> Properties {
    use CacheRequest as R;
    match request {
        R::Import { .. }     => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Forget { .. }     => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Check { .. }      => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Hold { .. }       => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Move { .. }       => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Unlink { .. }     => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Bury { .. }       => row(CALL, Freely, Now,   Met, Takes, Waits, None, None),
        R::StillNamed { .. } => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Tombstones { .. } => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Replaced { .. }   => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Clear { .. }      => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::Claims { .. }     => row(SYNC, Freely, Now,   Met, Takes, Waits, None, None),
        R::TakeBack { .. }   => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Settled { .. }    => row(CALL, Freely, After, Met, Takes, Waits, None, None),
        R::Fetch { .. }      => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Flush { .. }      => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Sync { .. }       => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
        R::Evict { .. }      => row(SYNC, Freely, After, Met, Takes, Waits, None, None),
    }
}
