//! What comes over networks and sockets.

use std::fmt::Debug;

use hayase_wire::header::{FrameKind, HEADER_BYTES, Header, TAG_BYTES};
use hayase_wire::message::{
    Callback, CallbackReply, NodeReply, NodeRequest, PeerReply, PeerRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{way, way_of};

/// More kinds of messages than there are, and more fields than any has.
const KINDS_MAX: u8 = 127;
const ZEROS_MAX: usize = 128;

/// One message of each kind: zeros are the first of everything, and empty.
fn one_of_each<T: DeserializeOwned>() -> Vec<Vec<u8>> {
    let tries = (0..KINDS_MAX).flat_map(|kind| {
        (0..ZEROS_MAX).map(move |zeros| {
            let mut bytes = vec![kind];
            bytes.resize(1 + zeros, 0);
            bytes
        })
    });
    tries.filter(|bytes| hayase_wire::decode::<T>(bytes).is_ok()).collect()
}

/// What decodes can be encoded, and is the same then.
fn decode<T: DeserializeOwned + Serialize + Debug + PartialEq>(bytes: &[u8]) -> u64 {
    let decoded = hayase_wire::decode::<T>(bytes);
    if let Ok(message) = &decoded {
        let again = hayase_wire::encode(message).expect("what was decoded encodes");
        assert_eq!(hayase_wire::decode::<T>(&again).ok().as_ref(), Some(message));
    }
    way_of(decoded, |message| {
        let text = format!("{message:?}");
        way(text.replace(|c: char| c.is_ascii_digit(), ""))
    })
}

pub(super) fn header(bytes: &[u8]) -> u64 {
    let mut header = [0; HEADER_BYTES];
    let len = bytes.len().min(HEADER_BYTES);
    header[..len].copy_from_slice(&bytes[..len]);
    let parsed = Header::parse(&header);
    if let Ok(parsed) = &parsed {
        assert_eq!(parsed.to_bytes(), header, "nothing of a header is ignored");
    }
    way_of(parsed, |header| way(format!("{:?}", header.kind)))
}

pub(super) fn headers() -> Vec<Vec<u8>> {
    let header = |kind| Header {
        kind,
        sealed: false,
        body_len: 0,
        payload_len: 0,
        request_id: 3,
        counter: 1,
        payload_code: [0; 16],
        tag: [7; TAG_BYTES],
    };
    let kinds = [FrameKind::Hello, FrameKind::Request, FrameKind::Reply, FrameKind::Pong];
    kinds.map(|kind| header(kind).to_bytes().to_vec()).to_vec()
}

pub(super) fn peer_requests() -> Vec<Vec<u8>> {
    one_of_each::<PeerRequest>()
}

pub(super) fn peer_request(bytes: &[u8]) -> u64 {
    decode::<PeerRequest>(bytes)
}

pub(super) fn peer_replies() -> Vec<Vec<u8>> {
    one_of_each::<PeerReply>()
}

pub(super) fn peer_reply(bytes: &[u8]) -> u64 {
    decode::<PeerReply>(bytes)
}

pub(super) fn node_requests() -> Vec<Vec<u8>> {
    one_of_each::<NodeRequest>()
}

pub(super) fn node_request(bytes: &[u8]) -> u64 {
    decode::<NodeRequest>(bytes)
}

pub(super) fn node_replies() -> Vec<Vec<u8>> {
    one_of_each::<NodeReply>()
}

pub(super) fn node_reply(bytes: &[u8]) -> u64 {
    decode::<NodeReply>(bytes)
}

pub(super) fn callbacks() -> Vec<Vec<u8>> {
    let mut both = one_of_each::<Callback>();
    both.extend(one_of_each::<CallbackReply>());
    both
}

pub(super) fn callback(bytes: &[u8]) -> u64 {
    decode::<Callback>(bytes) ^ decode::<CallbackReply>(bytes).rotate_left(1)
}
