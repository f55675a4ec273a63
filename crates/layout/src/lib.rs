//! Where every byte of a file lies, as pure arithmetic.
//!
//! No I/O, no clock, no threads, no async: a caller gives offsets and gets offsets.
//! One idea serves all: a file is an inode plus a [`Layout`]; a layout says in which parts its bytes
//! lie; a part is a plain local file on one node. Every clever map has a twin in [`naive`].

#![forbid(unsafe_code)]

pub mod acl;
pub mod datatype;
mod deal;
pub mod extent;
pub mod groups;
pub mod index;
mod layout;
pub mod naive;
mod pack;
pub mod path;
mod piece;
pub mod placement;
pub mod policy;
pub mod record;
pub mod run;
pub mod shard;
mod stream;
pub mod stripe;
pub mod units;
pub mod view;

pub use acl::{Acl, AclError, AclWho, Acls};
pub use datatype::{Datatype, DatatypeError};
pub use extent::{Extent, ExtentList, LocalExtent, StreamExtent};
pub use groups::{Groups, GroupsError};
pub use index::{Found, Index, IndexError, WriterLog};
pub use layout::{Layout, LayoutError, PartMap};
pub use pack::Packed;
pub use piece::{PartPiece, Piece};
pub use placement::{Decision, ServerUse, Wish, place};
pub use policy::{PolicyError, STRIPE_BYTES_DEFAULT, StripePolicy, check_stripe};
pub use record::{Epoch, Record, Recorder, Selection, ViewId, Write, Writer, WriterId};
pub use run::{Level, Run, RunError};
pub use stream::{Extents, StreamMap};
pub use stripe::{StripeError, StripeMap};
pub use units::{
    ByteCount, GlobalOffset, InodeId, LocalOffset, NodeId, Offset, Rank, ServerId, StreamOffset,
};
pub use view::{View, ViewError};

// Ranges of a caller's buffer are `usize`: a whole extent must fit in one.
const _: () = assert!(usize::BITS == 64, "hayase needs 64-bit addresses");
