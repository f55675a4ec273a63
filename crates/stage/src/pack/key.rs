//! Keys of a sealed set: a random data key seals everything, the user's master key wraps the data key.
//!
//! So the master key is changed by writing one small object anew, without touching data. Lost keys are
//! lost data: there is no other way in.
//! Source: NIST SP 800-38D (AES-GCM), RFC 5869 (HKDF).

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf;
use ring::rand::SecureRandom;
use serde::{Deserialize, Serialize};

use super::PackError;

/// Bytes of every key.
const KEY_BYTES: usize = 32;

/// What the user keeps.
#[derive(Clone)]
pub struct MasterKey([u8; KEY_BYTES]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({})", self.id())
    }
}

impl MasterKey {
    /// From what a file, a variable or a command gave: 64 hexadecimal digits (space around them does
    /// not matter), or exactly 32 bytes.
    pub fn parse(given: &[u8]) -> Result<Self, PackError> {
        let text = given.trim_ascii();
        if text.len() == 2 * KEY_BYTES && text.iter().all(u8::is_ascii_hexdigit) {
            let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
            return Ok(Self(bytes.expect("64 digits are 32 bytes")));
        }
        if let Ok(bytes) = given.try_into() {
            return Ok(Self(bytes));
        }
        if given.trim_ascii().is_empty() {
            return Err(PackError::KeyFormat("the key is empty"));
        }
        Err(PackError::KeyFormat("a key is 64 hexadecimal digits, or exactly 32 bytes"))
    }

    /// Names the key without telling it: 8 bytes of a hash, in hexadecimal.
    pub fn id(&self) -> String {
        let hash = digest(&SHA256, &[b"hayase-master-key-id\0", &self.0[..]].concat());
        tohex(&hash.as_ref()[..8])
    }

    fn wrapping_key(&self, salt: &[u8]) -> LessSafeKey {
        derive(&self.0, salt, b"hayase-wrap-1")
    }
}

/// What seals the objects of one set; never stored but wrapped.
#[derive(Clone)]
pub struct DataKey {
    key: [u8; KEY_BYTES],
    id: [u8; 16],
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataKey({})", tohex(&self.id))
    }
}

/// The object that holds a wrapped data key.
#[derive(Debug, Serialize, Deserialize)]
struct Wrapped {
    format: String,
    version: u32,
    /// Of the data key.
    id: String,
    /// Of the master key, so that the wrong one is named.
    master: String,
    salt: String,
    nonce: String,
    wrapped: String,
}

const FORMAT: &str = "hayase-key";

impl DataKey {
    /// A new one.
    pub fn random(random: &dyn SecureRandom) -> Result<Self, PackError> {
        let (mut key, mut id) = ([0; KEY_BYTES], [0; 16]);
        random.fill(&mut key).map_err(|_| PackError::Random)?;
        random.fill(&mut id).map_err(|_| PackError::Random)?;
        Ok(Self { key, id })
    }

    /// Written in the header of every object that it seals.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The text of the key object.
    pub fn wrap(
        &self,
        master: &MasterKey,
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, PackError> {
        let (mut salt, mut nonce) = ([0; 32], [0; 12]);
        random.fill(&mut salt).map_err(|_| PackError::Random)?;
        random.fill(&mut nonce).map_err(|_| PackError::Random)?;
        let mut wrapped = self.key.to_vec();
        master
            .wrapping_key(&salt)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.id),
                &mut wrapped,
            )
            .expect("32 bytes are not too long for AES-GCM");
        let wrapped = Wrapped {
            format: FORMAT.to_owned(),
            version: 1,
            id: tohex(&self.id),
            master: master.id(),
            salt: tohex(&salt),
            nonce: tohex(&nonce),
            wrapped: tohex(&wrapped),
        };
        let mut text = serde_json::to_vec_pretty(&wrapped).expect("strings become JSON");
        text.push(b'\n');
        Ok(text)
    }

    /// From the text of a key object. `place` is named in errors.
    pub fn unwrap(text: &[u8], master: &MasterKey, place: &str) -> Result<Self, PackError> {
        let damaged = || PackError::Damaged {
            object: format!("the key object of {place}"),
            why: "it is no wrapped key".into(),
        };
        let told: Wrapped = serde_json::from_slice(text).map_err(|_| damaged())?;
        if told.format != FORMAT {
            return Err(damaged());
        }
        if told.version != 1 {
            let object = format!("the key object of {place}");
            return Err(PackError::Version { object, found: told.version });
        }
        let bytes = |text: &str| unhex(text.as_bytes()).ok_or_else(damaged);
        let id: [u8; 16] = bytes(&told.id)?.try_into().map_err(|_| damaged())?;
        let nonce: [u8; 12] = bytes(&told.nonce)?.try_into().map_err(|_| damaged())?;
        let (salt, mut wrapped) = (bytes(&told.salt)?, bytes(&told.wrapped)?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = master.wrapping_key(&salt).open_in_place(nonce, Aad::from(id), &mut wrapped);
        let opened: Option<[u8; KEY_BYTES]> = opened.ok().and_then(|key| (&*key).try_into().ok());
        match opened {
            Some(key) => Ok(Self { key, id }),
            None if told.master != master.id() => Err(PackError::WrongKey {
                place: place.to_owned(),
                wanted: told.master,
                given: master.id(),
            }),
            None => Err(damaged()),
        }
    }

    /// The key of one object: each has its own salt, so that nonces may count from 0.
    pub(super) fn object_key(&self, salt: &[u8; 32], object: &str) -> LessSafeKey {
        derive(&self.key, salt, &[b"hayase-seal-1\0", object.as_bytes()].concat())
    }
}

fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> LessSafeKey {
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let okm = pseudorandom.expand(&info, &AES_256_GCM).expect("32 bytes are one block of HKDF");
    LessSafeKey::new(UnboundKey::from(okm))
}

fn tohex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = text.chunks_exact(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_master_key_is_digits_or_bytes() {
        let digits = format!("{}\n", "0f".repeat(32));
        let key = MasterKey::parse(digits.as_bytes()).unwrap();
        assert_eq!(key.id(), MasterKey::parse(&[0x0f; 32]).unwrap().id());
        assert_ne!(key.id(), MasterKey::parse(&[0x10; 32]).unwrap().id());
        for bad in [&b""[..], b" \n", b"password", &[7; 31], &[7; 33], "0g".repeat(32).as_bytes()] {
            assert!(matches!(MasterKey::parse(bad), Err(PackError::KeyFormat(_))));
        }
        assert!(!format!("{key:?}").contains("0f0f"), "a key is never shown");
    }

    #[test]
    fn only_its_own_master_key_unwraps_a_data_key() {
        let random = SystemRandom::new();
        let master = MasterKey::parse(&[1; 32]).unwrap();
        let key = DataKey::random(&random).unwrap();
        let text = key.wrap(&master, &random).unwrap();
        let again = DataKey::unwrap(&text, &master, "x").unwrap();
        assert_eq!((again.key, again.id), (key.key, key.id));
        let other = MasterKey::parse(&[2; 32]).unwrap();
        let error = DataKey::unwrap(&text, &other, "x").unwrap_err();
        assert!(matches!(error, PackError::WrongKey { .. }), "{error}");
        // No change of the object gives another key; a flip in a name of a field may only be refused.
        for bit in 0..text.len() * 8 {
            let mut bad = text.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(opened) = DataKey::unwrap(&bad, &master, "x") {
                assert_eq!(opened.key, key.key, "bit {bit}");
            }
        }
    }
}
