//! Ranges of parts that are being written, and which of them may overlap.
//!
//! A write past the page cache may be two calls, its aligned part and the rest through the cache; and whoever writes a
//! part of a block through the cache reads the rest of it before, and would write that back over what came past the
//! cache meanwhile. Writes through the cache do not exclude each other: the kernel does that. Reads wait for nobody.
//!
//! Invariants: ranges are whole blocks of [`DIRECT_ALIGN`]. Of two that exclude each other the one that came first goes
//! first, so nobody waits for ever; nobody holds two. A range is given back when its task drops it, which must not be
//! before the kernel has done: tasks that serve requests run to their end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use hayase_store::PartId;
use hayase_store::uring::DIRECT_ALIGN;
use tokio::sync::Notify;

/// Beside which writes a range may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// None: past the page cache, at least in part; an append, which looks for the end; a copy.
    None,
    /// Those that are like it: through the page cache.
    Alike,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Ranges {
    /// In the order in which they came, those that wait as well.
    written: RefCell<HashMap<PartId, Vec<Write>>>,
    tickets: Cell<u64>,
    waiting: Cell<usize>,
    ended: Notify,
}

#[derive(Clone, Debug)]
struct Write {
    ticket: u64,
    blocks: Range<u64>,
    beside: Beside,
}

impl Write {
    fn excludes(&self, other: &Self) -> bool {
        let overlap = self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end;
        overlap && (self.beside == Beside::None || other.beside == Beside::None)
    }
}

impl Ranges {
    /// Waits until `bytes` of a part may be written, and keeps others away until the result is dropped.
    pub(crate) async fn begin(
        &self,
        part: PartId,
        bytes: Range<u64>,
        beside: Beside,
    ) -> RangeWritten<'_> {
        let range = self.enter(part, bytes, beside);
        while !range.is_turn() {
            let ended = self.ended.notified();
            self.waiting.set(self.waiting.get() + 1);
            let _waiting = Waiting(&self.waiting);
            ended.await;
        }
        range
    }

    fn enter(&self, part: PartId, bytes: Range<u64>, beside: Beside) -> RangeWritten<'_> {
        let block = DIRECT_ALIGN as u64;
        let blocks = bytes.start / block..bytes.end.div_ceil(block);
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        let write = Write { ticket, blocks, beside };
        self.written.borrow_mut().entry(part).or_default().push(write);
        RangeWritten { of: self, part, ticket }
    }
}

/// Counts who waits.
struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// See [`Ranges::begin`].
pub(crate) struct RangeWritten<'a> {
    of: &'a Ranges,
    part: PartId,
    ticket: u64,
}

impl RangeWritten<'_> {
    /// Nobody who came before excludes it.
    fn is_turn(&self) -> bool {
        let written = self.of.written.borrow();
        let Some(of_part) = written.get(&self.part) else { return true };
        let Some(place) = of_part.iter().position(|write| write.ticket == self.ticket) else {
            return true;
        };
        !of_part[..place].iter().any(|before| before.excludes(&of_part[place]))
    }
}

impl Drop for RangeWritten<'_> {
    fn drop(&mut self) {
        let mut written = self.of.written.borrow_mut();
        let Some(of_part) = written.get_mut(&self.part) else { return };
        of_part.retain(|write| write.ticket != self.ticket);
        if of_part.is_empty() {
            written.remove(&self.part);
        }
        drop(written);
        if self.of.waiting.get() > 0 {
            self.of.ended.notify_waiters();
        }
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

    fn any_move() -> impl Strategy<Value = (u16, Range<u64>, Beside)> {
        let beside = prop_oneof![Just(Beside::None), Just(Beside::Alike)];
        (0..2_u16, 0..40_000_u64, 1..20_000_u64, beside)
            .prop_map(|(part, start, len, beside)| (part, start..start + len, beside))
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
            for ((number, bytes, beside), end) in moves.into_iter().zip(order) {
                let excluded = running.iter().any(|(_, other): &(_, (u16, Range<u64>, Beside))| {
                    let shared = blocks(&other.1).any(|block| blocks(&bytes).contains(&block));
                    other.0 == number && shared && [other.2, beside].contains(&Beside::None)
                });
                let begun = now(pin!(ranges.begin(part(number), bytes.clone(), beside)));
                prop_assert_eq!(begun.is_none(), excluded);
                match begun {
                    Some(guard) => running.push((guard, (number, bytes, beside))),
                    None => drop(running.swap_remove(end.index(running.len()))),
                }
            }
            running.clear();
            prop_assert!(ranges.written.borrow().is_empty());
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_came_first_goes_first() {
        let ranges = Ranges::default();
        let through = ranges.begin(part(0), 0..100, Beside::Alike).await;
        let mut past = Box::pin(ranges.begin(part(0), 0..8192, Beside::None));
        assert!(now(past.as_mut()).is_none());
        let mut late = pin!(ranges.begin(part(0), 0..100, Beside::Alike));
        assert!(now(late.as_mut()).is_none(), "it came behind one that it excludes");
        drop(through);
        assert!(now(late.as_mut()).is_none());
        // Who gives up is waited for no longer.
        drop(past);
        late.await;
        assert!(ranges.waiting.get() == 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_goes_on_at_the_end() {
        let ranges = Ranges::default();
        let first = ranges.begin(part(0), 0..8192, Beside::None).await;
        let mut second = pin!(ranges.begin(part(0), 8191..8192, Beside::Alike));
        assert!(now(second.as_mut()).is_none());
        drop(first);
        second.await;
    }
}
