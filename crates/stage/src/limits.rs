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

/// Plain bytes of a sealed chunk: large enough that AES-GCM runs at full speed, small enough that a
/// small entry costs little more than itself.
pub const CHUNK_BYTES: usize = 1 << 16;

/// Longest line of an index: a name and a link's target of 4095 bytes, each byte as `%XX`.
pub const LINE_BYTES_MAX: usize = 32 * 1024;

/// Largest entry that is compressed: it is unpacked in memory.
pub const COMPRESSED_BYTES_MAX: u64 = 64 << 20;

/// Largest index inside a pack; follows from [`PACK_ENTRIES_MAX`] and names of usual length.
pub const PACK_INDEX_BYTES_MAX: u64 = 256 << 20;
