//! Every bound of the server, in one table.
//!
//! Here: counts, bytes, and the durations that only this server knows. Not here: those that are ordered against another
//! process or node ([`hayase_wire::times`]), which are only named here.

use std::time::Duration;

pub(crate) use hayase_wire::times::{
    ATTR_GRANT, BEAT, BEAT_DEADLINE, BESIDE_KEPT, CACHE_HOLD, CALL_DEADLINE, FETCH_WAIT,
    FLATTEN_WAIT, GRACE, HAND_OVER_WAIT, HOME_IN_USE, HOME_SILENCE, INTENT_AGE, INVAL_NAME_WAIT,
    LOCKS_KNOWN_WAIT, LOOK, NAME_GRANT, NAME_HELD_WAIT as NAME_WAIT, OPEN_DEADLINE, PROBES_MAX,
    RECALL_AGAIN, RECALL_DEADLINE, RENAME_HOLD, REPEATED_MAX, REST, REST_OF_EACH, SILENCE,
    SPREAD_WAIT, STALL, STALL_RESTS, STARTING_MAX, SYNC_DEADLINE, TAKEN_WAIT, UNREACHABLE,
    WRITE_WAIT,
};

/// Of the paths in one list of lost files.
pub(crate) const LOST_PATHS_BYTES_MAX: usize = 128 << 10;

/// Who does not take what server 0 tells is told again after [`BEAT`], then after twice as long each
/// time, this at most; at once when it beats.
pub(crate) const TELL_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A process that was connected before has this long to say what it holds; then it is served as if
/// it held nothing.
pub(crate) const TELL_WAIT: Duration = Duration::from_secs(5);

/// Files that programs wrote are swept for those that are over whenever this many more are known.
pub(crate) const BESIDE_SWEEP_STEP: usize = 1024;

/// A file that a rename replaced may still be opened by who looked its name up just before.
pub(crate) const REPLACED_GRACE: Duration = Duration::from_millis(200);

/// Entries of access control lists in the attributes of several inodes that one message carries: 7 bytes each, next to
/// some 100 for the rest of an inode ([`hayase_wire::limits::BODY_BYTES_MAX`]).
pub(crate) const ACL_ENTRIES_PER_MESSAGE: usize = 8192;

/// A create or link whose home did not wait for its name begins anew; so often, then `EIO`.
pub(crate) const CREATE_TRIES: usize = 3;

/// Parts without a name wait this long for others, so that one sync of the names serves them all;
/// where little room is left they do not wait.
pub(crate) const REMOVAL_DELAY: Duration = Duration::from_millis(50);

/// Closes that are booked before other requests have their turn.
pub(crate) const CLOSES_AT_ONCE: usize = 8;

/// Intents of operations that went well are dropped in batches this far apart.
pub(crate) const INTENTS_DELAY: Duration = Duration::from_millis(20);

/// Those of renames over several servers are dropped when all who were told have made their names durable, which is
/// asked of them in batches this far apart.
pub(crate) const RENAMES_DELAY: Duration = Duration::from_secs(1);

/// Names of one file after which fsync(2) asks one of their servers.
pub(crate) const NAMES_ASKED_MAX: usize = 64;

/// Tasks of a connection that threads share which stay for the next requests: as many as often come at
/// once. Each has room for the largest, some 10 KiB.
pub(crate) const MULTIPLEXED_IDLE: usize = 16;

/// So many callers in so short a time are a crowd: their answers leave together. Fewer would wait for each
/// other where they could go on side by side.
pub(crate) const CROWD: usize = 4;
pub(crate) const CROWD_TIME: Duration = Duration::from_micros(500);

/// Links that one shard tells a home that was started anew: more than a node's mounts remove at once
/// ([`HANDED_OVER_MAX`]) or were not heard to be taken within [`INTENTS_DELAY`], and as many long names as
/// fit a message.
pub(crate) const LINKS_LEFT_MAX: usize = 512;

/// Intents in one message that says that they are done.
pub(crate) const INTENTS_AT_ONCE: usize = 1024;

/// Homes are swept for forgotten grants whenever this many more are in memory.
pub(crate) const HOMES_SWEEP_STEP: usize = 4096;

