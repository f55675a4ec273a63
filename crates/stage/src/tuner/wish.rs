//! What a person may say about streams and parts, instead of having it found.

use crate::limits::{PART_BYTES, STREAMS_AUTO_MAX, STREAMS_MAX, STREAMS_START};

/// How many streams a transfer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// So many, 1 to [`STREAMS_MAX`].
    Fixed(usize),
    /// As many as are of use, found while it runs; begins with so many.
    Auto {
        /// What was best last time, or [`STREAMS_START`].
        start: usize,
    },
}

impl Default for Streams {
    fn default() -> Self {
        Self::Auto { start: STREAMS_START }
    }
}

impl Streams {
    /// At the begin, and at most.
    pub(crate) fn range(self) -> (usize, usize) {
        match self {
            Self::Fixed(streams) => (streams.clamp(1, STREAMS_MAX), streams.clamp(1, STREAMS_MAX)),
            Self::Auto { start } => (start.clamp(1, STREAMS_AUTO_MAX), STREAMS_AUTO_MAX),
        }
    }
}

/// How large the parts of large files are, but the last of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// So many bytes, of [`PART_BYTES_RANGE`](crate::limits::PART_BYTES_RANGE).
    Fixed(u64),
    /// As large as is of use, found while it runs; begins with so many.
    Auto {
        /// What was best last time, or [`PART_BYTES`].
        start: u64,
    },
}

impl Default for PartSize {
    fn default() -> Self {
        Self::Auto { start: PART_BYTES }
    }
}
