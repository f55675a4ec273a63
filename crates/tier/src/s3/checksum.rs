//! Checksums that travel with objects: sent for the server to verify, verified when it sends them.
//!
//! Our own CRC32C of a whole object goes along as metadata, so that servers which know nothing of
//! checksums (older Ceph gateways) return it too, also with pieces of the object.
//! Source: Amazon S3 user guide, "Checking object integrity".

use crc_fast::{CrcAlgorithm, Digest};
use data_encoding::{BASE64, HEXLOWER};
use md5::{Digest as _, Md5};
use ring::digest;

use super::etag::bare;
use super::http::Head;
use super::settings::UploadChecksum;
use super::xml::Element;
use crate::PartSums;

/// Metadata: CRC32C and length of the bytes as they were put, `<8 hex digits>-<decimal>`.
pub(super) const OWN: &str = "x-amz-meta-hayase-crc32c";

/// Metadata: how large the parts were, but the last, in which the object was sent.
pub(super) const PART_BYTES: &str = "x-amz-meta-hayase-part-bytes";

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

    /// Those that a list of parts tells of one, the strongest first.
    pub(super) fn told(part: &Element) -> Vec<Self> {
        let told = |kind: &'static str| {
            let base64 = part.text_of(&format!("Checksum{kind}"))?.to_owned();
            Some(Self { kind, base64 })
        };
        ["SHA256", "CRC32C"].into_iter().filter_map(told).collect()
    }

    /// It is the sum of these bytes.
    pub(super) fn is_of(&self, bytes: &[u8]) -> bool {
        let kind = match self.kind {
            "SHA256" => UploadChecksum::Sha256,
            _ => UploadChecksum::Crc32c,
        };
        Self::of(kind, &[bytes]).as_ref() == Some(self)
    }

    /// As it stands in the list of parts.
    pub(super) fn element(&self) -> String {
        format!("<Checksum{0}>{1}</Checksum{0}>", self.kind, self.base64)
    }
}

/// What the beginning of an upload in parts must announce. A CRC32C is asked for of the whole object, which the server
/// puts together from those of the parts, so that whoever reads it in other parts can compare it for next to nothing; a
/// SHA-256 there is of parts only. A server that does not know the difference keeps that of parts, which readers leave
/// out.
pub(super) fn announcement(kind: UploadChecksum) -> Vec<(String, String)> {
    let header = |name: &str, value: &str| (format!("x-amz-checksum-{name}"), value.to_owned());
    match kind {
        UploadChecksum::Off => Vec::new(),
        UploadChecksum::Crc32c => {
            vec![header("algorithm", "CRC32C"), header("type", "FULL_OBJECT")]
        }
        UploadChecksum::Sha256 => vec![header("algorithm", "SHA256")],
    }
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

/// What an answer tells of all bytes of an object. Checksums of parts (with a `-`) say nothing about the
/// whole and are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    own: Option<String>,
    crc32c: Option<String>,
    sha256: Option<String>,
    /// The entity tag, where it is the MD5 of the bytes.
    md5: Option<String>,
    /// The entity tag of parts, and how large they were.
    parts: Option<(String, u64)>,
}

impl Sums {
    pub(super) fn of(head: &Head) -> Self {
        let told = |name| head.get(name).filter(|value| !value.contains('-')).map(str::to_owned);
        // What a server says of a piece may be the piece's own.
        let stored = |name| if is_whole(head) { told(name) } else { None };
        let is_md5 = |tag: &&str| tag.len() == 32 && tag.bytes().all(|b| b.is_ascii_hexdigit());
        // Of what the server encrypted the tag is another.
        let tag = head.get("etag").filter(|_| !is_encrypted(head)).map(bare);
        let part_bytes = head.get(PART_BYTES).and_then(|bytes| bytes.parse().ok());
        Self {
            own: head.get(OWN).map(str::to_owned),
            crc32c: stored("x-amz-checksum-crc32c"),
            sha256: stored("x-amz-checksum-sha256"),
            md5: tag.filter(is_md5).map(str::to_ascii_lowercase),
            parts: tag.map(str::to_owned).zip(part_bytes),
        }
    }

    /// The same without the entity tag.
    pub(super) fn without_md5(self) -> Self {
        Self { md5: None, parts: None, ..self }
    }

    /// Of an object of `size` bytes that was sent in parts.
    pub(super) fn of_parts(&self, size: u64) -> Option<PartSums> {
        let (tag, part_bytes) = self.parts.as_ref()?;
        PartSums::new(tag, size, *part_bytes)
    }

    /// There is something to compare all bytes with.
    pub(super) fn is_known(&self) -> bool {
        [&self.own, &self.crc32c, &self.sha256, &self.md5].into_iter().any(Option::is_some)
    }

    /// The CRC32C of an object of `size` bytes.
    ///
    /// # Errors
    /// When its writer told that of another size.
    pub(super) fn crc32c(&self, size: u64) -> Result<Option<u32>, String> {
        if let Some((crc, length)) = self.own.as_deref().and_then(parse_own) {
            return match length == size {
                true => Ok(Some(crc)),
                false => Err(differs("length in `hayase-crc32c`")),
            };
        }
        let bytes = self.crc32c.as_ref().and_then(|told| BASE64.decode(told.as_bytes()).ok());
        Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes))
    }

    /// Compares a whole object with all of them; with the MD5, which costs most, where it is the only one.
    ///
    /// # Errors
    /// Which one does not fit.
    pub(super) fn verify(&self, bytes: &[u8]) -> Result<(), String> {
        if self.own.is_some() || self.crc32c.is_some() {
            let crc = crc32c(&[bytes]);
            let base64 = BASE64.encode(&crc.to_be_bytes());
            if self.crc32c.as_ref().is_some_and(|told| *told != base64) {
                return Err(differs("CRC32C"));
            }
            if self.own.as_ref().is_some_and(|told| *told != own(crc, bytes.len() as u64)) {
                return Err(differs("CRC32C in `hayase-crc32c`"));
            }
        }
        if self.sha256.as_ref().is_some_and(|told| *told != sha256(&[bytes])) {
            return Err(differs("SHA-256"));
        }
        let has_other = self.own.is_some() || self.crc32c.is_some() || self.sha256.is_some();
        match &self.md5 {
            Some(told) if !has_other && *told != HEXLOWER.encode(&Md5::digest(bytes)) => {
                let hint = "where the server's entity tags are none: HAYASE_S3_ETAG_MD5=no";
                Err(format!("its MD5 is not its entity tag ({hint})"))
            }
            _ => Ok(()),
        }
    }
}

fn differs(name: &str) -> String {
    format!("its {name} is not the one it was stored with")
}

/// The answer is about the whole object.
fn is_whole(head: &Head) -> bool {
    let covers = |range: &str| {
        let (last, size) = range.strip_prefix("bytes 0-")?.split_once('/')?;
        let (last, size): (u64, u64) = (last.parse().ok()?, size.parse().ok()?);
        Some(last.checked_add(1) == Some(size))
    };
    head.status != 206 || head.get("content-range").and_then(covers) == Some(true)
}

fn is_encrypted(head: &Head) -> bool {
    ["", "-customer-algorithm", "-aws-kms-key-id"]
        .iter()
        .any(|name| head.get(&format!("x-amz-server-side-encryption{name}")).is_some())
}

/// Reads a value of [`OWN`].
fn parse_own(text: &str) -> Option<(u32, u64)> {
    let (crc, length) = text.split_once('-')?;
    Some((u32::from_str_radix(crc, 16).ok()?, length.parse().ok()?))
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
