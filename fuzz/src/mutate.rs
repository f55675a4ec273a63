//! Changes to inputs: small, as accidents make them, and large, as somebody would who means it.

use fastrand::Rng;

/// Longest input that is tried.
const BYTES_MAX: usize = 1 << 16;

/// Bytes at which decoders change their mind.
const EDGES: [u8; 8] = [0x00, 0x01, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x40];

/// A few changes to `input`; `other` is another input to take pieces from.
pub(crate) fn mutate(input: &[u8], other: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..=4) {
        change(&mut bytes, other, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    let at = random.usize(0..=bytes.len());
    let range = |len: usize, random: &mut Rng| {
        let start = random.usize(0..=len);
        start..random.usize(start..=len.min(start + 64))
    };
    match random.u8(0..9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
        1 if at < bytes.len() => bytes[at] = EDGES[random.usize(0..EDGES.len())],
        2 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(random.u8(..)),
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(range(bytes.len(), random))),
        5 => {
            let piece = bytes[range(bytes.len(), random)].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let piece = other[range(other.len(), random)].to_vec();
            bytes.splice(at..at, piece);
        }
        7 => {
            // A number far too large, in the coding of lengths.
            let mut number = vec![0xff; random.usize(1..10)];
            number.push(random.u8(0..0x80));
            let end = (at + 1).min(bytes.len());
            bytes.splice(at.min(end)..end, number);
        }
        _ => bytes.insert(at, random.u8(..)),
    }
}
