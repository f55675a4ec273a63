//! Where bytes lie, as others say: what decodes must be fit for use.

use hayase_layout::{
    ByteCount, Extent, GlobalOffset, InodeId, Layout, Level, Run, ServerId, StreamMap,
    StreamOffset, View,
};

use super::{way, way_of};

/// Pieces that are looked at; a hostile layout may have very many.
const PIECES: usize = 64;

/// Bytes of a view that are looked at: a hostile one selects them one by one.
const WINDOW: u64 = 4096;

/// The last is the largest that `off_t` can say.
const OFFSETS: [u64; 5] = [0, 1, 4095, 1 << 20, i64::MAX as u64];

pub(super) fn layouts() -> Vec<Vec<u8>> {
    let servers: Vec<_> = (0..3).map(ServerId).collect();
    let striped = Layout::Striped { stripe: ByteCount(4096), servers };
    let layouts = [Layout::None, Layout::Whole, striped];
    layouts.iter().map(|layout| postcard::to_stdvec(layout).expect("encodes")).collect()
}

pub(super) fn layout(bytes: &[u8]) -> u64 {
    let decoded = postcard::from_bytes::<Layout>(bytes);
    let Ok(layout) = &decoded else { return way_of(decoded, |_| 0) };
    let map = layout.map(InodeId(77));
    if let Ok(map) = &map {
        for offset in OFFSETS.map(GlobalOffset) {
            if let Some((part, local)) = map.locate(offset) {
                assert_eq!(map.global(part, local), Some(offset));
            }
            if let Ok(extent) = Extent::new(offset, ByteCount(1 << 20)) {
                let pieces = map.split(extent).take(PIECES);
                assert!(pieces.map(|piece| piece.extent.len().0).sum::<u64>() <= 1 << 20);
            }
        }
    }
    let width = map.as_ref().map_or(0, hayase_layout::PartMap::width);
    way_of(map, |_| way((std::mem::discriminant(layout), width)))
}

pub(super) fn views() -> Vec<Vec<u8>> {
    let run = |start, block, levels: &[Level]| {
        Run::new(GlobalOffset(start), ByteCount(block), levels).expect("a run")
    };
    let level = |count, stride| Level { count, stride: ByteCount(stride) };
    let plain = View::new(GlobalOffset(0), ByteCount(8), &[run(0, 8, &[])]);
    let nested = run(16, 8, &[level(3, 32), level(5, 1000)]);
    let nested = View::new(GlobalOffset(4096), ByteCount(1 << 20), &[nested, run(9000, 1, &[])]);
    let views = [plain, nested].map(|view| view.expect("a view"));
    views.iter().map(|view| postcard::to_stdvec(view).expect("encodes")).collect()
}

pub(super) fn view(bytes: &[u8]) -> u64 {
    let decoded = postcard::from_bytes::<View>(bytes);
    if let Ok(view) = &decoded {
        for offset in OFFSETS {
            let window = view.window(StreamOffset(offset), ByteCount(WINDOW));
            let seen: u64 = view.extents(window).take(PIECES).map(|piece| piece.len().0).sum();
            assert!(seen <= WINDOW);
            if let Some(at) = view.forward(StreamOffset(offset)) {
                assert_eq!(view.backward(at), Some(StreamOffset(offset)));
            }
        }
    }
    way_of(decoded, |view| {
        way(view.runs().iter().map(|run| run.levels().len()).collect::<Vec<_>>())
    })
}
