//! Lists of extents: sorted by start, disjoint, never touching, none empty.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Extent;
use crate::{ByteCount, GlobalOffset, units::Offset};

/// A set of bytes, kept as the fewest extents.
///
/// Looking up costs O(log n); changing costs O(n) moves of 16 bytes at worst, and O(log n) at the end.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(
    from = "Vec<Extent<O>>",
    into = "Vec<Extent<O>>",
    bound(serialize = "O: Offset", deserialize = "O: Offset")
)]
pub struct ExtentList<O = GlobalOffset> {
    extents: Vec<Extent<O>>,
}

impl<O: Offset> ExtentList<O> {
    /// No bytes.
    pub const fn new() -> Self {
        Self { extents: Vec::new() }
    }

    /// Whether no byte is in it.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The extents, ascending.
    pub fn as_slice(&self) -> &[Extent<O>] {
        &self.extents
    }

    /// The extents, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Extent<O>> + '_ {
        self.extents.iter().copied()
    }

    /// How many bytes. O(n).
    pub fn len(&self) -> ByteCount {
        // Disjoint extents below `OFFSET_MAX` can not sum to more than that.
        ByteCount(self.extents.iter().map(|extent| extent.len.0).sum())
    }

    /// Behind the last byte; `None` when there is no byte.
    pub fn end(&self) -> Option<O> {
        self.extents.last().map(|extent| extent.end())
    }

    /// Adds the bytes of `extent`.
    pub fn insert(&mut self, extent: Extent<O>) {
        if extent.is_empty() {
            return;
        }
        // All that overlap or touch become one.
        let first = self.extents.partition_point(|other| other.end() < extent.start());
        let behind = self.extents.partition_point(|other| other.start() <= extent.end());
        let (mut start, mut end) = (extent.start(), extent.end());
        if first < behind {
            start = start.min(self.extents[first].start());
            end = end.max(self.extents[behind - 1].end());
        }
        let joined = Extent::within_valid(start.get(), end.get());
        self.extents.splice(first..behind, [joined]);
    }

    /// Takes the bytes of `extent` away.
    pub fn remove(&mut self, extent: Extent<O>) {
        let touched = self.touched(extent);
        if touched.is_empty() {
            return;
        }
        let left = self.extents[touched.start].split_at(extent.start()).0;
        let right = self.extents[touched.end - 1].split_at(extent.end()).1;
        let kept = [left, right].into_iter().filter(|kept| !kept.is_empty());
        self.extents.splice(touched, kept);
    }

    /// Whether the byte at `offset` is in it.
    pub fn contains(&self, offset: O) -> bool {
        let behind = self.extents.partition_point(|other| other.end() <= offset);
        self.extents.get(behind).is_some_and(|extent| extent.contains(offset))
    }

    /// Whether every byte of `extent` is in it; an empty one always is.
    pub fn covers(&self, extent: Extent<O>) -> bool {
        let behind = self.extents.partition_point(|other| other.end() <= extent.start());
        extent.is_empty() || self.extents.get(behind).is_some_and(|other| other.covers(extent))
    }

    /// Its bytes inside `extent`, ascending. O(log n) to start, O(1) each.
    pub fn within(&self, extent: Extent<O>) -> impl DoubleEndedIterator<Item = Extent<O>> + '_ {
        self.extents[self.touched(extent)].iter().filter_map(move |other| other.intersect(extent))
    }

    /// The bytes of `extent` that are not in it, ascending. O(log n) to start, O(1) each.
    pub fn gaps(&self, extent: Extent<O>) -> impl Iterator<Item = Extent<O>> + '_ {
        let mut rest = extent;
        let behind = Extent::within_valid(extent.end().get(), extent.end().get());
        self.within(extent).chain(std::iter::once(behind)).filter_map(move |held| {
            let gap = rest.split_at(held.start()).0;
            rest = rest.split_at(held.end()).1;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// The bytes that are in either. O(n + m).
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        let merged = std::iter::from_fn(|| match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a <= b => left.next(),
            (_, Some(_)) => right.next(),
            (_, None) => left.next(),
        });
        Self::coalesced(merged)
    }

    /// The bytes that are in both. O(n + m).
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        let mut extents = Vec::new();
        // What is in both never touches its neighbour: one of the two lists has a gap there.
        while let (Some(&a), Some(&b)) = (left.peek(), right.peek()) {
            extents.extend(a.intersect(b));
            if a.end() < b.end() {
                left.next()
            } else {
                right.next()
            };
        }
        Self { extents }
    }

    /// Indices of the extents that share a byte with `extent`.
    fn touched(&self, extent: Extent<O>) -> std::ops::Range<usize> {
        let first = self.extents.partition_point(|other| other.end() <= extent.start());
        let behind = self.extents.partition_point(|other| other.start() < extent.end());
        // An empty `extent` inside an extent lies between no two of them.
        if extent.is_empty() { first..first } else { first..behind }
    }

    /// From extents sorted by start.
    fn coalesced(sorted: impl Iterator<Item = Extent<O>>) -> Self {
        let mut extents: Vec<Extent<O>> = Vec::new();
        for extent in sorted.filter(|extent| !extent.is_empty()) {
            match extents.last_mut() {
                Some(last) if extent.start() <= last.end() => {
                    let end = last.end().max(extent.end());
                    *last = Extent::within_valid(last.start().get(), end.get());
                }
                _ => extents.push(extent),
            }
        }
        Self { extents }
    }
}

