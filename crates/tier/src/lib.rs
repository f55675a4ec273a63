//! The shared storage behind the burst buffer: objects by key, replaced whole, durable when it says so.
//!
//! [`Tier`] is the contract, [`conformance`] its proof: every version and every decorator passes the
//! same suite. Versions here: [`Posix`] (a directory of any mounted file system), [`Gfarm`] (a
//! directory of Gfarm, through its library), [`S3`] (a bucket) and [`Memory`]. Decorators: [`Limited`] (calls at once), [`Throttled`] (bandwidth, latency), [`Flaky`]
//! (faults, for tests).
//! Not here: what is flushed and when (`hayase-server`), how trees are packed (`hayase-stage`).
//! The API blocks; callers that may not block give it threads of their own.

#![deny(unsafe_code)]

pub mod calendar;
mod claim;
pub mod conformance;
mod copy;
mod decorated_tree;
mod descriptor;
mod error;
pub mod flaky;
mod gfarm;
mod key;
mod limited;
mod listing;
mod marks;
#[expect(unsafe_code, reason = "calls what was compiled for what the processor has")]
mod md5_lanes;
mod memory;
mod object;
mod owner;
mod part_sums;
pub mod posix;
pub mod s3;
mod temporary;
pub mod throttled;
mod tier;
mod timestamp;
mod tree;
mod walk;
mod xattrs;

pub use copy::copy_object;
pub use error::{Action, TierError, if_there};
pub use flaky::Flaky;
pub use gfarm::{Gfarm, lane as gfarm_lane};
pub use key::{COMPONENT_BYTES_MAX, KEY_BYTES_MAX, Key, KeyError, TEMPORARY_PREFIX};
pub use limited::Limited;
pub use listing::{Depth, Entry, EntryKind, LIST_ENTRIES_MAX, ListRequest, Page};
pub use marks::Marks;
pub use memory::Memory;
pub use object::{Attributes, ObjectMeta};
pub use owner::{Owner, OwnerError};
pub use part_sums::{PartHash, PartSum, PartSums};
pub use posix::Posix;
pub use s3::S3;
pub use throttled::Throttled;
pub use tier::{
    Capabilities, Location, PartPieces, PartsUpload, PieceSink, Precondition, Reader, Tier,
    Traffic, Upload, UploadOf, Whole,
};
pub use tree::{DirectoryMeta, Tree};
pub use xattrs::{USER_XATTR_PREFIX, XattrChanges, Xattrs, change_xattrs};
