//! CRC32C (Castagnoli) of payloads: finds damage, not intent.
//!
//! By `crc-fast`, which folds with the widest vectors of the CPU: 2.4 times the speed of the
//! `crc32` instruction, and the checksum is what a call of 1 MiB costs beyond copying.

use crc_fast::{CrcAlgorithm, Digest, checksum};

const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// Of bytes that come in pieces.
pub(super) struct Checksum(Digest);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(Digest::new(CRC32C))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

/// Of bytes that are all here.
pub(super) fn of(bytes: &[u8]) -> u32 {
    narrow(checksum(CRC32C, bytes))
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).expect("a CRC of 32 bits fits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_the_castagnoli_one() {
        // RFC 3720, appendix B.4.
        let check = |bytes: &[u8], expected| assert_eq!(of(bytes), expected);
        check(&[0; 32], 0x8a91_36aa);
        check(&[0xff; 32], 0x62a8_ab43);
        check(b"123456789", 0xe306_9283);
        check(b"", 0);
    }

    /// One bit at a time.
    fn naive(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
            })
        })
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_as_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), piece in 1..400usize
        ) {
            let mut checksum = Checksum::new();
            bytes.chunks(piece).for_each(|piece| checksum.update(piece));
            prop_assert_eq!(checksum.value(), naive(&bytes));
            prop_assert_eq!(of(&bytes), naive(&bytes));
        }
    }
}
