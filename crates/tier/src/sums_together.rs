//! MD5s of parts that several threads have at the same time, by one of them for all.
//!
//! Whoever comes when nobody is at work, works: slice by slice over all parts that are there, its own and
//! those of others that came meanwhile, until its own is done; then another one goes on. So no thread is
//! kept for it, and a part that is alone is summed at once. A second thread works when the lanes are full.
//!
//! Source: flat combining (Hendler et al., SPAA 2010).

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::md5_lanes::{BLOCK, LANES_MAX, START, State, advance, finish};
use crate::part_sums::PartSum;

/// Who came meanwhile waits for a slice at most. Whole blocks.
const SLICE: usize = 64 << 10;

/// See the module.
#[derive(Default)]
pub struct SumsTogether {
    board: Mutex<Board>,
    /// Something is done, or somebody has stopped working.
    moved_on: Condvar,
}

#[derive(Default)]
struct Board {
    waiting: Vec<Part>,
    done: HashMap<u64, (Vec<u8>, PartSum)>,
    /// Threads at work, each with lanes of its own.
    workers: usize,
    /// Parts in their lanes.
    in_lanes: usize,
    last: u64,
}

struct Part {
    number: u64,
    bytes: Vec<u8>,
    at: usize,
    state: State,
}

impl SumsTogether {
    /// The MD5 of these bytes, which nobody changes meanwhile. Waits for it.
    pub fn sum(&self, bytes: &mut Vec<u8>) -> PartSum {
        let mut board = self.lock();
        board.last += 1;
        let number = board.last;
        board.waiting.push(Part { number, bytes: std::mem::take(bytes), at: 0, state: START });
        loop {
            if let Some((back, sum)) = board.done.remove(&number) {
                *bytes = back;
                return sum;
            }
            if !board.waiting.is_empty() && board.in_lanes == board.workers * LANES_MAX {
                board.workers += 1;
                board = self.work(board, number);
                board.workers -= 1;
                self.moved_on.notify_all();
            } else {
                board = self.moved_on.wait(board).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Until the part with this number is done; the rest goes back to those that wait.
    fn work<'a>(&'a self, mut board: MutexGuard<'a, Board>, own: u64) -> MutexGuard<'a, Board> {
        let mut lanes: Vec<Part> = Vec::with_capacity(LANES_MAX);
        loop {
            let free = board.waiting.len().min(LANES_MAX - lanes.len());
            board.in_lanes += free;
            lanes.extend(board.waiting.drain(..free));
            drop(board);
            slice(&mut lanes);
            board = self.lock();
            let whole = |part: &mut Part| part.bytes.len() - part.at < BLOCK;
            let ended: Vec<Part> = lanes.extract_if(.., whole).collect();
            board.in_lanes -= ended.len();
            if ended.is_empty() {
                continue;
            }
            for Part { number, bytes, at, state } in ended {
                let sum = finish(state, &bytes[at..], bytes.len() as u64);
                board.done.insert(number, (bytes, sum));
            }
            if board.done.contains_key(&own) {
                board.in_lanes -= lanes.len();
                board.waiting.extend(lanes);
                return board;
            }
            self.moved_on.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        // Nothing in it panics half-way.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes all lanes on by the same length.
fn slice(lanes: &mut [Part]) {
    let mut states: Vec<State> = lanes.iter().map(|part| part.state).collect();
    let rests: Vec<&[u8]> = lanes
        .iter()
        .map(|part| &part.bytes[part.at..part.bytes.len().min(part.at + SLICE)])
        .collect();
    let taken = advance(&mut states, &rests);
    for (part, state) in lanes.iter_mut().zip(states) {
        (part.state, part.at) = (state, part.at + taken);
    }
}

#[cfg(test)]
mod tests {
    use crate::PartSums;

    use super::*;

    #[test]
    fn each_thread_has_the_sum_of_its_part_and_the_part() {
        let together = SumsTogether::default();
        std::thread::scope(|scope| {
            for thread in 0..3 * LANES_MAX {
                let together = &together;
                scope.spawn(move || {
                    for round in 0..20 {
                        let len = (thread * 7919 + round * 104_729) % (3 * SLICE);
                        let bytes: Vec<u8> =
                            (0..len).map(|at| (at * thread + round) as u8).collect();
                        let mut part = bytes.clone();
                        assert_eq!(together.sum(&mut part), PartSums::of_part(&bytes), "{len}");
                        assert!(part == bytes);
                    }
                });
            }
        });
        let board = together.lock();
        assert_eq!((board.workers, board.in_lanes, board.waiting.len()), (0, 0, 0));
        assert!(board.done.is_empty());
    }

    #[test]
    fn a_part_without_bytes_has_a_sum() {
        let (together, mut none) = (SumsTogether::default(), Vec::new());
        assert_eq!(together.sum(&mut none), PartSums::of_part(b""));
    }
}
