//! Every bound of this crate in one table.
//!
//! Here: counts, bytes, and the durations that only this process knows. Not here: those that are ordered against another
//! process or node ([`hayase_wire::times`]), which are only named here.

use std::time::Duration;

pub use hayase_wire::times::{
    ATTR_LEASE, ATTR_TTL, CALL_WAIT, DROP_WAIT, GATHER_RECALL_WAIT, MAPPING_LOOK,
    NAME_FORGET_WAIT as NAME_WAIT, NAME_TOLD, RESTART_WAIT,
};

/// Connections of one process to its node's server.
pub const CHANNELS_MAX: usize = 96;

/// With so many threads of a program asking at once, the next share one connection.
pub const MULTIPLEXED_FROM: usize = 4;

/// Before such a connection is made anew when it could not be had.
pub const SHARE_PAUSE: Duration = Duration::from_secs(1);

/// A read open is kept at the home so long after the last close, so that opening again is free.
pub const READ_LINGER: Duration = Duration::from_secs(5);

/// A write open is kept so long, so that closes travel together.
pub const WRITE_LINGER: Duration = Duration::from_millis(20);

/// Any open of an inode without a name is kept so long: its space comes back when the home knows, but
/// whoever removes many files tells of many at once.
pub const NAMELESS_LINGER: Duration = Duration::from_millis(10);

/// Lingering opens of a process; beyond it they are closed at once.
pub const LINGERING_MAX: usize = 65_536;

/// Closes in one message.
pub const CLOSE_BATCH_MAX: usize = 64;

/// What is due within this time is closed together, by one wake-up and one message.
pub const CLOSE_BATCH_WAIT: Duration = Duration::from_millis(20);

/// After this node changed a directory's entries, its own clock tells the directory's times so
/// long: the home hears of the change only with the next batch.
pub const TOUCH_ESTIMATE: Duration = Duration::from_secs(1);

/// Inodes whose attributes are kept.
pub const ATTRIBUTES_MAX: usize = 131_072;

/// Names that this mount made in directories of its own, kept to know which are not there.
pub const NAMES_MADE_MAX: usize = 65_536;

/// Pieces of the inode table, each under its own lock.
pub const SHARDS: usize = 64;

/// Recall stamps per shard: an answer in flight loses its grants when another inode of the same
/// stamp is recalled, which costs time but is never wrong.
pub const STAMPS_PER_SHARD: usize = 64;

/// Two answers to the kernel about attributes of one inode within this may overtake each other, since a thread that has its
/// answer may have to wait for a processor before it takes it.
pub const ANSWERS_CROSS: Duration = Duration::from_millis(200);

/// Processes of this node that may wait for locks at once; beyond it ENOLCK.
pub const LOCK_WAITERS_MAX: usize = 65_536;

/// Who waits for a lock is looked at so often: does a signal wait for it?
pub const SIGNAL_LOOK: Duration = Duration::from_secs(1);

/// Bytes of names asked for at once when listing a directory.
pub const LISTING_BYTES: u32 = 64 << 10;

/// Before a connection to a server that ended is tried again.
pub const RESTART_PAUSE: Duration = Duration::from_millis(20);

/// Before the callback connection is tried again.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Connections on which recalls come: a name that is slow to forget holds up one of them.
pub const CALLBACKS: usize = 4;

/// For the server to accept a connection.
pub const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// What others published in a container that is mounted is looked for at most so often.
pub const PUBLICATION_LOOK: Duration = Duration::from_millis(250);

/// Containers of a mount whose index is kept while nobody has them open.
pub const CONTAINERS_KEPT_MAX: usize = 256;

/// Writes of more bytes are sent at once: a request of their own costs little beside them.
pub const GATHER_WRITE_MAX: usize = 128 << 10;

/// Small writes one behind the other before the home is asked whether those that follow may be gathered.
pub const GATHER_AFTER: u32 = 3;

/// The same where that brought little, at most.
pub const GATHER_AFTER_MAX: u32 = 1024;

/// Less is not worth a window.
pub const GATHER_MIN: usize = 64 << 10;

/// Files of one mount whose writes are gathered at the same time: each may take a transfer's memory.
pub const GATHER_FILES_MAX: usize = 32;

/// Windows whose memory is kept for the next ones.
pub const GATHER_SPARE: usize = 4;

/// What was gathered is handed on after this at the latest, so that little is lost with a mount that is killed.
pub const GATHER_WAIT: Duration = Duration::from_secs(1);

/// What the home did not take is kept, and tried again each [`GATHER_WAIT`], for so long; then it is lost.
pub const GATHER_KEEP: Duration = Duration::from_secs(30);

/// Between two tries to send what is recalled, for [`GATHER_RECALL_WAIT`].
pub const GATHER_RECALL_PAUSE: Duration = Duration::from_millis(200);

/// The answer to a recall waits so long for what was gathered: some ten times what handing on takes, so that the few
/// threads that answer wait for no home that hangs.
pub const GATHER_ANSWER_WAIT: Duration = Duration::from_millis(50);
