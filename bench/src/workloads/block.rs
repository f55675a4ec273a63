//! The block of 1 MiB that all bulk workloads move. Its first bytes say which block of the file it
//! is, so that a reader notices bytes that are not the ones that were written.

use std::ops::{Deref, DerefMut};

use anyhow::ensure;

/// Bytes of a call.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// What direct I/O wants buffers to be a multiple of.
const ALIGNMENT: usize = 4096;

/// A buffer of one block that direct I/O takes.
#[derive(Debug)]
pub(crate) struct Block {
    storage: Vec<u8>,
    start: usize,
}

impl Block {
    /// With bytes that do not compress to nothing.
    pub(crate) fn new() -> Self {
        let bytes = 0..(BLOCK_BYTES + ALIGNMENT) as u32;
        let storage: Vec<u8> =
            bytes.map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let start = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { storage, start }
    }

    /// Makes it block number `index`.
    pub(crate) fn stamp(&mut self, index: u64) {
        self[..8].copy_from_slice(&index.to_le_bytes());
    }

    /// Is it block number `index`?
    pub(crate) fn check(&self, index: u64) -> anyhow::Result<()> {
        let found = self.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        ensure!(found == Some(index), "block {index} reads as block {found:?}");
        Ok(())
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + BLOCK_BYTES]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + BLOCK_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_by_its_number() {
        let mut block = Block::new();
        assert_eq!((block.len(), block.as_ptr().align_offset(ALIGNMENT)), (BLOCK_BYTES, 0));
        block.stamp(7);
        assert!(block.check(7).is_ok());
        assert!(block.check(8).is_err());
    }
}
