//! Units as types: what is counted can not be confused with what it is counted in.
//!
//! Here: byte counts, the two kinds of offsets, ranks, servers, nodes, inode numbers.
//! Not here: ranges ([`crate::extent`]), etypes of a file view (they come with MPI-IO).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ByteCount(pub u64);

impl ByteCount {
    pub const ZERO: Self = Self(0);

    /// `n` KiB; panics when that is more than `u64` holds (a constant that is wrong).
    pub const fn kib(n: u64) -> Self {
        Self(n * 1024)
    }

    /// `n` MiB; panics as [`ByteCount::kib`] does.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }

    /// `n` GiB; panics as [`ByteCount::kib`] does.
    pub const fn gib(n: u64) -> Self {
        Self(n * 1024 * 1024 * 1024)
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteCount {
    /// In the largest binary unit that leaves at least 1: `1.5 MiB`, `17 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                let tenths = (u128::from(self.0) * 10 / u128::from(size)) as u64;
                return match tenths % 10 {
                    0 => write!(f, "{} {unit}", tenths / 10),
                    tenth => write!(f, "{}.{tenth} {unit}", tenths / 10),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Byte position in a file, as every process sees it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct GlobalOffset(pub u64);

/// Byte position inside one part. Only a layout turns one kind into the other.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LocalOffset(pub u64);

/// One MPI process, as its communicator numbers it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Rank(pub u32);

/// One daemon on one compute node: its place in the sealed list of members.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ServerId(pub u16);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One compute node with its mount and clients; every node with storage has the server of the same number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Inode number: home server in the upper 16 bits, that server's counter in the lower 48.
///
/// Stable for the life of a job and never used twice in it. `st_ino` is this number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory: the first inode of server 0, and also the number that FUSE wants.
    pub const ROOT: Self = Self(1);

    const COUNTER_BITS: u32 = 48;

    /// `None` when `counter` needs more than 48 bits.
    pub const fn new(home: ServerId, counter: u64) -> Option<Self> {
        if counter >> Self::COUNTER_BITS != 0 {
            return None;
        }
        Some(Self((home.0 as u64) << Self::COUNTER_BITS | counter))
    }

    /// The server with authority over this inode.
    pub const fn home(self) -> ServerId {
        ServerId((self.0 >> Self::COUNTER_BITS) as u16)
    }

    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

impl fmt::Display for InodeId {
    /// As `home:counter`, both decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.home(), self.counter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_numbers_carry_their_home() {
        let ino = InodeId::new(ServerId(3), 77).unwrap();
        assert_eq!((ino.home(), ino.counter()), (ServerId(3), 77));
        assert_eq!(InodeId::ROOT.home(), ServerId(0));
        assert_eq!(InodeId::new(ServerId(0), 1 << 48), None);
        assert_eq!(ino.to_string(), "3:77");
    }

    #[test]
    fn byte_counts_are_shown_in_their_largest_unit() {
        let check = |bytes, text: &str| assert_eq!(ByteCount(bytes).to_string(), text);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1536, "1.5 KiB");
        check(1 << 20, "1 MiB");
        check(u64::MAX, "16777215.9 TiB");
    }
}
