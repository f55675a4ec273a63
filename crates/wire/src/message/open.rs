//! An open, as processes, their servers and homes name it.

use serde::{Deserialize, Serialize};

/// Read and write, as an open needs them. Neither: `O_PATH`-like, never sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    pub read: bool,
    pub write: bool,
}

/// How the node of the opener means to serve an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OpenKind {
    /// Through the kernel or a descriptor, straight to the part, when the part is on this node
    /// (class L). The reply carries the part's descriptor where that is possible.
    Local,
    /// Through messages (class R).
    Remote,
    /// Through messages, and the only opener's kernel may cache although it writes
    /// (`docs/design/001-coherence.md`, "Kernels without passthrough, or without mappings of direct files").
    RemoteCachedWriter,
}

/// An open, as its asker books it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opening {
    pub access: Access,
    pub kind: OpenKind,
    /// Among the opens of its asker, in the order in which they were asked for.
    pub number: u64,
}
