//! What the repetitions of two builds cost, pair by pair. Costs are such that less is better.

use crate::report::Outcome;
use crate::report::goal::Wanted;
use crate::sample::Sample;
use crate::stats;

/// A group, run by both builds directly after each other.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) this: Outcome,
    pub(super) before: Outcome,
}

/// What is compared of samples of one kind of work on one variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Seconds for each unit of work.
    Time,
    /// CPU seconds of the program and of what serves it, for each unit of work.
    Cpu,
    /// Requests that servers counted, for each unit of work.
    Requests,
    /// Requests that were refused, for each unit of work.
    Refused,
    /// Calls that read or wrote, of what serves the program, for each unit of work.
    Calls,
    /// The most bytes of memory that the program had.
    Memory,
}

impl Measure {
    pub(super) const ALL: [Self; 6] =
        [Self::Time, Self::Cpu, Self::Requests, Self::Refused, Self::Calls, Self::Memory];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "rate",
            Self::Cpu => "CPU",
            Self::Requests => "requests",
            Self::Refused => "refused requests",
            Self::Calls => "read and write calls of our processes",
            Self::Memory => "memory",
        }
    }

    pub(super) const fn is_count(self) -> bool {
        match self {
            Self::Time | Self::Cpu | Self::Memory => false,
            Self::Requests | Self::Refused | Self::Calls => true,
        }
    }

    /// Of all rounds of one repetition: seconds, a number, or bytes. `None` where it was not measured.
    pub(super) fn total(self, samples: &[&Sample]) -> Option<f64> {
        let count = |part: fn(&Sample) -> Option<u64>| -> Option<f64> {
            let each: Option<Vec<u64>> = samples.iter().map(|sample| part(sample)).collect();
            each.filter(|each| !each.is_empty()).map(|each| each.iter().sum::<u64>() as f64)
        };
        let sum = |part: fn(&Sample) -> f64| samples.iter().map(|sample| part(sample)).sum::<f64>();
        match self {
            Self::Time => Some(sum(|sample| sample.measured.seconds)),
            Self::Cpu => Some(sum(|sample| sample.measured.own_cpu + sample.served_cpu)),
            Self::Requests => count(|sample| sample.requests),
            Self::Refused => count(|sample| sample.refused),
            Self::Calls => count(|sample| sample.calls),
            Self::Memory => {
                samples.iter().filter_map(|sample| sample.memory).max().map(|b| b as f64)
            }
        }
    }

    /// For each unit of work, of all rounds of one repetition: time as the median round has it, since another program
    /// may have disturbed one; CPU and counts of all rounds together.
    fn cost(self, samples: &[&Sample]) -> Option<f64> {
        let cost = match self {
            Self::Time => {
                let rounds = samples.iter().map(|sample| 1.0 / sample.rate());
                stats::median(&rounds.collect::<Vec<_>>())?
            }
            Self::Memory => self.total(samples)?,
            _ => self.total(samples)? / samples.iter().map(|s| s.measured.amount).sum::<f64>(),
        };
        cost.is_finite().then_some(cost)
    }
}

/// The costs of both builds, pair by pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Costs {
    pub(super) this: Vec<f64>,
    pub(super) before: Vec<f64>,
}

impl Costs {
    /// This build's of the other's.
    pub(super) fn ratios(&self) -> Vec<f64> {
        stats::ratios(&self.this, &self.before)
    }

    /// A against A: between two pairs the same build is run twice in a row.
    pub(super) fn same(&self) -> Vec<f64> {
        let later = |build: &[f64], pair: usize| build[pair + 1] / build[pair];
        let of = |pair: usize| match pair.is_multiple_of(2) {
            true => later(&self.before, pair),
            false => later(&self.this, pair),
        };
        (0..self.this.len().saturating_sub(1)).map(of).collect()
    }

    /// Each build has the same figure in every repetition.
    pub(super) fn are_constant(&self) -> bool {
        [&self.this, &self.before].iter().all(|build| build.windows(2).all(|two| two[0] == two[1]))
    }

    fn push(&mut self, [this, before]: [f64; 2]) {
        self.this.push(this);
        self.before.push(before);
    }
}

/// A kind of work on a variant.
pub(super) type Key = (String, String);

