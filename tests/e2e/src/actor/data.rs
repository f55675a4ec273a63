//! Bytes to write and to expect, described instead of listed, so that megabytes travel as a line.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

/// A sequence of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// These, in hexadecimal.
    Hex(String),
    /// One byte, repeated.
    Fill {
        /// The byte.
        byte: u8,
        /// How often.
        len: u64,
    },
    /// Never zero, depends on `seed` and on the place in the file.
    Pattern {
        /// Which pattern.
        seed: u64,
        /// Bytes.
        len: u64,
    },
}

impl Data {
    /// These very bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Hex(to_hex(bytes))
    }

    /// `len` times `byte`.
    pub const fn fill(byte: u8, len: u64) -> Self {
        Self::Fill { byte, len }
    }

    /// A pattern that tells places apart.
    pub const fn pattern(seed: u64, len: u64) -> Self {
        Self::Pattern { seed, len }
    }

    /// In bytes.
    pub const fn len(&self) -> u64 {
        match self {
            Self::Hex(hex) => hex.len() as u64 / 2,
            Self::Fill { len, .. } | Self::Pattern { len, .. } => *len,
        }
    }

    /// Nothing to write.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `target` (of [`Data::len`] bytes) as it lies at `offset` of a file.
    ///
    /// # Errors
    /// When the hexadecimal digits are none.
    pub fn write_to(&self, offset: u64, target: &mut [u8]) -> Result<(), String> {
        match self {
            Self::Hex(hex) => target.copy_from_slice(&from_hex(hex)?),
            Self::Fill { byte, .. } => target.fill(*byte),
            Self::Pattern { seed, .. } => pattern_into(*seed, offset, target),
        }
        Ok(())
    }

    /// As it lies at `offset` of a file.
    ///
    /// # Errors
    /// When the hexadecimal digits are none.
    pub fn at(&self, offset: u64) -> Result<Vec<u8>, String> {
        let len = usize::try_from(self.len()).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; len];
        self.write_to(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// The pattern `seed` from `offset` on. Every 8 bytes hold a mix of seed and place; none is zero.
pub fn pattern_into(seed: u64, offset: u64, target: &mut [u8]) {
    let word = |at: u64| {
        let word = mix(seed ^ (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        word.to_le_bytes().map(|byte| byte.max(1))
    };
    // The rest of the first word, whole words, the beginning of the last one.
    let head = target.len().min((offset.next_multiple_of(8) - offset) as usize);
    let (first, rest) = target.split_at_mut(head);
    let start = (offset % 8) as usize;
    first.copy_from_slice(&word(offset)[start..start + head]);
    let mut at = offset + head as u64;
    for piece in rest.chunks_mut(8) {
        piece.copy_from_slice(&word(at)[..piece.len()]);
        at += 8;
    }
}

const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Lower case, two digits per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Turns [`to_hex`] round.
///
/// # Errors
/// When a digit is none, or one is missing.
pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    HEXLOWER.decode(text.as_bytes()).map_err(|error| format!("no hexadecimal digits: {error}"))
}

/// The first place where two sequences differ, in words; `base` is the offset of both in the file.
pub fn difference(base: u64, expected: &[u8], found: &[u8]) -> Option<String> {
    // As one comparison: byte for byte takes ten times as long where nothing is optimized, and most are equal.
    if expected == found {
        return None;
    }
    let same = expected.iter().zip(found).take_while(|(left, right)| left == right).count();
    let at = base + same as u64;
    Some(match (expected.get(same), found.get(same)) {
        (Some(want), Some(have)) => {
            let run = found[same..].iter().take_while(|byte| *byte == have).count();
            format!("at {at}: {have:#04x} ({run} times) where {want:#04x} was expected")
        }
        (Some(_), None) => {
            format!("ends at {at}: {} bytes where {} were expected", found.len(), expected.len())
        }
        _ => format!("goes on at {at} where the end was expected"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_depends_on_the_place_not_on_the_start() {
        let whole = Data::pattern(7, 1000).at(0).unwrap();
        let tail = Data::pattern(7, 900).at(100).unwrap();
        assert_eq!(whole[100..], tail);
        for (from, to) in [(0, 0), (1, 2), (3, 8), (7, 9), (8, 16), (5, 30), (993, 1000)] {
            let part = Data::pattern(7, to - from).at(from).unwrap();
            assert_eq!(whole[from as usize..to as usize], part, "{from}..{to}");
        }
        assert!(!whole.contains(&0));
        assert_ne!(whole, Data::pattern(8, 1000).at(0).unwrap());
    }

    #[test]
    fn hexadecimal_goes_and_comes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)).unwrap(), bytes);
        assert!(from_hex("abc").is_err());
        assert!(from_hex("zz").is_err());
    }

    #[test]
    fn differences_say_where() {
        assert_eq!(difference(10, b"abc", b"abc"), None);
        assert!(difference(10, b"abc", b"aXc").unwrap().starts_with("at 11: 0x58"));
        assert!(difference(10, b"abc", b"ab").unwrap().starts_with("ends at 12"));
        assert!(difference(10, b"ab", b"abc").unwrap().starts_with("goes on at 12"));
    }
}