/// Beyond this many homes in memory nothing is granted of further inodes.
pub(crate) const HOMES_GRANTED_MAX: usize = 65_536;

/// Directories of this home of which a mount knows all names.
pub(crate) const SOLE_MAKERS_MAX: usize = 65_536;

/// Directories that a shard knows to be free for all.
pub(crate) const FREE_FOR_ALL_MAX: usize = 65_536;

/// Directories that a server knows to be spread.
pub(crate) const SPREAD_KNOWN_MAX: usize = 65_536;

/// Directories of this home that are not spread and in whose names somebody was busy lately.
pub(crate) const KEPT_DIRECTORIES_MAX: usize = 65_536;

/// How often is looked whether the operations have ended.
pub(crate) const SPREAD_INTENTS_PAUSE: Duration = Duration::from_millis(5);

/// Names that were not spread, since they were busy or a server did not take them, are so after this at the
/// earliest.
pub(crate) const SPREAD_PAUSE: Duration = Duration::from_secs(2);
pub(crate) const SPREAD_FAILED_PAUSE: Duration = Duration::from_secs(10);

/// After each failure twice as long, so often at most.
pub(crate) const SPREAD_PAUSE_DOUBLINGS: u32 = 5;

/// Names in one message take about so many bytes.
pub(crate) const MOVED_NAMES_BYTES: usize = 128 << 10;

/// Operations that bind no name any more, in one message.
pub(crate) const GIVEN_UP_TOLD_MAX: usize = 4096;

/// Names are swept likewise.
pub(crate) const NAMES_SWEEP_STEP: usize = 4096;

/// A part that something still wrote is not probed again before this has passed.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// Directory times travel to the directory's home in batches this far apart.
pub(crate) const DIR_TOUCH_DELAY: Duration = Duration::from_millis(10);

/// What another server could not be told, but must know, it is told again after this.
pub(crate) const RETURNED_PAUSE: Duration = Duration::from_secs(1);

/// The same of a server that is lost, and may come back.
pub(crate) const LOST_PAUSE: Duration = Duration::from_secs(30);

/// An append reservation that is not committed in time becomes a hole.
pub(crate) const APPEND_HOLD: Duration = Duration::from_secs(5);

/// Appends that were not finished in that time and may still be: more are repeated when they are.
pub(crate) const APPENDS_GIVEN_UP_MAX: usize = 4096;

/// Parts kept open at once.
pub(crate) const PARTS_OPEN_MAX: usize = 4096;

/// Transfer buffers of 1 MiB.
pub(crate) const SLOTS: usize = 64;

/// I/O up to this size is tried at once if it takes no waiting (`RWF_NOWAIT`): copying from or to the
/// page cache takes less time than waking a thread for it.
pub(crate) const INLINE_BYTES: usize = 1 << 20;

/// Smaller transfers go through the page cache: there the kernel joins them on their way to the disk.
pub(crate) const DIRECT_BYTES_MIN: usize = 256 << 10;

/// Requests that the kernel did not take, being short of memory, are offered again after this.
pub(crate) const DIRECT_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of a part of a striped file that begin their way to the disk together.
pub(crate) const WRITEBACK_BYTES: u64 = 4 << 20;

/// Ranges locked at one home; beyond it ENOLCK.
pub(crate) const LOCKS_MAX: usize = 65_536;

/// Threads that wait for disks.
pub(crate) const DISK_THREADS: usize = 16;

/// Inodes that are asked for at once, when parts without a file are looked for.
pub(crate) const STRAYS_PAGE: usize = 1024;

/// Arena slots that one process may bring.
pub(crate) const ARENA_SLOTS_MAX: u32 = 256;

/// Connections of processes of this node.
pub(crate) const CLIENT_CONNECTIONS_MAX: usize = 4096;

/// Requests of processes inside this one that wait to be looked at; more wait to be sent.
pub(crate) const LOCAL_REQUESTS_MAX: usize = 256;

/// Room in the area is asked from the file system at most this often.
pub(crate) const USAGE_FRESH: Duration = Duration::from_millis(50);

/// The other servers' room is asked at most this often.
pub(crate) const PEER_USAGE_FRESH: Duration = Duration::from_secs(1);

