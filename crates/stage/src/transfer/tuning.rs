//! Asking the tuner: counters are read each epoch, and what it answers is set.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use hayase_tier::Traffic;

use super::Shared;
use super::large::Large;
use super::part_requests::PartsSeen;
use crate::limits::ITEM_COST_BYTES;
use crate::plan::{Task, chosen_part_bytes, part_bytes};
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

impl Shared<'_> {
    /// One that begins with what is set now: planning may have two turns.
    pub(super) fn tuner(&self) -> Tuner {
        let streams = match self.options.streams {
            Streams::Auto { .. } => Streams::Auto { start: self.gate.streams() },
            fixed @ Streams::Fixed(_) => fixed,
        };
        let part_size = match self.options.part_size {
            PartSize::Auto { .. } => PartSize::Auto { start: self.part_requests.size() },
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
                self.part_requests.set_size(tuner.part_bytes());
            }
            (begin, before) = (Instant::now(), now);
        }
    }

    fn seen(&self) -> Seen {
        let items = Progress::get(&self.progress.items_done) + self.asked.load(Ordering::Relaxed);
        let tiers = [&self.source.place().tier, &self.target.tier];
        let traffic = tiers.map(|tier| tier.traffic());
        let throttled: u64 = traffic.iter().map(|traffic| traffic.throttled).sum();
        // Where the line is told of, there is no waiting for the ends of large parts.
        let carried: u64 = traffic.iter().map(|traffic| traffic.carried).sum();
        let moved = Progress::get(&self.progress.bytes_moved);
        let bytes = if carried > 0 { carried } else { moved };
        Seen {
            work: bytes + items * ITEM_COST_BYTES,
            ended: items + self.gate.units(),
            refused: self.gate.refusals() + throttled,
            parts: self.part_requests.seen(),
            resumed: Progress::get(&self.progress.bytes_resumed),
            traffic,
        }
    }

    /// A large file whose turn has come: in parts that are good now, or as it was begun.
    pub(super) fn cut(&self, task: Task, is_loose: bool) -> Large {
        let bytes = task.item.bytes();
        let part = self.begun_part_bytes(&task).unwrap_or_else(|| match self.options.part_size {
            PartSize::Fixed(wished) => part_bytes(bytes, wished),
            PartSize::Auto { .. } => chosen_part_bytes(bytes, self.part_requests.size()),
        });
        Large::new(task, is_loose, part)
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
