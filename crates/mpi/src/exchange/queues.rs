//! What one process still wants of each, and how much of it in which round.
//!
//! Here: dealing out a plan, cutting rounds. Pure: what is where on disk and who is who comes from outside.
//!
//! A round is bounded twice: in what a process gets, and in what it reads for others. So each pair of
//! processes has its share of the buffer, in bytes and in pieces, whoever wants what.

use std::collections::VecDeque;

use hayase_container::Wanted;
use hayase_layout::{ByteCount, LocalOffset, Writer, WriterId};

use super::owners::Owners;

/// A piece that is so long is read by who wants it: nothing would be saved.
pub(crate) const ALONE_BYTES_MIN: u64 = ByteCount::kib(256).0;

/// Least share of a pair: with very many processes the buffer grows.
const PAIR_BYTES_MIN: u64 = ByteCount::kib(64).0;

/// Pieces of all pairs of a process in one round, and the least share of one.
const ROUND_PIECES: usize = 1 << 18;
const PAIR_PIECES_MIN: usize = 256;

/// What MPI can count of one call, halved: requests and status bytes come with it.
const ROUND_BYTES_MAX: u64 = 1 << 30;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queues {
    /// By rank.
    waiting: Vec<VecDeque<Wanted>>,
    pair_bytes: u64,
    pair_pieces: usize,
}

impl Queues {
    /// Among so many processes, with about so many bytes for a round.
    pub(crate) fn new(ranks: usize, round_bytes: ByteCount) -> Self {
        let ranks = ranks.max(1);
        let most = (ROUND_BYTES_MAX / ranks as u64).max(1);
        Self {
            waiting: vec![VecDeque::new(); ranks],
            pair_bytes: (round_bytes.0 / ranks as u64).max(PAIR_BYTES_MIN).min(most),
            pair_pieces: (ROUND_PIECES / ranks).max(PAIR_PIECES_MIN),
        }
    }

    /// Deals out what is wanted, sorted by part and place; what the process is to read by itself comes back:
    /// long pieces, and what `is_own` says that it wrote.
    pub(crate) fn fill(
        &mut self,
        wanted: Vec<Wanted>,
        owners: &Owners,
        writer_of: impl Fn(u32) -> Writer,
        is_own: impl Fn(WriterId) -> bool,
    ) -> Vec<Wanted> {
        let mut alone = Vec::new();
        for want in wanted {
            let writer = writer_of(want.part);
            if want.local.len().0 >= ALONE_BYTES_MIN || is_own(writer.id) {
                alone.push(want);
                continue;
            }
            let mut at = want.buffer.start;
            for (owner, local) in owners.split(&writer, want.local) {
                let end = at + local.len().0 as usize;
                self.waiting[owner as usize].push_back(Wanted {
                    part: want.part,
                    local,
                    buffer: at..end,
                });
                at = end;
            }
        }
        alone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
    }

    /// Takes what is asked of each rank in the next round.
    pub(crate) fn next_round(&mut self) -> Vec<Vec<Wanted>> {
        let (pair_bytes, pair_pieces) = (self.pair_bytes, self.pair_pieces);
        self.waiting.iter_mut().map(|waiting| take(waiting, pair_bytes, pair_pieces)).collect()
    }
}

fn take(waiting: &mut VecDeque<Wanted>, bytes_max: u64, pieces_max: usize) -> Vec<Wanted> {
    let (mut taken, mut room) = (Vec::new(), bytes_max);
    while room > 0
        && taken.len() < pieces_max
        && let Some(next) = waiting.front_mut()
    {
        let len = next.local.len().0;
        if len <= room {
            room -= len;
            taken.extend(waiting.pop_front());
            continue;
        }
        let (now, later) = next.local.split_at(LocalOffset(next.local.start().0 + room));
        let middle = next.buffer.start + room as usize;
        taken.push(Wanted { part: next.part, local: now, buffer: next.buffer.start..middle });
        (next.local, next.buffer.start) = (later, middle);
        room = 0;
    }
    taken
}

#[cfg(test)]
mod tests {
    use hayase_layout::{LocalExtent, NodeId, Rank, ServerId};
    use proptest::prelude::*;

    use super::*;

    const OWN: u32 = 1; // the process of the writers that this one is

    fn writers() -> Vec<Writer> {
        let writer = |node, process, rank| Writer {
            id: WriterId { node: NodeId(node), process, opening: 0 },
            rank: Rank(rank),
            server: ServerId(0),
        };
        vec![writer(0, 0, 0), writer(0, OWN, 1), writer(1, 2, 2), writer(9, 3, 3)]
    }

