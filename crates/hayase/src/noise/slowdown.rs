//! From lengths of the same work to a noise rate and a slowdown. Pure.

use serde::Serialize;

use super::fwq::Measured;

/// What the samples say of one processor. Times are in microseconds unless named otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Noise {
    /// Which.
    pub(crate) processor: usize,
    pub(crate) samples: usize,
    pub(crate) seconds: f64,
    /// The work without noise.
    pub(crate) work_us: f64,
    /// Mean delay over the work without noise.
    pub(crate) rate: f64,
    /// Delays longer than the threshold.
    pub(crate) interruptions: usize,
    /// The middle one of them; 0 without any.
    pub(crate) median_us: f64,
    /// The longest delay.
    pub(crate) longest_us: f64,
    /// How often a delay of nearly that length comes.
    pub(crate) interval_seconds: f64,
    /// Of a program that meets after each phase on all its processes.
    pub(crate) slowdown: f64,
}

/// The program whose slowdown is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Program {
    /// Processes that wait for each other after each phase.
    pub(crate) processes: u64,
    /// Seconds of computation between two meetings.
    pub(crate) phase_seconds: f64,
}

/// What counts as the work without noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Baseline {
    /// The shortest sample
    Least,
    /// The median sample: for processors that change their speed, and for virtual ones
    Median,
}

/// Delays shorter than this share of the work are how times scatter, not interruptions.
const INTERRUPTION_SHARE: f64 = 0.02;

/// Delays of at least this share of the longest one count as like it.
const LIKE_LONGEST: f64 = 0.8;

/// Looks at the samples of one processor, of which there is at least one.
pub(crate) fn examine(measured: &Measured, baseline: Baseline, program: Program) -> Noise {
    let mut sorted = measured.samples.clone();
    sorted.sort_unstable();
    let work = match baseline {
        Baseline::Least => sorted[0],
        Baseline::Median => sorted[sorted.len() / 2],
    };
    let work = f64::from(work).max(1.0);
    let delay = |sample: &u32| (f64::from(*sample) - work).max(0.0);
    let longest = delay(sorted.last().expect("there is a sample"));
    let is_interruption = |sample: &&u32| delay(sample) > work * INTERRUPTION_SHARE;
    let first = sorted.partition_point(|sample| !is_interruption(&sample));
    let interruptions = &sorted[first..];
    let alike = sorted.iter().rev().take_while(|sample| delay(sample) >= longest * LIKE_LONGEST);
    let interval_seconds = measured.seconds / alike.count() as f64;
    let mean = sorted.iter().map(delay).sum::<f64>() / sorted.len() as f64;
    Noise {
        processor: measured.processor,
        samples: sorted.len(),
        seconds: measured.seconds,
        work_us: work / 1e3,
        rate: mean / work,
        interruptions: interruptions.len(),
        median_us: interruptions.get(interruptions.len() / 2).map_or(0.0, delay) / 1e3,
        longest_us: longest / 1e3,
        interval_seconds,
        slowdown: slowdown(program, interval_seconds, longest / 1e9),
    }
}

/// Tsafrir's formula (paper 003, section 4.3.1): 1 + (1 - exp(-NG/T)) D/G.
///
/// `interval` is T and `length` is D, in seconds.
pub(crate) fn slowdown(program: Program, interval: f64, length: f64) -> f64 {
    let Program { processes, phase_seconds } = program;
    let hit = 1.0 - (-(processes as f64) * phase_seconds / interval).exp();
    1.0 + hit * length / phase_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: Program = Program { processes: 100_000, phase_seconds: 1e-3 };

    fn series(samples: Vec<u32>, seconds: f64) -> Measured {
        Measured { processor: 3, samples, seconds }
    }

    #[test]
    fn the_paper_s_own_figures() {
        // Section 4.3.2: D = 41 us and T = 1 s make 4.1 %.
        assert!((slowdown(K, 1.0, 41e-6) - 1.041).abs() < 1e-6);
    }

    #[test]
    fn few_processes_rarely_meet_rare_noise() {
        let alone = Program { processes: 1, phase_seconds: 1e-3 };
        let found = slowdown(alone, 1.0, 1e-3);
        assert!((found - 1.001).abs() < 1e-5, "{found}");
        assert!((slowdown(alone, 1e-9, 1e-3) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn two_interruptions_in_ten_seconds() {
        let mut samples = vec![100_000; 1000];
        (samples[10], samples[500]) = (141_000, 138_000);
        let noise = examine(&series(samples, 10.0), Baseline::Least, K);
        assert_eq!((noise.work_us, noise.longest_us, noise.interruptions), (100.0, 41.0, 2));
        assert!((noise.interval_seconds - 5.0).abs() < 1e-9);
        assert!((noise.rate - (41.0 + 38.0) / 1000.0 / 100.0).abs() < 1e-12);
        assert!((noise.slowdown - 1.041).abs() < 1e-4);
    }

    #[test]
    fn without_noise_nothing_slows_down() {
        let noise = examine(&series(vec![5; 10], 1.0), Baseline::Median, K);
        assert_eq!((noise.rate, noise.longest_us, noise.slowdown), (0.0, 0.0, 1.0));
        assert_eq!((noise.interruptions, noise.median_us), (0, 0.0));
    }

    #[test]
    fn the_median_leaves_faster_samples_alone() {
        let noise = examine(&series(vec![50, 100, 100, 100, 200], 1.0), Baseline::Median, K);
        assert_eq!((noise.work_us, noise.longest_us), (0.1, 0.1));
    }
}
