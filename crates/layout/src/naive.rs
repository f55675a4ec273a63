//! The same maps, one byte at a time: slow, and easy to believe.
//!
//! Here: a twin of every clever map. Not here: anything that a service may call; tests and benches only.

use std::collections::BTreeMap;

use crate::{
    ByteCount, GlobalOffset, Layout, LocalOffset, Record, Run, Selection, View,
    index::{Cut, WriterLog},
};

/// Deals the first `bytes` bytes of a file over `width` parts like cards: for each its part and its place there.
pub fn deal(stripe: ByteCount, width: u16, bytes: u64) -> Vec<(u16, LocalOffset)> {
    let mut lens = vec![0; usize::from(width)];
    let mut part = 0;
    let mut left = stripe.0;
    let mut places = Vec::new();
    for _ in 0..bytes {
        if left == 0 {
            part = if part + 1 == lens.len() { 0 } else { part + 1 };
            left = stripe.0;
        }
        places.push((part as u16, LocalOffset(lens[part])));
        lens[part] += 1;
        left -= 1;
    }
    places
}

/// Where each of the first `bytes` bytes of a file lies; `None` where the file has no such byte.
pub fn places(layout: &Layout, bytes: u64) -> Vec<Option<(u16, LocalOffset)>> {
    match layout {
        Layout::None | Layout::Recorded { .. } => vec![None; bytes as usize],
        Layout::Whole => (0..bytes).map(|byte| Some((0, LocalOffset(byte)))).collect(),
        Layout::Striped { stripe, servers } => {
            deal(*stripe, servers.len() as u16, bytes).into_iter().map(Some).collect()
        }
        Layout::Packed(packed) => {
            let (start, end) = (packed.place().start().0, packed.place().end().0);
            let mut of_pack = (start..end).map(|byte| (0, LocalOffset(byte)));
            (0..bytes).map(|_| of_pack.next()).collect()
        }
    }
}

/// Every byte that a run selects, in the order of its stream.
pub fn run(run: &Run) -> Vec<GlobalOffset> {
    let block = (run.start().0..).take(run.block().0 as usize).collect::<Vec<_>>();
    let all = run.levels().iter().fold(block, |inner, level| {
        let once = |nth| inner.iter().map(move |byte| byte + nth * level.stride.0);
        (0..level.count).flat_map(once).collect()
    });
    all.into_iter().map(GlobalOffset).collect()
}

/// Every byte that a view selects in its first `tiles` tiles, in the order of its stream.
pub fn view(view: &View, tiles: u64) -> Vec<GlobalOffset> {
    let tile: Vec<_> = view.runs().iter().flat_map(run).collect();
    let from = |nth| view.start().0 + nth * view.tile().0;
    (0..tiles)
        .flat_map(|nth| tile.iter().map(move |byte| GlobalOffset(from(nth) + byte.0)))
        .collect()
}

/// Which byte of which part is at each offset of a recorded file, by writing all records again, the one
/// that wins last.
pub fn recorded(logs: &[WriterLog], cuts: &[Cut]) -> BTreeMap<GlobalOffset, (u32, LocalOffset)> {
    let mut all: Vec<(u32, &WriterLog, &Record)> = Vec::new();
    let mut parts = Vec::new();
    for log in logs {
        if !parts.contains(&log.part) {
            parts.push(log.part);
        }
        let part = parts.iter().position(|part| *part == log.part).unwrap_or_default() as u32;
        let replaced = |nth: usize, record: &Record| {
            log.records[nth + 1..].iter().any(|later| later.place <= record.place)
        };
        let kept = log.records.iter().enumerate().filter(|(nth, record)| !replaced(*nth, record));
        all.extend(kept.map(|(_, record)| (part, log, record)));
    }
    // Stable: of one writer and epoch the later record stays behind the earlier one.
    all.sort_by_key(|(_, log, record)| {
        (record.epoch, std::cmp::Reverse((log.writer.rank, log.writer.id)))
    });
    let mut file = BTreeMap::new();
    for (part, log, record) in all {
        let bound = cuts.iter().filter(|cut| record.epoch < cut.epoch).map(|cut| cut.size.0).min();
        let bytes = match &record.selection {
            Selection::Run(one) => run(one),
            Selection::View { view: id, window } => {
                let declared = &log.views[id];
                let bytes = view(declared, window.end().0 / declared.tile_len().0 + 1);
                bytes[window.start().0 as usize..window.end().0 as usize].to_vec()
            }
        };
        let places = (record.place.0..).map(LocalOffset);
        let written = bytes.into_iter().zip(places);
        let kept = written.filter(|(byte, _)| bound.is_none_or(|bound| byte.0 < bound));
        file.extend(kept.map(|(byte, place)| (byte, (part, place))));
    }
    file
}
