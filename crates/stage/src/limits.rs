//! Every bound of staging, with its name and its reason.

use hayase_layout::ByteCount;

/// What a pack is filled to unless told otherwise: 95 % of the gain of packing at a quarter of the
/// memory of 64 MiB, and a good grain for dealing packs out.
pub const PACK_BYTES: ByteCount = ByteCount::mib(16);

/// Smallest and largest pack that may be asked for.
pub const PACK_BYTES_RANGE: std::ops::RangeInclusive<ByteCount> =
    ByteCount::kib(64)..=ByteCount::mib(256);

/// Most entries of one pack, however small they are: bounds what a worker keeps of one.
pub const PACK_ENTRIES_MAX: usize = 65_536;

/// Bytes of one read from a tier or one write to it.
pub const PIECE_BYTES: usize = 1 << 20;

/// Bytes that stay in the cache of a core between the connection that they come from and the file that they go to.
pub const CACHED_BYTES: usize = 256 << 10;

/// Bytes of one read where a whole object passes by and is not kept: few requests, and a buffer that is
/// used again costs no page faults.
pub const STREAM_BYTES: usize = 2 << 20;

/// Plain bytes of a sealed chunk: large enough that AES-GCM runs at full speed, small enough that a
/// small entry costs little more than itself.
pub const CHUNK_BYTES: usize = 1 << 16;

/// Longest line of an index: a name and a link's target of 4095 bytes, each byte as `%XX`.
pub const LINE_BYTES_MAX: usize = 32 * 1024;

/// Longest text of a symbolic link, as on Linux.
pub const LINK_BYTES_MAX: u64 = 4095;

/// Largest entry that is compressed: it is unpacked in memory.
pub const COMPRESSED_BYTES_MAX: u64 = 64 << 20;

/// Largest index inside a pack; follows from [`PACK_ENTRIES_MAX`] and names of usual length.
pub const PACK_INDEX_BYTES_MAX: u64 = 256 << 20;

/// Names that a walk asks for at a time.
pub const WALK_PAGE_NAMES: usize = 1000;

/// Small files that one stream takes at a time: by number and by bytes; entries of a pack, which come by
/// one read.
pub const BATCH_ITEMS_MAX: usize = 256;
/// The same for objects of their own: each costs a round trip to the store, so that as many streams as
/// there are batches wait at the same time.
pub const BATCH_LOOSE_MAX: usize = 8;
/// And by bytes: of larger ones each is a unit by itself, so that no stream has several to do when the others have
/// nothing left.
pub const BATCH_LOOSE_BYTES: u64 = 1 << 20;
/// See [`BATCH_ITEMS_MAX`].
pub const BATCH_BYTES: u64 = 8 << 20;

/// Bytes between two wanted entries of a pack that are read along rather than asked around.
pub const GAP_BYTES_MAX: u64 = 256 << 10;

/// A file from this size on is moved in parts by several streams.
pub const PARTS_BYTES_MIN: u64 = 16 << 20;

/// One such part where nothing better is known, and the smallest that is chosen while memory suffices: each
/// costs a request.
pub const PART_BYTES: u64 = 8 << 20;

/// A file from this size on is resumed inside when it was moved in part: of smaller ones a few parts move again,
/// where remembering them would cost more.
pub const RESUMED_BYTES_MIN: u64 = 64 << 20;

/// Smallest part: stores take no smaller ones.
pub const PART_BYTES_MIN: u64 = 5 << 20;

/// Largest part that is chosen: more hides no wait that many streams do not hide, and delays the end of a file.
pub const PART_BYTES_AUTO_MAX: u64 = 64 << 20;

/// Parts that may be asked for; larger ones would lie in memory, though stores take up to 5 GiB.
pub const PART_BYTES_RANGE: std::ops::RangeInclusive<ByteCount> =
    ByteCount(PART_BYTES_MIN)..=ByteCount::mib(512);

