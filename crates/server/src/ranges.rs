//! Ranges of parts under way: what goes past the page cache excludes everything else that overlaps it.
//!
//! A write past the page cache may be two calls, its aligned part and the rest through the cache; and whoever writes a
//! part of a block through the cache reads the rest of it before, and would write that back over what came past the
//! cache meanwhile. Transfers through the cache do not exclude each other: the kernel does that.
//! Ranges are whole blocks of [`DIRECT_ALIGN`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use hayase_store::PartId;
use hayase_store::uring::DIRECT_ALIGN;
use tokio::sync::Notify;

/// How bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Past the page cache, at least in part.
    Past,
    /// Through it.
    Through,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Ranges {
    under_way: RefCell<HashMap<PartId, Vec<Moving>>>,
    ended: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Moving {
    blocks: Range<u64>,
    course: Course,
}

impl Moving {
    fn excludes(&self, other: &Self) -> bool {
        let overlap = self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end;
        overlap && (self.course == Course::Past || other.course == Course::Past)
    }
}

impl Ranges {
    /// Waits until `bytes` of a part may move on this course, and keeps others away until the result is dropped.
    pub(crate) async fn begin(
        &self,
        part: PartId,
        bytes: Range<u64>,
        course: Course,
    ) -> RangeUnderWay<'_> {
        let block = DIRECT_ALIGN as u64;
        let moving = Moving { blocks: bytes.start / block..bytes.end.div_ceil(block), course };
        loop {
            let ended = self.ended.notified();
            if self.try_begin(part, &moving) {
                return RangeUnderWay { of: self, part, moving };
            }
            ended.await;
        }
    }

    fn try_begin(&self, part: PartId, moving: &Moving) -> bool {
        let mut under_way = self.under_way.borrow_mut();
        let of_part = under_way.entry(part).or_default();
        let is_free = !of_part.iter().any(|other| other.excludes(moving));
        if is_free {
            of_part.push(moving.clone());
        }
        is_free
    }
}

/// See [`Ranges::begin`].
pub(crate) struct RangeUnderWay<'a> {
    of: &'a Ranges,
    part: PartId,
    moving: Moving,
}

impl Drop for RangeUnderWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.of.under_way.borrow_mut();
        let Some(of_part) = under_way.get_mut(&self.part) else { return };
        if let Some(place) = of_part.iter().position(|moving| *moving == self.moving) {
            of_part.swap_remove(place);
        }
        if of_part.is_empty() {
            under_way.remove(&self.part);
        }
        drop(under_way);
        self.of.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use hayase_layout::InodeId;
    use proptest::prelude::*;

    use super::*;

    fn part(index: u16) -> PartId {
        PartId { ino: InodeId::ROOT, epoch: 0, index }
    }

    /// What it answers without a wait.
    fn now<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    fn any_move() -> impl Strategy<Value = (u16, Range<u64>, Course)> {
        let course = prop_oneof![Just(Course::Past), Just(Course::Through)];
        (0..2_u16, 0..40_000_u64, 1..20_000_u64, course)
            .prop_map(|(part, start, len, course)| (part, start..start + len, course))
    }

    proptest! {
        /// Beside a model that looks at each block.
        #[test]
        fn what_overlaps_a_transfer_past_the_cache_waits(
            moves in prop::collection::vec(any_move(), 1..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 20),
        ) {
            let ranges = Ranges::default();
            let blocks = |bytes: &Range<u64>| bytes.start / 4096..=(bytes.end - 1) / 4096;
            let mut running = Vec::new();
            for ((number, bytes, course), end) in moves.into_iter().zip(order) {
                let excluded = running.iter().any(|(_, other): &(_, (u16, Range<u64>, Course))| {
                    let shared = blocks(&other.1).any(|block| blocks(&bytes).contains(&block));
                    other.0 == number && shared && [other.2, course].contains(&Course::Past)
                });
                let begun = now(pin!(ranges.begin(part(number), bytes.clone(), course)));
                prop_assert_eq!(begun.is_none(), excluded);
                match begun {
                    Some(guard) => running.push((guard, (number, bytes, course))),
                    None => drop(running.swap_remove(end.index(running.len()))),
                }
            }
            running.clear();
            prop_assert!(ranges.under_way.borrow().is_empty());
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_goes_on_at_the_end() {
        let ranges = Ranges::default();
        let first = ranges.begin(part(0), 0..8192, Course::Past).await;
        let mut second = pin!(ranges.begin(part(0), 8191..8192, Course::Through));
        assert!(now(second.as_mut()).is_none());
        drop(first);
        second.await;
    }
}
