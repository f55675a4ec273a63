//! What is known of files that are too large to be checked before their first byte is handed out.
//!
//! The checksum of each block is noted when it is first read; when all are known, they combine into that
//! of the file, which the index has. Bytes that are read again come from the same version of the object: a
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

#[derive(Debug)]
struct Known {
    sums: Vec<Option<u32>>,
    missing: usize,
    is_damaged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    files: Mutex<HashMap<Node, Known>>,
}

impl Blocks {
    /// Blocks that `range` touches and of which nothing is known yet.
    pub(super) fn unknown(&self, node: Node, bytes: u64, range: Range<u64>) -> Vec<usize> {
        let mut files = self.files();
        if !files.contains_key(&node) && files.len() >= LARGE_KNOWN_MAX {
            // What is forgotten is learned anew; damage is remembered.
            files.retain(|_, known| known.is_damaged);
        }
        let known = files.entry(node).or_insert_with(|| {
            let missing = bytes.div_ceil(BLOCK) as usize;
            Known { sums: vec![None; missing], missing, is_damaged: false }
        });
        let touched = (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize;
        touched.filter(|&block| known.sums[block].is_none()).collect()
    }

    /// Block `number` has this checksum; `whole` is length and checksum of the file.
    pub(super) fn learn(&self, node: Node, number: usize, sum: u32, (bytes, crc32c): (u64, u32)) {
        let mut files = self.files();
        let Some(known) = files.get_mut(&node) else { return };
        if known.sums[number].replace(sum).is_some() {
            return;
        }
        known.missing -= 1;
        if known.missing == 0 {
            let mut blocks = known.sums.iter().enumerate();
            let whole = blocks.try_fold(checksum::of(&[]), |whole, (number, sum)| {
                let extent = extent(number, bytes);
                Some(checksum::combine(whole, (*sum)?, extent.end - extent.start))
            });
            known.is_damaged = whole != Some(crc32c);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the blocks of a file in this order; whether it ends as damaged.
    fn read(order: &[usize], data: &[u8], crc32c: u32) -> bool {
        let (blocks, bytes, node) = (Blocks::default(), data.len() as u64, Node(7));
        for &number in order {
            let at = extent(number, bytes);
            assert_eq!(blocks.unknown(node, bytes, at.clone()), [number]);
            assert!(!blocks.is_damaged(node), "nobody can know yet");
            let sum = checksum::of(&data[at.start as usize..at.end as usize]);
            blocks.learn(node, number, sum, (bytes, crc32c));
        }
        assert!(blocks.unknown(node, bytes, 0..bytes).is_empty());
        blocks.is_damaged(node)
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
