//! Boxes: which of many overlapping extents share a byte with a given one.

use crate::{Extent, GlobalOffset};

/// Items sorted by where they begin, each with the largest end of its subtree in the implicit balanced
/// tree (the middle of a slice is the root of its halves).
#[derive(Clone, Debug)]
pub(super) struct Boxes<T> {
    items: Vec<T>,
    extents: Vec<Extent>,
    ends: Vec<GlobalOffset>,
}

impl<T> Boxes<T> {
    pub(super) fn new(mut items: Vec<T>, extent: impl Fn(&T) -> Extent) -> Self {
        items.sort_by_key(|item| extent(item).start());
        let extents: Vec<_> = items.iter().map(extent).collect();
        let mut ends = vec![GlobalOffset(0); items.len()];
        fill(&extents, &mut ends);
        Self { items, extents, ends }
    }

    /// In no order. O(log n) and O(log n) for each that is found, at worst.
    pub(super) fn for_each<'a>(&'a self, extent: Extent, mut visit: impl FnMut(&'a T)) {
        if !extent.is_empty() {
            self.search(0..self.items.len(), extent, &mut visit);
        }
    }

    fn search<'a>(
        &'a self,
        range: std::ops::Range<usize>,
        extent: Extent,
        visit: &mut impl FnMut(&'a T),
    ) {
        let middle = range.start + range.len() / 2;
        if range.is_empty() || self.ends[middle] <= extent.start() {
            return; // all of the subtree end before
        }
        self.search(range.start..middle, extent, visit);
        if self.extents[middle].overlaps(extent) {
            visit(&self.items[middle]);
        }
        if self.extents[middle].start() < extent.end() {
            self.search(middle + 1..range.end, extent, visit);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}

fn fill(extents: &[Extent], ends: &mut [GlobalOffset]) -> GlobalOffset {
    if extents.is_empty() {
        return GlobalOffset(0);
    }
    let middle = extents.len() / 2;
    let left = fill(&extents[..middle], &mut ends[..middle]);
    let right = fill(&extents[middle + 1..], &mut ends[middle + 1..]);
    ends[middle] = extents[middle].end().max(left).max(right);
    ends[middle]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ByteCount;

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
    }

    proptest! {
        #[test]
        fn boxes_agree_with_asking_each(
            boxes in prop::collection::vec((0..60u64, 0..20u64), 0..40),
            start in 0..70u64, len in 0..9u64,
        ) {
            let items: Vec<_> = boxes.iter().map(|(start, len)| extent(*start, *len)).collect();
            let mut expected: Vec<_> =
                items.iter().copied().filter(|item| item.overlaps(extent(start, len))).collect();
            let mut found = Vec::new();
            let boxes = Boxes::new(items, |item| *item);
            boxes.for_each(extent(start, len), |item| found.push(*item));
            expected.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
