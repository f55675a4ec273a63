//! Messages to bytes and back, by postcard.
//!
//! Here: size bounds, refusal of trailing bytes. Not here: frames around the bytes
//! ([`crate::header`], [`crate::node`]).

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::BODY_BYTES_MAX;

/// Why a message could not become bytes, or bytes a message.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// More than [`BODY_BYTES_MAX`].
    #[error("message of {bytes} bytes, {BODY_BYTES_MAX} allowed")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
    },
    /// Of a type that postcard can not write.
    #[error("encode message")]
    Encode(#[source] postcard::Error),
    /// Not a message of the expected type.
    #[error("decode message of {bytes} bytes")]
    Decode {
        /// Length of what was given.
        bytes: usize,
        /// What postcard found.
        source: postcard::Error,
    },
    /// A message, and then more.
    #[error("decode message: {bytes} bytes after its end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// The bytes of `message`; at most [`BODY_BYTES_MAX`].
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Result<Vec<u8>, CodecError> {
    let bytes = postcard::to_stdvec(message).map_err(CodecError::Encode)?;
    if bytes.len() > BODY_BYTES_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// The message whose bytes are exactly `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    let (message, rest) = postcard::take_from_bytes(bytes)
        .map_err(|source| CodecError::Decode { bytes: bytes.len(), source })?;
    if rest.is_empty() { Ok(message) } else { Err(CodecError::Trailing { bytes: rest.len() }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{Callback, NodeReply, NodeRequest, PeerReply, PeerRequest, Refused};

    #[test]
    fn a_message_is_exactly_its_bytes() {
        let bytes = encode(&Refused::because(2, "gone")).unwrap();
        assert_eq!(decode::<Refused>(&bytes).unwrap(), Refused::because(2, "gone"));
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(decode::<Refused>(&longer), Err(CodecError::Trailing { bytes: 1 })));
        let shorter = &bytes[..bytes.len() - 1];
        assert!(matches!(decode::<Refused>(shorter), Err(CodecError::Decode { .. })));
    }

    #[test]
    fn sizes_are_bounded_both_ways() {
        let large = vec![1u8; BODY_BYTES_MAX];
        assert!(matches!(encode(&large), Err(CodecError::TooLarge { .. })));
        let received = vec![0u8; BODY_BYTES_MAX + 1];
        assert!(matches!(decode::<Vec<u8>>(&received), Err(CodecError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<NodeRequest>(&bytes);
            let _ = decode::<NodeReply>(&bytes);
            let _ = decode::<Callback>(&bytes);
            let _ = decode::<PeerRequest>(&bytes);
            let _ = decode::<PeerReply>(&bytes);
        }

        #[test]
        fn a_broken_request_never_decodes_with_bytes_left(
            name in prop::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>(), bit in 0..8u8
        ) {
            let mut bytes = encode(&Callback::InvalName {
                parent: hayase_layout::InodeId(77), name, busy: false,
            }).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(other) = decode::<Callback>(&bytes) {
                let again: Callback = decode(&encode(&other).unwrap()).unwrap();
                prop_assert_eq!(again, other);
            }
        }
    }
}
