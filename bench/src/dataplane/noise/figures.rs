//! What `hayase noise` tells of one processor, and what many such runs say together.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::command::run;
use crate::stats;

/// Work of a piece: 2^18 steps, as in paper 003, table 9.
const WORK: &str = "18";

/// The program of paper 003, section 4.3: 100,000 processes that meet each millisecond.
const PROCESSES: f64 = 100_000.0;
const PHASE_SECONDS: f64 = 1e-3;

/// Delays of at least this share of the longest one are like it; as in `hayase noise`.
const LIKE_LONGEST: f64 = 0.8;

const PATIENCE: Duration = Duration::from_secs(60);

/// One run on one processor, as `hayase noise --json` tells it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Noise {
    pub(crate) samples: f64,
    pub(crate) seconds: f64,
    /// Mean delay over the work without noise.
    pub(crate) rate: f64,
    pub(crate) interruptions: f64,
    pub(crate) median_us: f64,
    pub(crate) longest_us: f64,
    pub(crate) interval_seconds: f64,
}

#[derive(Deserialize)]
struct Told {
    alone: Vec<Noise>,
}

impl Noise {
    /// So many pieces on `processor`.
    pub(crate) fn measure(hayase: &Path, processor: usize, pieces: u64) -> anyhow::Result<Self> {
        let mut command = Command::new(hayase);
        command.args(["noise", "--json", "--baseline", "median", "--work", WORK]);
        command.args(["--processors", &processor.to_string(), "-n", &pieces.to_string()]);
        let text = run(&mut command, PATIENCE)?.success("hayase noise")?;
        let told: Told = serde_json::from_str(&text).context("read what noise says")?;
        told.alone.first().copied().context("noise measured nothing")
    }

    /// Microseconds that a piece took, all delays included.
    pub(crate) fn piece_us(&self) -> f64 {
        self.seconds / self.samples * 1e6
    }
}

/// Runs of one kind, as a row of paper 003's table 10.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// Mean of the runs.
    pub(crate) rate: f64,
    pub(crate) interruptions_per_second: f64,
    /// The middle one of the runs' medians.
    pub(crate) median_us: f64,
    /// Of all runs.
    pub(crate) longest_us: f64,
    /// How often a delay of nearly that length comes.
    pub(crate) interval_seconds: f64,
    pub(crate) slowdown: f64,
}

impl Row {
    /// Of at least one run.
    pub(crate) fn of(runs: &[Noise]) -> Self {
        let sum = |part: fn(&Noise) -> f64| runs.iter().map(part).sum::<f64>();
        let seconds = sum(|run| run.seconds);
        let longest_us = runs.iter().map(|run| run.longest_us).fold(0.0, f64::max);
        let alike = runs.iter().filter(|run| run.longest_us >= longest_us * LIKE_LONGEST);
        let count: f64 = alike.map(|run| run.seconds / run.interval_seconds).sum();
        let interval_seconds = seconds / count;
        let medians: Vec<f64> = runs.iter().map(|run| run.median_us).collect();
        Self {
            rate: sum(|run| run.rate) / runs.len() as f64,
            interruptions_per_second: sum(|run| run.interruptions) / seconds,
            median_us: stats::median(&medians).unwrap_or(f64::NAN),
            longest_us,
            interval_seconds,
            slowdown: slowdown(interval_seconds, longest_us / 1e6),
        }
    }
}

/// Tsafrir's formula (paper 003, section 4.3.1): 1 + (1 - exp(-NG/T)) D/G. Both in seconds.
fn slowdown(interval: f64, length: f64) -> f64 {
    let hit = 1.0 - (-PROCESSES * PHASE_SECONDS / interval).exp();
    1.0 + hit * length / PHASE_SECONDS
}

/// `after` less `before`, pair by pair.
pub(crate) fn differences(
    before: &[Noise],
    after: &[Noise],
    part: impl Fn(&Noise) -> f64,
) -> Vec<f64> {
    before.iter().zip(after).map(|(before, after)| part(after) - part(before)).collect()
}

/// How far the median of `busy` lies from the middle of `idle`, in half widths of the interval in which 95 % of `idle`
/// lie: at most 1 inside, negative below. NaN where there is too little of either.
pub(crate) fn beyond(idle: &[f64], busy: &[f64]) -> f64 {
    match (stats::interval_95(idle), stats::median(busy)) {
        (Some((mean, half)), Some(busy)) => (busy - mean) / half,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(rate: f64, longest_us: f64, interval_seconds: f64) -> Noise {
        let (samples, seconds, interruptions, median_us) = (1000.0, 10.0, 20.0, 5.0);
        Noise { samples, seconds, rate, interruptions, median_us, longest_us, interval_seconds }
    }

    #[test]
    fn the_paper_s_own_figures() {
        // Section 4.3.2: D = 41 us each second make 4.1 %.
        let row = Row::of(&[noise(1e-5, 41.0, 1.0), noise(3e-5, 41.0, 1.0)]);
        assert!((row.slowdown - 1.041).abs() < 1e-6, "{row:?}");
        assert!((row.rate - 2e-5).abs() < 1e-12 && row.interruptions_per_second == 2.0, "{row:?}");
    }

    #[test]
    fn a_delay_that_one_run_saw_is_as_rare_as_all_runs_say() {
        // Once in 10 s of the first run, not at all in the second.
        let row = Row::of(&[noise(0.0, 100.0, 10.0), noise(0.0, 10.0, 0.1)]);
        assert_eq!((row.longest_us, row.interval_seconds), (100.0, 20.0));
    }

    #[test]
    fn inside_is_at_most_one_half_width() {
        let idle = [-1.0, 0.0, 1.0];
        assert_eq!(beyond(&idle, &[0.0]), 0.0);
        assert!((beyond(&idle, &[4.303]) - 1.0).abs() < 1e-9);
        assert!(beyond(&idle, &[9.0]) > 2.0 && beyond(&idle, &[-9.0]) < -2.0);
        assert!(beyond(&[], &[1.0]).is_nan());
    }

    #[test]
    fn pairs_are_compared_with_their_own() {
        let before = [noise(1.0, 0.0, 1.0), noise(5.0, 0.0, 1.0)];
        let after = [noise(2.0, 0.0, 1.0), noise(4.0, 0.0, 1.0)];
        assert_eq!(differences(&before, &after, |run| run.rate), [1.0, -1.0]);
    }
}
