//! What processes exchange in collective reads: whether they do, which process reads what, and the requests as bytes.
//!
//! - [`Exchanges`]: what an open file knows of it.
//! - `agreement`: whether a call exchanges, alike on all. `owners`: who reads what.
//! - `queues`: what is asked of whom in which round. `request`: that, as bytes.
//!
//! Nothing here reads or communicates: that is [`crate::collective_read`].

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use hayase_container::Wanted;
use hayase_layout::{ByteCount, NodeId, Writer, WriterId};

mod agreement;
mod owners;
mod queues;
pub(crate) mod request;

pub(crate) use agreement::{Exchange, Step, Weights};
pub(crate) use queues::Queues;

use agreement::Agreement;
use owners::Owners;

/// Bytes of a round where nobody says otherwise: what a process gets, and what it reads for others.
pub(crate) const ROUND_BYTES: ByteCount = ByteCount::mib(16);

/// What a hint may make of it.
pub(crate) const ROUND_BYTES_MIN: ByteCount = ByteCount::kib(64);
pub(crate) const ROUND_BYTES_MAX: ByteCount = ByteCount::gib(1);

/// What an open file knows of its exchanges.
#[derive(Debug)]
pub(crate) struct Exchanges {
    agreement: Mutex<Agreement>,
    owners: Owners,
    round_bytes: ByteCount,
    own_node: NodeId,
    /// Weight of what was read for others, since it was told last.
    served: AtomicU64,
}

impl Exchanges {
    /// Of a group whose ranks run on these nodes; `rank` is that of this process.
    pub(crate) fn new(wish: Exchange, round_bytes: ByteCount, nodes: &[NodeId], rank: u32) -> Self {
        let owners = Owners::new(nodes);
        Self {
            agreement: Mutex::new(Agreement::new(wish, &owners)),
            owners,
            round_bytes: round_bytes.clamp(ROUND_BYTES_MIN, ROUND_BYTES_MAX),
            own_node: nodes[rank as usize],
            served: AtomicU64::new(0),
        }
    }

    /// At every collective read, once.
    pub(crate) fn step(&self) -> Step {
        self.agreement().step()
    }

    /// At every set_view, also one that fails: it may do so on some processes only.
    pub(crate) fn set_view(&self) {
        self.agreement().set_view();
    }

    /// At every set_atomicity, likewise.
    pub(crate) fn set_atomic(&self, is_atomic: bool) {
        self.agreement().set_atomic(is_atomic);
    }

    /// What all weighed together: whether this call exchanges.
    pub(crate) fn answer(&self, all: Weights) -> bool {
        self.agreement().answer(all)
    }

    /// Behind a call that exchanged; `served` is what the reads for all weighed in the call before.
    pub(crate) fn exchanged(&self, all: Weights, served: u64) {
        self.agreement().exchanged(all, served);
    }

    /// What is wanted of whom, in rounds of this file; empty.
    pub(crate) fn queues(&self) -> Queues {
        Queues::new(self.owners.ranks(), self.round_bytes)
    }

    /// Deals out what is wanted; what this process is to read by itself is returned ([`Queues::fill`]).
    pub(crate) fn deal(
        &self,
        wanted: Vec<Wanted>,
        queues: &mut Queues,
        writer_of: impl Fn(u32) -> Writer,
    ) -> Vec<Wanted> {
        queues.fill(wanted, &self.owners, writer_of, |writer| self.is_own(writer))
    }

    /// What a process gets in a round, at most.
    pub(crate) fn round_bytes(&self) -> u64 {
        self.round_bytes.0
    }

    fn agreement(&self) -> MutexGuard<'_, Agreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process wrote it: nobody sees it sooner, and perhaps nobody else yet.
    fn is_own(&self, writer: WriterId) -> bool {
        writer.process == std::process::id() && writer.node == self.own_node
    }

    /// Notes what was read for others.
    pub(crate) fn serve(&self, weight: u64) {
        self.served.fetch_add(weight, Ordering::Relaxed);
    }

    /// What was read for others since this was asked last.
    pub(crate) fn take_served(&self) -> u64 {
        self.served.swap(0, Ordering::Relaxed)
    }
}
