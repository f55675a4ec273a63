//! Two builds in one run (`--against`): does this build cost more than the one before?
//!
//! Each group of measurements is run by both builds in turn, with short rounds, in the order A B, B A, A B, ...: a
//! paired design with the order counterbalanced (ABBA), so that a machine whose speed changes evenly favours neither.
//! A pair gives one ratio of costs; the sign test gives the interval of their median; a goal is short when that
//! interval lies wholly beyond what is allowed.
//! Rooms: [`pairs`] (what the repetitions of two builds cost), [`judge`] (tables and goals).
//! Not here: what a group measures, and against which yardsticks; these run as ever, and are not compared.

mod judge;
mod pairs;

use anyhow::{Context, ensure};

use crate::bench::Bench;
use crate::report::goal::Goal;
use crate::report::{Outcome, output};
use crate::run::{Compared, Group};

/// Without six pairs there is no 95 % interval of a median.
pub(crate) const PAIRS_LEAST: usize = 6;

/// Of a run without `--quick`: the interval leaves out two pairs at each end.
pub(crate) const PAIRS_FULL: usize = 12;

/// How this build is compared.
#[derive(Debug)]
pub(crate) struct Against {
    before: Bench,
    within: f64,
    pairs: usize,
}

impl Against {
    /// With the build of `before`, in so many pairs; a cost may be so many times what it was.
    pub(crate) fn new(before: Bench, within: f64, pairs: usize) -> anyhow::Result<Self> {
        ensure!(
            pairs >= PAIRS_LEAST,
            "{pairs} pairs are too few: expected {PAIRS_LEAST} or more, since fewer give no 95 % interval of a median"
        );
        ensure!(
            within.is_finite() && within >= 1.0,
            "invalid bound {within}: expected a ratio of 1 or more, for example 1.05"
        );
        Ok(Self { before, within, pairs })
    }

    /// Runs a group by both builds.
    pub(crate) fn run_group(&self, this: &Bench, group: &Group) -> Outcome {
        if matches!(group.compared, Compared::Linked) {
            let note =
                "Not compared: the bench measures here what is linked into itself.".to_owned();
            return Outcome { notes: vec![note], ..Outcome::default() };
        }
        match self.measure(this, group) {
            Ok(pairs) => judge::judge(group, &pairs, self.within),
            Err(error) => {
                this.warn(&format!("{}: {error:#}", group.title));
                let goals = vec![Goal::failed(group.title, &error)];
                Outcome { goals, ..Outcome::default() }
            }
        }
    }

    /// All pairs; a failure of one build ends the group.
    fn measure(&self, this: &Bench, group: &Group) -> anyhow::Result<Vec<pairs::Pair>> {
        let mut found = Vec::new();
        for number in 0..self.pairs {
            let both = order(number, [this, &self.before]);
            let names = both.map(|bench| bench.build().name);
            output::line(&format!("pair {} of {}: {}", number + 1, self.pairs, names.join(", ")));
            let [first, second] = both;
            let first = run_once(first, group)?;
            let second = run_once(second, group)?;
            let [this, before] = order(number, [first, second]);
            found.push(pairs::Pair { this, before });
        }
        Ok(found)
    }
}

fn run_once(bench: &Bench, group: &Group) -> anyhow::Result<Outcome> {
    let build = bench.build().name;
    (group.run)(bench).with_context(|| format!("measure the build `{build}`"))
}

/// Which goes first changes from pair to pair; twice the same way is the order as it was.
fn order<T>(pair: usize, [this, before]: [T; 2]) -> [T; 2] {
    if pair.is_multiple_of(2) { [this, before] } else { [before, this] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_take_turns() {
        let all: Vec<&str> = (0..4).flat_map(|pair| order(pair, ["a", "b"])).collect();
        assert_eq!(all.concat(), "abbaabba");
        assert!((0..2).all(|pair| order(pair, order(pair, ["a", "b"])) == ["a", "b"]));
    }
}
