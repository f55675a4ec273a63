//! Sealing: AES-256-GCM in chunks that are opened alone, in any order; drawn in `docs/guide/pack-format.md`.
//!
//! Each object has a key of its own (HKDF of the data key, a random salt and the object's name), so
//! nonces count chunks from 0. The header, the chunk's number and whether it is the last are
//! authenticated with each chunk: reordered, exchanged, cut or appended chunks do not open.
//! Source: Hoang, Reyhanitabar, Rogaway, Vizár 2015, "Online Authenticated-Encryption and its
//! Nonce-Reuse Misuse-Resistance" (STREAM).

use ring::aead::{Aad, LessSafeKey, Nonce};
use ring::rand::SecureRandom;

use super::{DataKey, PackError};
use crate::limits::CHUNK_BYTES;

/// Before the first chunk.
pub const HEADER_BYTES: usize = 64;

/// Behind each chunk's bytes.
pub const TAG_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"HAYASESL";
const VERSION: u8 = 1;
const CHUNK_LOG2: u8 = CHUNK_BYTES.trailing_zeros() as u8;
const SEALED_CHUNK: u64 = (CHUNK_BYTES + TAG_BYTES) as u64;

/// What sealing adds to so many plain bytes.
pub fn tags_bytes(plain: u64) -> u64 {
    (HEADER_BYTES + TAG_BYTES) as u64 + plain / CHUNK_BYTES as u64 * TAG_BYTES as u64
}

fn nonce(chunk: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&chunk.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn associated(
    header: &[u8; HEADER_BYTES],
    chunk: u64,
    is_last: bool,
) -> Aad<[u8; HEADER_BYTES + 9]> {
    let mut bytes = [0; HEADER_BYTES + 9];
    bytes[..HEADER_BYTES].copy_from_slice(header);
    bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&chunk.to_be_bytes());
    bytes[HEADER_BYTES + 8] = u8::from(is_last);
    Aad::from(bytes)
}

/// Seals a stream.
pub struct Sealer {
    key: LessSafeKey,
    header: [u8; HEADER_BYTES],
    chunk: u64,
    /// Plain bytes of the chunk that is being filled, at the end of what is sealed; a full chunk waits for the next
    /// byte, since only then it is known not to be the last.
    waiting: usize,
}

impl Sealer {
    /// Begins an object of this name.
    pub fn new(key: &DataKey, object: &str, random: &dyn SecureRandom) -> Result<Self, PackError> {
        let mut salt = [0; 32];
        random.fill(&mut salt).map_err(|_| PackError::Random)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&[VERSION, CHUNK_LOG2]);
        header[16..32].copy_from_slice(&key.id());
        header[32..].copy_from_slice(&salt);
        let key = key.object_key(&salt, object);
        Ok(Self { key, header, chunk: 0, waiting: 0 })
    }

    /// First in the object.
    pub fn header(&self) -> &[u8; HEADER_BYTES] {
        &self.header
    }

    /// How many bytes at the end of `out` are not sealed yet, and must stay there.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Appends `plain` to `out`, which ends with what waits, and seals what chunks it fills.
    pub fn update(&mut self, mut plain: &[u8], out: &mut Vec<u8>) {
        while !plain.is_empty() {
            if self.waiting == CHUNK_BYTES {
                self.seal(false, out);
            }
            let count = plain.len().min(CHUNK_BYTES - self.waiting);
            out.extend_from_slice(&plain[..count]);
            self.waiting += count;
            plain = &plain[count..];
        }
    }

    /// Seals the last chunk, which may be empty only when the whole object is.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.seal(true, out);
    }

    fn seal(&mut self, is_last: bool, out: &mut Vec<u8>) {
        let aad = associated(&self.header, self.chunk, is_last);
        let start = out.len() - self.waiting;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(self.chunk), aad, &mut out[start..])
            .expect("a chunk is not too long for AES-GCM");
        out.extend_from_slice(tag.as_ref());
        (self.waiting, self.chunk) = (0, self.chunk + 1);
    }
}

/// Plain bytes of a sealed object of `sealed` bytes; `None` when no object is that long.
pub fn plain_len(sealed: u64) -> Option<u64> {
    let body = sealed.checked_sub(HEADER_BYTES as u64)?;
    let (full, rest) = (body / SEALED_CHUNK, body % SEALED_CHUNK);
    match rest {
        // The last chunk is empty only in an empty object.
        0 if full > 0 => Some(full * CHUNK_BYTES as u64),
        _ if rest > TAG_BYTES as u64 || (full == 0 && rest == TAG_BYTES as u64) => {
            Some(full * CHUNK_BYTES as u64 + rest - TAG_BYTES as u64)
        }
        _ => None,
    }
}

