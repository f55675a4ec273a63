//! Parts of files, and the machines that they lie on.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

/// One part of a file, as its layout counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartRef {
    /// The file.
    pub ino: InodeId,
    /// Of the layout that this part belongs to.
    pub layout_epoch: u32,
    /// Place in the layout's list; 0 of a `Whole` file.
    pub index: u16,
}

/// One life of a server's machine: another one after a power cut or a start of the machine, the same after the server
/// was killed or stopped. What was taken in one life and not synced in it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLife(pub u64);
