//! Every request and reply, and what each promises.
//!
//! One set of messages serves both kinds of connection: a process to its own node's server (Unix
//! socket), and server to server (TCP). A process always speaks to its own server, which answers
//! itself, asks others, or forwards. Messages are encoded by `postcard` (see [`crate::codec`]);
//! bulk bytes never travel inside them but beside them, as the frame's payload or in an arena slot.
//!
//! Source of the protocol: `docs/design/001-coherence.md`.

mod attr;
mod cache;
mod lock;
mod node;
mod open;
mod peer;
mod reclaim;
mod status;

pub use attr::{
    Attr, DirEntry, Entry, FileKind, Grants, MetaChange, Name, SetTime, TimeSpec, XattrMode,
    without_suidgid,
};
pub use cache::{
    CacheLine, CacheStatus, ChecksumLine, Flushed, Imported, Moment, Shown, Succession, TierVersion,
};
pub use lock::{Lock, LockAnswer, LockHeld, LockKind, LockRange};
pub use node::{
    Callback, CallbackReply, ClientRole, Close, Created, Explained, Gathered, HandedBack,
    HandedOver, NewNode, NodeReply, NodeRequest, Numbered, Opened, ParentPolicy, RecordedStep,
    Room, SlotRange, StillOpen,
};
pub use open::{Access, OpenKind, Opening};
pub use peer::{
    Binding, CacheRequest, DirectoryRequest, FileRequest, InodeRequest, LeftLink, LinkRequest,
    LockRequest, MachineLife, MemberRequest, MovedName, NameRequest, OperationRequest, PartRef,
    PartRequest, PeerReply, PeerRequest, Place, RenameEnd, ServerRequest, ShardEntry,
};
pub use reclaim::{HeldLock, HeldOpen, Holding, MembersNow, OnceId};
pub use status::{
    AreaMoved, AreaUse, Carrier, PeerState, PeerStatus, ProcessUse, Sample, ServerStatus,
};

use serde::{Deserialize, Serialize};

/// Changes whenever an old server would misread a new message. Checked in the handshake.
pub const PROTOCOL_VERSION: u16 = 27;

/// Largest payload of one frame, and the size of an arena slot.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Largest encoded message, without payload.
pub const BODY_BYTES_MAX: usize = 256 << 10;

/// Why a request was refused: an errno of Linux, with a word for people.
///
/// Errnos are the one vocabulary that both the kernel above and the file system below speak;
/// internal reasons (`Stale` epochs) are replies of their own and never end here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{} (errno {errno})", .why.as_deref().unwrap_or("refused"))]
pub struct Refused {
    pub errno: i32,
    pub why: Option<String>,
}

impl Refused {
    pub fn new(errno: i32) -> Self {
        Self { errno, why: None }
    }

    pub fn because(errno: i32, why: impl Into<String>) -> Self {
        Self { errno, why: Some(why.into()) }
    }
}
