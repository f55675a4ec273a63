//! The entity tag of an object that was sent in parts: the MD5 of the MD5s of its parts, and their number.
//!
//! Source: what AWS, Ceph and others do for uploads in parts that are not encrypted; AWS calls it no promise.

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};

use crate::md5_lanes;

/// What there is to compare an object with that is read in the parts in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSums {
    part_bytes: u64,
    tag: String,
}

/// Of one part.
pub type PartSum = [u8; 16];

/// That of a part whose bytes come in order, piece by piece.
#[derive(Clone, Default)]
pub struct PartHash(Md5);

impl PartHash {
    /// Takes the bytes that follow.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all that came.
    pub fn sum(self) -> PartSum {
        self.0.finalize().into()
    }
}

impl PartSums {
    /// Of an object of `size` bytes in parts of `part_bytes` (the last has what is left); `None` when `tag` is
    /// none of so many parts.
    pub fn new(tag: &str, size: u64, part_bytes: u64) -> Option<Self> {
        let (sum, count) = tag.split_once('-')?;
        let is_sum = sum.len() == 32 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts = size.checked_div(part_bytes)? + u64::from(!size.is_multiple_of(part_bytes));
        let is_one = is_sum && count.parse() == Ok(parts);
        is_one.then(|| Self { part_bytes, tag: tag.to_ascii_lowercase() })
    }

    /// Of each part but the last.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// That of a part with these bytes.
    pub fn of_part(bytes: &[u8]) -> PartSum {
        Md5::digest(bytes).into()
    }

    /// Those of several parts: up to eight take hardly longer than one.
    pub fn of_parts(parts: &[&[u8]]) -> Vec<PartSum> {
        md5_lanes::sums(parts)
    }

    /// The parts, all in order, are those that were written.
    pub fn fit(&self, parts: &[PartSum]) -> bool {
        let sum = HEXLOWER.encode(&Md5::digest(parts.concat()));
        self.tag == format!("{sum}-{}", parts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_fits_its_parts_only() {
        let parts = [PartSums::of_part(b"abc"), PartSums::of_part(b"d")];
        // By Python: md5(md5(b"abc").digest() + md5(b"d").digest()).hexdigest().
        let tag = "26b10a702bd95f42e3c2737f5975aa20-2";
        let mut pieces = PartHash::default();
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.sum(), parts[0]);
        let sums = PartSums::new(tag, 4, 3).unwrap();
        assert!(sums.fit(&parts) && !sums.fit(&[parts[1], parts[0]]) && !sums.fit(&parts[..1]));
        for (tag, size, part) in [
            ("", 4, 3),
            (tag, 4, 0),
            (tag, 7, 3),
            (tag, 3, 3),
            ("9a90-2", 4, 3),
            (&tag[..32], 4, 3),
        ] {
            assert_eq!(PartSums::new(tag, size, part), None, "{tag} {size} {part}");
        }
    }
}
