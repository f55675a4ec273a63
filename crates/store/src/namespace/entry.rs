//! Directory entries: what a name stands for.
//!
//! Here: the record as the entry's shard keeps it, and the order of a listing.
//! Not here: the inode (it lives at its home, [`super::inode`]).

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use super::FileKind;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The inode.
    pub ino: InodeId,
    /// Its kind, so that a listing needs no inode.
    pub kind: FileKind,
}

/// Cookies below this stand for the start of a listing, `.` and `..`.
pub const COOKIE_MIN: u64 = 3;

/// Where a name stands in a listing: a hash, at least [`COOKIE_MIN`] and below 2^63 (it has to fit
/// into an `off_t`), the same on every server and for the life of the name.
pub fn cookie(name: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(COOKIE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_fit_and_stay() {
        let check = |name: &[u8], expected| assert_eq!(cookie(name), expected);
        // Fixed values: they are on disk and travel between servers.
        check(b"", 0x2d06_8005_38d3_94c2 >> 1);
        check(b"a", 0xe6c6_32b6_1e96_4e1f >> 1);
        for i in 0..10_000u32 {
            let cookie = cookie(&i.to_le_bytes());
            assert!((COOKIE_MIN..1 << 63).contains(&cookie));
        }
    }
}