/// How long a truncate lets calls go first that an earlier one overtook.
pub(crate) const TURN_WAIT: Duration = Duration::from_millis(50);

/// How often an I/O call is repeated after a truncate overtook it, before `EIO`.
pub(crate) const STALE_RETRIES: usize = 1000;

/// Recorded files of which a server keeps what their indexes say, at their home and for readers each.
pub(crate) const RECORDINGS_MAX: usize = 256;

/// Indexes of a recorded file that its home reads at once.
pub(crate) const GATHER_AT_ONCE: usize = 32;

/// Files of a recorded file that one request makes durable: it answers within [`SYNC_DEADLINE`].
pub(crate) const FILES_SYNCED_MAX: usize = 256;

/// Of them, at the same time: other work needs the rest of [`DISK_THREADS`].
pub(crate) const SYNCS_AT_ONCE: usize = DISK_THREADS / 2;

/// Pieces of parts that one read of a recorded file fetches at once.
pub(crate) const PART_READS_AT_ONCE: usize = 32;

/// How often it is asked, waiting [`FLATTEN_WAIT`] each time, whether a recorded file has become a whole one: twelve hours,
/// for the largest of files.
pub(crate) const FLATTEN_ROUNDS_MAX: usize = 21_600;

/// How it ended is known for so long to who did not wait for it.
pub(crate) const FLATTEN_TOLD: Duration = Duration::from_secs(10);

/// Listings of a container until it is empty, when it is removed.
pub(crate) const REMOVAL_ROUNDS: usize = 16;
/// Threads that wait for the tier: a mount's requests, beside the files and names that are flushed.
pub(crate) const TIER_THREADS: usize = 48;

/// What the tier told of a name is taken as true for so long.
pub(crate) const CACHE_FRESH: Duration = Duration::from_secs(1);

/// Files of which a node remembers that it wrote them on other servers since they were synced; beyond, those that
/// nobody there has open for writing are forgotten.
pub(crate) const UNSYNCED_ELSEWHERE_MAX: usize = 16_384;

/// Names and paths of the cache area that are remembered.
pub(crate) const CACHE_MEMO_MAX: usize = 65_536;

/// Names of one message of an import.
pub(crate) const IMPORT_ENTRIES_MAX: usize = 256;

/// Of one request to the tier while a file is fetched.
pub(crate) const FETCH_BYTES: u64 = 4 << 20;

/// A file of at most so many bytes is fetched by who opens it: then its reader needs no server, and one round
/// trip to the tier less is waited for.
pub(crate) const FETCH_AT_OPEN: u64 = 1 << 20;

/// One of at most so many bytes is opened and read by one thread in one go.
pub(crate) const FETCH_AT_ONCE: u64 = 128 << 10;

/// Requests that are sent ahead of a reader.
pub(crate) const FETCH_AHEAD: usize = 8;

/// Before a fetch or a flush that took longer than [`FETCH_WAIT`] is asked for again.
pub(crate) const FETCH_PAUSE: Duration = Duration::from_millis(20);

/// Removing a directory waits so long for files that were moved out of it, and that the tier has only
/// there; then it is refused.
pub(crate) const CLEAR_WAIT: Duration = Duration::from_secs(20);

/// Of one read and write while a file is flushed; a multiple of what file systems like to be written.
pub(crate) const FLUSH_BYTES: u64 = 8 << 20;

/// Files that one node flushes at once, and all nodes of a job together.
pub(crate) const FLUSH_STREAMS: usize = 4;
pub(crate) const FLUSH_STREAMS_JOB: usize = 256;

/// What was open for writing when a name was removed or replaced is waited for so long: it may be closed
/// already, since the kernel tells of a close only after close(2) has returned.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Removed names that one node takes from the tier at once: apart from the files on their way, which
/// must not wait for a server that does not answer.
pub(crate) const REMOVAL_STREAMS: usize = 16;

/// How often is looked for something to flush, and after how many requests in between a server counts
/// as busy.
pub(crate) const FLUSH_LOOK: Duration = Duration::from_millis(100);
pub(crate) const FLUSH_BUSY_REQUESTS: u64 = 200;

