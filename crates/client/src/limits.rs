//! Every bound and time of this crate in one table.

use std::time::Duration;

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

/// Attributes are trusted so long after they were asked for, and the kernel may keep what it got at
/// the last moment for [`ATTR_TTL`] more. So long the home is asked whether it lives, so it costs
/// wake-ups of a node that does nothing any more.
pub const ATTR_LEASE: Duration = Duration::from_secs(4);

/// How long the kernel keeps granted attributes without asking.
pub const ATTR_TTL: Duration = Duration::from_secs(1);

/// After this node changed a directory's entries, its own clock tells the directory's times so
/// long: the home hears of the change only with the next batch.
pub const TOUCH_ESTIMATE: Duration = Duration::from_secs(1);

/// Inodes whose attributes are kept.
pub const ATTRIBUTES_MAX: usize = 131_072;

/// Names that this mount made in directories of its own, kept to know which are not there.
pub const NAMES_MADE_MAX: usize = 65_536;

/// How long the kernel may know a name that it was told: it keeps it for a second, and gets the answer
/// a little later.
pub const NAME_TOLD: Duration = Duration::from_secs(2);

/// Pieces of the inode table, each under its own lock.
pub const SHARDS: usize = 64;

/// Recall stamps per shard: an answer in flight loses its grants when another inode of the same
/// stamp is recalled, which costs time but is never wrong.
pub const STAMPS_PER_SHARD: usize = 64;

/// Two answers to the kernel about attributes of one inode within this may overtake each other, since a thread that has its
/// answer may have to wait for a processor before it takes it.
pub const ANSWERS_CROSS: Duration = Duration::from_millis(200);

/// How often pages of files that others may write are looked at, for the sake of mappings: pages that nobody has
/// validated for this long are dropped, so that a mapping shows nothing older than twice this.
pub const MAPPING_LOOK: Duration = Duration::from_millis(500);

/// A name's invalidation is acknowledged after this, done or not; at once in a directory in which
/// the kernel is changing names itself.
pub const NAME_WAIT: Duration = Duration::from_millis(50);

/// Pages of files that are written here are waited for so long until the kernel has dropped them, after their home was
/// started anew: they may be locked by a write that waits for that home, which waits for our answer. By then reads ask
/// the home first. Well below the time for which that home waits (`GRACE`, 3 s).
pub const DROP_WAIT: Duration = Duration::from_secs(1);

/// Processes of this node that may wait for locks at once; beyond it ENOLCK.
pub const LOCK_WAITERS_MAX: usize = 65_536;

/// Who waits for a lock is looked at so often: does a signal wait for it?
pub const SIGNAL_LOOK: Duration = Duration::from_secs(1);

/// Bytes of names asked for at once when listing a directory.
pub const LISTING_BYTES: u32 = 64 << 10;

/// A server that ended is waited for so long: it is started anew. Then calls end with EIO.
pub const RESTART_WAIT: Duration = Duration::from_secs(15);

/// Before a connection to a server that ended is tried again.
pub const RESTART_PAUSE: Duration = Duration::from_millis(20);

/// Before the callback connection is tried again.
pub const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Connections on which recalls come: a name that is slow to forget holds up one of them.
pub const CALLBACKS: usize = 4;

/// For the server to accept a connection.
pub const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// For an answer; longer than any deadline that the server keeps (an fsync: 60 s).
pub const CALL_WAIT: Duration = Duration::from_secs(120);

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

/// What is recalled is tried for so long to be handed on, and what there is when the mount ends.
pub const GATHER_RECALL_WAIT: Duration = Duration::from_secs(2);

/// Meanwhile it is tried again so often.
pub const GATHER_RECALL_PAUSE: Duration = Duration::from_millis(200);

/// The answer to a recall waits so long for what was gathered: some ten times what handing on takes, so that the few
/// threads that answer wait for no home that hangs.
pub const GATHER_ANSWER_WAIT: Duration = Duration::from_millis(50);
