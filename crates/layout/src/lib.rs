//! Where every byte of a file lies, as pure arithmetic.
//!
//! No I/O, no clock, no threads, no async: a caller gives offsets and gets offsets.
//! One idea serves all: a file is an inode plus a [`Layout`]; a layout says in which parts its bytes
//! lie; a part is a plain local file on one node. Every clever map has a twin in [`naive`].

#![forbid(unsafe_code)]

mod layout;
mod policy;
pub mod units;

pub use layout::Layout;
pub use policy::StripePolicy;
pub use units::{ByteCount, GlobalOffset, InodeId, LocalOffset, NodeId, Rank, ServerId};