/// A file has so many parts at least, unless they would be smaller than [`PART_BYTES`]: one that comes alone
/// keeps some streams busy.
pub const PARTS_MIN: u64 = 4;

/// Streams that a transfer begins with where nothing better is known.
pub const STREAMS_START: usize = 4;

/// Most streams that a transfer takes by itself.
pub const STREAMS_AUTO_MAX: usize = 32;

/// Threads that look at packs when they are verified.
pub const VERIFY_THREADS: usize = 4;

/// Bytes of data that all streams of a transfer hold together unless told otherwise; a unit that is larger
/// runs alone.
pub const MEMORY_BYTES: u64 = 192 << 20;

/// Least that may be asked for instead: four streams move a part each, or one writes a pack.
pub const MEMORY_BYTES_MIN: u64 = 36 << 20;

/// Parts of a file at most, as stores have it; larger files have larger parts.
pub const PARTS_MAX: u64 = 10_000;

/// A pack up to this size goes to a store by one request from memory, where an upload would hold it as well.
pub const PACK_WHOLE_BYTES_MAX: u64 = 24 << 20;

/// Packs of the source that stay open while they are unpacked; each keeps its first megabyte.
pub const PACKS_OPEN_MAX: usize = 8;

/// Small files that one stream makes at a time, so that their names are made durable together.
pub const GROUP_ITEMS_MAX: usize = 64;

/// Largest file that waits in such a group when it is an object of its own: what larger ones cost is their bytes.
pub const GROUP_FILE_BYTES_MAX: u64 = 256 << 10;

/// Most streams that may be asked for.
pub const STREAMS_MAX: usize = 64;

/// Units of work that wait for a stream, for each stream.
pub const UNITS_WAITING: usize = 2;

/// A call on a tier that is out of reach is tried so often.
pub const TRIES_MAX: u32 = 4;

/// A file that changes under the reader is read anew so often.
pub const CHANGED_TRIES_MAX: u32 = 3;

/// An unfinished upload that was not written to for so long belongs to nobody.
pub const UPLOAD_AGE: std::time::Duration = std::time::Duration::from_secs(3600);

/// Failures that are kept to be listed; further ones are only counted.
pub const FAILURES_LISTED_MAX: usize = 10_000;

/// A mounted set: files up to this size are checked whole before a byte is handed out; also the largest
/// read. Larger ones are checked in blocks of it.
pub const WHOLE_BYTES_MAX: usize = 1 << 20;

/// A mounted set: what is read and kept of a pack at a time; whole chunks of sealed ones.
pub const PIECE_KEPT_BYTES: usize = 4 * CHUNK_BYTES;

/// A mounted set: all such pieces together, beside what is being read.
pub const PIECES_BYTES: usize = 64 << 20;

/// A mounted set: most pieces that are read ahead of one reader.
pub const AHEAD_PIECES_MAX: u64 = 32;

/// A mounted set: readers in order of one object that are told apart.
pub const CURSORS_MAX: usize = 4;

/// A mounted set: threads that read ahead.
pub const AHEAD_THREADS: usize = 4;

/// A mounted set: stretches in line for those threads; beyond it nothing is read ahead.
pub const AHEAD_WAITING_MAX: usize = 16;

/// A mounted set: packs and loose objects that are kept open.
pub const READERS_OPEN_MAX: usize = 256;

/// A mounted set: compressed files that are larger than one read, unpacked; the latest always stays.
pub const UNPACKED_BYTES: usize = COMPRESSED_BYTES_MAX as usize;

/// A mounted set: large files of which it is remembered which blocks were checked.
pub const LARGE_KNOWN_MAX: usize = 4096;

/// Several nodes: what lies side by side is dealt out in runs of so many bytes, costs of items included.
pub const SPREAD_RUN_BYTES: u64 = 4 << 20;

/// What an item costs beside its bytes, in bytes: making a file takes about as long as copying so many.
pub const ITEM_COST_BYTES: u64 = 8192;
