//! What is known of files that are too large to be checked before their first byte is handed out.
//!
//! The checksum of each block is noted when it is first read; when all are known, they combine into that
//! of the file, which the index has. A block that is fetched again must have the checksum that it had: a
//! pack is never written again, and of a loose object another version is refused.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Node;
use crate::checksum;
use crate::limits::{LARGE_KNOWN_MAX, WHOLE_BYTES_MAX};

const BLOCK: u64 = WHOLE_BYTES_MAX as u64;

/// Bytes of block `number` of a file of `bytes`.
pub(super) fn extent(number: usize, bytes: u64) -> Range<u64> {
    let start = number as u64 * BLOCK;
    start..(start + BLOCK).min(bytes)
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Sum {
    value: u32,
    /// When the latest of the bytes came that had it.
    newest: u64,
}

/// What a checksum of a block that was just read means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As far as can be known.
    Fine,
    /// Other bytes than those that came before.
    Other,
}

#[derive(Debug)]
struct Known {
    sums: Vec<Option<Sum>>,
    missing: usize,
    is_damaged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    files: Mutex<HashMap<Node, Known>>,
}

impl Blocks {
    /// The bytes of `range`, of which the latest came at `newest`, are those that were checked.
    pub(super) fn has_checked(&self, node: Node, range: &Range<u64>, newest: u64) -> bool {
        let files = self.files();
        let Some(known) = files.get(&node) else { return false };
        touched(range).all(|block| known.sums[block].is_some_and(|sum| newest <= sum.newest))
    }

    /// Block `number` of a file was read, and has this checksum; `whole` is length and checksum of the file.
    pub(super) fn learn(
        &self,
        node: Node,
        number: usize,
        (value, newest): (u32, u64),
        (bytes, crc32c): (u64, u32),
    ) -> Verdict {
        let mut files = self.files();
        if !files.contains_key(&node) && files.len() >= LARGE_KNOWN_MAX {
            // What is forgotten is learned anew; damage is remembered.
            files.retain(|_, known| known.is_damaged);
        }
        let known = files.entry(node).or_insert_with(|| {
            let missing = bytes.div_ceil(BLOCK) as usize;
            Known { sums: vec![None; missing], missing, is_damaged: false }
        });
        if let Some(sum) = &mut known.sums[number] {
            if sum.value != value {
                return Verdict::Other;
            }
            sum.newest = sum.newest.max(newest);
            return Verdict::Fine;
        }
        known.sums[number] = Some(Sum { value, newest });
        known.missing -= 1;
        if known.missing == 0 {
            let mut blocks = known.sums.iter().enumerate();
            let whole = blocks.try_fold(checksum::of(&[]), |whole, (number, sum)| {
                let extent = extent(number, bytes);
                Some(checksum::combine(whole, sum.as_ref()?.value, extent.end - extent.start))
            });
            known.is_damaged = whole != Some(crc32c);
        }
        Verdict::Fine
    }

    /// All of it was read, and it is not what was packed.
    pub(super) fn is_damaged(&self, node: Node) -> bool {
        self.files().get(&node).is_some_and(|known| known.is_damaged)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<Node, Known>> {
        // Every change is complete when it is seen.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks that `range` touches.
pub(super) fn touched(range: &Range<u64>) -> Range<usize> {
    (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the blocks of a file in this order; whether it ends as damaged.
    fn read(order: &[usize], data: &[u8], crc32c: u32) -> bool {
        let (blocks, bytes, node) = (Blocks::default(), data.len() as u64, Node(7));
        for &number in order {
            let at = extent(number, bytes);
            assert!(!blocks.has_checked(node, &at, 0));
            assert!(!blocks.is_damaged(node), "nobody can know yet");
            let sum = checksum::of(&data[at.start as usize..at.end as usize]);
            assert_eq!(blocks.learn(node, number, (sum, 3), (bytes, crc32c)), Verdict::Fine);
        }
        assert!(blocks.has_checked(node, &(0..bytes), 3));
        blocks.is_damaged(node)
    }

    #[test]
    fn what_comes_again_must_be_what_came_before() {
        let (blocks, node, whole) = (Blocks::default(), Node(7), (2 * BLOCK, 0));
        let first = 0..BLOCK;
        assert_eq!(blocks.learn(node, 0, (77, 3), whole), Verdict::Fine);
        assert!(blocks.has_checked(node, &first, 3));
        assert!(!blocks.has_checked(node, &first, 4), "some of it came later");
        assert!(!blocks.has_checked(node, &(0..BLOCK + 1), 3), "nothing is known of the next");
        assert_eq!(blocks.learn(node, 0, (78, 4), whole), Verdict::Other);
        assert!(!blocks.has_checked(node, &first, 4));
        assert_eq!(blocks.learn(node, 0, (77, 5), whole), Verdict::Fine);
        assert!(blocks.has_checked(node, &first, 4));
    }

    #[test]
    fn the_last_block_tells_in_any_order() {
        let data: Vec<u8> = (0..2 * BLOCK + 5).map(|at| (at / 7) as u8).collect();
        let crc32c = checksum::of(&data);
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            assert!(!read(&order, &data, crc32c));
            assert!(read(&order, &data, crc32c ^ 1));
        }
    }
}
