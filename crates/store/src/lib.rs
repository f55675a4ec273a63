//! What one node keeps on its storage: parts, names, area limits.
//!
//! Here: the key-value store and the name space in it, parts as plain files, the fixed pool of
//! transfer buffers, the size limits of areas, the ledger of what is durable in the tier. Every call blocks; there is no async and no protocol.
//! Not here: who may do what and when (`hayase_server`), where the bytes of a file lie
//! (`hayase_layout`). The bytes on disk are drawn in `FORMAT.md`.

pub mod area;
pub mod device;
pub mod ledger;
pub mod meta;
pub mod namespace;
pub mod part;
pub mod slots;

pub use area::{Area, AreaError, AreaUsage, CountedArea, ImageArea, MountedArea};
pub use device::{
    CrashDevice, Device, DeviceFile, MemoryDevice, PartStat, PreadDevice, SetTime, Whence, uring,
};
pub use ledger::{
    Buried, Damage, FileState, Ledger, LedgerError, LedgerRecord, LedgerSync,
    PENDING_XATTRS_BYTES_MAX, PendingXattrs, Replacement, Rewrite, Rewritten, Salvaged, Succession,
    Synced, TierVersion, XattrValues,
};
pub use meta::{Batch, FjallStore, MemoryStore, MetaError, MetaStore, Pair, says_full};
pub use namespace::{EntryRecord, FileKind, Inode, Namespace, NamespaceError, Time, Txn, ops};
pub use part::{Part, PartError, PartId, Parts, Removal, RemovalError};
pub use slots::{Slot, SlotPool};
