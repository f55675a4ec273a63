//! Which bytes of which parts make up an extent of the file: for readers that fetch them from elsewhere.
//!
//! Here: the plan, pure. Not here: reading from a directory ([`crate::Reader`]).

use std::ops::Range;

use hayase_layout::{ByteCount, Extent, Found, Index, LocalExtent, LocalOffset, WriterId};

use crate::limits::READ_GAP_MAX;

/// Bytes of one part that are read at once, and where they belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRead {
    writer: WriterId,
    local: LocalExtent,
    /// Where in what is read, and where in the buffer.
    pieces: Vec<(usize, Range<usize>)>,
}

impl PartRead {
    /// Whose part.
    pub fn writer(&self) -> WriterId {
        self.writer
    }

    /// Which bytes of it.
    pub fn local(&self) -> LocalExtent {
        self.local
    }

    /// Copies what was read, as long as [`PartRead::local`], to where it belongs.
    pub fn scatter(&self, bytes: &[u8], target: &mut [u8]) {
        for (from, to) in &self.pieces {
            target[to.clone()].copy_from_slice(&bytes[*from..*from + to.len()]);
        }
    }
}

/// What is to be read for `extent`, in the order of the parts, each at most `bytes_max`. What is in none
/// of them is a hole: zeros.
///
/// Neighbours and near neighbours are read together. As much memory as `extent` has pieces.
pub fn part_reads(index: &Index, extent: Extent, bytes_max: ByteCount) -> Vec<PartRead> {
    let mut wanted = Vec::new();
    for found in index.lookup(extent) {
        if let Found::Bytes(piece) = found {
            let at = (piece.extent.start().0 - extent.start().0) as usize;
            wanted.push((piece.part, piece.local, at));
        }
    }
    wanted.sort_unstable_by_key(|(part, local, at)| (*part, local.start(), *at));
    let mut reads: Vec<PartRead> = Vec::new();
    for (part, local, mut at) in wanted {
        let writer = index.parts()[part as usize].id;
        let (mut start, end) = (local.start().0, local.end().0);
        while start < end {
            let step_end = end.min(start.saturating_add(bytes_max.get()));
            let len = (step_end - start) as usize;
            match reads.last_mut() {
                Some(read) if read.writer == writer && joins(read, start, step_end, bytes_max) => {
                    let from = (start - read.local.start().0) as usize;
                    read.local = between(read.local.start().0, read.local.end().0.max(step_end));
                    read.pieces.push((from, at..at + len));
                }
                _ => {
                    let pieces = vec![(0, at..at + len)];
                    reads.push(PartRead { writer, local: between(start, step_end), pieces });
                }
            }
            (start, at) = (step_end, at + len);
        }
    }
    reads
}

fn joins(read: &PartRead, start: u64, end: u64, bytes_max: ByteCount) -> bool {
    let reach = read.local.end().0.max(end) - read.local.start().0;
    start <= read.local.end().0.saturating_add(READ_GAP_MAX.get()) && reach <= bytes_max.get()
}

fn between(start: u64, end: u64) -> LocalExtent {
    LocalExtent::between(LocalOffset(start), LocalOffset(end)).expect("inside a valid extent")
}