/// All kinds of work and variants of both builds, in the order in which they were measured.
pub(super) fn keys(pairs: &[Pair]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for sample in pairs.iter().flat_map(|pair| [&pair.this, &pair.before]).flat_map(|o| &o.samples)
    {
        let key = (sample.what.clone(), sample.variant.clone());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The samples of a key in one repetition.
pub(super) fn of_key<'a>(outcome: &'a Outcome, (what, variant): &Key) -> Vec<&'a Sample> {
    let is_its = |sample: &&Sample| sample.what == *what && sample.variant == *variant;
    outcome.samples.iter().filter(is_its).collect()
}

/// What a kind of work costs; `None` unless both builds measured it in every pair.
pub(super) fn costs(pairs: &[Pair], key: &Key, measure: Measure) -> Option<Costs> {
    collect(pairs, |outcome| measure.cost(&of_key(outcome, key)))
}

/// The same as a sum over the rounds, not for each unit of work.
pub(super) fn totals(pairs: &[Pair], key: &Key, measure: Measure) -> Option<Costs> {
    collect(pairs, |outcome| measure.total(&of_key(outcome, key)))
}

/// The figure of a goal as a cost: the inverse where more is wanted.
pub(super) fn figures(pairs: &[Pair], what: &str) -> Option<Costs> {
    collect(pairs, |outcome| {
        let goal = outcome.goals.iter().find(|goal| goal.what == what)?;
        let cost = match goal.wanted {
            Wanted::AtLeast(_) => 1.0 / goal.figure,
            Wanted::AtMost(_) => goal.figure,
            Wanted::Within(_) | Wanted::Told => return None,
        };
        cost.is_finite().then_some(cost)
    })
}

fn collect(pairs: &[Pair], cost: impl Fn(&Outcome) -> Option<f64>) -> Option<Costs> {
    let mut costs = Costs::default();
    for pair in pairs {
        costs.push([cost(&pair.this)?, cost(&pair.before)?]);
    }
    Some(costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::goal::Goal;
    use crate::sample::Measured;

    fn outcome(rounds: &[(f64, f64)]) -> Outcome {
        let sample = |&(amount, seconds): &(f64, f64)| Sample {
            what: "read".to_owned(),
            variant: "mount".to_owned(),
            measured: Measured { amount, seconds, own_cpu: 0.5 },
            served_cpu: 0.5,
            requests: Some(10),
            ..Sample::default()
        };
        Outcome { samples: rounds.iter().map(sample).collect(), ..Outcome::default() }
    }

    #[test]
    fn costs_are_for_each_unit_of_work() {
        let this = outcome(&[(10.0, 10.0), (10.0, 20.0), (10.0, 990.0)]);
        let pairs = [Pair { this, before: outcome(&[(10.0, 10.0)]) }];
        let key = ("read".to_owned(), "mount".to_owned());
        assert_eq!(keys(&pairs), std::slice::from_ref(&key));
        let check = |measure, this, before| {
            let costs = costs(&pairs, &key, measure).unwrap();
            assert_eq!(costs, Costs { this: vec![this], before: vec![before] }, "{measure:?}");
        };
        check(Measure::Time, 2.0, 1.0);
        check(Measure::Cpu, 0.1, 0.1);
        check(Measure::Requests, 1.0, 1.0);
        assert_eq!(costs(&pairs, &key, Measure::Calls), None);
        assert_eq!(totals(&pairs, &key, Measure::Requests).unwrap().this, [30.0]);
        let other = ("write".to_owned(), "mount".to_owned());
        assert_eq!(costs(&pairs, &other, Measure::Time), None);
    }

    #[test]
    fn equals_are_compared_over_the_border_of_pairs() {
        // In time: this 1, before 2; before 4, this 8; this 8, before 2.
        let costs = Costs { this: vec![1.0, 8.0, 8.0], before: vec![2.0, 4.0, 2.0] };
        assert_eq!((costs.same(), costs.ratios()), (vec![2.0, 1.0], vec![0.5, 2.0, 4.0]));
        assert!(!costs.are_constant() && Costs::default().are_constant());
    }

    #[test]
    fn figures_become_costs() {
        let goals = |figure| vec![Goal::new("rate", figure, "", Wanted::AtLeast(1.0))];
        let of = |figure| Outcome { goals: goals(figure), ..Outcome::default() };
        let pairs = [Pair { this: of(2.0), before: of(4.0) }];
        assert_eq!(figures(&pairs, "rate").unwrap().ratios(), [2.0]);
        assert_eq!(figures(&pairs, "other"), None);
    }
}
