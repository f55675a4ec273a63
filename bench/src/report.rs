//! What a run tells: tables while it goes, one line per goal at its end, raw samples, a page.
//!
//! Here: what a group of measurements hands over. Not here: measuring ([`crate::foundation`]).

pub(crate) mod conditions;
pub(crate) mod goal;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod raw;
pub(crate) mod subjects;
pub(crate) mod summary;
pub(crate) mod table;

use crate::sample::Sample;
use goal::{Goal, Verdict};
use table::Table;

/// What one group of measurements found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Judged.
    pub(crate) goals: Vec<Goal>,
    /// For people.
    pub(crate) tables: Vec<Table>,
    /// Conditions, and whatever a reader of the tables must know.
    pub(crate) notes: Vec<String>,
    /// Raw.
    pub(crate) samples: Vec<Sample>,
}

impl Outcome {
    /// Something in the run was too uneven to be judged.
    pub(crate) fn is_noisy(&self) -> bool {
        self.goals.iter().any(|goal| goal.verdict() == Verdict::Noisy)
    }

    /// Adds a repetition: every goal has both figures and is judged by both; tables of both stay.
    pub(crate) fn repeated(mut self, again: Self) -> Self {
        for other in again.goals {
            match self.goals.iter_mut().find(|goal| goal.what == other.what) {
                Some(goal) => goal.again.push(other),
                // What only the repetition has is a failure.
                None => self.goals.push(other),
            }
        }
        let retitle = |mut table: Table| {
            table.title += " (repeated, since the first time was too uneven)";
            table
        };
        self.tables.extend(again.tables.into_iter().map(retitle));
        for note in again.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.samples.extend(again.samples);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::goal::Wanted;
    use super::*;

    #[test]
    fn each_goal_is_judged_by_both_repetitions() {
        let goal = |what: &str, figure, same| {
            Goal::new(what, figure, "", Wanted::AtLeast(1.0)).same_as(vec![same])
        };
        let goals = vec![goal("a", 0.5, 1.0), goal("b", 0.5, 1.3), goal("c", 2.0, 1.0)];
        let first = Outcome { goals, ..Outcome::default() };
        assert!(first.is_noisy());
        let failed = Goal::failed("d", &anyhow::anyhow!("no job"));
        let goals = vec![goal("a", 2.0, 1.0), goal("b", 2.0, 1.0), goal("c", 2.0, 1.3), failed];
        let both = first.repeated(Outcome { goals, ..Outcome::default() });
        let verdicts: Vec<_> = both.goals.iter().map(Goal::verdict).collect();
        let expected = [Verdict::Unsure, Verdict::Holds, Verdict::Holds, Verdict::Failed];
        assert_eq!(verdicts, expected);
        assert!(both.goals.iter().all(|goal| goal.what == "d" || goal.again.len() == 1));
    }
}
