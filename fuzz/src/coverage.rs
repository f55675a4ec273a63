//! Which edges of the program an input takes, where the compiler was asked to count them.
//!
//! Standard idea: coverage-guided fuzzing. The counters are those of LLVM's SanitizerCoverage ("inline 8-bit counters"),
//! which a stable compiler inserts too: `-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3
//! -Cllvm-args=-sanitizer-coverage-inline-8bit-counters`. Without these options there are none, and [`is_counted`] says so.
//! Source: <https://clang.llvm.org/docs/SanitizerCoverage.html>.
//!
//! The counters are of the whole process, so one target is searched at a time.

#![expect(unsafe_code, reason = "the counters are memory that compiled code changes")]

use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where counters lie: the address of the first one of a region, and how many there are.
static REGIONS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called at the start of the program, once for each object in it; all of one program name the same region.
///
/// # Safety
/// `start..stop` is memory that lives as long as the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let region = (start as usize, (stop as usize).saturating_sub(start as usize));
    let mut regions = regions();
    if region.1 > 0 && !regions.contains(&region) {
        regions.push(region);
    }
}

fn regions() -> MutexGuard<'static, Vec<(usize, usize)>> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this program was compiled to count edges.
pub fn is_counted() -> bool {
    !regions().is_empty()
}

/// The edges that inputs of one search have taken, and roughly how often each.
pub(crate) struct Edges {
    regions: Vec<(usize, usize)>,
    /// How often the last input took each.
    counts: Vec<u8>,
    /// For each edge a bit for each class of counts that an input had.
    seen: Vec<u8>,
}

impl Edges {
    pub(crate) fn new() -> Self {
        let regions = regions().clone();
        let edges = regions.iter().map(|region| region.1).sum();
        Self { regions, counts: vec![0; edges], seen: vec![0; edges] }
    }

    /// From here on the edges of one input are counted.
    pub(crate) fn begin(&self) {
        for &(start, len) in &self.regions {
            // SAFETY: the program's own counters, which are there until it ends. Compiled code adds to them without
            // atomic operations: counts of other threads may be missing, and no value is invalid.
            unsafe { ptr::write_bytes(start as *mut u8, 0, len) };
        }
    }

    /// Whether the input took an edge that none has taken before, or another number of times. O(n) of all edges.
    pub(crate) fn are_new(&mut self) -> bool {
        let mut rest = &mut self.counts[..];
        for &(start, len) in &self.regions {
            let (counts, others) = rest.split_at_mut(len);
            // SAFETY: as above; `counts` has room for `len` of them.
            unsafe { ptr::copy_nonoverlapping(start as *const u8, counts.as_mut_ptr(), len) };
            rest = others;
        }
        let mut are_new = false;
        // Most edges are not taken: these are passed over eight at a time.
        for (counts, seen) in self.counts.chunks(8).zip(self.seen.chunks_mut(8)) {
            if counts.iter().any(|count| *count > 0) {
                for (count, seen) in counts.iter().zip(seen) {
                    let class = class_of(*count);
                    are_new |= class & !*seen != 0;
                    *seen |= class;
                }
            }
        }
        are_new
    }

    /// How many edges were ever taken.
    pub(crate) fn taken(&self) -> usize {
        self.seen.iter().filter(|seen| **seen > 0).count()
    }
}

/// A bit for 1, 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127 and 128 to 255: an input that goes around a loop once more than
/// a hundred times is not a new one.
fn class_of(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 1 << 1,
        3 => 1 << 2,
        4..=7 => 1 << 3,
        8..=15 => 1 << 4,
        16..=31 => 1 << 5,
        32..=127 => 1 << 6,
        128.. => 1 << 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_new_once_for_each_class_of_counts() {
        let counters = Vec::leak(vec![9_u8; 4]).as_mut_ptr() as usize;
        let mut edges =
            Edges { regions: vec![(counters, 4)], counts: vec![0; 4], seen: vec![0; 4] };
        let mut input = |counts: [u8; 4]| {
            edges.begin();
            // SAFETY: four bytes that nothing else has.
            unsafe { ptr::copy_nonoverlapping(counts.as_ptr(), counters as *mut u8, 4) };
            edges.are_new()
        };
        let is_new =
            [[0; 4], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 9, 0], [1, 0, 10, 0], [2, 0, 0, 0]]
                .map(&mut input);
        assert_eq!(is_new, [false, true, false, true, false, true]);
        assert_eq!(edges.taken(), 2);
    }
}