impl<O: Offset> Default for ExtentList<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: Offset> From<Vec<Extent<O>>> for ExtentList<O> {
    fn from(mut extents: Vec<Extent<O>>) -> Self {
        extents.sort_unstable();
        Self::coalesced(extents.into_iter())
    }
}

impl<O: Offset> From<ExtentList<O>> for Vec<Extent<O>> {
    fn from(list: ExtentList<O>) -> Self {
        list.extents
    }
}

impl<O: Offset> FromIterator<Extent<O>> for ExtentList<O> {
    /// In any order; O(n log n).
    fn from_iter<T: IntoIterator<Item = Extent<O>>>(extents: T) -> Self {
        Self::from(Vec::from_iter(extents))
    }
}

impl<O: Offset> fmt::Display for ExtentList<O> {
    /// `0..2 4..6`; nothing when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.extents.iter().enumerate() {
            write!(f, "{}{extent}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl<O: Offset> fmt::Debug for ExtentList<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::between(GlobalOffset(start), GlobalOffset(end)).unwrap()
    }

    /// `+0..5 -2..3` inserts and removes in order.
    fn apply(steps: &str) -> ExtentList {
        let mut list = ExtentList::new();
        for step in steps.split_whitespace() {
            let (start, end) = step[1..].split_once("..").unwrap();
            let range = extent(start.parse().unwrap(), end.parse().unwrap());
            if step.starts_with('+') { list.insert(range) } else { list.remove(range) }
        }
        list
    }

    fn check(steps: &str, list: &str) {
        assert_eq!(apply(steps).to_string(), list, "{steps}");
    }

    #[test]
    fn lists_stay_sorted_and_coalesced() {
        check("", "");
        check("+3..3", ""); // empty ones leave no trace
        check("+4..6 +0..2", "0..2 4..6");
        check("+0..2 +4..6 +2..4", "0..6"); // touching ones become one
        check("+0..2 +4..6 +8..9 +1..8", "0..9");
        check("+0..9 -3..5", "0..3 5..9");
        check("+0..9 -3..3", "0..9");
        check("+0..3 +5..9 -2..6", "0..2 6..9");
        check("+0..3 +5..9 -0..9", "");
        check("+0..3 -3..9", "0..3");
    }

    fn bytes(list: &ExtentList) -> BTreeSet<u64> {
        list.iter().flat_map(|extent| extent.start().0..extent.end().0).collect()
    }

    fn is_canonical(list: &ExtentList) -> bool {
        let extents = list.as_slice();
        extents.iter().all(|extent| !extent.is_empty())
            && extents.windows(2).all(|pair| pair[0].end() < pair[1].start())
    }

    fn any_extent() -> impl Strategy<Value = Extent> {
        (0..60u64, 0..12u64).prop_map(|(start, len)| extent(start, start + len))
    }

    fn any_list() -> impl Strategy<Value = ExtentList> {
        prop::collection::vec(any_extent(), 0..8).prop_map(ExtentList::from_iter)
    }

    proptest! {
        #[test]
        fn changes_agree_with_a_set_of_bytes(
            steps in prop::collection::vec((any::<bool>(), any_extent()), 0..24)
        ) {
            let (mut list, mut set) = (ExtentList::new(), BTreeSet::new());
            for (is_insert, extent) in steps {
                let range = extent.start().0..extent.end().0;
                if is_insert {
                    list.insert(extent);
                    set.extend(range);
                } else {
                    list.remove(extent);
                    set.retain(|byte| !range.contains(byte));
                }
                prop_assert!(is_canonical(&list), "{list}");
                prop_assert_eq!(bytes(&list), set.clone());
            }
        }

        #[test]
        fn questions_agree_with_a_set_of_bytes(
            list in any_list(), other in any_list(), extent in any_extent()
        ) {
            let (set, range) = (bytes(&list), extent.start().0..extent.end().0);
            prop_assert!(is_canonical(&list));
            prop_assert_eq!(list.len().0, set.len() as u64);
            prop_assert_eq!(list.end().map(|end| end.0), set.last().map(|byte| byte + 1));
            for byte in 0..80 {
                prop_assert_eq!(list.contains(GlobalOffset(byte)), set.contains(&byte));
            }
            prop_assert_eq!(list.covers(extent), range.clone().all(|byte| set.contains(&byte)));
            let within: ExtentList = list.within(extent).collect();
            let gaps: ExtentList = list.gaps(extent).collect();
            let (inside, outside) = range.partition::<BTreeSet<_>, _>(|byte| set.contains(byte));
            prop_assert_eq!(bytes(&within), inside);
            prop_assert_eq!(bytes(&gaps), outside);

            let both = list.intersect(&other);
            let either = list.union(&other);
            prop_assert!(is_canonical(&both) && is_canonical(&either));
            prop_assert_eq!(bytes(&both), &set & &bytes(&other));
            prop_assert_eq!(bytes(&either), &set | &bytes(&other));
        }
    }
}
