//! Asking the tuner: counters are read each epoch, and what it answers is set.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use hayase_tier::{Tier, Traffic};

use super::asking::Asking;
use super::gate::Gate;
use super::part_requests::{PartRequests, PartsSeen};
use super::report::Report;
use super::retries::Retries;
use crate::limits::ITEM_COST_BYTES;
use crate::options::Options;
use crate::progress::Progress;
use crate::tuner::{EPOCH, PartSize, PartTimes, Sample, Streams, Tuner};

/// Counters, all since the begin.
struct Seen {
    /// Bytes, and something for each item, which costs even when it is empty.
    work: u64,
    /// Items and units that ended.
    ended: u64,
    /// Calls that found nobody or were told to slow down.
    refused: u64,
    parts: PartsSeen,
    /// Bytes of unfinished files that were compared with the source, and not moved.
    resumed: u64,
    /// Of the source and the target.
    traffic: [Traffic; 2],
}

impl Seen {
    /// What came since `before`; `None` where parts of an earlier run were only compared, which is no measure of
    /// moving any.
    fn since(&self, before: &Self, seconds: f64) -> Option<Sample> {
        if self.resumed != before.resumed {
            return None;
        }
        let (now, then) = (self.parts, before.parts);
        let parts = PartTimes {
            count: now.count - then.count,
            bytes: now.bytes - then.bytes,
            seconds: (now.micros - then.micros) as f64 / 1e6,
            wait: self.wait_since(before),
        };
        Some(Sample {
            seconds,
            bytes: self.work.saturating_sub(before.work),
            answered: self.ended - before.ended,
            refused: self.refused - before.refused,
            parts,
        })
    }

    /// Seconds that a part waits, at the source and at the target; `None` where nothing was asked.
    fn wait_since(&self, before: &Self) -> Option<f64> {
        let mean = |(now, then): (&Traffic, &Traffic)| {
            let micros = now.wait_micros.saturating_sub(then.wait_micros) as f64;
            match now.waits.saturating_sub(then.waits) {
                0 => None,
                waits => Some(micros / waits as f64 / 1e6),
            }
        };
        self.traffic.iter().zip(&before.traffic).filter_map(mean).reduce(|a, b| a + b)
    }
}

/// Reads the counters of the other parts, and sets how many streams work and how large parts are.
pub(super) struct Tuning<'a> {
    pub(super) options: &'a Options,
    /// The source and the target.
    pub(super) tiers: [&'a dyn Tier; 2],
    pub(super) gate: &'a Gate,
    pub(super) requests: &'a PartRequests,
    pub(super) asking: &'a Asking<'a>,
    pub(super) report: &'a Report<'a>,
    pub(super) retries: &'a Retries<'a>,
}

impl Tuning<'_> {
    /// One that begins with what is set now: planning may have two turns.
    pub(super) fn tuner(&self) -> Tuner {
        let streams = match self.options.streams {
            Streams::Auto { .. } => Streams::Auto { start: self.gate.streams() },
            fixed @ Streams::Fixed(_) => fixed,
        };
        let part_size = match self.options.part_size {
            PartSize::Auto { .. } => PartSize::Auto { start: self.requests.size() },
            fixed @ PartSize::Fixed(_) => fixed,
        };
        Tuner::new(streams, part_size, self.options.memory)
    }

    /// Asks the tuner again and again what there should be, until `done` is dropped.
    #[expect(clippy::needless_pass_by_value, reason = "it lives as long as this thread")]
    pub(super) fn tune(&self, mut tuner: Tuner, done: Receiver<()>) {
        let (mut begin, mut before) = (Instant::now(), self.seen());
        while done.recv_timeout(EPOCH) == Err(RecvTimeoutError::Timeout) {
            let now = self.seen();
            let ended = now.ended - before.ended + now.refused - before.refused;
            if !tuner.is_enough(begin.elapsed(), ended) {
                continue;
            }
            if let Some(sample) = now.since(&before, begin.elapsed().as_secs_f64()) {
                tuner.observe(sample);
                self.gate.set(tuner.streams());
                self.requests.set_size(tuner.part_bytes());
            }
            (begin, before) = (Instant::now(), now);
        }
    }

    fn seen(&self) -> Seen {
        let progress = self.report.progress();
        let items = Progress::get(&progress.items_done) + self.asking.count();
        let traffic = self.tiers.map(Tier::traffic);
        let throttled: u64 = traffic.iter().map(|traffic| traffic.throttled).sum();
        // Where the line is told of, there is no waiting for the ends of large parts.
        let carried: u64 = traffic.iter().map(|traffic| traffic.carried).sum();
        let moved = Progress::get(&progress.bytes_moved);
        let bytes = if carried > 0 { carried } else { moved };
        Seen {
            work: bytes + items * ITEM_COST_BYTES,
            ended: items + self.gate.units(),
            refused: self.retries.refusals() + throttled,
            parts: self.requests.seen(),
            resumed: Progress::get(&progress.bytes_resumed),
            traffic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_in_which_parts_were_only_compared_tells_nothing() {
        let seen = |work, resumed| Seen {
            work,
            ended: 2,
            refused: 0,
            parts: PartsSeen::default(),
            resumed,
            traffic: [Traffic::default(); 2],
        };
        let before = seen(100, 7);
        let told = |now: Seen| now.since(&before, 0.5).map(|sample| sample.bytes);
        assert_eq!(told(seen(150, 7)), Some(50));
        assert_eq!(told(seen(100, 8)), None);
        // Beside parts that moved, too: not all streams were at work on those.
        assert_eq!(told(seen(150, 8)), None);
    }
}
