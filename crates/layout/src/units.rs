//! Units as types: what is counted can not be confused with what it is counted in.
//!
//! Here: byte counts, the three kinds of offsets, ranks, servers, nodes, inode numbers.
//! Not here: ranges ([`crate::extent`]), etypes of a file view (they come with MPI-IO).

use std::{fmt, hash::Hash, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The last offset that a file may end at: what `off_t` can say. Every valid extent ends here or
/// before, so its ends can be handed to the operating system as they are.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `n` KiB; panics when that is more than `u64` holds (a constant that is wrong).
    pub const fn kib(n: u64) -> Self {
        Self::units(n, 1 << 10)
    }

    /// `n` MiB; panics as [`ByteCount::kib`] does.
    pub const fn mib(n: u64) -> Self {
        Self::units(n, 1 << 20)
    }

    /// `n` GiB; panics as [`ByteCount::kib`] does.
    pub const fn gib(n: u64) -> Self {
        Self::units(n, 1 << 30)
    }

    const fn units(n: u64, size: u64) -> Self {
        Self(n.checked_mul(size).expect("a constant number of bytes fits in 64 bits"))
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether there is nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `None` when the sum is more than `u64` holds.
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// What is left after `other` is taken away; zero when nothing is.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The largest multiple of `step` that is not above this count; `step` is not zero.
    pub const fn align_down(self, step: Self) -> Self {
        Self(self.0 - self.0 % step.0)
    }
}

/// Why a text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a size: write a whole number with no unit or with K, M, G, T, KiB, MiB, GiB or TiB"
)]
pub struct ByteCountError {
    /// What was given.
    pub text: String,
}

impl FromStr for ByteCount {
    type Err = ByteCountError;

    /// A whole number of bytes, or of binary units: `4096`, `64K`, `64KiB`, `1 MiB`, `10g`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text.trim()[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => 64,
        };
        let digits = digits.trim_end();
        let number = match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u64>().ok(),
            false => None,
        };
        number
            .and_then(|number| number.checked_mul(1u64.checked_shl(shift)?))
            .map(Self)
            .ok_or_else(|| ByteCountError { text: text.to_owned() })
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

mod sealed {
    pub trait Sealed {}
}

/// A byte position of one kind. Kinds do not mix: each is counted from another beginning.
pub trait Offset:
    Copy + Ord + Hash + fmt::Debug + fmt::Display + Serialize + DeserializeOwned + sealed::Sealed
{
    /// The position `bytes` after the beginning.
    fn at(bytes: u64) -> Self;

    /// Bytes from the beginning to here.
    fn get(self) -> u64;

    /// `None` when that is beyond [`OFFSET_MAX`].
    fn checked_add(self, bytes: ByteCount) -> Option<Self> {
        self.get().checked_add(bytes.0).filter(|end| *end <= OFFSET_MAX).map(Self::at)
    }

    /// How far `later` is behind this; `None` when it is before.
    fn distance_to(self, later: Self) -> Option<ByteCount> {
        later.get().checked_sub(self.get()).map(ByteCount)
    }
}

