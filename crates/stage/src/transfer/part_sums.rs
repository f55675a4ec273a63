//! Comparing a file with the MD5 of the parts in which it was sent, where it is read in parts of another size.
//!
//! An MD5 takes bytes in order: a stream whose part begins within a sent part waits until the part before has
//! been added. Parts are begun in order, so that whoever is waited for is at work. It waits last, when the
//! rest of its part was added: nobody waits for who waits, but within one sent part.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hayase_tier::{PartHash, PartSum, PartSums};

/// How often a stream that waits looks whether the part before has failed.
const LOOK: Duration = Duration::from_millis(50);

/// The parts of one file as they were sent.
pub(super) struct SentParts {
    sums: PartSums,
    size: u64,
    state: Mutex<State>,
    moved_on: Condvar,
}

#[derive(Default)]
struct State {
    /// By the begin of a sent part: up to where it was added.
    begun: BTreeMap<u64, (u64, PartHash)>,
    /// By the same.
    done: BTreeMap<u64, PartSum>,
}

impl SentParts {
    /// Of a file of `size` bytes.
    pub(super) fn new(sums: PartSums, size: u64) -> Self {
        Self { sums, size, state: Mutex::default(), moved_on: Condvar::new() }
    }

    /// Takes the bytes from `start` on, once those before came that lie in the same sent part; gives up when
    /// `is_over`.
    pub(super) fn add(&self, start: u64, data: &[u8], is_over: impl Fn() -> bool) {
        let end = start + data.len() as u64;
        let first = self.sent(start);
        // What comes before the first begin of a sent part.
        let head = match first.start == start {
            true => 0,
            false => usize::try_from(first.end.min(end) - start).expect("it is in memory"),
        };
        let (head, mut rest) = data.split_at(head);
        let mut at = start + head.len() as u64;
        let (mut starts, mut whole) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let sent = self.sent(at);
            let len = usize::try_from(sent.end.min(end) - at).expect("it is in memory");
            let (piece, after) = rest.split_at(len);
            if at + len as u64 == sent.end {
                starts.push(sent.start);
                whole.push(piece);
            } else {
                self.add_in_turn(&sent, at, piece, &is_over);
            }
            (at, rest) = (at + len as u64, after);
        }
        let sums = PartSums::of_parts(&whole);
        self.lock().done.extend(starts.into_iter().zip(sums));
        if !head.is_empty() {
            self.add_in_turn(&first, start, head, &is_over);
        }
    }

    /// All parts came, and are those that were sent.
    pub(super) fn fit(&self) -> bool {
        let sums: Vec<PartSum> = self.lock().done.values().copied().collect();
        self.sums.fit(&sums)
    }

    /// The sent part in which `at` lies.
    fn sent(&self, at: u64) -> Range<u64> {
        let start = at / self.sums.part_bytes() * self.sums.part_bytes();
        start..self.size.min(start + self.sums.part_bytes())
    }

    fn add_in_turn(&self, sent: &Range<u64>, at: u64, piece: &[u8], is_over: &impl Fn() -> bool) {
        let mut state = self.lock();
        let mut hash = loop {
            let begun = state.begun.entry(sent.start).or_insert((sent.start, PartHash::default()));
            if begun.0 == at {
                // Nobody else has this turn.
                break std::mem::take(&mut begun.1);
            }
            if is_over() {
                return;
            }
            let waited = self.moved_on.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(state);
        hash.add(piece);
        let end = at + piece.len() as u64;
        let mut state = self.lock();
        if end == sent.end {
            state.begun.remove(&sent.start);
            state.done.insert(sent.start, hash.sum());
        } else {
            state.begun.insert(sent.start, (end, hash));
        }
        drop(state);
        self.moved_on.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Each change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The entity tag of bytes that were sent in such parts.
    fn tag(bytes: &[u8], part: usize) -> String {
        let sums: Vec<u8> = bytes.chunks(part).flat_map(PartSums::of_part).collect();
        let hex: String =
            PartSums::of_part(&sums).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}-{}", bytes.len().div_ceil(part))
    }

    proptest! {
        #[test]
        fn parts_of_any_size_are_compared(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            (sent, read) in (1usize..50, 1usize..50),
            flip in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let sums = PartSums::new(&tag(&bytes, sent), bytes.len() as u64, sent as u64).unwrap();
            let parts = SentParts::new(sums, bytes.len() as u64);
            let mut found = bytes.clone();
            if let Some(at) = flip {
                found[at.index(bytes.len())] ^= 1;
            }
            // Each part by a thread of its own, the last ones first.
            std::thread::scope(|scope| {
                for (number, part) in found.chunks(read).enumerate().collect::<Vec<_>>().into_iter().rev() {
                    let parts = &parts;
                    scope.spawn(move || parts.add((number * read) as u64, part, || false));
                }
            });
            prop_assert_eq!(parts.fit(), flip.is_none());
        }
    }

    #[test]
    fn a_part_that_waits_keeps_no_other_waiting() {
        let bytes = b"abcdefghijkl";
        let sums = PartSums::new(&tag(bytes, 6), 12, 6).unwrap();
        let parts = SentParts::new(sums, 12);
        let begin = std::time::Instant::now();
        let is_late = || begin.elapsed() > Duration::from_secs(5);
        std::thread::scope(|scope| {
            // Its head belongs to a sent part of which nothing came, its tail begins the next.
            scope.spawn(|| parts.add(4, &bytes[4..8], is_late));
            parts.add(8, &bytes[8..], is_late);
            assert!(parts.lock().done.contains_key(&6), "it waited for the first part");
            assert!(!parts.lock().done.contains_key(&0));
            parts.add(0, &bytes[..4], || false);
        });
        assert!(parts.fit());
    }

    #[test]
    fn who_waits_for_a_part_that_failed_goes_on() {
        let sums = PartSums::new(&tag(b"abcd", 4), 4, 4);
        // One part alone has no tag of parts.
        let sums = sums.unwrap();
        let parts = SentParts::new(sums, 4);
        parts.add(2, b"cd", || true);
        assert!(!parts.fit());
        parts.add(0, b"ab", || false);
        assert!(!parts.fit());
    }
}
