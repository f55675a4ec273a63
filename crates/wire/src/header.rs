//! The 64 bytes in front of every frame between servers.
//!
//! Here: their fields, their bytes, the bounds that hold for each kind. Not here: what the
//! authentication code covers and how it is made ([`crate::session`]). Drawn in `FORMAT.md`.

use crate::limits::{BODY_BYTES_MAX, HELLO_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Length of a header.
pub const HEADER_BYTES: usize = 64;

/// How much of a header the authentication code covers: all before itself.
pub const COVERED_BYTES: usize = 48;

/// Length of an authentication code or AEAD tag.
pub const TAG_BYTES: usize = 16;

/// Length of the code of a payload.
pub const PAYLOAD_CODE_BYTES: usize = 16;

/// The first four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"HYWF";

/// Changes with the header's form up to the handshake, in which both sides say the version of all the rest: [`crate::message::PROTOCOL_VERSION`].
pub const FRAME_VERSION: u16 = 1;

const FLAG_SEALED: u8 = 1;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A step of the handshake; no code, no payload.
    Hello = 0,
    /// Asks; answered by a `Reply` of the same id.
    Request = 1,
    /// Answers.
    Reply = 2,
    /// "Are you there?"
    Ping = 3,
    /// "I am", asked or not.
    Pong = 4,
    /// The last frame; its body says why, as text.
    Close = 5,
}

/// A header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: FrameKind,
    /// Body and payload are encrypted; the body starts with the payload's tag.
    pub sealed: bool,
    /// Bytes of body behind the header.
    pub body_len: u32,
    /// Bytes of payload behind the body.
    pub payload_len: u32,
    /// Pairs replies with requests.
    pub request_id: u64,
    /// 1 for the first frame of a direction, then one more each.
    pub counter: u64,
    /// Of the payload; zero without one and when sealed.
    pub payload_code: [u8; PAYLOAD_CODE_BYTES],
    /// Code over the bytes before it and the body.
    pub tag: [u8; TAG_BYTES],
}

/// Why 64 bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Something else talks to us.
    #[error("no hayase frame: starts with {:02x?}", .found)]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// Made by another version.
    #[error("frame of version {found}, {FRAME_VERSION} understood")]
    Version {
        /// Its version.
        found: u16,
    },
    /// A kind that does not exist.
    #[error("frame of unknown kind {found}")]
    Kind {
        /// Its number.
        found: u8,
    },
    /// Bits that mean nothing are set.
    #[error("reserved bits set in frame")]
    Reserved,
    /// A body longer than its kind allows.
    #[error("frame announces a body of {bytes} bytes, {max} allowed")]
    Body {
        /// Announced.
        bytes: u32,
        /// Allowed.
        max: usize,
    },
    /// A payload longer than its kind allows.
    #[error("frame announces a payload of {bytes} bytes, {max} allowed")]
    Payload {
        /// Announced.
        bytes: u32,
        /// Allowed.
        max: usize,
    },
}

impl FrameKind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Hello, Self::Request, Self::Reply, Self::Ping, Self::Pong, Self::Close]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Most bytes of body and of payload.
    fn bounds(self) -> (usize, usize) {
        match self {
            // A sealed body is longer by the payload's tag.
            Self::Request | Self::Reply => (BODY_BYTES_MAX + TAG_BYTES, PAYLOAD_BYTES_MAX),
            Self::Hello | Self::Close => (HELLO_BYTES_MAX, 0),
            Self::Ping | Self::Pong => (0, 0),
        }
    }
}

impl Header {
    /// As it travels; the tag is written as it is.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        bytes[6] = self.kind as u8;
        bytes[7] = if self.sealed { FLAG_SEALED } else { 0 };
        bytes[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.counter.to_le_bytes());
        bytes[32..COVERED_BYTES].copy_from_slice(&self.payload_code);
        bytes[COVERED_BYTES..].copy_from_slice(&self.tag);
        bytes
    }

    /// Checks everything that can be checked without a key.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let u32_at = |at: usize| u32::from_le_bytes(part(bytes, at));
        let u64_at = |at: usize| u64::from_le_bytes(part(bytes, at));
        let magic = part(bytes, 0);
        if magic != MAGIC {
            return Err(HeaderError::Magic { found: magic });
        }
        let version = u16::from_le_bytes(part(bytes, 4));
        if version != FRAME_VERSION {
            return Err(HeaderError::Version { found: version });
        }
        let kind = FrameKind::from_number(bytes[6]).ok_or(HeaderError::Kind { found: bytes[6] })?;
        if bytes[7] & !FLAG_SEALED != 0 {
            return Err(HeaderError::Reserved);
        }
        let (body_len, payload_len) = (u32_at(8), u32_at(12));
        let (body_max, payload_max) = kind.bounds();
        if body_len as usize > body_max {
            return Err(HeaderError::Body { bytes: body_len, max: body_max });
        }
        if payload_len as usize > payload_max {
            return Err(HeaderError::Payload { bytes: payload_len, max: payload_max });
        }
        Ok(Self {
            kind,
            sealed: bytes[7] & FLAG_SEALED != 0,
            body_len,
            payload_len,
            request_id: u64_at(16),
            counter: u64_at(24),
            payload_code: part(bytes, 32),
            tag: part(bytes, COVERED_BYTES),
        })
    }
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a range of N bytes is an array of N")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            kind: FrameKind::Request,
            sealed: false,
            body_len: 3,
            payload_len: 1 << 20,
            request_id: 9,
            counter: 1,
            payload_code: [9; PAYLOAD_CODE_BYTES],
            tag: [7; TAG_BYTES],
        }
    }

    /// The header's bytes with `value` at `at`.
    fn check(at: usize, value: &[u8], expected: HeaderError) {
        let mut bytes = header().to_bytes();
        bytes[at..at + value.len()].copy_from_slice(value);
        assert_eq!(Header::parse(&bytes), Err(expected));
    }

    #[test]
    fn headers_survive_their_bytes() {
        assert_eq!(Header::parse(&header().to_bytes()), Ok(header()));
    }

    #[test]
    fn bad_headers_are_told_apart() {
        check(0, b"HTTP", HeaderError::Magic { found: *b"HTTP" });
        check(4, &[9, 0], HeaderError::Version { found: 9 });
        check(6, &[6], HeaderError::Kind { found: 6 });
        check(7, &[2], HeaderError::Reserved);
        let max = BODY_BYTES_MAX + TAG_BYTES;
        check(8, &[0xff; 4], HeaderError::Body { bytes: u32::MAX, max });
        let over = PAYLOAD_BYTES_MAX as u32 + 1;
        check(
            12,
            &over.to_le_bytes(),
            HeaderError::Payload { bytes: over, max: PAYLOAD_BYTES_MAX },
        );
        // A ping carries nothing.
        check(6, &[FrameKind::Ping as u8], HeaderError::Body { bytes: 3, max: 0 });
    }

    proptest! {
        #[test]
        fn what_parses_is_written_the_same(
            mut bytes in any::<[u8; 32]>(), code in any::<[u8; 16]>(), tag in any::<[u8; 16]>()
        ) {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
            bytes[6] %= 8;
            let mut whole = [0; HEADER_BYTES];
            whole[..32].copy_from_slice(&bytes);
            whole[32..48].copy_from_slice(&code);
            whole[48..].copy_from_slice(&tag);
            if let Ok(header) = Header::parse(&whole) {
                prop_assert_eq!(header.to_bytes(), whole);
            }
        }
    }
}
