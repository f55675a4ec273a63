//! Blocks: what one publication appends, framed so that a torn end is told from damage.
//!
//! A writer appends to its own index only, and never after a failure, so whatever a kill or a power cut
//! leaves behind is at the end: a block of which bytes were never written is *torn*. These are zeros, or behind the end
//! of the file. A bad block with a good one behind it, and one that was written as a whole, is *damage*, and nothing of
//! that index is believed.

use crate::format::{Entry, checksum};
use crate::limits::BLOCK_BYTES_MAX;

/// Magic, length of the payload, number of the block, checksum of these and the payload.
pub(crate) const FRAME_BYTES: usize = 24;

const MAGIC: &[u8; 4] = b"HYBK";

/// This many zeros at the start or the end of a block were never written: no block begins or ends with eight zeros.
const ZEROS_MIN: usize = 8;

/// This many zeros anywhere: storage writes at least a sector at once.
const SECTOR: usize = 512;

/// What is behind the last good block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    Clean,
    /// So many bytes that are no whole block: being written right now, or torn.
    Torn(u64),
}

/// A block that can not be what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Byte of what was given.
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

/// One block with these entries; `number` counts the blocks of the index from 0.
///
/// Panics when it would be larger than blocks may be: [`split_entries`] sees to that.
pub(crate) fn draw_block(number: u64, entries: &[Entry]) -> Vec<u8> {
    let payload = postcard::to_stdvec(entries).expect("entries are plain data");
    assert!(payload.len() as u64 <= BLOCK_BYTES_MAX.get(), "entries were split before");
    let mut bytes = Vec::with_capacity(FRAME_BYTES + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    let sum = checksum(&[&bytes, &payload]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// The entries of the blocks in `bytes`, which are at `from` in their file, and the first of which has this number; how
/// many blocks, how many bytes they take, and what is behind them.
pub(crate) fn parse_blocks(
    bytes: &[u8],
    from: u64,
    first: u64,
) -> Result<(Vec<Entry>, u64, usize, Tail), Damage> {
    let (mut entries, mut at, mut number) = (Vec::new(), 0, first);
    while at < bytes.len() {
        let Some((payload, end)) = frame(bytes, at, number) else {
            // Blocks of a higher number behind it: this one was whole once.
            if (at + 1..bytes.len()).any(|later| begins_later_block(bytes, later, number)) {
                return Err(Damage { at, what: "a block is damaged, and a good one is behind it" });
            }
            if !is_torn(&bytes[at..], from + at as u64) {
                return Err(Damage { at, what: "a block is damaged" });
            }
            return Ok((entries, number, at, Tail::Torn((bytes.len() - at) as u64)));
        };
        let what = "a block with a good checksum holds no entries that are known";
        let more: Vec<Entry> =
            postcard::from_bytes(payload).map_err(|_| Damage { at: at + FRAME_BYTES, what })?;
        entries.extend(more);
        (at, number) = (end, number + 1);
    }
    Ok((entries, number, at, Tail::Clean))
}

/// Whether bytes of `block`, which is at `offset` in its file, is not good and has nothing good behind it, were never
/// written.
fn is_torn(block: &[u8], offset: u64) -> bool {
    let Some(frame) = block.get(..FRAME_BYTES) else { return true };
    let are_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let (start, end) = (&block[..ZEROS_MIN], &block[block.len() - ZEROS_MIN..]);
    let mut longest = block.split(|byte| *byte != 0).map(<[u8]>::len);
    if are_zeros(start) || are_zeros(end) || longest.any(|zeros| zeros >= SECTOR) {
        return true;
    }
    // Sectors are those of the file: of the first and the last one the block may have fewer bytes.
    let before = offset.next_multiple_of(SECTOR as u64) - offset;
    let behind = (offset + block.len() as u64) % SECTOR as u64;
    let is_hole = |bytes: &[u8]| !bytes.is_empty() && are_zeros(bytes);
    if let Some((first, rest)) = block.split_at_checked(before as usize)
        && !rest.is_empty()
        && (is_hole(first) || is_hole(&rest[rest.len().saturating_sub(behind as usize)..]))
    {
        return true;
    }
    let payload = &block[FRAME_BYTES..];
    let told = u32::from_le_bytes(frame[4..8].try_into().expect("four bytes"));
    if frame[..4] != MAGIC[..] || told as usize <= payload.len() {
        return false;
    }
    // It continues behind the end of the file, unless its length is what is damaged.
    let len = (payload.len() as u32).to_le_bytes();
    checksum(&[&frame[..4], &len, &frame[8..16], payload]).to_le_bytes() != frame[16..]
}

/// The entries of the block that ends where `bytes` end; `None` where no good block does.
pub(crate) fn last_block(bytes: &[u8]) -> Option<Vec<Entry>> {
    let ends_here = |at: usize| any_frame(bytes, at).filter(|(_, _, end)| *end == bytes.len());
    let (_, payload, _) = (0..bytes.len()).find_map(ends_here)?;
    postcard::from_bytes(payload).ok()
}

/// The payload of the good block with this number at `at`, and where it ends.
fn frame(bytes: &[u8], at: usize, number: u64) -> Option<(&[u8], usize)> {
    let (found, payload, end) = any_frame(bytes, at)?;
    (found == number).then_some((payload, end))
}

fn begins_later_block(bytes: &[u8], at: usize, number: u64) -> bool {
    any_frame(bytes, at).is_some_and(|(found, _, _)| found > number)
}

fn any_frame(bytes: &[u8], at: usize) -> Option<(u64, &[u8], usize)> {
    let frame = bytes.get(at..at + FRAME_BYTES)?;
    if frame[..4] != MAGIC[..] {
        return None;
    }
    let len = u32::from_le_bytes(frame[4..8].try_into().ok()?) as usize;
    let number = u64::from_le_bytes(frame[8..16].try_into().ok()?);
    let start = at + FRAME_BYTES;
    let payload = bytes.get(start..start.checked_add(len)?)?;
    let is_good = checksum(&[&frame[..16], payload]).to_le_bytes() == frame[16..];
    is_good.then_some((number, payload, start + len))
}

fn encoded_len(entry: &Entry) -> u64 {
    let size = postcard::serialize_with_flavor(entry, postcard::ser_flavors::Size::default());
    size.expect("entries are plain data") as u64
}

/// The same entries in as many lists as it takes for each to fit into a block.
///
/// Fails on one entry that fits into none: a view of tens of millions of irregular pieces.
pub(crate) fn split_entries(entries: Vec<Entry>) -> Result<Vec<Vec<Entry>>, Entry> {
    // What postcard needs to say how many there are.
    let (budget, mut used) = (BLOCK_BYTES_MAX.get() - 10, 0);
    let mut lists: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        let size = encoded_len(&entry);
        if size > budget {
            return Err(entry);
        }
        match lists.last_mut().filter(|_| used + size <= budget) {
            Some(last) => {
                last.push(entry);
                used += size;
            }
            None => {
                lists.push(vec![entry]);
                used = size;
            }
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use hayase_layout::Epoch;
    use proptest::prelude::*;

    use super::*;

    fn three_blocks() -> Vec<u8> {
        let block = |number| draw_block(number, &[Entry::Latest(Epoch(number)), Entry::Complete]);
        (0..3).flat_map(block).collect()
    }

    #[test]
    fn whole_blocks_are_read_and_their_number_counts() {
        let bytes = three_blocks();
        let (entries, blocks, used, tail) = parse_blocks(&bytes, 0, 0).unwrap();
        assert_eq!((entries.len(), blocks, used, tail), (6, 3, bytes.len(), Tail::Clean));
        // Blocks from elsewhere in the index are not what is expected here.
        assert!(parse_blocks(&bytes[bytes.len() / 3..], 0, 0).is_err());
        let (entries, ..) = parse_blocks(&bytes[bytes.len() / 3..], 0, 1).unwrap();
        assert_eq!(entries.len(), 4);
    }

    #[test]
    fn a_block_is_torn_where_bytes_of_it_were_never_written_and_damaged_where_they_were() {
        let good = three_blocks();
        let third = good.len() / 3;
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damage = parse_blocks(&bytes, 0, 0).expect_err("believed, or taken for torn");
            assert_eq!(damage.at, bit / 8 / third * third, "bit {bit}");
        }
        for len in 0..=good.len() {
            let (entries, blocks, used, tail) = parse_blocks(&good[..len], 0, 0).unwrap();
            let whole = len / third;
            assert_eq!((entries.len(), blocks, used), (whole * 2, whole as u64, whole * third));
            let torn = Tail::Torn((len - used) as u64);
            assert_eq!(tail, if len == used { Tail::Clean } else { torn }, "cut at {len}");
        }
    }

    #[test]
    fn a_block_with_a_page_that_was_never_written_is_torn() {
        let entries: Vec<_> = (1..2000).map(|epoch| Entry::Latest(Epoch(epoch))).collect();
        let good = draw_block(0, &entries);
        for hole in [0..512, 512..1024, 1024..good.len()] {
            let mut bytes = good.clone();
            bytes[hole.clone()].fill(0);
            let (entries, _, _, tail) = parse_blocks(&bytes, 0, 0).unwrap();
            assert!(entries.is_empty() && tail == Tail::Torn(good.len() as u64), "{hole:?}");
        }
    }

    /// Wherever the block begins in its file.
    #[test]
    fn a_block_whose_first_or_last_sector_was_never_written_is_torn() {
        let entries: Vec<_> = (1..400).map(|epoch| Entry::Latest(Epoch(epoch))).collect();
        let good = draw_block(0, &entries);
        assert!(good.len() > 2 * SECTOR);
        for from in 0..SECTOR as u64 {
            let before = (from.next_multiple_of(SECTOR as u64) - from) as usize;
            let behind = (from as usize + good.len()) % SECTOR;
            for hole in [0..before, good.len() - behind..good.len()] {
                let mut bytes = good.clone();
                bytes[hole.clone()].fill(0);
                if bytes != good {
                    let (.., tail) = parse_blocks(&bytes, from, 0).unwrap();
                    assert_eq!(tail, Tail::Torn(good.len() as u64), "{hole:?} at {from}");
                }
            }
        }
    }

    #[test]
    fn many_entries_become_several_blocks() {
        let entries = vec![Entry::Complete; 5];
        assert_eq!(split_entries(entries.clone()).unwrap(), [entries]);
        assert_eq!(split_entries(Vec::new()).unwrap(), Vec::<Vec<Entry>>::new());
    }

    proptest! {
        /// Whatever the bytes are, nothing panics, and what is read was written.
        #[test]
        fn changed_bytes_are_refused_or_torn(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            len in any::<prop::sample::Index>()
        ) {
            let good = three_blocks();
            let mut bytes = good.clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(len.index(good.len() + 1));
            if let Ok((entries, blocks, used, _)) = parse_blocks(&bytes, 0, 0) {
                prop_assert_eq!(&bytes[..used], &good[..used]);
                prop_assert_eq!(entries.len() as u64, blocks * 2);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_torn(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((entries, ..)) = parse_blocks(&bytes, 0, 0) {
                prop_assert!(entries.is_empty());
            }
            let _ = crate::Snapshot::decode(&bytes); // refused or not: it comes back
        }
    }
}