/// The same, at most, while nobody asks for anything and what is left can not begin: a file that is open, one that
/// failed a moment ago. Where nothing is left, only requests wake the flusher.
pub(crate) const FLUSH_REST: Duration = Duration::from_secs(5);

/// Pause before a compaction of the ledger that failed is tried again.
pub(crate) const LEDGER_PAUSE: Duration = Duration::from_secs(10);

/// No program fills a node's storage faster than this, without a word to the server (passthrough).
pub(crate) const FILL_BYTES_PER_SECOND: f64 = 16e9;

/// Pauses between tries of a file that can not be flushed, doubling.
pub(crate) const FLUSH_RETRY_FIRST: Duration = Duration::from_millis(500);
pub(crate) const FLUSH_RETRY_MAX: Duration = Duration::from_secs(60);

/// Bytes per second are measured over so long.
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(1);

/// After this long without a byte that arrived no rate is shown. Longer than a large part takes to a slow tier.
pub(crate) const RATE_STALE: Duration = Duration::from_secs(10);

/// Versions of one message that tells what the tier should hold: paths may be 4 KiB long.
pub(crate) const CHECKSUMS_PAGE: usize = 64;

/// Looks at the counters that are kept for the job's report, at least so far apart: when there are more,
/// every second one goes and the pause doubles.
pub(crate) const HISTORY_SAMPLES_MAX: usize = 256;
pub(crate) const HISTORY_PAUSE_MS: u64 = 1000;

/// Names of second versions that a server tells of.
pub(crate) const CONFLICTS_TOLD_MAX: usize = 256;

/// Of the list of what is not durable, in one message.
pub(crate) const CACHE_LINES_BYTES_MAX: usize = 64 << 10;

/// How often is looked whether programs still have a file open by MPI-IO that they have written.
pub(crate) const MPI_LOOK: Duration = Duration::from_secs(1);

/// A file that was made by MPI-IO, and in which nothing was published yet, counts as open for so long: its processes
/// may still be on their way to say that they have it open. So does one that has not got its name yet.
pub(crate) const MPI_OPENING: Duration = Duration::from_secs(10);

/// So long before the deadline also open files are flushed, as they stand.
pub(crate) const DEADLINE_RESERVE: Duration = Duration::from_secs(5);

/// The times of a file tell two changes apart that lie so far from each other, on any local file system.
pub(crate) const FILE_TIMES_GRAIN: Duration = Duration::from_secs(1);

/// Of a node's share: above the high mark copies of what the tier has go, down to the low one.
pub(crate) const SPACE_HIGH_PERCENT: u64 = 80;
pub(crate) const SPACE_LOW_PERCENT: u64 = 60;

/// The same of bytes that the tier does not have: above it new writers wait, so long at most.
pub(crate) const DIRTY_HIGH_PERCENT: u64 = 60;
pub(crate) const DIRTY_LOW_PERCENT: u64 = 40;
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(60);

/// Copies are given up for a write that would leave less than this part of the area: one in so many.
pub(crate) const ROOM_LEFT: u64 = 32;

/// Dirty bytes are counted at most so often, and in one part of this many of the time.
pub(crate) const DIRTY_FRESH: Duration = Duration::from_millis(50);
pub(crate) const DIRTY_COST: u32 = 20;

/// Files that one look for something to flush considers.
pub(crate) const FLUSH_LOOK_FILES: usize = 4096;

/// Copies that go in one look.
pub(crate) const EVICT_AT_ONCE: usize = 64;

/// A name that was replaced while its inode was asked for is looked up again, so often.
pub(crate) const LOOKUP_RETRIES: usize = 16;

/// Requests of one mount that this server answers to its kernel itself, under way at once: twice what
/// a mount hands over.
pub(crate) const HANDED_OVER_MAX: usize = 2 * hayase_wire::limits::HANDED_OVER_MAX;

/// A mount hears of those that its kernel was told of so much later, or when they are so many: one
/// wake-up for all of them.
pub(crate) const HANDED_BACK_WAIT: Duration = Duration::from_millis(4);
pub(crate) const HANDED_BACK_AT_ONCE: usize = 32;

/// Gathered bytes that were written longer ago than this are given the time at which they were: the longest tick of
/// the clocks that times come from.
pub(crate) const TIME_TICK: Duration = Duration::from_millis(10);
