//! Sealing and opening: authentication codes, counters and, when asked for, encryption.
//!
//! Without encryption the code is keyed BLAKE3 over header and body, and the header holds the
//! payload's own code ([`super::payload_code`]). With encryption AES-256-GCM covers all three.
//! Pure: no I/O, no clock. Drawn in `FORMAT.md`.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};

use super::SessionError;
use super::payload_code::{NO_CODE, PayloadCode, PayloadKey};
use crate::buffer::Loan;
use crate::header::{COVERED_BYTES, FrameKind, HEADER_BYTES, Header, TAG_BYTES};

const CODE_CONTEXT: &str = "hayase wire v1: authentication of frames";
const PAYLOAD_CONTEXT: &str = "hayase wire v2: authentication of payloads";
const CIPHER_CONTEXT: &str = "hayase wire v1: encryption of frames";

/// What protects the frames of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Body and payload are encrypted.
    Sealed,
    /// Body and payload have authentication codes.
    Authenticated,
    /// The body has one, the payload a checksum.
    Checked,
}

/// What protects one direction of one session.
pub(crate) struct DirectionKeys {
    code: [u8; 32],
    payload: PayloadKey,
    cipher: Option<LessSafeKey>,
}

impl DirectionKeys {
    /// From the key that the handshake gave this direction.
    pub(crate) fn derive(key: &[u8; 32], protection: Protection) -> Self {
        let cipher = (protection == Protection::Sealed).then(|| {
            let key = blake3::derive_key(CIPHER_CONTEXT, key);
            let key = UnboundKey::new(&AES_256_GCM, &key).expect("AES-256 takes any 32 bytes");
            LessSafeKey::new(key)
        });
        let payload = match protection {
            Protection::Authenticated => {
                let derived = blake3::derive_key(PAYLOAD_CONTEXT, key);
                PayloadKey::Mac(*derived.first_chunk().expect("32 bytes have a first half"))
            }
            Protection::Sealed | Protection::Checked => PayloadKey::Crc,
        };
        Self { code: blake3::derive_key(CODE_CONTEXT, key), payload, cipher }
    }

    fn code(&self, covered: &[u8], body: &[u8]) -> [u8; TAG_BYTES] {
        let hash = blake3::Hasher::new_keyed(&self.code).update(covered).update(body).finalize();
        let mut code = [0; TAG_BYTES];
        code.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
        code
    }
}

/// Which of the two encryptions of a frame.
#[derive(Clone, Copy)]
enum Part {
    Body = 0,
    Payload = 1,
}

/// Unique under a key, since a counter is used for one frame.
fn nonce(part: Part, counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[0] = part as u8;
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Numbers and seals the frames of one direction.
pub(crate) struct Sealer {
    keys: DirectionKeys,
    counter: u64,
    /// The encrypted body and payload; the caller's bytes stay as they are for another try.
    body: Vec<u8>,
    payload: Loan,
}

/// Where the bytes of a payload lie.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Borrowed(&'a [u8]),
    Lent(&'a Loan),
}

impl<'a> Payload<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Lent(loan) => loan.bytes(),
        }
    }
}

/// A frame as it travels.
pub(crate) struct Sealed<'a> {
    pub(crate) header: [u8; HEADER_BYTES],
    pub(crate) body: &'a [u8],
    pub(crate) payload: Payload<'a>,
}

impl Sealer {
    pub(crate) fn new(keys: DirectionKeys) -> Self {
        Self { keys, counter: 0, body: Vec::new(), payload: Loan::from(Vec::new()) }
    }

    pub(crate) fn seal<'a>(
        &'a mut self,
        kind: FrameKind,
        request_id: u64,
        body: &'a [u8],
        payload: Payload<'a>,
    ) -> Sealed<'a> {
        self.counter += 1;
        let plain = payload.bytes();
        let mut header = Header {
            kind,
            sealed: self.keys.cipher.is_some(),
            body_len: body.len() as u32,
            payload_len: plain.len() as u32,
            request_id,
            counter: self.counter,
            payload_code: NO_CODE,
            tag: [0; TAG_BYTES],
        };
        let Some(cipher) = &self.keys.cipher else {
            header.payload_code = self.keys.payload.of(self.counter, plain);
            let bytes = header.to_bytes();
            header.tag = self.keys.code(&bytes[..COVERED_BYTES], body);
            return Sealed { header: header.to_bytes(), body, payload };
        };
        const FITS: &str = "frames are far shorter than the cipher's limit";
        self.body.clear();
        let sealed = self.payload.refill(plain);
        if !plain.is_empty() {
            let tag = cipher
                .seal_in_place_separate_tag(
                    nonce(Part::Payload, self.counter),
                    Aad::empty(),
                    sealed,
                )
                .expect(FITS);
            self.body.extend_from_slice(tag.as_ref());
        }
        self.body.extend_from_slice(body);
        header.body_len = self.body.len() as u32;
        let bytes = header.to_bytes();
        let aad = Aad::from(&bytes[..COVERED_BYTES]);
        let tag = cipher
            .seal_in_place_separate_tag(nonce(Part::Body, self.counter), aad, &mut self.body)
            .expect(FITS);
        header.tag.copy_from_slice(tag.as_ref());
        Sealed {
            header: header.to_bytes(),
            body: &self.body,
            payload: Payload::Lent(&self.payload),
        }
    }
}

