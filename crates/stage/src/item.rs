//! Items: one name of a tree, with what a copy keeps of it.
//!
//! Here: the item, its time, and the order of trees. Not here: where its bytes lie ([`crate::pack`]).

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime};

use hayase_tier::{Attributes, Key};

/// One name of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Relative to the tree; no slash at its end, whatever it is.
    pub name: Key,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, `0o777` at most.
    pub mode: u32,
    /// Last change; of a link always the epoch: times of links are not kept.
    pub mtime: Mtime,
}

/// What a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of so many bytes.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A directory; what lies in it has names of its own.
    Directory,
    /// A symbolic link.
    Link {
        /// What it says; any bytes, never followed by us.
        target: Box<[u8]>,
    },
}

impl Item {
    /// Bytes to be moved for it.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::File { bytes } => bytes,
            Kind::Directory | Kind::Link { .. } => 0,
        }
    }

    /// A directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Mode and time, as a tier may keep them.
    pub(crate) fn attributes(&self) -> Attributes {
        Attributes { mode: Some(self.mode), mtime: Some(self.mtime.into()) }
    }

    /// The order of trees and of listings: bytewise, a directory as its name with a slash.
    pub fn order(&self, other: &Self) -> Ordering {
        self.sort_bytes().cmp(other.sort_bytes())
    }

    fn sort_bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let slash = self.is_directory().then_some(b'/');
        self.name.as_bytes().iter().copied().chain(slash)
    }
}

/// A time of change: seconds since 1970, rounded down, and nanoseconds after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    seconds: i64,
    nanos: u32,
}

/// The farthest seconds that are kept: what [`SystemTime`] and every file system can hold.
const SECONDS_MAX: u64 = 1 << 40;

impl Mtime {
    /// 1970.
    pub const EPOCH: Self = Self { seconds: 0, nanos: 0 };

    /// `None` when nothing can be dated so.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (seconds.unsigned_abs() <= SECONDS_MAX && nanos < 1_000_000_000)
            .then_some(Self { seconds, nanos })
    }

    /// Rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds after [`Mtime::seconds`], less than a second.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// The same time at the tier that kept it: some round to seconds, some to microseconds.
    pub fn agrees(self, other: Self) -> bool {
        let nearly = self.nanos.abs_diff(other.nanos) < 1000;
        self.seconds == other.seconds && (nearly || self.nanos == 0 || other.nanos == 0)
    }
}

impl From<SystemTime> for Mtime {
    fn from(time: SystemTime) -> Self {
        let (seconds, nanos) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                let seconds = -before.as_secs().cast_signed();
                match before.subsec_nanos() {
                    0 => (seconds, 0),
                    nanos => (seconds - 1, 1_000_000_000 - nanos),
                }
            }
        };
        // A file dated behind the year 36,000 is dated 1970.
        Self::new(seconds, nanos).unwrap_or(Self::EPOCH)
    }
}

impl From<Mtime> for SystemTime {
    fn from(time: Mtime) -> Self {
        let nanos = Duration::from_nanos(time.nanos.into());
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        if time.seconds < 0 {
            Self::UNIX_EPOCH - whole + nanos
        } else {
            Self::UNIX_EPOCH + whole + nanos
        }
    }
}

impl fmt::Display for Mtime {
    /// `seconds.nanoseconds`, nine digits; seconds are rounded down, so that nanoseconds always add.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, kind: Kind) -> Item {
        Item { name: Key::new(name).unwrap(), kind, mode: 0o644, mtime: Mtime::EPOCH }
    }

    #[test]
    fn a_directory_sorts_as_its_name_with_a_slash() {
        let file = |name| item(name, Kind::File { bytes: 0 });
        let directory = |name| item(name, Kind::Directory);
        let mut sorted = [directory("a"), file("a/x"), file("a-b"), file("a"), file("a.c")];
        sorted.sort_by(Item::order);
        let names: Vec<_> = sorted.iter().map(|item| item.name.to_string()).collect();
        assert_eq!(names, ["a", "a-b", "a.c", "a", "a/x"]);
    }

    #[test]
    fn times_go_to_the_clock_and_back() {
        for (seconds, nanos) in [(0, 0), (5, 7), (-1, 999_999_999), (-86_400, 0), (1 << 33, 1)] {
            let time = Mtime::new(seconds, nanos).unwrap();
            assert_eq!(Mtime::from(SystemTime::from(time)), time);
        }
        assert_eq!(Mtime::new(0, 1_000_000_000), None);
        assert_eq!(Mtime::new(i64::MIN, 0), None);
    }

    #[test]
    fn coarser_clocks_agree() {
        let at = |seconds, nanos| Mtime::new(seconds, nanos).unwrap();
        assert!(at(5, 123_456_789).agrees(at(5, 123_456_000)));
        assert!(at(5, 123_456_789).agrees(at(5, 0)));
        assert!(!at(5, 123_456_789).agrees(at(6, 0)));
        assert!(!at(5, 123_456_789).agrees(at(5, 200_000_000)));
    }
}
