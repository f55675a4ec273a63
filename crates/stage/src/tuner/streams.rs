//! How many streams. Pure: samples go in, a number of streams comes out.
//!
//! Doubling until a doubling brings little; then small probes up and down, so that a changed network is
//! noticed; steps back by a factor when the storage says that it is too much, then bisection between
//! what was and what was not too much.
//! Source: slow start and multiplicative decrease as in TCP (RFC 5681); search over the number of
//! streams as in Balaprakash et al. 2016 (GridFTP).

use super::outcome::Outcome;
use super::{REFUSED_MAX, Sample};

/// A doubling that brings less than this is the last one.
const GAIN_DOUBLING: f64 = 1.04;

/// The last doubling is kept if it brings this; probes downwards find what it did not need.
const GAIN_LAST: f64 = 1.01;

/// A small step up must bring this to be kept.
const GAIN_STEP: f64 = 1.02;

/// Fewer streams are kept while they bring this part of the best.
const KEPT: f64 = 0.992;

/// The same where requests are refused all the time: so much of the rate is given for asking less.
const KEPT_REFUSED: f64 = 0.95;

/// A step up that is refused in part must bring as much as would not be given for taking it back.
const GAIN_REFUSED: f64 = 1.05;

/// Epochs of a probe: of few requests a second two say little.
const PROBE_EPOCHS: u32 = 2;
const PROBE_EPOCHS_REFUSED: u32 = 6;

/// So far below what is enough, two epochs say it.
const HOPELESS: f64 = 0.8;

/// The rate left the band around what was expected: the network is another one. Near refusals only after so many epochs.
const SURPRISE: f64 = 0.12;
const SURPRISES_REFUSED: u32 = 3;

/// Factor back when it was too much.
const STEP_BACK: f64 = 0.7;

/// With fewer streams than this there is nothing to be saved.
const WORTH_FEWER: usize = 4;

/// Epochs of rest between probes, and how long a limit that was met is believed in.
const REST_EPOCHS: u32 = 3;
const CEILING_EPOCHS: u32 = 14;

/// What is being tried.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Doubling; how many ran before, and what they brought (0 at the begin).
    Ramp { from: usize, before: f64 },
    /// Between streams that were not too many, and streams that were.
    Bisect { low: usize, high: usize },
    /// The best known; so many epochs until the next probe.
    Rest { epochs: u32 },
    /// More than `from`, which brought `base`; in this epoch of the probe.
    Up { from: usize, base: f64, epochs: u32 },
    /// Less than `from`, to be kept if they bring enough; tried because requests of `from` were refused, or not.
    Down { from: usize, enough: f64, epochs: u32, is_refused: bool },
}

/// The controller of their number.
#[derive(Clone, Debug)]
pub(super) struct StreamTuner {
    streams: usize,
    streams_max: usize,
    phase: Phase,
    /// What the resting number of streams brings, bytes per second.
    expected: f64,
    /// The best since the last ramp: what fewer streams are compared with.
    best: f64,
    /// This many were too many, so many epochs ago at most.
    ceiling: Option<(usize, u32)>,
    /// The last growth ended here, at refusals: the next one is careful.
    refused_at: Option<usize>,
    /// The most that were not refused at rest, where so few have not been refused since.
    fine: Option<usize>,
    /// Outcome of the present number of streams.
    outcome: Outcome,
    /// They were tried with fewer for their refusals: these are needed.
    is_needed: bool,
    /// Epochs of rest in a row whose rates were far from what was expected.
    surprises: u32,
    next_is_down: bool,
    /// Epochs of rest before the next probe downwards; longer when the last one brought nothing.
    patience: u32,
    failed_downs: u32,
}

impl StreamTuner {
    /// Begins with `start` streams (what was best last time, else some four).
    pub(super) fn new(start: usize, streams_max: usize) -> Self {
        let streams_max = streams_max.max(1);
        let streams = start.clamp(1, streams_max);
        Self {
            streams,
            streams_max,
            phase: Phase::Ramp { from: streams, before: 0.0 },
            expected: 0.0,
            best: 0.0,
            ceiling: None,
            refused_at: None,
            fine: None,
            outcome: Outcome::default(),
            is_needed: false,
            surprises: 0,
            next_is_down: false,
            patience: REST_EPOCHS,
            failed_downs: 0,
        }
    }

