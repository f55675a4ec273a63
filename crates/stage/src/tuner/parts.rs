//! How large the parts of large files are. Pure: samples go in, a size comes out.
//!
//! A request costs its bytes, and a wait before the first of them. The size is the smallest at which the wait is a
//! small part of the whole, as far as the memory of all streams goes. Where the storage refuses requests, larger
//! ones carry as much with fewer.
//!
//! Invariant: all streams together hold no more than they may, with a part of this size each; only the smallest
//! size is not questioned, and there the gate lets fewer streams in.

use super::Sample;
use crate::limits::{PART_BYTES, PART_BYTES_AUTO_MAX, PART_BYTES_MIN, PIECE_BYTES};

/// The wait is at most this part of a request.
const WAIT_MAX: f64 = 0.05;

/// How much a new sample counts beside all former ones.
const WEIGHT: f64 = 0.5;

/// A size that is wrong by less stays.
const WORTH_CHANGING: f64 = 0.2;

/// Least growth of parts that are refused for their number.
const GROWTH: f64 = 1.25;

/// Parts that arrive are at least this part of the size that is set: files of a former size are through.
const ALL_ARRIVED: f64 = 0.75;

/// After so many epochs of refusals larger parts are not waited for.
const GROWING_EPOCHS: u32 = 10;

/// Epochs without a refusal after which smaller parts are dared again.
const CALM_EPOCHS: u32 = 75;

/// Sizes are multiples of this.
const GRAIN: u64 = PIECE_BYTES as u64;

/// The controller of their size.
#[derive(Clone, Debug)]
pub(super) struct PartTuner {
    bytes: u64,
    memory: u64,
    /// Seconds before the first byte, and bytes per second of one stream from there on.
    wait: Option<f64>,
    rate: Option<f64>,
    /// Smaller parts were refused for their number; so many epochs ago.
    refused: Option<(u64, u32)>,
    /// Epochs of refusals in which most parts were of a smaller size than is set.
    growing: u32,
}

