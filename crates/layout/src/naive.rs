//! The same maps, one byte at a time: slow, and easy to believe.
//!
//! Here: a twin of every clever map. Not here: anything that a service may call; tests and benches only.

use crate::{ByteCount, GlobalOffset, Layout, LocalOffset, Run, View};

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
