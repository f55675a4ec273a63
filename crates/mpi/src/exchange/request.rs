//! What one process asks another to read for it, as bytes.
//!
//! ```text
//! number of writers
//! of each  node, process, opening, number of runs
//!          of each run  start - start of the run before (zigzag), bytes of a piece, pieces,
//!                       with two pieces or more: stride (zigzag)
//! ```
//!
//! All numbers are LEB128. Regular pieces are one run, whatever their number; the answer has the bytes of all
//! pieces one behind the other, then a byte that says whether they count. Both ends are of one build: what can not be read is an error, and no more.

use hayase_container::Wanted;
use hayase_layout::{ByteCount, LocalExtent, LocalOffset, NodeId, Writer, WriterId};

/// The bytes can not have been written by [`encode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The byte behind an answer whose bytes count; 0 behind others.
pub(crate) const IS_READ: u8 = 1;

/// Bytes of the answer to a request for `wanted_bytes`, with the byte that says whether they count.
pub(crate) fn answer_len(wanted_bytes: u64) -> usize {
    if wanted_bytes == 0 { 0 } else { wanted_bytes as usize + 1 }
}

/// What is asked, with the writers that its pieces have by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) writers: Vec<WriterId>,
    pub(crate) wanted: Vec<Wanted>,
}

/// Pieces of equal length and distance.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    len: u64,
    count: u64,
    stride: i64,
}

/// O(n).
pub(crate) fn encode(wanted: &[Wanted], writer_of: impl Fn(u32) -> Writer) -> Vec<u8> {
    let mut bytes = Vec::new();
    if wanted.is_empty() {
        return bytes;
    }
    put(&mut bytes, wanted.chunk_by(|a, b| a.part == b.part).count() as u64);
    for of_part in wanted.chunk_by(|a, b| a.part == b.part) {
        let writer = writer_of(of_part[0].part).id;
        put(&mut bytes, writer.node.0.into());
        put(&mut bytes, writer.process.into());
        put(&mut bytes, writer.opening);
        let runs = runs(of_part);
        put(&mut bytes, runs.len() as u64);
        let mut before = 0;
        for run in runs {
            put(&mut bytes, zigzag(run.start.wrapping_sub(before) as i64));
            put(&mut bytes, run.len);
            put(&mut bytes, run.count);
            if run.count > 1 {
                put(&mut bytes, zigzag(run.stride));
            }
            before = run.start;
        }
    }
    bytes
}

fn runs(wanted: &[Wanted]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for want in wanted {
        let (start, len) = (want.local.start().0, want.local.len().0);
        if let Some(last) = runs.last_mut()
            && last.len == len
        {
            let end = last.start as i64 + last.stride * (last.count as i64 - 1);
            let stride = start as i64 - end;
            if last.count == 1 || stride == last.stride {
                last.stride = stride;
                last.count += 1;
                continue;
            }
        }
        runs.push(Run { start, len, count: 1, stride: 0 });
    }
    runs
}

/// What was asked; buffers are where the bytes lie in the answer, which begins at `at` and has `bytes`.
///
/// Fails when they do not fit exactly, before there is memory for more.
pub(crate) fn decode(mut source: &[u8], at: usize, bytes: u64) -> Result<Asked, Malformed> {
    let mut asked = Asked::default();
    let (mut next, mut room) = (at, bytes);
    if !source.is_empty() {
        for part in 0..get(&mut source)? {
            let part = u32::try_from(part).map_err(|_| Malformed)?;
            asked.writers.push(get_writer(&mut source)?);
            let mut before = 0_u64;
            for _ in 0..get(&mut source)? {
                let run = get_run(&mut source, before)?;
                before = run.start;
                let all = run.len.checked_mul(run.count).filter(|all| *all > 0 && *all <= room);
                room -= all.ok_or(Malformed)?;
                for nth in 0..run.count {
                    let start = run.start.wrapping_add_signed(run.stride.wrapping_mul(nth as i64));
                    let local = LocalExtent::new(LocalOffset(start), ByteCount(run.len));
                    let local = local.map_err(|_| Malformed)?;
                    let end = next + run.len as usize;
                    asked.wanted.push(Wanted { part, local, buffer: next..end });
                    next = end;
                }
            }
        }
    }
    match room == 0 && source.is_empty() {
        true => Ok(asked),
        false => Err(Malformed),
    }
}