    /// Streams that should run now.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// Takes what the present number of streams brought.
    pub(super) fn observe(&mut self, sample: Sample) {
        if sample.is_idle() {
            return;
        }
        self.ceiling = self.ceiling.and_then(|(n, epochs)| Some((n, epochs.checked_sub(1)?)));
        let rate = sample.bytes as f64 / sample.seconds;
        let streams = self.streams;
        self.outcome.observe(&sample);
        if self.outcome.is_refused_too_much(streams) {
            self.step_back(1.0 - self.outcome.refused_part());
        } else {
            self.judge(rate);
        }
        if self.streams != streams {
            self.outcome = Outcome::default();
        }
    }

    fn judge(&mut self, rate: f64) {
        match self.phase {
            Phase::Ramp { from, before } => self.ramp(from, before, rate),
            Phase::Bisect { low: _, high } => self.bisect(self.streams, high, rate),
            Phase::Rest { epochs } => self.rest(epochs, rate),
            Phase::Up { from, base, epochs } => {
                if epochs < probe_epochs(self.outcome.is_refused_much()) {
                    self.phase = Phase::Up { from, base, epochs: epochs + 1 };
                } else {
                    self.judge_more(from, base);
                }
            }
            Phase::Down { from, enough, epochs, is_refused } => {
                let is_hopeless = self.outcome.rate() < HOPELESS * enough;
                if epochs < probe_epochs(is_refused && !is_hopeless) {
                    self.phase = Phase::Down { from, enough, epochs: epochs + 1, is_refused };
                } else {
                    self.judge_fewer(from, enough);
                }
            }
        }
    }

    fn limit(&self) -> usize {
        self.ceiling
            .map_or(self.streams_max, |(ceiling, _)| (ceiling - 1).clamp(1, self.streams_max))
    }

    /// A doubling would ask more than was refused last time.
    fn is_near_refusals(&self) -> bool {
        self.refused_at.is_some_and(|at| (at / 2..2 * at).contains(&self.streams))
    }

    fn settle(&mut self, streams: usize, rate: f64) {
        self.streams = streams;
        self.expected = rate;
        self.best = rate;
        self.next_is_down = true;
        self.patience = REST_EPOCHS;
        self.is_needed = false;
        self.surprises = 0;
        self.phase = Phase::Rest { epochs: REST_EPOCHS };
    }

    fn double(&mut self, rate: f64) {
        let next = (self.streams * 2).min(self.limit());
        if next <= self.streams {
            self.settle(self.streams, rate);
        } else {
            self.phase = Phase::Ramp { from: self.streams, before: rate };
            self.streams = next;
        }
    }

    fn ramp(&mut self, from: usize, before: f64, rate: f64) {
        if rate > before * GAIN_DOUBLING {
            self.double(rate);
        } else if rate > before * GAIN_LAST {
            self.settle(self.streams, rate);
        } else {
            self.settle(from, before);
        }
    }

    fn rest(&mut self, epochs: u32, rate: f64) {
        self.fine = self.fine.max(Some(self.streams));
        if self.is_surprised(rate) {
            // Half as many are not known to be worse: the ramp begins as if nothing was known.
            self.double(rate);
            return;
        }
        self.expected += (rate - self.expected) / 4.0;
        self.best = self.best.max(self.expected);
        if epochs > 0 {
            self.phase = Phase::Rest { epochs: epochs - 1 };
            return;
        }
        let (from, can_grow) = (self.streams, self.streams < self.limit());
        let step = (from / 8).max(1);
        self.patience = self.patience.saturating_sub(REST_EPOCHS);
        if self.is_time_for_fewer() {
            self.try_fewer(from - step);
        } else if can_grow && !self.outcome.is_refused_much() {
            let up = if self.is_near_refusals() { step } else { step.max(from / 2) };
            self.streams = (from + up).min(self.limit());
            let base = if self.is_near_refusals() { self.outcome.rate() } else { self.expected };
            self.phase = Phase::Up { from, base, epochs: 1 };
        } else {
            self.phase = Phase::Rest { epochs: REST_EPOCHS };
        }
        self.next_is_down = !self.next_is_down;
    }

