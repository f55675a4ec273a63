//! The program's memory: what an address, a count and a datatype describe.
//!
//! Here: one contiguous region, or bytes gathered from and scattered to many; `external32`: in another representation.
//! Not here: what a datatype selects ([`crate::datatype`]), where the bytes go ([`crate::transfer`]).
//!
//! Regions are copied as the type's structure tells them, in groups of equal length and stride: some
//! nanoseconds each, nothing is listed.

#![expect(unsafe_code, reason = "the program's memory")]

use std::ops::Range;

use hayase_layout::{Datatype, datatype::Visit};

use crate::{abi::Handle, datatype::parsed, error::Error, pointers::Address};

pub(crate) mod external32;

/// The arguments of a call: memory that this value alone stands for.
#[derive(Debug)]
pub(crate) struct Memory {
    address: Address,
    count: i64,
    datatype: Handle,
}

impl Memory {
    /// # Safety
    /// They describe memory of the program that nobody else uses as long as this, or the [`Region`] of it, lives. MPI
    /// obliges a program to that for the length of a call.
    pub(crate) unsafe fn new(address: Address, count: impl Into<i64>, datatype: Handle) -> Self {
        Self { address, count: count.into(), datatype }
    }

    /// What they describe.
    pub(crate) fn region(self) -> Result<Region, Error> {
        let count = u64::try_from(self.count);
        let count = count.map_err(|_| Error::count(format!("a count of {}", self.count)))?;
        let datatype = parsed(self.datatype)?.datatype.contiguous(count)?;
        Ok(Region { base: self.address.0, datatype, memory: self })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn count(&self) -> i64 {
        self.count
    }

    pub(crate) fn datatype(&self) -> Handle {
        self.datatype
    }
}

/// Memory of the program, for the length of one call ([`Memory::new`]).
#[derive(Debug)]
pub(crate) struct Region {
    base: usize,
    datatype: Datatype,
    memory: Memory,
}

impl Region {
    /// Number of bytes that are described.
    pub(crate) fn len(&self) -> u64 {
        self.datatype.size()
    }

    /// The arguments that describe it.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// All of it, where it is one piece.
    pub(crate) fn as_slice(&self) -> Option<&[u8]> {
        let start = self.start()?;
        // SAFETY: the program's memory, see [`Region`].
        Some(unsafe { std::slice::from_raw_parts(start as *const u8, self.len() as usize) })
    }

    /// All of it for writing, where it is one piece.
    pub(crate) fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let start = self.start()?;
        // SAFETY: the program's memory, see [`Region`]; borrowed as the region is.
        Some(unsafe { std::slice::from_raw_parts_mut(start as *mut u8, self.len() as usize) })
    }

    fn start(&self) -> Option<usize> {
        let start = self.datatype.dense_start()?;
        // A null pointer is memory only when the type tells absolute addresses (MPI_BOTTOM).
        Some(self.base.wrapping_add_signed(start as isize)).filter(|start| *start != 0)
    }

    /// The bytes `window` of what is described, in the order of the type; `target` is as long.
    pub(crate) fn gather(&self, window: Range<u64>, target: &mut [u8]) {
        debug_assert_eq!(target.len() as u64, window.end - window.start);
        let mut copy = Gather { base: self.base, target: target.as_mut_ptr_range() };
        self.datatype.walk(window, &mut copy);
    }

    /// Puts `source` where the bytes of the type from `start` on lie.
    pub(crate) fn scatter(&mut self, start: u64, source: &[u8]) {
        let window = start..start + source.len() as u64;
        self.datatype.walk(window, &mut Scatter { base: self.base, source: source.as_ptr_range() });
    }
}

/// Copies blocks to the target, one behind the other.
struct Gather {
    base: usize,
    /// What is not filled yet.
    target: Range<*mut u8>,
}

/// Copies the source to blocks.
struct Scatter {
    base: usize,
    /// What is not copied yet.
    source: Range<*const u8>,
}

