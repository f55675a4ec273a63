//! The names of parts.

use std::fmt;

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

/// Which part: of which inode, since which change of its layout, the how manyeth of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartId {
    /// The inode.
    pub ino: InodeId,
    /// Its layout epoch.
    pub epoch: u32,
    /// 0 for a `Whole` file, the stripe's part for a `Striped` one.
    pub index: u16,
}

impl PartId {
    /// The part from its file name; `None` when it is none.
    pub fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('.');
        let mut number = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            let lower = field.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            u64::from_str_radix(field, 16).ok().filter(|_| lower)
        };
        let id = Self {
            ino: InodeId(number(16)?),
            epoch: u32::try_from(number(8)?).ok()?,
            index: u16::try_from(number(4)?).ok()?,
        };
        fields.next().is_none().then_some(id)
    }
}

impl fmt::Display for PartId {
    /// The file name: `0000000000000007.00000000.0000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:08x}.{:04x}", self.ino.0, self.epoch, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        let part = PartId { ino: InodeId(0xab_0000_0000_0007), epoch: 0xff, index: 3 };
        assert_eq!(part.to_string(), "00ab000000000007.000000ff.0003");
        assert_eq!(PartId::parse(&part.to_string()), Some(part));
        for bad in [
            "",
            "7.0.0",
            "00ab000000000007.000000ff",
            "00ab000000000007.000000ff.0003.0",
            "00ab000000000007.000000FF.0003",
            "00ab00000000000g.000000ff.0003",
            "+0ab000000000007.000000ff.0003",
        ] {
            assert_eq!(PartId::parse(bad), None, "{bad:?}");
        }
    }
}