/// Checks the frames of one direction.
pub(crate) struct Opener {
    keys: DirectionKeys,
    /// Of the last frame.
    counter: u64,
    /// Of the payload that is on its way, when sealed.
    payload_tag: Option<[u8; TAG_BYTES]>,
}

impl Opener {
    pub(crate) fn new(keys: DirectionKeys) -> Self {
        Self { keys, counter: 0, payload_tag: None }
    }

    /// Checks header and body, and decrypts the body.
    pub(crate) fn open(
        &mut self,
        bytes: &[u8; HEADER_BYTES],
        header: &Header,
        body: &mut Vec<u8>,
    ) -> Result<(), SessionError> {
        let forged = SessionError::Forged { counter: header.counter };
        if header.sealed != self.keys.cipher.is_some() {
            return Err(forged);
        }
        let covered = &bytes[..COVERED_BYTES];
        match &self.keys.cipher {
            None => {
                if !equal(&self.keys.code(covered, body), &header.tag) {
                    return Err(forged);
                }
            }
            Some(cipher) => {
                let nonce = nonce(Part::Body, header.counter);
                let tag = Tag::from(header.tag);
                cipher
                    .open_in_place_separate_tag(nonce, Aad::from(covered), tag, body, 0..)
                    .map_err(|_| forged)?;
                if header.payload_len > 0 {
                    let tag = body.first_chunk::<TAG_BYTES>().copied();
                    let tag =
                        tag.ok_or(SessionError::Protocol { what: "a payload without its tag" })?;
                    self.payload_tag = Some(tag);
                    body.drain(..TAG_BYTES);
                }
            }
        }
        // Only a genuine frame can say that it is out of order.
        let expected = self.counter + 1;
        if header.counter != expected {
            return Err(SessionError::OutOfOrder { expected, found: header.counter });
        }
        self.counter = expected;
        Ok(())
    }

    /// Of the payload of the frame that was opened last; takes its pieces.
    pub(super) fn begin_payload(&self, header: &Header) -> PayloadCode {
        match &self.keys.cipher {
            None => self.keys.payload.begin(header.counter),
            Some(_) => PayloadCode::None,
        }
    }

    /// Checks a payload that came whole, and decrypts it. `code` has taken all of it.
    pub(super) fn open_payload(
        &mut self,
        header: &Header,
        payload: &mut [u8],
        code: PayloadCode,
    ) -> Result<(), SessionError> {
        let counter = header.counter;
        let Some(cipher) = &self.keys.cipher else {
            return match equal(&code.value(), &header.payload_code) {
                true => Ok(()),
                false => Err(SessionError::Damaged { counter }),
            };
        };
        let tag = self.payload_tag.take().expect("taken from the body of the same frame");
        cipher
            .open_in_place_separate_tag(
                nonce(Part::Payload, counter),
                Aad::empty(),
                Tag::from(tag),
                payload,
                0..,
            )
            .map_err(|_| SessionError::Forged { counter })?;
        Ok(())
    }

    /// The payload will not be looked at.
    pub(crate) fn skip_payload(&mut self) {
        self.payload_tag = None;
    }
}

