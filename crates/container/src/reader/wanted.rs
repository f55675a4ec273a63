//! Bytes of parts on their way into a buffer: in which order, and how many with one call.
//!
//! Here: noting, sorting and reading them. Not here: which they are ([`super::Reader`]).

use std::ops::Range;

use hayase_layout::{ByteCount, LocalExtent, LocalOffset, WriterId};

use crate::ContainerError;
use crate::limits::{READ_BYTES_MAX, READ_GAP_MAX};
use crate::parts::Parts;

/// Bytes of one part, and where they belong in a buffer; both are as long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose, by its number in a list of writers: that of the index, or one of the caller's.
    pub part: u32,
    /// Which bytes of it.
    pub local: LocalExtent,
    /// Where they belong.
    pub buffer: Range<usize>,
}

/// What reading costs: calls, and bytes with those between that are read along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Number of calls.
    pub reads: u64,
    /// Bytes of all of them.
    pub bytes: ByteCount,
}

impl ReadCost {
    fn add(&mut self, bytes: u64) {
        self.reads += 1;
        self.bytes.0 += bytes;
    }

    /// As bytes, where a call costs as much as what is read along to save one ([`READ_GAP_MAX`]).
    pub fn weight(self) -> u64 {
        self.bytes.0.saturating_add(self.reads.saturating_mul(READ_GAP_MAX.0))
    }
}

/// What [`read_all`] costs for these, sorted by part and place. O(n).
pub(super) fn cost(sorted: &[Wanted]) -> ReadCost {
    let mut cost = ReadCost::default();
    let mut rest = sorted;
    while let Some(first) = rest.first() {
        let (count, end) = reach_of_one_read(rest);
        cost.add(end - first.local.start().0);
        rest = &rest[count..];
    }
    cost
}

/// Reads what is wanted, sorted by part and place, of these writers; what that cost.
///
/// Memory for one read of [`READ_BYTES_MAX`].
pub(super) fn read_all(
    parts: &Parts,
    writer_of: impl Fn(u32) -> WriterId,
    sorted: &[Wanted],
    target: &mut [u8],
) -> Result<ReadCost, ContainerError> {
    let mut cost = ReadCost::default();
    let mut scratch = Vec::new();
    let mut rest = sorted;
    while let Some(first) = rest.first() {
        let (count, end) = reach_of_one_read(rest);
        let (now, later) = rest.split_at(count);
        rest = later;
        let writer = writer_of(first.part);
        let start = first.local.start();
        cost.add(end - start.0);
        if let [only] = now {
            parts.read(writer, only.local, &mut target[only.buffer.clone()])?;
            continue;
        }
        let local = LocalExtent::between(start, LocalOffset(end));
        let local = local.map_err(|error| super::invalid(&error.to_string()))?;
        scratch.resize(scratch.len().max(local.len().get() as usize), 0);
        let bytes = &mut scratch[..local.len().get() as usize];
        parts.read(writer, local, bytes)?;
        for want in now {
            let from = (want.local.start().0 - start.0) as usize;
            let len = want.buffer.len();
            target[want.buffer.clone()].copy_from_slice(&bytes[from..from + len]);
        }
    }
    Ok(cost)
}

/// By part and place. O(n) where the pieces of each part come in order, as they do when extents ascend.
pub(super) fn sort_by_part(wanted: &mut Vec<Wanted>, parts: usize) {
    let place = |want: &Wanted| (want.local.start(), want.buffer.start);
    if wanted.is_sorted_by_key(|want| (want.part, place(want))) {
        return;
    }
    if wanted.len() < parts {
        wanted.sort_unstable_by_key(|want| (want.part, place(want)));
        return;
    }
    // Where the pieces of each part begin.
    let mut nexts = vec![0; parts + 1];
    wanted.iter().for_each(|want| nexts[want.part as usize + 1] += 1);
    for part in 0..parts {
        nexts[part + 1] += nexts[part];
    }
    let mut order = vec![0; wanted.len()];
    for (nth, want) in wanted.iter().enumerate() {
        let next = &mut nexts[want.part as usize];
        order[*next] = nth;
        *next += 1;
    }
    let mut sorted: Vec<Wanted> = order.into_iter().map(|nth| wanted[nth].clone()).collect();
    for of_part in sorted.chunk_by_mut(|a, b| a.part == b.part) {
        if !of_part.is_sorted_by_key(place) {
            of_part.sort_unstable_by_key(place);
        }
    }
    *wanted = sorted;
}

/// Pieces that follow each other in part and buffer are one.
pub(super) fn push_joined(wanted: &mut Vec<Wanted>, next: Wanted) {
    match wanted.last_mut() {
        Some(last)
            if last.part == next.part
                && last.local.end() == next.local.start()
                && last.buffer.end == next.buffer.start =>
        {
            let joined = LocalExtent::between(last.local.start(), next.local.end());
            last.local = joined.expect("both are valid, and one is behind the other");
            last.buffer.end = next.buffer.end;
        }
        _ => wanted.push(next),
    }
}

/// How many of these, sorted by part and place, are read with one call, and where it ends in the part.
fn reach_of_one_read(wanted: &[Wanted]) -> (usize, u64) {
    let first = &wanted[0];
    let start = first.local.start().0;
    let mut end = first.local.end().0;
    let mut count = 1;
    for next in &wanted[1..] {
        let far = next.local.start().0 > end + READ_GAP_MAX.get();
        let reach = end.max(next.local.end().0);
        if next.part != first.part || far || reach - start > READ_BYTES_MAX.get() {
            break;
        }
        end = reach;
        count += 1;
    }
    (count, end)
}