    fn any_wanted() -> impl Strategy<Value = Vec<Wanted>> {
        let far = 3 * super::super::owners::UNIT.0;
        let piece = (0_u32..4, 0..far, prop_oneof![1_u64..2000, 100_000_u64..600_000]);
        prop::collection::vec(piece, 0..60).prop_map(|pieces| {
            let mut at = 0;
            let mut wanted: Vec<_> = pieces
                .into_iter()
                .map(|(part, start, len)| {
                    let buffer = at..at + len as usize;
                    at += len as usize + 3;
                    let local = LocalExtent::new(LocalOffset(start), ByteCount(len)).unwrap();
                    Wanted { part, local, buffer }
                })
                .collect();
            wanted.sort_by_key(|want| (want.part, want.local.start(), want.buffer.start));
            wanted
        })
    }

    /// Where each byte of the buffer is to come from: stretches (start, bytes, part, place in it), longest
    /// possible. Bytes that are asked for twice begin inside of another stretch.
    fn stretches(wanted: &[Wanted]) -> Vec<(usize, u64, u32, u64)> {
        let mut wanted = wanted.to_vec();
        wanted.sort_by_key(|want| want.buffer.start);
        let mut found: Vec<(usize, u64, u32, u64)> = Vec::new();
        for want in wanted {
            assert_eq!(want.local.len().0, want.buffer.len() as u64);
            let (at, len, place) = (want.buffer.start, want.local.len().0, want.local.start().0);
            match found.last_mut() {
                Some((start, bytes, part, from))
                    if *start + *bytes as usize == at
                        && *part == want.part
                        && *from + *bytes == place =>
                {
                    *bytes += len;
                }
                _ => found.push((at, len, want.part, place)),
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The naive model: every byte is asked for once, of the one rank whose it is, in as few bytes a round.
        #[test]
        fn rounds_ask_for_each_byte_once(
            wanted in any_wanted(),
            nodes in prop::collection::vec(0_u16..3, 1..6),
            round_bytes in prop_oneof![Just(1_u64), 1_u64..2_000_000, Just(u64::MAX)],
        ) {
            let writers = writers();
            let owners = Owners::new(&nodes.iter().map(|node| NodeId(*node)).collect::<Vec<_>>());
            let mut queues = Queues::new(nodes.len(), ByteCount(round_bytes));
            let alone = queues.fill(
                wanted.clone(),
                &owners,
                |part| writers[part as usize],
                |writer| writer.process == OWN,
            );
            for want in &alone {
                let is_own = writers[want.part as usize].id.process == OWN;
                prop_assert!(is_own || want.local.len().0 >= ALONE_BYTES_MIN);
            }
            let mut found = alone;
            let share = (round_bytes / nodes.len() as u64).max(PAIR_BYTES_MIN);
            while !queues.is_empty() {
                let round = queues.next_round();
                prop_assert_eq!(round.len(), nodes.len());
                prop_assert!(round.iter().any(|asked| !asked.is_empty()), "a round for nothing");
                for (rank, asked) in (0..).zip(&round) {
                    prop_assert!(asked.iter().map(|want| want.local.len().0).sum::<u64>() <= share);
                    for want in asked {
                        let writer = &writers[want.part as usize];
                        let last = LocalOffset(want.local.end().0 - 1);
                        prop_assert_eq!(owners.of(writer, want.local.start()), rank);
                        prop_assert_eq!(owners.of(writer, last), rank);
                    }
                    found.extend_from_slice(asked);
                }
            }
            prop_assert_eq!(stretches(&found), stretches(&wanted));
        }
    }

    #[test]
    fn a_round_has_a_bound_for_its_pieces_too() {
        let mut queues = Queues::new(2, ByteCount::mib(16));
        let count = ROUND_PIECES;
        let wanted = (0..count).map(|nth| Wanted {
            part: 0,
            local: LocalExtent::new(LocalOffset(nth as u64 * 2), ByteCount(1)).unwrap(),
            buffer: nth..nth + 1,
        });
        let owners = Owners::new(&[NodeId(0), NodeId(1)]);
        queues.fill(wanted.collect(), &owners, |_| writers()[0], |_| false);
        let round = queues.next_round();
        assert_eq!(round[0].len(), ROUND_PIECES / 2);
        assert!(round[1].is_empty(), "node 0 has rank 0 only");
        assert_eq!(queues.next_round()[0].len(), ROUND_PIECES / 2);
        assert!(queues.is_empty());
    }
}
