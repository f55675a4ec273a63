//! Between servers.

use serde::{Deserialize, Serialize};

/// A request of one server to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// Are you there?
    Ping,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// Here.
    Pong,
}