/// For each block of `$count` its place: lengths that are registers are copied as such.
macro_rules! each_block {
    ($len:expr, $count:expr, $copy:expr) => {
        match $len {
            1 => (0..$count).for_each(|nth| $copy(nth, 1)),
            2 => (0..$count).for_each(|nth| $copy(nth, 2)),
            4 => (0..$count).for_each(|nth| $copy(nth, 4)),
            8 => (0..$count).for_each(|nth| $copy(nth, 8)),
            16 => (0..$count).for_each(|nth| $copy(nth, 16)),
            len => (0..$count).for_each(|nth| $copy(nth, len)),
        }
    };
}

impl Visit for Gather {
    #[inline]
    fn blocks(&mut self, start: i64, len: u64, count: u64, stride: i64) {
        let (len, count) = (len as usize, count as usize);
        let room = self.target.end as usize - self.target.start as usize;
        assert!(len * count <= room, "a walk visits its window and no more");
        let source = self.base.wrapping_add_signed(start as isize);
        let target = self.target.start;
        let copy = |nth: usize, len: usize| {
            let from = source.wrapping_add_signed(nth as isize * stride as isize);
            // SAFETY: from the program's memory, see [`Region`], to room that was checked above.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, target.add(nth * len), len) }
        };
        each_block!(len, count, copy);
        // SAFETY: inside the target, as was checked above.
        self.target.start = unsafe { target.add(len * count) };
    }
}

impl Visit for Scatter {
    #[inline]
    fn blocks(&mut self, start: i64, len: u64, count: u64, stride: i64) {
        let (len, count) = (len as usize, count as usize);
        let room = self.source.end as usize - self.source.start as usize;
        assert!(len * count <= room, "a walk visits its window and no more");
        let target = self.base.wrapping_add_signed(start as isize);
        let source = self.source.start;
        let copy = |nth: usize, len: usize| {
            let to = target.wrapping_add_signed(nth as isize * stride as isize);
            // SAFETY: from bytes that were checked above to the program's memory, see [`Region`].
            unsafe { std::ptr::copy_nonoverlapping(source.add(nth * len), to as *mut u8, len) }
        };
        each_block!(len, count, copy);
        // SAFETY: inside the source, as was checked above.
        self.source.start = unsafe { source.add(len * count) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(memory: &mut [u8], datatype: Datatype) -> Region {
        let base = memory.as_mut_ptr() as usize;
        // SAFETY: only the datatype that is given here is used.
        let memory = unsafe { Memory::new(Address(base), 1, Handle::new(0)) };
        Region { base, datatype, memory }
    }

    #[test]
    fn blocks_are_gathered_and_scattered() {
        for len in [1, 2, 3, 4, 8, 16, 17] {
            let mut memory: Vec<u8> = (0..=255).collect();
            let blocks = Datatype::bytes(len).unwrap().vector(4, 1, 40).unwrap();
            let expected: Vec<u8> = (0..4).flat_map(|nth| nth * 40..nth * 40 + len as u8).collect();
            let mut region = region(&mut memory, blocks);
            let mut packed = vec![0; expected.len()];
            region.gather(0..expected.len() as u64, &mut packed);
            assert_eq!(packed, expected);
            let some = 1..expected.len() - 1;
            let window = some.start as u64..some.end as u64;
            region.gather(window, &mut packed[some.clone()]);
            assert_eq!(packed[some.clone()], expected[some]);
            let zeros = vec![0; expected.len()];
            region.scatter(0, &zeros);
            for (at, byte) in memory.iter().enumerate() {
                let is_zero = expected.contains(&(at as u8));
                assert_eq!(*byte, if is_zero { 0 } else { at as u8 });
            }
        }
    }

    #[test]
    fn one_piece_is_not_copied() {
        let mut memory = vec![7; 64];
        let mut whole = region(&mut memory, Datatype::bytes(64).unwrap());
        assert_eq!(whole.as_slice().map(<[u8]>::len), Some(64));
        whole.as_mut_slice().unwrap().fill(1);
        let gaps = Datatype::bytes(4).unwrap().vector(2, 1, 8).unwrap();
        assert!(region(&mut memory, gaps).as_slice().is_none());
        assert_eq!(memory, [1; 64]);
    }
}
