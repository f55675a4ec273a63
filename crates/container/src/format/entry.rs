//! Entries: what the blocks of an index hold.

use hayase_layout::{ByteCount, Epoch, Record, View, ViewId, Writer, WriterId};
use serde::{Deserialize, Serialize};

/// In postcard: variants are added at the end and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// Entries from here on are of this writer.
    Writer(Writer),
    /// It declared a view.
    View { id: ViewId, view: View },
    /// It wrote; see [`Record`] for when this replaces earlier ones.
    Record(Record),
    /// The file was cut (or grown) to this size; `epoch` is the first that is left alone.
    Cut { epoch: Epoch, size: ByteCount },
    /// The file is at least so long, as far as no later cut says otherwise.
    Grow { epoch: Epoch, size: ByteCount },
    /// The writer's part has at least so many bytes; nothing of this writer follows.
    Closed { part_bytes: ByteCount },
    /// Every epoch that was used is at most this one.
    Latest(Epoch),
    /// The last entry of a merged index: without it the index does not count.
    Complete,
    /// The bytes of this writer lie in the part of this name, not in its own; before its records.
    Part(WriterId),
    /// Of a merged index, before its end: how many writers it tells of, the last epoch, and the file's length where
    /// it has no changes of size.
    Summary { writers: u64, latest: Epoch, size: Option<ByteCount> },
}
