//! Codes of payloads that travel in the clear: they find one that was changed on its way.
//!
//! [`PayloadKey::Mac`] finds damage and intent: AEGIS-128X2 as a message authentication code (draft-irtf-cfrg-aegis-aead,
//! "AEGIS as a MAC"), under a key of the session and with the frame's counter as nonce. It takes half the time of a CRC32C on a
//! CPU with VAES, 1.15 times as long with AES-NI, and 90 times in plain instructions (docs/design/002-wire.md, "Cost"). So where
//! the CPU of either side has no AES instructions, the code is a CRC32C, which finds damage only.

use aegis::aegis128x2::{Aegis128X2Mac, Key};
use crc_fast::{CrcAlgorithm, Digest};

use crate::header::PAYLOAD_CODE_BYTES;

/// That of a payload that is not there, or is sealed.
pub(crate) const NO_CODE: [u8; PAYLOAD_CODE_BYTES] = [0; PAYLOAD_CODE_BYTES];

const CRC32C: CrcAlgorithm = CrcAlgorithm::Crc32Iscsi;

/// Whether this CPU makes authentication codes about as fast as checksums: the C library asks for AVX too.
#[must_use]
pub fn authenticates_payloads() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("avx");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// What makes the codes of one direction.
pub(super) enum PayloadKey {
    Mac(Key),
    Crc,
}

/// The code of bytes that come in pieces.
#[expect(clippy::large_enum_variant, reason = "one for each payload, and it stays where it is")]
pub(super) enum PayloadCode {
    Mac(Aegis128X2Mac<PAYLOAD_CODE_BYTES>),
    Crc(Digest),
    /// Nobody asks for it: the payload is sealed.
    None,
}

impl PayloadKey {
    /// Of the payload of frame `counter`.
    pub(super) fn begin(&self, counter: u64) -> PayloadCode {
        match self {
            Self::Mac(key) => {
                let mut nonce = [0; 16];
                nonce[..8].copy_from_slice(&counter.to_le_bytes());
                PayloadCode::Mac(Aegis128X2Mac::new_with_nonce(key, &nonce))
            }
            Self::Crc => PayloadCode::Crc(Digest::new(CRC32C)),
        }
    }

    /// The same of bytes that are all here; none of none.
    pub(super) fn of(&self, counter: u64, bytes: &[u8]) -> [u8; PAYLOAD_CODE_BYTES] {
        if bytes.is_empty() {
            return NO_CODE;
        }
        let mut code = self.begin(counter);
        code.update(bytes);
        code.value()
    }
}

impl PayloadCode {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Mac(mac) => mac.update(bytes),
            Self::Crc(digest) => digest.update(bytes),
            Self::None => {}
        }
    }

    pub(super) fn value(self) -> [u8; PAYLOAD_CODE_BYTES] {
        match self {
            Self::Mac(mac) => mac.finalize(),
            Self::Crc(digest) => {
                let value = u32::try_from(digest.finalize()).expect("a CRC of 32 bits fits");
                let mut code = NO_CODE;
                code[..4].copy_from_slice(&value.to_le_bytes());
                code
            }
            Self::None => NO_CODE,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        let code = PayloadKey::Crc.of(1, bytes);
        assert_eq!(code[4..], [0; 12]);
        u32::from_le_bytes([code[0], code[1], code[2], code[3]])
    }

    #[test]
    fn the_checksum_is_the_castagnoli_one() {
        // RFC 3720, appendix B.4.
        let check = |bytes: &[u8], expected| assert_eq!(crc(bytes), expected);
        check(&[0; 32], 0x8a91_36aa);
        check(&[0xff; 32], 0x62a8_ab43);
        check(b"123456789", 0xe306_9283);
        check(b"", 0);
    }

    #[test]
    fn a_code_is_that_of_its_key_and_its_frame() {
        let key = PayloadKey::Mac([7; 16]);
        let code = key.of(1, b"payload");
        assert_eq!(code, key.of(1, b"payload"));
        assert_ne!(code, key.of(1, b"Payload"));
        assert_ne!(code, key.of(2, b"payload"));
        assert_ne!(code, PayloadKey::Mac([8; 16]).of(1, b"payload"));
    }

    /// Made by the C library's code for CPUs without AES instructions; its other ones gave the same.
    #[test]
    fn the_code_is_that_of_every_cpu() {
        let key: Vec<u8> = (0..16).collect();
        let bytes: Vec<u8> = (0..300_u16).map(|at| at as u8).collect();
        let code = PayloadKey::Mac(key.try_into().unwrap()).of(0x0105, &bytes);
        assert_eq!(u128::from_be_bytes(code), 0xa24d_0ac7_2121_a79a_5bab_ea80_b702_4835);
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
            bytes in prop::collection::vec(any::<u8>(), 1..3000), piece in 1..400usize, counter: u64
        ) {
            for key in [PayloadKey::Mac([7; 16]), PayloadKey::Crc] {
                let mut code = key.begin(counter);
                bytes.chunks(piece).for_each(|piece| code.update(piece));
                prop_assert_eq!(code.value(), key.of(counter, &bytes));
            }
            prop_assert_eq!(crc(&bytes), naive(&bytes));
        }
    }
}
