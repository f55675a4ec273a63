//! Which parts hold a file.

use serde::{Deserialize, Serialize};

use crate::{ByteCount, ServerId};

/// Where the bytes of one file lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// No bytes of its own: directories, links, devices.
    None,
    /// One part, on the home server; the global offset is the local one.
    Whole,
    /// Units of `stripe` bytes dealt round robin over `servers`; part `i` lies on `servers[i]`.
    Striped { stripe: ByteCount, servers: Vec<ServerId> },
}
