//! How a process of this node reaches the burst buffer.
//!
//! Here: the connections to the node's own server ([`session`]), the node's half of the protocol
//! (what may be answered from caches, which opens are held, what a recall takes away), the trait
//! [`Volume`] that the mounts show, and [`program`], the library for programs.
//! Not here: the kernel's side of a mount (`hayase_fuse`), the authority over files (`hayase_server`).
//!
//! Decisions are pure ([`grants`], [`attributes`], [`open_file`], [`gathered`]); [`volume::area`] is the shell.
//! Source of the protocol: `docs/design/001-coherence.md`.

#![deny(unsafe_code)]

pub mod attributes;
pub mod gathered;
pub mod grants;
pub mod limits;
pub mod link;
mod made_names;
pub mod open_file;
pub mod program;
pub mod session;
mod signals;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod volume;

pub use link::{Callbacks, Link, LinkError, Reply};
pub use program::Program;
pub use session::Session;
pub use volume::area::{AreaSettings, AreaVolume};
pub use volume::container::ContainerVolume;
pub use volume::gfarm::GfarmVolume;
pub use volume::private_tree::PrivateTree;
pub use volume::{KernelCaches, ReadOnly, Volume};
