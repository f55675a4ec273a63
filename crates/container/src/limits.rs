//! Every bound of this crate, in one table.

use hayase_layout::ByteCount;

/// Most bytes of one block of an index; more is published as several blocks.
pub const BLOCK_BYTES_MAX: ByteCount = ByteCount::mib(256);

/// Most bytes of one index that are read: beyond that it is no index.
pub const INDEX_BYTES_MAX: ByteCount = ByteCount::gib(1);

/// Writers of a container with the group that opens it for writing: beyond that an open is refused, before a byte
/// is written. Bounds the memory of readers, about 600 bytes for each writer. What is there is read, however many
/// wrote it.
pub const WRITERS_MAX: usize = 1 << 20;

/// Parts that a reader keeps open; beyond that the one opened first is closed.
pub const PARTS_OPEN_MAX: usize = 512;

/// Names tried for a new part: another process that was given the same numbers may have taken some.
pub const NAME_TRIES_MAX: u32 = 1024;

/// Most bytes of one read from a part, and of the buffer that it may need.
pub const READ_BYTES_MAX: ByteCount = ByteCount::mib(4);

/// Bytes between two pieces of a part that are read along rather than skipped.
pub const READ_GAP_MAX: ByteCount = ByteCount::kib(64);

/// Pieces that one lookup may give before they are read: bounds the memory of a read.
pub const PIECES_MAX: usize = 1 << 16;

/// Extents of a file that are looked up together: bounds the memory of a lookup.
pub const LOOKUP_EXTENTS_MAX: usize = 4096;

/// Bytes of the file between first and last of them for each byte that is wanted: beyond that, looking at all
/// that lies between costs more than looking each of them up.
pub const LOOKUP_SPREAD_MAX: u64 = 8;

/// Indexes of finished writers that the last process of a group to close a container leaves unmerged: opening reads
/// each of them, merging costs a few syncs.
pub const INDEXES_UNMERGED_MAX: usize = 64;

/// Merged indexes are merged again where this number of them are at most [`MERGED_ALIKE`] times as large as what is
/// merged anyway.
pub const MERGED_ALIKE_MAX: usize = 8;

/// See [`MERGED_ALIKE_MAX`].
pub const MERGED_ALIKE: u64 = 4;

/// Bytes from the end of a merged index in which its summary is looked for.
pub const SUMMARY_BLOCK_MAX: u64 = 128;

/// Small parts of finished writers that a compaction leaves as they are.
pub const JOIN_PARTS_MAX: usize = 64;

/// Parts of fewer bytes are small: reading so much in one call costs more than opening the part.
pub const JOIN_SMALL: ByteCount = ByteCount::mib(1);

/// Most bytes that a program copies to join parts when it closes a container.
pub const JOIN_BYTES_AT_CLOSE: ByteCount = ByteCount::mib(64);

/// Most parts that it joins then: each is opened, read and removed, and the rest of the group waits.
pub const JOIN_PARTS_AT_CLOSE: usize = 4096;

/// One of so many bytes of a file system stay free when parts are joined, but at most [`JOIN_FREE_MAX`].
pub const JOIN_FREE_FRACTION: u64 = 16;

/// Sixteen programs that close a container at once each copy up to [`JOIN_BYTES_AT_CLOSE`]; each may have found the same
/// room free.
pub const JOIN_FREE_MAX: ByteCount = ByteCount(16 * JOIN_BYTES_AT_CLOSE.get());

/// Listings of a container that is being compacted meanwhile, before giving up.
pub const LIST_TRIES_MAX: u32 = 64;

/// The last epoch; a container that gets there can be exported, and written anew.
pub const EPOCH_MAX: u64 = 1 << 62;

/// Bytes of the file that an export looks at together: at first, and where pieces are small.
pub const EXPORT_WINDOW_MIN: ByteCount = ByteCount::mib(4);

/// What an export gathers from small pieces before it writes: little enough to stay in a processor's cache and
/// not to pay for fresh pages, and some of it from each of many parts.
pub const EXPORT_BUFFER: ByteCount = ByteCount::mib(4);

/// Buffers of an export: one is filled, one is written, one is ready for who is done first.
pub const EXPORT_BATCHES: usize = 3;

/// Bytes of the file that are looked at together where there is little in them.
pub const EXPORT_WINDOW_MAX: ByteCount = ByteCount::mib(64);

/// Pieces of this many bytes are copied by the kernel; a call for less costs more than it saves.
pub const KERNEL_COPY_MIN: ByteCount = ByteCount::kib(256);
