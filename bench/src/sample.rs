//! One measurement, and series of them.
//!
//! Here: what a block of work took, and which series of rates follow. Not here: running it
//! ([`crate::workloads`]), judging it ([`crate::report::goal`]).

use serde::{Deserialize, Serialize};

use crate::stats;

/// What a workload program measured of one block of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Bytes or operations.
    pub(crate) amount: f64,
    /// How long they took.
    pub(crate) seconds: f64,
    /// CPU time of the program itself meanwhile.
    pub(crate) own_cpu: f64,
}

/// A block of work in its place among the others; kept as raw data.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// Kind of work.
    pub(crate) what: String,
    /// On what.
    pub(crate) variant: String,
    /// Blocks of one round were measured directly after each other.
    pub(crate) round: usize,
    /// Of the program.
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// CPU seconds of the processes that served it, while the program ran.
    pub(crate) meanwhile_cpu: f64,
    /// The same until they came to rest.
    pub(crate) served_cpu: f64,
    /// Requests that the servers counted, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// Calls that read or wrote (of `/proc/PID/io`) of the processes that served it, where they were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<u64>,
    /// Those of the requests that were refused, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<u64>,
    /// Bytes of small writes that came to the servers gathered, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gathered: Option<u64>,
    /// The most bytes of memory that the program had, where that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<u64>,
    /// Which build was measured, where there are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) build: Option<&'static str>,
    /// In which pair of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repetition: Option<usize>,
}

impl Sample {
    /// Amount per second.
    pub(crate) fn rate(&self) -> f64 {
        self.measured.amount / self.measured.seconds
    }
}

/// All samples of a group of measurements, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

/// Subject against baseline, and baseline against itself.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// One ratio per round.
    pub(crate) ratios: Vec<f64>,
    /// A against A: of two rounds after each other, in which the two had changed places.
    pub(crate) same: Vec<f64>,
}

impl Samples {
    /// The samples of one kind of work on one variant.
    pub(crate) fn of<'a>(
        &'a self,
        what: &'a str,
        variant: &'a str,
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| sample.what == what && sample.variant == variant)
    }

    /// Their rates, round by round.
    pub(crate) fn rates(&self, what: &str, variant: &str) -> Vec<f64> {
        self.of(what, variant).map(Sample::rate).collect()
    }

    /// Median of the rates; NaN when there is none.
    pub(crate) fn rate(&self, what: &str, variant: &str) -> f64 {
        stats::median(&self.rates(what, variant)).unwrap_or(f64::NAN)
    }

    /// Rates of `subject` against those of the baseline before and after it.
    pub(crate) fn compare(&self, what: &str, subject: &str, baseline: [&str; 2]) -> Comparison {
        let [before, after] = baseline.map(|variant| self.rates(what, variant));
        let subject = self.rates(what, subject);
        Comparison {
            ratios: stats::ratios_in_between(&subject, &before, &after),
            same: stats::of_neighbours(&stats::ratios(&before, &after)),
        }
    }

    /// CPU seconds per unit of work: of the program, and of what served it. Sums over all rounds.
    pub(crate) fn cpu_per_amount(&self, what: &str, variant: &str) -> (f64, f64) {
        let sum = |part: fn(&Sample) -> f64| self.of(what, variant).map(part).sum::<f64>();
        let amount = sum(|sample| sample.measured.amount);
        (sum(|sample| sample.measured.own_cpu) / amount, sum(|sample| sample.served_cpu) / amount)
    }

    /// The most memory that the program had in any round, in bytes; 0 where nobody looked.
    pub(crate) fn memory(&self, what: &str, variant: &str) -> u64 {
        self.of(what, variant).filter_map(|sample| sample.memory).max().unwrap_or(0)
    }

    /// CPU of the serving processes meanwhile, as a share of the time that the work took.
    pub(crate) fn served_share(&self, what: &str, variant: &str) -> f64 {
        let seconds: f64 = self.of(what, variant).map(|sample| sample.measured.seconds).sum();
        self.of(what, variant).map(|sample| sample.meanwhile_cpu).sum::<f64>() / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(variant: &str, round: usize, amount: f64) -> Sample {
        Sample {
            what: "read".to_owned(),
            variant: variant.to_owned(),
            round,
            measured: Measured { amount, seconds: 2.0, own_cpu: 0.5 },
            meanwhile_cpu: 0.5,
            served_cpu: 0.25,
            ..Sample::default()
        }
    }

    #[test]
    fn variants_are_compared_round_by_round() {
        let mut samples = Samples::default();
        for round in 0..3 {
            for (variant, amount) in [("native", 8.0), ("mount", 4.0), ("native again", 2.0)] {
                samples.0.push(sample(variant, round, amount));
            }
        }
        let found = samples.compare("read", "mount", ["native", "native again"]);
        assert_eq!(found.ratios, [1.0; 3]);
        assert_eq!(found.same, [4.0; 2]);
        assert_eq!(samples.rate("read", "mount"), 2.0);
        assert_eq!(samples.cpu_per_amount("read", "mount"), (0.125, 0.0625));
        assert_eq!(samples.served_share("read", "mount"), 0.25);
        assert!(samples.rate("write", "mount").is_nan());
    }
}
