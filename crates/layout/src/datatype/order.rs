//! Order: whether the blocks of a type follow each other as MPI asks of etypes and filetypes.
//!
//! Source: MPI 4.1, section 14.1.1 (etype, filetype: displacements are non-negative and monotonically
//! nondecreasing) and 14.3 (no overlapping regions where the file is opened for writing).

use super::{Datatype, Kind, Shape};

/// How blocks lie that follow each other in the typemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOrder {
    /// Each begins where the one before ends, or behind.
    Disjoint,
    /// None begins before the one before begins, but some before an earlier one ends.
    Overlapping,
    /// Some begins before the one before begins.
    Decreasing,
}

/// Of a shape: where its first and last block begin, and how they lie.
#[derive(Clone, Copy)]
struct Ordered {
    first: i64,
    last: i64,
    order: BlockOrder,
}

impl Datatype {
    /// How the blocks of one repetition lie. O(constructors).
    pub fn block_order(&self) -> BlockOrder {
        self.body.as_ref().map_or(BlockOrder::Disjoint, |body| body.shape.ordered().order)
    }
}

impl Shape {
    fn ordered(&self) -> Ordered {
        match &self.kind {
            Kind::Block => Ordered { first: 0, last: 0, order: BlockOrder::Disjoint },
            Kind::Repeated { count, stride, inner } => {
                let own = inner.ordered();
                let order = own.followed_by(own.first + stride, inner.high, own.order);
                let last = own.last + (*count as i64 - 1) * stride; // inside of the shape
                Ordered { first: own.first, last, order }
            }
            Kind::Sequence(members) => {
                let mut all: Option<(Ordered, i64)> = None;
                for member in members.iter() {
                    let own = member.shape.ordered();
                    let (first, last) = (own.first + member.offset, own.last + member.offset);
                    let end = member.shape.high + member.offset;
                    all = Some(match all {
                        None => (Ordered { first, last, ..own }, end),
                        Some((before, reach)) => {
                            let order = before.followed_by(first, reach, own.order);
                            (Ordered { first: before.first, last, order }, reach.max(end))
                        }
                    });
                }
                all.expect("a sequence has members").0
            }
        }
    }
}

impl Ordered {
    /// The order with blocks behind it that are ordered so, and of which the first begins at `next`; what
    /// came before ends at `reach`.
    fn followed_by(self, next: i64, reach: i64, theirs: BlockOrder) -> BlockOrder {
        use BlockOrder::{Decreasing, Disjoint, Overlapping};
        match (self.order, theirs) {
            _ if next < self.last => Decreasing,
            (Decreasing, _) | (_, Decreasing) => Decreasing,
            _ if next < reach => Overlapping,
            (Overlapping, _) | (_, Overlapping) => Overlapping,
            (Disjoint, Disjoint) => Disjoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datatype::tests::any_listed;

    fn indexed(blocks: &[(i64, u64)]) -> Datatype {
        let int = Datatype::bytes(4).unwrap();
        Datatype::sequence(blocks.iter().map(|(at, count)| (at * 4, *count, &int))).unwrap()
    }

    #[test]
    fn filetypes_ascend() {
        let check = |datatype: &Datatype, expected| assert_eq!(datatype.block_order(), expected);
        check(&indexed(&[]), BlockOrder::Disjoint);
        check(&indexed(&[(0, 1), (1, 1), (5, 2)]), BlockOrder::Disjoint);
        check(&indexed(&[(3, 1), (0, 1)]), BlockOrder::Decreasing);
        check(&indexed(&[(0, 3), (1, 1)]), BlockOrder::Overlapping);
        check(&indexed(&[(0, 9), (1, 1), (3, 1)]), BlockOrder::Overlapping);
        let column = Datatype::bytes(2).unwrap().vector(2, 1, 8).unwrap().resized(0, 2);
        check(&column, BlockOrder::Disjoint);
        check(&column.contiguous(2).unwrap(), BlockOrder::Decreasing);
        let backwards = Datatype::bytes(2).unwrap().repeated(3, -4).unwrap();
        check(&backwards, BlockOrder::Decreasing);
    }

    proptest! {
        #[test]
        fn order_agrees_with_listing_each_block((datatype, _) in any_listed()) {
            let (mut last, mut reach) = (i64::MIN, i64::MIN);
            let mut expected = BlockOrder::Disjoint;
            datatype.walk(0..datatype.size(), &mut |start: i64, len: u64| {
                if start < last {
                    expected = BlockOrder::Decreasing;
                } else if start < reach && expected == BlockOrder::Disjoint {
                    expected = BlockOrder::Overlapping;
                }
                last = start;
                reach = reach.max(start + len as i64);
            });
            prop_assert_eq!(datatype.block_order(), expected);
        }
    }
}
