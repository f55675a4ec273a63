//! Records: what one process wrote into its part of an N-1 file, in a few words.
//!
//! Here: who a writer is.
//! Not here: the records of all writers together ([`crate::index`]).

use serde::{Deserialize, Serialize};

use crate::{NodeId, Rank, ServerId};

/// One process that opened an N-1 file for writing, once. Never its rank: two communicators may have the
/// same file open, and ranks move between runs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WriterId {
    /// Where it runs.
    pub node: NodeId,
    /// Its process id there.
    pub process: u32,
    /// How many files it had opened before.
    pub opening: u32,
}

/// A writer and where its part lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Who.
    pub id: WriterId,
    /// Its rank in the communicator that opened the file.
    pub rank: Rank,
    /// Who keeps its part.
    pub server: ServerId,
}
