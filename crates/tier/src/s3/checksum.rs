//! Checksums that travel with objects: sent for the server to verify, verified when it sends them.
//!
//! Our own CRC32C of a whole object goes along as metadata, so that servers which know nothing of
//! checksums (older Ceph gateways) return it too, also with pieces of the object.
//! Source: Amazon S3 user guide, "Checking object integrity".

use crc_fast::{CrcAlgorithm, Digest};
use data_encoding::BASE64;
use ring::digest;

use super::http::Head;
use super::settings::UploadChecksum;

/// Metadata: CRC32C and length of the bytes as they were put, `<8 hex digits>-<decimal>`.
pub(super) const OWN: &str = "x-amz-meta-hayase-crc32c";

/// The checksum of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    kind: &'static str,
    pub(super) base64: String,
}

impl Sum {
    pub(super) fn of(kind: UploadChecksum, pieces: &[&[u8]]) -> Option<Self> {
        Self::knowing(kind, pieces, None)
    }

    /// The same where the CRC32C is known already.
    pub(super) fn knowing(
        kind: UploadChecksum,
        pieces: &[&[u8]],
        crc: Option<u32>,
    ) -> Option<Self> {
        let crc = || crc.unwrap_or_else(|| crc32c(pieces));
        let (kind, base64) = match kind {
            UploadChecksum::Off => return None,
            UploadChecksum::Crc32c => ("CRC32C", BASE64.encode(&crc().to_be_bytes())),
            UploadChecksum::Sha256 => ("SHA256", sha256(pieces)),
        };
        Some(Self { kind, base64 })
    }

    pub(super) fn header(&self) -> (String, String) {
        (format!("x-amz-checksum-{}", self.kind.to_ascii_lowercase()), self.base64.clone())
    }

    /// As it stands in the list of parts.
    pub(super) fn element(&self) -> String {
        format!("<Checksum{0}>{1}</Checksum{0}>", self.kind, self.base64)
    }
}

/// What the beginning of an upload in parts must announce.
pub(super) fn announcement(kind: UploadChecksum) -> Option<(String, String)> {
    let name = match kind {
        UploadChecksum::Off => return None,
        UploadChecksum::Crc32c => "CRC32C",
        UploadChecksum::Sha256 => "SHA256",
    };
    Some(("x-amz-checksum-algorithm".into(), name.into()))
}

pub(super) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    u32::try_from(digest.finalize()).expect("32 bits")
}

fn sha256(pieces: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    pieces.iter().for_each(|piece| context.update(piece));
    BASE64.encode(context.finish().as_ref())
}

/// The value of [`OWN`].
pub(super) fn own(crc: u32, length: u64) -> String {
    format!("{crc:08x}-{length}")
}

/// Compares a whole object with every checksum that its answer carries.
///
/// # Errors
/// Which one does not fit. Checksums of parts (with a `-`) say nothing about the whole.
pub(super) fn verify(head: &Head, bytes: &[u8]) -> Result<(), String> {
    let sent = |name: &str| head.get(name).filter(|value| !value.contains('-'));
    let differs = |name: &str| Err(format!("its {name} is not the one it was stored with"));
    let (told, ours) = (sent("x-amz-checksum-crc32c"), head.get(OWN));
    if told.is_some() || ours.is_some() {
        let crc = crc32c(&[bytes]);
        if told.is_some_and(|told| told != BASE64.encode(&crc.to_be_bytes())) {
            return differs("CRC32C");
        }
        if ours.is_some_and(|ours| ours != own(crc, bytes.len() as u64)) {
            return differs("CRC32C in `hayase-crc32c`");
        }
    }
    match sent("x-amz-checksum-sha256") {
        Some(told) if told != sha256(&[bytes]) => differs("SHA-256"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_field() {
        // RFC 3720, appendix B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[&[0; 16], &[0; 16]]), 0x8a91_36aa);
        let sum = Sum::of(UploadChecksum::Crc32c, &[&[0; 32]]).unwrap();
        assert_eq!(sum.header(), ("x-amz-checksum-crc32c".into(), "ipE2qg==".into()));
        assert_eq!(sum.element(), "<ChecksumCRC32C>ipE2qg==</ChecksumCRC32C>");
        assert_eq!(own(crc32c(&[b"ab", b"c"]), 3), "364b3fb7-3");
        assert_eq!(Sum::of(UploadChecksum::Off, &[]), None);
    }
}
