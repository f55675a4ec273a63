//! Requests that the home of a directory answers.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use crate::message::TimeSpec;

/// Requests that the home of a directory answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectoryRequest {
    /// Home of the directory: the asking server is going to hold entries of it.
    Grant { dir: InodeId },
    /// Home of the directory: somebody of another node is going to make a name in it, so no mount may
    /// go on telling which names are not there.
    Free { dir: InodeId },
    /// Home of the directory: which servers hold entries of it? `Shards`, or `Kept`.
    Shards { dir: InodeId },
    /// Home of the directory: entries changed then.
    Touch(Vec<(InodeId, TimeSpec)>),
    /// Home of the directory: what is it in?
    Parent { dir: InodeId },
    /// Home of the directory: what is it called, and in what? For people.
    Name { dir: InodeId },
    /// Home of the directory: freeze all shards; removed when all are empty, else `ENOTEMPTY`.
    Remove { dir: InodeId },
}
