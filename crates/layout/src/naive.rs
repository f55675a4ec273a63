//! The same maps, one byte at a time: slow, and easy to believe.
//!
//! Here: a twin of every clever map. Not here: anything that a service may call; tests and benches only.

use crate::{ByteCount, Layout, LocalOffset};

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