fn get_writer(source: &mut &[u8]) -> Result<WriterId, Malformed> {
    let node = u16::try_from(get(source)?).map_err(|_| Malformed)?;
    let process = u32::try_from(get(source)?).map_err(|_| Malformed)?;
    let opening = get(source)?;
    Ok(WriterId { node: NodeId(node), process, opening })
}

fn get_run(source: &mut &[u8], before: u64) -> Result<Run, Malformed> {
    let start = before.wrapping_add_signed(unzigzag(get(source)?));
    let (len, count) = (get(source)?, get(source)?);
    let stride = if count > 1 { unzigzag(get(source)?) } else { 0 };
    Ok(Run { start, len, count, stride })
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn get(source: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = source.split_first().ok_or(Malformed)?;
        *source = rest;
        let bits = u64::from(first & 0x7f);
        value |= bits << shift;
        if bits << shift >> shift != bits {
            return Err(Malformed);
        }
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use hayase_layout::{Rank, ServerId, units::OFFSET_MAX};
    use proptest::prelude::*;

    use super::*;

    fn writer(part: u32) -> Writer {
        let id = WriterId {
            node: NodeId(part as u16 * 700),
            process: u32::MAX,
            opening: u64::MAX - u64::from(part),
        };
        Writer { id, rank: Rank(0), server: ServerId(0) }
    }

    fn wanted(pieces: &[(u32, u64, u64)]) -> Vec<Wanted> {
        let mut at = 100;
        let piece = |(part, start, len): &(u32, u64, u64)| {
            let buffer = at..at + *len as usize;
            at = buffer.end;
            let local = LocalExtent::new(LocalOffset(*start), ByteCount(*len)).unwrap();
            Wanted { part: *part, local, buffer }
        };
        pieces.iter().map(piece).collect()
    }

    fn sum(wanted: &[Wanted]) -> u64 {
        wanted.iter().map(|want| want.local.len().0).sum()
    }

    proptest! {
        #[test]
        fn what_is_asked_arrives(
            mut pieces in prop::collection::vec(
                (0_u32..3, prop_oneof![0_u64..500, 0..OFFSET_MAX - 9], 1_u64..5), 0..40,
            ),
            regular in 0_u64..30,
        ) {
            pieces.extend((0..regular).map(|nth| (2, 1000 + nth * 48, 8)));
            pieces.sort_by_key(|(part, ..)| *part);
            let wanted = wanted(&pieces);
            let bytes = encode(&wanted, writer);
            let asked = decode(&bytes, 100, sum(&wanted)).unwrap();
            prop_assert_eq!(asked.wanted.len(), wanted.len());
            for (got, want) in asked.wanted.iter().zip(&wanted) {
                prop_assert_eq!((got.local, &got.buffer), (want.local, &want.buffer));
                prop_assert_eq!(asked.writers[got.part as usize], writer(want.part).id);
            }
            prop_assert_eq!(decode(&bytes, 100, sum(&wanted) + 1), Err(Malformed));
        }

        #[test]
        fn any_bytes_are_an_answer_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            room in 0_u64..5000,
        ) {
            if let Ok(asked) = decode(&bytes, 0, room) {
                prop_assert_eq!(sum(&asked.wanted), room);
            }
        }
    }

    #[test]
    fn regular_pieces_are_a_few_bytes() {
        let pieces: Vec<_> = (0..10_000).map(|nth| (1, 77 + nth * 96, 32)).collect();
        let wanted = wanted(&pieces);
        assert!(encode(&wanted, writer).len() < 32);
        assert!(encode(&[], writer).is_empty());
        assert_eq!(decode(&[], 0, 0), Ok(Asked::default()));
    }
}