/// Opens chunks of one object.
pub struct Opener {
    key: LessSafeKey,
    header: [u8; HEADER_BYTES],
    plain: u64,
    object: String,
}

impl Opener {
    /// From the first [`HEADER_BYTES`] and the length of the object `name`; `object` is named in errors.
    pub fn new(
        key: &DataKey,
        name: &str,
        header: &[u8],
        sealed: u64,
        object: &str,
    ) -> Result<Self, PackError> {
        let damaged =
            |why: &str| PackError::Damaged { object: object.to_owned(), why: why.to_owned() };
        let header: [u8; HEADER_BYTES] =
            header.try_into().map_err(|_| damaged("it ends inside its header"))?;
        if &header[..8] != MAGIC {
            return Err(damaged("it is no sealed object"));
        }
        if header[8] != VERSION {
            return Err(PackError::Version { object: object.to_owned(), found: header[8].into() });
        }
        if header[9] != CHUNK_LOG2 || header[16..32] != key.id() {
            return Err(damaged("it was sealed with another data key, or its header was changed"));
        }
        let salt: &[u8; 32] = header[32..].try_into().expect("the header ends with the salt");
        let plain = plain_len(sealed).ok_or_else(|| damaged("no sealed object has this length"))?;
        Ok(Self { key: key.object_key(salt, name), header, plain, object: object.to_owned() })
    }

    /// Plain bytes of the object.
    pub fn len(&self) -> u64 {
        self.plain
    }

    /// The object holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.plain == 0
    }

    /// The chunks that hold plain bytes `offset..offset + len`, which are inside the object, as one
    /// range of sealed bytes: (first chunk, start, length).
    pub fn sealed_range(&self, offset: u64, len: u64) -> (u64, u64, u64) {
        let first = offset / CHUNK_BYTES as u64;
        let end = (offset + len).div_ceil(CHUNK_BYTES as u64).max(first + 1);
        let plain_end = (end * CHUNK_BYTES as u64).min(self.plain);
        let plain_start = first * CHUNK_BYTES as u64;
        let start = HEADER_BYTES as u64 + first * SEALED_CHUNK;
        (first, start, plain_end - plain_start.min(plain_end) + (end - first) * TAG_BYTES as u64)
    }

    /// Opens chunks of a run in place until `wanted` plain bytes of it lie at the front of `chunks`, or all.
    pub fn open(&self, run: &mut Run, chunks: &mut [u8], wanted: usize) -> Result<(), PackError> {
        let last_chunk = self.plain.div_ceil(CHUNK_BYTES as u64).saturating_sub(1);
        // The chunk of an empty object holds nothing but its seal.
        while run.sealed < chunks.len() && (run.opened < wanted || run.sealed == 0) {
            let Run { chunk, sealed: from, opened: to } = *run;
            let end = (from + CHUNK_BYTES + TAG_BYTES).min(chunks.len());
            let aad = associated(&self.header, chunk, chunk == last_chunk);
            // Plain bytes close up to those before them as they are made.
            let opened = self.key.open_within(nonce(chunk), aad, &mut chunks[to..end], from - to..);
            let count = opened.map(|plain| plain.len()).map_err(|_| PackError::Damaged {
                object: self.object.clone(),
                why: format!("the seal of chunk {chunk} does not hold"),
            })?;
            *run = Run { chunk: chunk + 1, sealed: end, opened: to + count };
        }
        Ok(())
    }
}

/// Consecutive chunks in memory, and how far they are opened.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The first chunk that is not, and where it begins.
    chunk: u64,
    sealed: usize,
    /// Plain bytes at the front.
    opened: usize,
}

impl Run {
    /// Whole chunks from `first` on, all of them sealed.
    pub fn new(first: u64) -> Self {
        Self { chunk: first, sealed: 0, opened: 0 }
    }

