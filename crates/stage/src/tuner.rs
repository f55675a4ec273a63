//! How many streams, and how large the parts of large files: found while a transfer runs, from what each setting
//! brought. Pure: samples go in, two numbers come out.
//!
//! Rooms: [`streams`] (how many), [`outcome`] (what so many bring, and whether they are refused), [`parts`] (how large),
//! [`wish`] (what a person may fix).
//! `simulator` shows how close they come to the best of a sweep.

mod outcome;
mod parts;
#[cfg(test)]
mod simulator;
mod streams;
mod wish;

use std::time::Duration;

use self::parts::PartTuner;
use self::streams::StreamTuner;
pub use self::wish::{PartSize, Streams};

/// Shortest time of one sample: shorter ones are noise.
pub const EPOCH: Duration = Duration::from_millis(200);

/// Part of all requests that may be refused before it is too much.
const REFUSED_MAX: f64 = 0.08;

/// What one epoch brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Its length.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Requests, or units of work, that were answered.
    pub answered: u64,
    /// Requests that were refused for their number (503, 429), or found nobody.
    pub refused: u64,
    /// Of the parts of large files among them.
    pub parts: PartTimes,
}

impl Sample {
    /// Nothing happened, or in no time: whoever copies has waited for something else.
    fn is_idle(&self) -> bool {
        self.seconds <= 0.0 || (self.bytes == 0 && self.answered == 0 && self.refused == 0)
    }

    fn refused_part(&self) -> f64 {
        self.refused as f64 / (self.answered + self.refused).max(1) as f64
    }

    /// More than one, which may be chance: an epoch may hold no more than six requests.
    fn is_refused(&self) -> bool {
        let beside_one = self.refused.saturating_sub(1) as f64;
        beside_one / (self.answered + self.refused).max(1) as f64 > REFUSED_MAX
    }
}

/// What parts of large files took.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartTimes {
    /// How many came to an end.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long their requests took, all added up: several streams have several seconds in one.
    pub seconds: f64,
    /// How long one of them takes before its first byte; `None` where nobody knows.
    pub wait: Option<f64>,
}

/// The controller of one transfer.
#[derive(Clone, Debug)]
pub struct Tuner {
    streams: Found<StreamTuner, usize>,
    parts: Found<PartTuner, u64>,
}

/// Found while it runs, or said.
#[derive(Clone, Debug)]
enum Found<Tuner, Value> {
    Tuned(Tuner),
    Fixed(Value),
}

impl Tuner {
    /// Of a transfer whose streams hold `memory` bytes together.
    pub fn new(streams: Streams, parts: PartSize, memory: u64) -> Self {
        let (start, streams_max) = streams.range();
        Self {
            streams: match streams {
                Streams::Auto { .. } => Found::Tuned(StreamTuner::new(start, streams_max)),
                Streams::Fixed(_) => Found::Fixed(start),
            },
            parts: match parts {
                PartSize::Auto { start: bytes } => {
                    Found::Tuned(PartTuner::new(bytes, memory, start))
                }
                PartSize::Fixed(bytes) => Found::Fixed(bytes),
            },
        }
    }

    /// Streams that should run now.
    pub fn streams(&self) -> usize {
        match &self.streams {
            Found::Tuned(tuner) => tuner.streams(),
            Found::Fixed(streams) => *streams,
        }
    }

    /// How large the parts of a file should be that begins now.
    pub fn part_bytes(&self) -> u64 {
        match &self.parts {
            Found::Tuned(tuner) => tuner.bytes(),
            Found::Fixed(bytes) => *bytes,
        }
    }

    /// Nothing is to be found.
    pub fn is_fixed(&self) -> bool {
        matches!((&self.streams, &self.parts), (Found::Fixed(_), Found::Fixed(_)))
    }

    /// A sample is worth something when so many units, or requests, came to an end in it.
    pub fn is_enough(&self, elapsed: Duration, ended: u64) -> bool {
        elapsed >= EPOCH && (ended >= self.streams() as u64 || elapsed >= 5 * EPOCH)
    }

    /// Takes what the present setting brought.
    pub fn observe(&mut self, sample: Sample) {
        if sample.is_idle() {
            return;
        }
        let streams_now = self.streams();
        let is_answered = match &mut self.parts {
            Found::Tuned(parts) => parts.observe(&sample, streams_now),
            Found::Fixed(_) => false,
        };
        if let Found::Tuned(streams) = &mut self.streams
            && !is_answered
        {
            streams.observe(sample);
        }
        let streams = self.streams();
        if let Found::Tuned(parts) = &mut self.parts {
            parts.fit(streams);
        }
    }
}
