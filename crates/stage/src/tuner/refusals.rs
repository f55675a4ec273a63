//! Whether refusals are too many, or chance. Pure.
//!
//! An epoch may hold no more than six requests, and streams that begin together ask together: one epoch's part of
//! refusals tells little then. What one number of streams is refused is added up, older epochs for less, and
//! is too much where chance does not explain it.

use super::{REFUSED_MAX, Sample};

/// Part of the requests of few streams that may be refused: of five, one less is a fifth of the rate.
const REFUSED_MAX_OF_FEW: f64 = 0.17;

/// So many standard deviations of a Poisson process, and one refusal, are chance.
const CHANCE: f64 = 1.5;

/// How much an epoch counts after the next one.
const KEPT: f64 = 0.75;

/// Of one number of streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    refused: f64,
    asked: f64,
}

impl Refusals {
    pub(super) fn observe(&mut self, sample: &Sample) {
        self.refused = self.refused * KEPT + sample.refused as f64;
        self.asked = self.asked * KEPT + (sample.answered + sample.refused) as f64;
    }

    /// From 0 to 1.
    pub(super) fn part(&self) -> f64 {
        self.refused / self.asked.max(1.0)
    }

    /// More than `streams` may be refused.
    pub(super) fn are_too_many(&self, streams: usize) -> bool {
        let of_one = REFUSED_MAX_OF_FEW.min(1.0 / streams.max(1) as f64);
        let fair = REFUSED_MAX.max(of_one) * self.asked;
        self.refused > fair + CHANCE * fair.sqrt() + 1.0
    }
}