/// In the same time wherever they differ.
fn equal(a: &[u8; TAG_BYTES], b: &[u8; TAG_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Protection; 3] =
        [Protection::Sealed, Protection::Authenticated, Protection::Checked];

    fn pair(protection: Protection) -> (Sealer, Opener) {
        let keys = || DirectionKeys::derive(&[7; 32], protection);
        (Sealer::new(keys()), Opener::new(keys()))
    }

    type Owned = ([u8; HEADER_BYTES], Vec<u8>, Vec<u8>);

    fn seal(sealer: &mut Sealer, body: &[u8], payload: &[u8]) -> Owned {
        let sealed = sealer.seal(FrameKind::Request, 5, body, Payload::Borrowed(payload));
        (sealed.header, sealed.body.to_vec(), sealed.payload.bytes().to_vec())
    }

    fn open(opener: &mut Opener, frame: &Owned) -> Result<(Vec<u8>, Vec<u8>), SessionError> {
        let (bytes, mut body, mut payload) = frame.clone();
        let header = Header::parse(&bytes)?;
        opener.open(&bytes, &header, &mut body)?;
        if !payload.is_empty() {
            let mut code = opener.begin_payload(&header);
            code.update(&payload);
            opener.open_payload(&header, &mut payload, code)?;
        }
        Ok((body, payload))
    }

    #[test]
    fn frames_open_once_and_in_order() {
        for protection in ALL {
            let (mut sealer, mut opener) = pair(protection);
            let first = seal(&mut sealer, b"one", b"");
            let second = seal(&mut sealer, b"two", b"payload");
            let third = seal(&mut sealer, b"", b"");
            assert!(matches!(
                open(&mut opener, &second),
                Err(SessionError::OutOfOrder { expected: 1, found: 2 })
            ));
            let (_, mut opener) = pair(protection);
            assert_eq!(open(&mut opener, &first).unwrap(), (b"one".to_vec(), vec![]));
            assert!(matches!(
                open(&mut opener, &first),
                Err(SessionError::OutOfOrder { expected: 2, found: 1 })
            ));
            assert_eq!(open(&mut opener, &second).unwrap(), (b"two".to_vec(), b"payload".to_vec()));
            assert_eq!(open(&mut opener, &third).unwrap(), (vec![], vec![]));
        }
    }

    #[test]
    fn encryption_hides_and_leaves_the_callers_bytes() {
        let (mut sealer, _) = pair(Protection::Sealed);
        let (_, body, payload) = seal(&mut sealer, b"a message of words", b"sixteen bytes ab");
        assert!(!body.windows(7).any(|window| window == b"message"));
        assert_ne!(payload, b"sixteen bytes ab");
        let (_, again, other) = seal(&mut sealer, b"a message of words", b"sixteen bytes ab");
        assert_ne!((body, payload), (again, other), "no two frames look alike");
    }

    #[test]
    fn another_key_or_protection_opens_nothing() {
        let frame = seal(&mut pair(Protection::Authenticated).0, b"body", b"payload");
        for (key, protection) in [
            ([8; 32], Protection::Authenticated),
            ([7; 32], Protection::Sealed),
            ([7; 32], Protection::Checked),
        ] {
            let mut other = Opener::new(DirectionKeys::derive(&key, protection));
            assert!(open(&mut other, &frame).is_err(), "{protection:?}");
        }
    }

    /// A payload of four more bytes that make its CRC32C that of another.
    #[test]
    fn a_payload_made_to_fit_a_checksum_has_no_code() {
        for (protection, passes) in
            [(Protection::Checked, true), (Protection::Authenticated, false)]
        {
            let (mut sealer, mut opener) = pair(protection);
            let payload = b"what was really sent..".to_vec();
            let made = fits(b"what comes instead", PayloadKey::Crc.of(1, &payload));
            assert_ne!(made, payload);
            let (header, body, _) = seal(&mut sealer, b"body", &payload);
            assert_eq!(open(&mut opener, &(header, body, made)).is_ok(), passes, "{protection:?}");
        }
    }

    /// `bytes` and four more, so that the CRC32C is `code`: the table's top bytes are all different, so each step back is one.
    fn fits(bytes: &[u8], code: [u8; 16]) -> Vec<u8> {
        let table: Vec<u32> = (0..256_u32)
            .map(|byte| {
                (0..8).fold(byte, |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
            })
            .collect();
        let mut state = bytes.iter().fold(!0_u32, |crc, byte| {
            (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize]
        });
        let mut back = !u32::from_le_bytes([code[0], code[1], code[2], code[3]]);
        let mut indexes = [0; 4];
        for index in indexes.iter_mut().rev() {
            *index = (0..256).find(|at| table[*at] >> 24 == back >> 24).unwrap();
            back = (back ^ table[*index]) << 8;
        }
        let mut made = bytes.to_vec();
        for index in indexes {
            made.push((state & 0xff) as u8 ^ index as u8);
            state = (state >> 8) ^ table[index];
        }
        made
    }

    proptest! {
        #[test]
        fn no_flipped_bit_passes(
            protection in prop::sample::select(&ALL[..]), body in prop::collection::vec(any::<u8>(), 0..64),
            payload in prop::collection::vec(any::<u8>(), 0..64), at in any::<prop::sample::Index>(), bit in 0..8u8
        ) {
            let (mut sealer, mut opener) = pair(protection);
            let mut frame = seal(&mut sealer, &body, &payload);
            let at = at.index(HEADER_BYTES + frame.1.len() + frame.2.len());
            let body_len = frame.1.len();
            let byte = if at < HEADER_BYTES { &mut frame.0[at] }
                else if at < HEADER_BYTES + body_len { &mut frame.1[at - HEADER_BYTES] }
                else { &mut frame.2[at - HEADER_BYTES - body_len] };
            *byte ^= 1 << bit;
            prop_assert!(open(&mut opener, &frame).is_err());
        }
    }
}