macro_rules! offset {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl sealed::Sealed for $name {}

        impl Offset for $name {
            fn at(bytes: u64) -> Self {
                Self(bytes)
            }

            fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

offset! {
    /// Byte position in a file, as every process sees it.
    GlobalOffset
}
offset! {
    /// Byte position inside one part. Only a layout turns one kind into the other.
    LocalOffset
}
offset! {
    /// Byte position in a view stream: the dense sequence of bytes that a view selects, in order.
    StreamOffset
}

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

/// One compute node with its mount and clients, and with the server of the same number, which has storage or
/// uses that of its group ([`crate::Groups`]).
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
///
/// Of the counter's bits the uppermost is never set, so that operations can be numbered beside inodes. The next one
/// marks a private tree, the `local` of a node without storage on its group's server: then 16 bits name that node,
/// and 30 count.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct InodeId(pub u64);

impl InodeId {
    /// The root directory: the first inode of server 0, and also the number that FUSE wants.
    pub const ROOT: Self = Self(1);

    /// The root of the cache area, also of server 0.
    pub const CACHE_ROOT: Self = Self(Self::CACHED | 1);

    const COUNTER_BITS: u32 = 48;
    const OPERATION: u64 = 1 << 47;
    const PRIVATE: u64 = 1 << 46;
    const OWNER_SHIFT: u32 = 30;

    /// Set in the counter of what lies in the cache area, and not in a private tree; no counter of
    /// `shared` gets so high.
    const CACHED: u64 = 1 << 45;

    /// Set in the counter of what lies in `shared` and belongs to the container of a file of the cache area.
    const CONTAINED: u64 = 1 << 44;

    /// `None` when `counter` needs more than 48 bits.
    pub const fn new(home: ServerId, counter: u64) -> Option<Self> {
        if counter >> Self::COUNTER_BITS != 0 {
            return None;
        }
        Some(Self((home.0 as u64) << Self::COUNTER_BITS | counter))
    }

    /// The same for an inode in the private tree of `owner`; `None` when `counter` needs more than 30 bits.
    pub const fn private(home: ServerId, owner: NodeId, counter: u64) -> Option<Self> {
        if counter >> Self::OWNER_SHIFT != 0 {
            return None;
        }
        Self::new(home, Self::PRIVATE | (owner.0 as u64) << Self::OWNER_SHIFT | counter)
    }

    /// The directory that `owner` sees as its `local`, kept by `home`.
    pub const fn private_root(home: ServerId, owner: NodeId) -> Self {
        let counter = Self::PRIVATE | (owner.0 as u64) << Self::OWNER_SHIFT | 1;
        Self((home.0 as u64) << Self::COUNTER_BITS | counter)
    }

    /// The node in whose private tree this is; `None` in `shared`.
    pub const fn owner(self) -> Option<NodeId> {
        match self.0 & (Self::OPERATION | Self::PRIVATE) {
            Self::PRIVATE => Some(NodeId((self.counter() >> Self::OWNER_SHIFT) as u16)),
            _ => None,
        }
    }

    /// The server with authority over this inode.
    pub const fn home(self) -> ServerId {
        ServerId((self.0 >> Self::COUNTER_BITS) as u16)
    }

    /// Whether it lies in the cache area: the tier has, or will have, it too.
    pub const fn is_cached(self) -> bool {
        self.0 & (Self::OPERATION | Self::PRIVATE | Self::CACHED) == Self::CACHED
    }

    /// The same number, of an inode of the cache area.
    #[must_use]
    pub const fn in_cache(self) -> Self {
        Self(self.0 | Self::CACHED)
    }

    /// Whether it is the container of a file of the cache area, or lies in one: the tier may need its bytes, though it
    /// is a file of `shared`.
    pub const fn is_in_cached_container(self) -> bool {
        let area = self.0 & (Self::OPERATION | Self::PRIVATE | Self::CACHED | Self::CONTAINED);
        area == Self::CONTAINED
    }

    /// The same number of `shared`, of what belongs to the container of a file of the cache area.
    #[must_use]
    pub const fn in_cached_container(self) -> Self {
        Self(self.0 | Self::CONTAINED)
    }

    /// The number that its home gave it.
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
        assert!(!ino.is_cached() && ino.in_cache().is_cached() && InodeId::CACHE_ROOT.is_cached());
        assert_eq!(ino.in_cache().home(), ServerId(3));
        let part = ino.in_cached_container();
        assert!(part.is_in_cached_container() && !part.is_cached() && part.owner().is_none());
        assert!(!ino.is_in_cached_container() && !ino.in_cache().is_in_cached_container());
    }

    #[test]
    fn private_inode_numbers_carry_their_owner() {
        for (home, node) in [(0, 1), (3, 0), (u16::MAX, u16::MAX)] {
            let (home, node) = (ServerId(home), NodeId(node));
            let root = InodeId::private_root(home, node);
            assert!(!root.is_in_cached_container());
            assert_eq!((root.home(), root.owner()), (home, Some(node)));
            let ino = InodeId::private(home, node, (1 << 30) - 1).unwrap();
            assert_eq!((ino.home(), ino.owner()), (home, Some(node)));
            assert!(ino != root && InodeId::private(home, node, 1 << 30).is_none());
        }
        let operation = InodeId(5 << 48 | 1 << 47 | 1 << 46);
        for shared in [InodeId::ROOT, InodeId::new(ServerId(3), (1 << 46) - 1).unwrap(), operation]
        {
            assert_eq!(shared.owner(), None, "{shared}");
        }
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

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let check = |text: &str, bytes: Option<u64>| {
            assert_eq!(text.parse::<ByteCount>().ok(), bytes.map(ByteCount), "{text:?}");
        };
        check("0", Some(0));
        check("4096", Some(4096));
        check("64K", Some(64 << 10));
        check(" 1 MiB ", Some(1 << 20));
        check("10g", Some(10 << 30));
        check("2TiB", Some(2 << 40));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None); // one more than fits
        check("16777216T", None);
        for text in ["", " ", "M", "-1", "+1", "1.5M", "1 M B", "1MB", "1 2", "M1", "١"] {
            check(text, None);
        }
    }
}