    /// The network is another one. Near refusals epochs hold few requests, and the rate of one is noise.
    fn is_surprised(&mut self, rate: f64) -> bool {
        let is_far = (rate - self.expected).abs() > self.expected * SURPRISE;
        self.surprises = if is_far { self.surprises + 1 } else { 0 };
        let needed = if self.is_near_refusals() { SURPRISES_REFUSED } else { 1 };
        self.surprises >= needed && !self.outcome.is_refused_much()
    }

    fn is_time_for_fewer(&self) -> bool {
        let is_refused = self.outcome.stays_refused() && self.streams > 1;
        let is_turn = self.next_is_down && self.patience == 0;
        (is_refused && !self.is_needed) || (is_turn && (is_refused || self.streams >= WORTH_FEWER))
    }

    fn try_fewer(&mut self, fewer: usize) {
        let from = self.streams;
        let is_refused = self.outcome.stays_refused();
        let enough = match is_refused {
            true => self.outcome.rate() * KEPT_REFUSED,
            false => self.best * KEPT,
        };
        self.is_needed = is_refused;
        self.streams = fewer;
        self.phase = Phase::Down { from, enough, epochs: 1, is_refused };
    }

    fn judge_more(&mut self, from: usize, base: f64) {
        let rate = self.outcome.rate();
        let gain = if self.outcome.is_refused_much() { GAIN_REFUSED } else { GAIN_STEP };
        if rate > base * gain {
            if self.outcome.refused_part() < REFUSED_MAX / 2.0 {
                self.refused_at = self.refused_at.filter(|&at| at > self.streams);
            }
            if self.is_near_refusals() {
                self.settle(self.streams, rate);
            } else {
                self.double(rate);
            }
        } else {
            self.streams = from;
            self.phase = Phase::Rest { epochs: REST_EPOCHS };
        }
    }

    fn judge_fewer(&mut self, from: usize, enough: f64) {
        let rate = self.outcome.rate();
        if rate >= enough {
            self.expected = rate;
            self.is_needed = false;
            self.patience = REST_EPOCHS;
            self.failed_downs = 0;
        } else {
            self.streams = from;
            // What was needed is likely to be needed for a while.
            self.failed_downs = (self.failed_downs + 1).min(4);
            self.patience = REST_EPOCHS << (self.failed_downs + 2);
        }
        self.phase = Phase::Rest { epochs: REST_EPOCHS };
    }

    /// `answered` is the part of the requests that was not refused: as many streams would have done.
    fn step_back(&mut self, answered: f64) {
        let high = self.streams;
        self.fine = self.fine.filter(|&fine| fine < high);
        let factor = answered.min(STEP_BACK);
        let back = ((high as f64 * factor) as usize).max(1);
        let low = match self.phase {
            Phase::Bisect { low, .. } if low < high => low,
            Phase::Up { from, .. } => from,
            Phase::Ramp { from, before } if before > 0.0 => from,
            _ => self.fine.unwrap_or(back),
        };
        self.ceiling = Some((high.max(2), CEILING_EPOCHS));
        self.refused_at = Some(high);
        self.streams = low;
        self.phase = Phase::Bisect { low, high };
    }

    /// `low` streams were not too many.
    fn bisect(&mut self, low: usize, high: usize, rate: f64) {
        if high.saturating_sub(low) <= (high / 40).max(1) {
            self.settle(low, rate);
            return;
        }
        self.streams = low.midpoint(high);
        self.phase = Phase::Bisect { low, high };
    }
}

/// How many epochs a probe takes.
fn probe_epochs(is_refused: bool) -> u32 {
    if is_refused { PROBE_EPOCHS_REFUSED } else { PROBE_EPOCHS }
}