    /// Plain bytes at the front.
    pub fn opened(&self) -> usize {
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;

    use super::*;

    fn key() -> DataKey {
        DataKey::random(&SystemRandom::new()).unwrap()
    }

    fn seal(key: &DataKey, name: &str, plain: &[u8], piece: usize) -> Vec<u8> {
        let mut sealer = Sealer::new(key, name, &SystemRandom::new()).unwrap();
        let mut out = sealer.header().to_vec();
        for piece in plain.chunks(piece.max(1)) {
            sealer.update(piece, &mut out);
        }
        sealer.finish(&mut out);
        out
    }

    fn open(
        key: &DataKey,
        name: &str,
        sealed: &[u8],
        at: u64,
        len: u64,
    ) -> Result<Vec<u8>, PackError> {
        let header = &sealed[..sealed.len().min(HEADER_BYTES)];
        let opener = Opener::new(key, name, header, sealed.len() as u64, "test")?;
        let (at, len) = (at.min(opener.len()), len.min(opener.len() - at.min(opener.len())));
        let (first, start, count) = opener.sealed_range(at, len);
        let mut chunks = sealed[start as usize..(start + count) as usize].to_vec();
        let skip = (at - first * CHUNK_BYTES as u64) as usize;
        let (mut run, end) = (Run::new(first), skip + len as usize);
        // In two steps, as who wants the first bytes first.
        for wanted in [end / 2, end] {
            opener.open(&mut run, &mut chunks, wanted)?;
            assert!((wanted..=wanted + CHUNK_BYTES).contains(&run.opened()));
        }
        Ok(chunks[skip..end].to_vec())
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| ((at * 31) >> 3) as u8 ^ at as u8).collect()
    }

    #[test]
    fn what_sealing_adds_is_known_before() {
        for len in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 7] {
            let sealed = seal(&key(), "pack-x", &pattern(len), 1000);
            assert_eq!(sealed.len() as u64, len as u64 + tags_bytes(len as u64));
        }
    }

    #[test]
    fn every_length_comes_back_whole() {
        let key = key();
        let chunk = CHUNK_BYTES;
        for len in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 17] {
            let sealed = seal(&key, "a", &pattern(len), 10_000);
            assert_eq!(plain_len(sealed.len() as u64), Some(len as u64));
            assert!(open(&key, "a", &sealed, 0, u64::MAX).unwrap() == pattern(len), "{len}");
        }
        for bad in [0, 63, 64, 79, 64 + SEALED_CHUNK + 1, 64 + SEALED_CHUNK + 16] {
            assert_eq!(plain_len(bad), None, "{bad}");
        }
    }

    #[test]
    fn exchanged_cut_and_foreign_chunks_do_not_open() {
        let key = key();
        let plain = pattern(3 * CHUNK_BYTES + 5);
        let sealed = seal(&key, "a", &plain, 1 << 20);
        let chunk = SEALED_CHUNK as usize;
        let is_refused = |bad: &[u8]| {
            assert!(open(&key, "a", bad, 0, u64::MAX).is_err());
        };
        // Cut anywhere, also between chunks; cut chunks away from the middle; appended.
        for cut in [0, 63, 64, 100, 64 + chunk, 64 + 2 * chunk, 64 + 3 * chunk, sealed.len() - 1] {
            is_refused(&sealed[..cut]);
        }
        is_refused(&[&sealed[..64 + chunk], &sealed[64 + 2 * chunk..]].concat());
        is_refused(&[&sealed[..], &[0; 40]].concat());
        // Two chunks exchanged.
        let (one, two) = (&sealed[64..64 + chunk], &sealed[64 + chunk..64 + 2 * chunk]);
        is_refused(&[&sealed[..64], two, one, &sealed[64 + 2 * chunk..]].concat());
        // Another object's name, chunk or key.
        assert!(open(&key, "b", &sealed, 0, 1).is_err());
        let other = seal(&key, "a", &plain, 1 << 20);
        is_refused(&[&sealed[..64], &other[64..]].concat());
        assert!(open(&self::key(), "a", &sealed, 0, 1).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_range_is_what_the_whole_has_there(
            len in 0usize..200_000, at in 0u64..220_000, count in 0u64..150_000, piece in 1usize..90_000
        ) {
            let key = key();
            let plain = pattern(len);
            let sealed = seal(&key, "a", &plain, piece);
            let range = open(&key, "a", &sealed, at, count).unwrap();
            let start = (at as usize).min(len);
            let end = start.saturating_add(count as usize).min(len);
            prop_assert!(range == plain[start..end]);
        }

        #[test]
        fn a_flipped_bit_anywhere_is_refused(len in 0usize..70_000, place in any::<prop::sample::Index>()) {
            let key = key();
            let mut sealed = seal(&key, "a", &pattern(len), 1 << 20);
            let bit = place.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(open(&key, "a", &sealed, 0, u64::MAX).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn the_seal_of_an_empty_object_is_looked_at() {
        let key = key();
        let sealed = seal(&key, "a", b"", 1);
        assert_eq!(open(&key, "a", &sealed, 0, u64::MAX).unwrap(), b"");
        for at in HEADER_BYTES - 32..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(&key, "a", &bad, 0, u64::MAX).is_err(), "byte {at}");
        }
    }
}
