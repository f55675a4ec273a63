//! Requests that any server answers about itself.

use serde::{Deserialize, Serialize};

/// Requests that any server answers about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerRequest {
    /// Any: are you there?
    Ping,
    /// Any: a process of the asking node is gone; its requests are not repeated any more.
    ProcessGone { process: u64 },
    /// Any.
    StatFs,
    /// Any.
    Status,
}
