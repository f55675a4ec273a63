//! What rank 0 tells those who open a file with it, as bytes.
//!
//! Eight words, then the nodes of all ranks (16 bits each), then what is published; little-endian, for processes of
//! one program only.

use hayase_layout::{ByteCount, Epoch, NodeId};

use crate::{error::Error, exchange::Exchange, flat::Flatten, shared_bytes::Consistency};

/// What rank 0 has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Taken(Plan),
    Passed,
    Refused,
}

/// Of a file that is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) epoch: Epoch,
    /// Of the shared pointer.
    pub(super) key: u64,
    pub(super) flatten: Flatten,
    pub(super) consistency: Consistency,
    pub(super) exchange: Exchange,
    /// Of a round of an exchange.
    pub(super) round_bytes: ByteCount,
    /// Where each rank runs.
    pub(super) nodes: Vec<NodeId>,
    /// A snapshot; empty where it is not told.
    pub(super) published: Vec<u8>,
}

const WORDS: usize = 8;
const PASSED: u64 = 0;
const TAKEN: u64 = 1;
const REFUSED: u64 = 2;

impl Told {
    pub(super) fn encode(&self) -> Vec<u8> {
        let plan = match self {
            Self::Passed => return PASSED.to_le_bytes().to_vec(),
            Self::Refused => return REFUSED.to_le_bytes().to_vec(),
            Self::Taken(plan) => plan,
        };
        let words: [u64; WORDS] = [
            TAKEN,
            plan.epoch.0,
            plan.key,
            u64::from(plan.flatten == Flatten::Close),
            u64::from(plan.consistency == Consistency::Posix),
            plan.exchange as u64,
            plan.round_bytes.0,
            plan.nodes.len() as u64,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(plan.nodes.iter().flat_map(|node| node.0.to_le_bytes()));
        bytes.extend_from_slice(&plan.published);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let short = || Error::internal("rank 0 told less than a plan");
        let word = |nth: usize| -> Option<u64> {
            Some(u64::from_le_bytes(*bytes.get(nth * 8..)?.first_chunk()?))
        };
        match word(0).ok_or_else(short)? {
            PASSED => return Ok(Self::Passed),
            REFUSED => return Ok(Self::Refused),
            _ => {}
        }
        let mut words = [0; WORDS];
        for (nth, place) in words.iter_mut().enumerate() {
            *place = word(nth).ok_or_else(short)?;
        }
        let [_, epoch, key, is_flat, is_posix, exchange, round_bytes, ranks] = words;
        let rest = &bytes[WORDS * 8..];
        let end = usize::try_from(ranks).ok().and_then(|ranks| ranks.checked_mul(2));
        let (nodes, published) =
            end.and_then(|end| rest.split_at_checked(end)).ok_or_else(short)?;
        let nodes =
            nodes.chunks_exact(2).map(|node| NodeId(u16::from_le_bytes([node[0], node[1]])));
        Ok(Self::Taken(Plan {
            epoch: Epoch(epoch),
            key,
            flatten: if is_flat == 1 { Flatten::Close } else { Flatten::Keep },
            consistency: if is_posix == 1 { Consistency::Posix } else { Consistency::Mpi },
            exchange: match exchange {
                word if word == Exchange::Off as u64 => Exchange::Off,
                word if word == Exchange::On as u64 => Exchange::On,
                _ => Exchange::Auto,
            },
            round_bytes: ByteCount(round_bytes),
            nodes: nodes.collect(),
            published: published.to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(exchange: Exchange, published: &[u8]) -> Told {
        Told::Taken(Plan {
            epoch: Epoch(7),
            key: u64::MAX - 1,
            flatten: Flatten::Close,
            consistency: Consistency::Posix,
            exchange,
            round_bytes: ByteCount::mib(3),
            nodes: vec![NodeId(1), NodeId(0xfffe), NodeId(1)],
            published: published.to_vec(),
        })
    }

    #[test]
    fn what_is_told_is_understood() {
        for exchange in [Exchange::Off, Exchange::Auto, Exchange::On] {
            for published in [&b""[..], b"records"] {
                let told = plan(exchange, published);
                assert_eq!(Told::decode(&told.encode()).unwrap(), told);
            }
        }
        for told in [Told::Passed, Told::Refused] {
            assert_eq!(Told::decode(&told.encode()).unwrap(), told);
        }
    }

    #[test]
    fn what_is_cut_off_is_no_plan() {
        let bytes = plan(Exchange::Auto, b"").encode();
        for len in 0..bytes.len() {
            assert!(Told::decode(&bytes[..len]).is_err(), "{len}");
        }
    }
}
