//! Records: what one process wrote into its part of an N-1 file, in a few words.
//!
//! Here: who a writer is, what one record says.
//! Not here: making records while writing ([`Recorder`]), the records of all writers ([`crate::index`]).
//! Source: paper 001 (location file); PLFS (Bent et al. 2009) for what one entry per write costs.

use serde::{Deserialize, Serialize};

use crate::{ByteCount, Extent, LocalOffset, NodeId, Offset, Rank, Run, ServerId, StreamExtent};

mod recorder;

pub use recorder::{RecordError, Recorder};

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
    /// Which of its openings: a number that no other opening has.
    pub opening: u64,
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

/// Logical time of one container, raised by its collective calls: sync, open, close, set_size.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

/// A view of one writer; the writer gives equal views one number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ViewId(pub u32);

/// Which bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selection {
    /// All bytes of a run: writes at explicit offsets.
    Run(Run),
    /// A piece of a view's stream: writes through a declared view, however many there were.
    View {
        /// Whose stream.
        view: ViewId,
        /// Which bytes of it.
        window: StreamExtent,
    },
}

impl Selection {
    /// Number of bytes.
    pub fn len(&self) -> ByteCount {
        match self {
            Self::Run(run) => run.len(),
            Self::View { window, .. } => window.len(),
        }
    }

    /// Whether no byte is selected.
    pub fn is_empty(&self) -> bool {
        self.len().is_zero()
    }
}

/// One entry of the index: byte `i` of the selection lies at `place + i` of the writer's part.
///
/// A writer's records are a log: places ascend, and a later record of the same epoch is newer. A record
/// whose place is not behind all before it *replaces* those at and behind its place: it is
/// the same bytes, extended or told in fewer words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which bytes of the file.
    pub selection: Selection,
    /// Where the first of them lies.
    pub place: LocalOffset,
    /// When they were written.
    pub epoch: Epoch,
}

impl Record {
    /// Behind its last byte in the part; `None` when no part is so long.
    pub fn end(&self) -> Option<LocalOffset> {
        self.place.checked_add(self.selection.len())
    }
}

/// One write call, as a writer notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// At an offset of the file.
    At(Extent),
    /// Through a view, any number of blocks.
    Through {
        /// The view.
        view: ViewId,
        /// Which bytes of its stream.
        window: StreamExtent,
    },
}

impl Write {
    /// Number of bytes.
    pub fn len(self) -> ByteCount {
        match self {
            Self::At(extent) => extent.len(),
            Self::Through { window, .. } => window.len(),
        }
    }

    /// Whether no byte is written.
    pub fn is_empty(self) -> bool {
        self.len().is_zero()
    }

    /// The first `len` bytes, as after a short write; all when there are not so many.
    #[must_use]
    pub fn prefix(self, len: ByteCount) -> Self {
        match self {
            Self::At(extent) => Self::At(front(extent, len)),
            Self::Through { view, window } => Self::Through { view, window: front(window, len) },
        }
    }
}

fn front<O: Offset>(extent: Extent<O>, len: ByteCount) -> Extent<O> {
    let end = extent.start().get() + len.min(extent.len()).0;
    extent.split_at(O::at(end)).0
}