impl PartTuner {
    /// Begins with parts of `start` bytes and so many streams, which hold `memory` bytes.
    pub(super) fn new(start: u64, memory: u64, streams: usize) -> Self {
        let new = Self { bytes: 0, memory, wait: None, rate: None, refused: None, growing: 0 };
        Self { bytes: start.clamp(PART_BYTES_MIN, new.bound(streams)), ..new }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes what the present size brought with so many streams. `true` when it answers refusals by larger parts,
    /// so that there need not be fewer streams.
    pub(super) fn observe(&mut self, sample: &Sample, streams: usize) -> bool {
        self.learn(sample);
        if sample.is_refused() && sample.parts.count > 0 {
            return self.grow(sample, streams);
        }
        self.refused = match self.refused {
            Some((bytes, CALM_EPOCHS)) => {
                Some((bytes / 2, 0)).filter(|&(half, _)| half > PART_BYTES)
            }
            other => other.map(|(bytes, epochs)| (bytes, epochs + 1)),
        };
        false
    }

    /// From now on so many streams run.
    pub(super) fn fit(&mut self, streams: usize) {
        let bound = self.bound(streams);
        let least = self.refused.map_or(PART_BYTES, |(bytes, _)| bytes.max(PART_BYTES));
        let wanted = self.wanted().max(least).min(bound);
        let is_other = wanted.abs_diff(self.bytes) as f64 > WORTH_CHANGING * self.bytes as f64;
        if is_other || self.bytes > bound {
            self.bytes = wanted;
        }
    }

    /// Fewer requests carry as much, as far as memory goes.
    fn grow(&mut self, sample: &Sample, streams: usize) -> bool {
        let arrived = sample.parts.bytes as f64 / sample.parts.count as f64;
        if arrived < ALL_ARRIVED * self.bytes as f64 {
            // Files under way keep what they have.
            self.growing += 1;
            return self.growing < GROWING_EPOCHS;
        }
        self.growing = 0;
        let factor = (1.0 / (1.0 - sample.refused_part()).max(0.01)).clamp(GROWTH, 2.0);
        let larger = ((self.bytes as f64 * factor) as u64).next_multiple_of(GRAIN);
        let larger = larger.min(self.bound(streams));
        let has_grown = larger > self.bytes;
        self.bytes = larger.max(self.bytes);
        self.refused = Some((self.bytes, 0));
        has_grown
    }

    fn learn(&mut self, sample: &Sample) {
        let parts = sample.parts;
        let mix =
            |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + WEIGHT * (new - old)));
        if let Some(wait) = parts.wait {
            self.wait = mix(self.wait, wait.max(0.0));
        }
        if parts.count > 0 && parts.seconds > 0.0 {
            let waited = self.wait.unwrap_or(0.0) * parts.count as f64;
            // What is not known to be a wait is the bytes'.
            let moving = (parts.seconds - waited).max(parts.seconds / 10.0);
            self.rate = mix(self.rate, parts.bytes as f64 / moving);
        }
    }

    /// The smallest size that hides the wait; the present one where nothing is known.
    fn wanted(&self) -> u64 {
        let (Some(wait), Some(rate)) = (self.wait, self.rate) else { return self.bytes };
        let bytes = rate * wait * (1.0 / WAIT_MAX - 1.0);
        (bytes.min(PART_BYTES_AUTO_MAX as f64) as u64).next_multiple_of(GRAIN)
    }

    /// Largest size at which so many streams hold no more than they may.
    fn bound(&self, streams: usize) -> u64 {
        let each = self.memory / streams.max(1) as u64;
        let part = each.saturating_sub(GRAIN) / GRAIN * GRAIN;
        part.clamp(PART_BYTES_MIN, PART_BYTES_AUTO_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MEMORY_BYTES;
    use crate::tuner::PartTimes;

    const MIB: u64 = 1 << 20;

    /// An epoch of requests that wait `wait_ms` and then get `rate_mb` a second.
    fn sample(wait_ms: f64, rate_mb: f64, (count, part): (u64, u64), refused: u64) -> Sample {
        let wait = wait_ms / 1e3;
        let each = wait + part as f64 / (rate_mb * 1e6);
        let seconds = each * count as f64;
        let parts = PartTimes { count, bytes: count * part, seconds, wait: Some(wait) };
        Sample { seconds: 0.2, bytes: parts.bytes, answered: count, refused, parts }
    }

    #[track_caller]
    fn check((wait_ms, rate_mb): (f64, f64), streams: usize, mib: u64) {
        let mut tuner = PartTuner::new(PART_BYTES, MEMORY_BYTES, streams);
        for _ in 0..20 {
            let sample = sample(wait_ms, rate_mb, (5, tuner.bytes()), 0);
            assert!(!tuner.observe(&sample, streams));
            tuner.fit(streams);
        }
        assert_eq!(tuner.bytes() / MIB, mib);
    }

    #[test]
    fn the_smallest_size_that_hides_the_wait() {
        check((0.0, 90.0), 4, 8);
        check((5.0, 90.0), 4, 8); // 8.6 MB would do, which is not worth a change
        check((20.0, 90.0), 4, 33); // 19 waits of 1.8 MB each
        check((20.0, 90.0), 8, 23); // 24 MiB for each, with what an open brings
        check((20.0, 90.0), 32, 5);
        check((80.0, 20.0), 4, 29);
        check((80.0, 500.0), 1, 64);
    }

    #[test]
    fn where_nobody_knows_the_wait_the_size_stays() {
        let mut tuner = PartTuner::new(20 * MIB, MEMORY_BYTES, 4);
        let mut unknown = sample(0.0, 50.0, (5, 20 * MIB), 0);
        unknown.parts.wait = None;
        tuner.observe(&unknown, 4);
        tuner.fit(4);
        assert_eq!(tuner.bytes(), 20 * MIB);
        tuner.fit(16);
        assert_eq!(tuner.bytes(), 11 * MIB); // memory
    }

    #[test]
    fn refusals_make_parts_larger_then_streams_fewer_then_parts_small_again() {
        let mut tuner = PartTuner::new(PART_BYTES, MEMORY_BYTES, 8);
        let refused = |tuner: &mut PartTuner, part, streams| {
            let is_answered = tuner.observe(&sample(1.0, 90.0, (6, part), 2), streams);
            tuner.fit(streams);
            (is_answered, tuner.bytes() / MIB)
        };
        assert_eq!(refused(&mut tuner, 8 * MIB, 8), (true, 11));
        // Files under way: nothing further before larger parts arrive, for a while.
        for _ in 1..GROWING_EPOCHS {
            assert_eq!(refused(&mut tuner, 8 * MIB, 8), (true, 11));
        }
        assert_eq!(refused(&mut tuner, 8 * MIB, 8), (false, 11));
        assert_eq!(refused(&mut tuner, 11 * MIB, 8), (true, 15));
        assert_eq!(refused(&mut tuner, 15 * MIB, 8), (true, 20));
        assert_eq!(refused(&mut tuner, 20 * MIB, 8), (true, 23));
        // No more memory.
        assert_eq!(refused(&mut tuner, 23 * MIB, 8), (false, 23));
        for _ in 0..10 * CALM_EPOCHS {
            tuner.observe(&sample(1.0, 90.0, (6, tuner.bytes()), 0), 8);
            tuner.fit(8);
        }
        assert_eq!(tuner.bytes(), PART_BYTES);
    }
}
