//! The mounts: what the kernel asks of a [`hayase_client::Volume`], and what it may do without us.
//!
//! Here: FUSE requests and answers, passthrough, what kernels of other versions would offer,
//! notifications. Not here: what is true about a file (`hayase_client` and the servers).
//! Source: `docs/design/001-coherence.md`, "States of an inode", "What an open returns".

#![deny(unsafe_code)]

mod attributes;
mod busy;
mod closes;
mod errno;
mod filesystem;
mod granted;
mod handles;
mod inodes;
pub mod limits;
mod mount;
mod mount_point;
pub mod mount_table;
mod notify;
mod open_class;
mod ops;
mod passthrough;
mod probe;
mod profile;
mod replies;
mod running;
mod set_ids;
mod waiters;

pub use mount::{MountError, MountSettings, Mounted, Unmounter, mount};
pub use mount_point::find_fusermount;
pub use passthrough::PassthroughState;
pub use probe::probe_passthrough;
pub use profile::KernelProfile;
