//! Every bound of this crate in one table.
//!
//! Not here: how long the kernel keeps what it learned ([`hayase_wire::times`]), which is only named here.

use hayase_layout::ByteCount;

pub use hayase_wire::times::{LISTING_FRESH, NAME_TTL};

/// Threads that take requests from the kernel, unless the settings say otherwise: as many as cores,
/// within these. With more of them, each request wakes another one, whose core is cold.
pub const THREADS: std::ops::RangeInclusive<usize> = 2..=4;

/// Most threads that take requests from the kernel.
pub const THREADS_MAX: usize = 16;

/// Further threads for requests that wait for other nodes. Together with [`THREADS_MAX`] and twice
/// [`TIER_WAITERS_MAX`] they are fewer than the connections of a process, so that none waits for a connection.
pub const WAITERS_MAX: usize = 14;

/// The same for requests that wait for the tier, and once more for reads of what comes from it: as many small files
/// are fetched at once, as many as programs that copy trees open at once.
pub const TIER_WAITERS_MAX: usize = 32;

/// Requests in line for those threads; the kernel has one per waiting process or thread.
pub const WAITING_MAX: usize = 65_536;

/// Threads that drop the kernel's inodes, and as many that drop its names.
pub const NOTIFIERS: usize = 2;

/// Names in line to be dropped; beyond it they live until their TTL ends.
pub const NAMES_WAITING_MAX: usize = 4096;

/// Read-ahead and releases that the kernel sends without waiting.
pub const BACKGROUND_MAX: u16 = 64;

/// What the kernel reads ahead of a program that reads a file from its start: several requests, so
/// that one is on its way while another is copied.
pub const READ_AHEAD_BYTES: ByteCount = ByteCount::mib(8);

/// Largest read and write of the kernel.
pub const REQUEST_BYTES: ByteCount = ByteCount::mib(1);

/// The same of kernels that know no larger ones.
pub const SMALL_REQUEST_BYTES: ByteCount = ByteCount::kib(128);

/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4095;

/// Pieces of each table, each under its own lock.
pub const SHARDS: usize = 64;
