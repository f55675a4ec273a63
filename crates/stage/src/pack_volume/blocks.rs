//! What is known of files that are too large to be checked before their first byte is handed out.
//!
//! The checksum of each block is noted when it is first read; when all are known, they combine into that
//! of the file, which the index has. A block that is fetched again must have the checksum that it had: a
//! pack is never written again, and of a loose object another version is refused.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Node;
use super::pieces::Stamps;
use crate::checksum;
use crate::limits::{LARGE_KNOWN_MAX, WHOLE_BYTES_MAX};

const BLOCK: u64 = WHOLE_BYTES_MAX as u64;

/// Bytes of block `number` of a file of `bytes`.
pub(super) fn extent(number: usize, bytes: u64) -> Range<u64> {
    let start = number as u64 * BLOCK;
    start..(start + BLOCK).min(bytes)
}

/// What is known of a block.
#[derive(Clone, Debug)]
struct Sum {
    value: u32,
    /// Of the pieces that had it when it was last looked at.
    stamps: Stamps,
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
    /// Of all of `range` checksums are known.
    pub(super) fn knows(&self, node: Node, range: &Range<u64>) -> bool {
        let files = self.files();
        files.get(&node).is_some_and(|known| known.sums[touched(range)].iter().all(Option::is_some))
    }

    /// These pieces with the bytes of `range` are those that were checked.
    pub(super) fn has_checked(&self, node: Node, range: &Range<u64>, stamps: &Stamps) -> bool {
        let files = self.files();
        let Some(known) = files.get(&node).filter(|known| !known.is_damaged) else { return false };
        let sums = &known.sums[touched(range)];
        let checked: Vec<&Stamps> = sums.iter().flatten().map(|sum| &sum.stamps).collect();
        checked.len() == sums.len() && stamps.are_those_of(&checked)
    }

    /// Block `number` of a file was read, and has this checksum; `whole` is length and checksum of the file.
    pub(super) fn learn(
        &self,
        node: Node,
        number: usize,
        (value, stamps): (u32, &Stamps),
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
            sum.stamps.clone_from(stamps);
            return Verdict::Fine;
        }
        known.sums[number] = Some(Sum { value, stamps: stamps.clone() });
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
            assert!(!blocks.knows(node, &at) && !blocks.has_checked(node, &at, &pieces(0, &[1])));
            assert!(!blocks.is_damaged(node), "nobody can know yet");
            let sum = checksum::of(&data[at.start as usize..at.end as usize]);
            let learned = blocks.learn(node, number, (sum, &pieces(0, &[1])), (bytes, crc32c));
            assert_eq!(learned, Verdict::Fine);
        }
        assert!(blocks.knows(node, &(0..bytes)));
        blocks.is_damaged(node)
    }

    fn pieces(first: u64, loaded: &[u64]) -> Stamps {
        Stamps { first, loaded: loaded.to_vec() }
    }

    #[test]
    fn what_comes_again_must_be_what_came_before() {
        let (blocks, node, whole) = (Blocks::default(), Node(7), (2 * BLOCK, 0));
        let learn = |number, sum, stamps: &Stamps| blocks.learn(node, number, (sum, stamps), whole);
        let first = 0..BLOCK;
        assert_eq!(learn(0, 77, &pieces(4, &[1, 2, 9])), Verdict::Fine);
        let is_checked = |range: &Range<u64>, first, loaded: &[u64]| {
            blocks.has_checked(node, range, &pieces(first, loaded))
        };
        assert!(is_checked(&first, 4, &[1, 2, 9]) && is_checked(&first, 5, &[2]));
        assert!(!is_checked(&first, 4, &[5]), "it came again before the last of the others came");
        assert!(!is_checked(&first, 6, &[9, 10]) && !is_checked(&first, 3, &[1, 1]), "others");
        assert!(!is_checked(&(0..BLOCK + 1), 6, &[9]), "nothing is known of the next");
        assert_eq!(learn(0, 78, &pieces(4, &[5, 2, 9])), Verdict::Other);
        assert!(!is_checked(&first, 4, &[5]));
        assert_eq!(learn(0, 77, &pieces(4, &[11, 2, 9])), Verdict::Fine);
        assert!(is_checked(&first, 4, &[11, 2]) && !is_checked(&first, 4, &[1]));
    }

    #[test]
    fn two_blocks_know_a_piece_between_them_alike() {
        let (blocks, node, whole) = (Blocks::default(), Node(7), (3 * BLOCK, 0));
        blocks.learn(node, 0, (1, &pieces(0, &[1, 2])), whole);
        blocks.learn(node, 1, (2, &pieces(1, &[2, 3])), whole);
        let both = BLOCK - 5..BLOCK + 5;
        assert!(blocks.has_checked(node, &both, &pieces(1, &[2])));
        blocks.learn(node, 1, (2, &pieces(1, &[7, 3])), whole);
        assert!(!blocks.has_checked(node, &both, &pieces(1, &[7])), "the first block saw another");
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
