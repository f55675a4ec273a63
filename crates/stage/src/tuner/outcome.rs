//! What one number of streams brings, and whether its refusals are too many, or chance. Pure.
//!
//! An epoch may hold no more than six requests, and streams that begin together ask together: one epoch's part of
//! refusals tells little then. What one number of streams is refused is added up in two windows. A short one finds
//! at once what chance does not explain; a long one finds a part that is small, but stays: a reason to
//! try with one stream fewer.

use super::{REFUSED_MAX, Sample};

/// Part of the requests of few streams that may be refused for a while: one stream less may cost as much of the rate.
const REFUSED_MAX_OF_FEW: f64 = 0.4;

/// So many standard deviations of a Poisson process, and one refusal, are chance: in the short window, and in a long one
/// that has just begun.
const CHANCE: f64 = 1.5;
const CHANCE_LONG: f64 = 2.0;

/// How much an epoch counts after the next one, in the short and in the long window.
const KEPT: f64 = 0.75;
const KEPT_LONG: f64 = 0.95;

/// Of so many requests of the long window nothing is chance.
const LONG: f64 = 40.0;

/// Sums over epochs, later ones for more.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    refused: f64,
    asked: f64,
    bytes: f64,
    seconds: f64,
}

/// Of one number of streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    short: Window,
    long: Window,
}

impl Window {
    fn observe(&mut self, sample: &Sample, kept: f64) {
        self.refused = self.refused * kept + sample.refused as f64;
        self.asked = self.asked * kept + (sample.answered + sample.refused) as f64;
        self.bytes = self.bytes * kept + sample.bytes as f64;
        self.seconds = self.seconds * kept + sample.seconds;
    }

    fn part(self) -> f64 {
        self.refused / self.asked.max(1.0)
    }
}

impl Outcome {
    pub(super) fn observe(&mut self, sample: &Sample) {
        self.short.observe(sample, KEPT);
        self.long.observe(sample, KEPT_LONG);
    }

    /// From 0 to 1.
    pub(super) fn refused_part(&self) -> f64 {
        self.short.part()
    }

    /// More than `streams` may be refused.
    pub(super) fn is_refused_too_much(&self, streams: usize) -> bool {
        let of_one = REFUSED_MAX_OF_FEW.min(1.0 / streams.max(1) as f64);
        let fair = REFUSED_MAX.max(of_one) * self.short.asked;
        self.short.refused > fair + CHANCE * fair.sqrt() + 1.0
    }

    /// The storage answers no more than it does.
    pub(super) fn is_refused_much(&self) -> bool {
        self.short.part() > REFUSED_MAX
    }

    /// The refusals stay: fewer streams may bring as much.
    pub(super) fn stays_refused(&self) -> bool {
        let fair = REFUSED_MAX * self.long.asked;
        let chance = if self.long.asked < LONG { CHANCE_LONG * fair.sqrt() + 1.0 } else { 0.0 };
        self.long.refused > fair + chance
    }

    /// Bytes per second of the long window.
    pub(super) fn rate(&self) -> f64 {
        self.long.bytes / self.long.seconds
    }
}
