//! Records as bytes: one version byte, then postcard.
//!
//! Here: both directions for every record of the name space.
//! Not here: keys ([`super::keys`]); which records there are (`FORMAT.md`).

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::NamespaceError;

/// Written before every record.
const VERSION: u8 = 1;

/// The bytes of `record`.
pub(super) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let bytes = Vec::with_capacity(96);
    let bytes = postcard::to_extend(&VERSION, bytes).and_then(|b| postcard::to_extend(record, b));
    bytes.expect("records hold only lengths and kinds that postcard knows")
}

/// The record in `bytes`, which were found under `key`.
pub(super) fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, NamespaceError> {
    let corrupt =
        |why: &'static str| NamespaceError::Corrupt { key: key.escape_ascii().to_string(), why };
    match bytes.split_first() {
        None => Err(corrupt("it is empty")),
        Some((&VERSION, record)) => match postcard::take_from_bytes(record) {
            Ok((record, [])) => Ok(record),
            Ok(_) => Err(corrupt("bytes follow it")),
            Err(_) => Err(corrupt("it can not be decoded")),
        },
        Some(_) => Err(corrupt("it has an unknown version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_records_are_errors() {
        let good = encode(&(7u64, b"name".to_vec()));
        assert_eq!(decode::<(u64, Vec<u8>)>(b"k", &good).unwrap(), (7, b"name".to_vec()));
        let check = |bytes: &[u8], text: &str| {
            let error = decode::<(u64, Vec<u8>)>(b"k\x01", bytes).unwrap_err();
            assert_eq!(error.to_string(), format!("the record k\\x01 is damaged: {text}"));
        };
        check(b"", "it is empty");
        check(b"\x09\x07\x00", "it has an unknown version");
        check(&good[..good.len() - 1], "it can not be decoded");
        check(&[&good[..], b"x"].concat(), "bytes follow it");
    }
}
