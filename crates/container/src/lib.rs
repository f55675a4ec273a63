//! An N-1 file kept as N parts: each process that writes it appends to a file of its own, and an index
//! tells where every byte lies. Free of MPI.
//!
//! A *container* is a directory `F/` in any file system that stands for the one file `F`: a mark, one part
//! and one index for each *writer* (one process that opened it, once). Drawn in `FORMAT.md`.
//!
//! - [`Container`]: make, find, load, delete one. [`enable`] marks a directory in which MPI-IO makes them.
//! - [`ContainerFile`]: one opening: writes through views and at offsets, reads, size, epochs, publication.
//! - [`Reader`]: reads the file as it was published ([`Snapshot`]); [`Plan`]: what it would read.
//! - [`area`]: a container in the `shared` area of a job, where the mount shows it as one plain file.
//! - [`Gathered`], [`part_reads`]: the same for the servers of that area, which read its files themselves.
//!
//! ```text
//! let container = Container::open(path, Creation::IfAbsent)?;
//! let file = ContainerFile::open(container, Access::ReadWrite, identity, None)?;
//! let view = file.declare_view(&view);
//! file.write(Write::Through { view, window }, data)?;   // contiguous in the part, whatever the view
//! file.sync(Durability::Durable)?;                      // publish, refresh, next epoch
//! file.read_at(GlobalOffset(0), &mut buffer)?;          // what all writers published
//! file.close(Durability::Written)?;
//! ```
//!
//! **What is visible**: own writes at once; those of others behind their publication and one's own
//! refresh, as MPI 4.1 section 14.6.1 asks. Where writes overlap, the later epoch wins; in one epoch the
//! lower rank at open, then the lower writer id (paper 001, section 5.3.1).
//!
//! **What survives**: a kill leaves everything that was published; a power cut everything that was
//! published durably. The rest is not there, and [`Snapshot::torn`] says where something began.
//!
//! Not here: MPI handles and datatypes (`hayase_mpi`), mounts (`hayase_client`, `hayase_fuse`).
//! Source: paper 001 (MPI-IO/Gfarm), sections 4 and 5; MPI 4.1, chapter 14; PLFS (Bent et al. 2009).

#![deny(unsafe_code, clippy::undocumented_unsafe_blocks)]

pub mod area;
mod catalogue;
mod check;
mod compact;
mod container;
mod directory;
mod error;
mod export;
mod file;
mod flatten;
mod format;
mod gathered;
mod id;
mod inside;
pub mod limits;
mod mark;
mod names;
mod outline;
mod part_reads;
mod parts;
mod reader;
mod snapshot;
mod walk;
mod writer;

pub use area::AREA_DIRECTORY;
pub use check::{Problem, Report, Severity, check};
pub use compact::{Compacted, Finished, Joining};
pub use container::{Container, Creation, Usage};
pub use directory::is_hidden_name;
pub use error::{ContainerError, WriteError};
pub use export::{Exported, Replace, export};
pub use file::{Access, ContainerFile};
pub use gathered::Gathered;
pub use id::ContainerId;
pub use mark::{CONTAINER_XATTR, DIRECTORY_XATTR, disable, enable, enabled_above, is_mark};
pub use names::{DIRECTORY_MARK, MARK, STUB};
pub use part_reads::{PartRead, part_reads};
pub use reader::{Plan, ReadCost, Reader, Wanted};
pub use snapshot::{PublishedLog, Snapshot, Torn};
pub use walk::containers_below;
pub use writer::{Durability, Identity, next_opening};

/// Re-exported for callers: what a write selects.
pub use hayase_layout::Write;
