//! A goal: a figure, what was wanted, and whether the run was even enough to say.

use std::fmt;

use serde::Serialize;

use crate::stats;

/// A against A must lie in here, or the run proves nothing.
const EVEN: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// Upper over lower end of an interval that still says something of a bound within it: what is hidden in a wider one
/// may be a change of a quarter.
pub(crate) const WIDEST: f64 = 1.25;

/// The bound of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wanted {
    /// The figure or more.
    AtLeast(f64),
    /// The figure or less.
    AtMost(f64),
    /// A ratio whose interval does not lie wholly above this.
    Within(f64),
    /// Nothing: the figure is told beside another one that is judged.
    Told,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Reached.
    Holds,
    /// Not reached.
    Short,
    /// Even repetitions are on both sides of the bound, or the interval of a ratio says nothing: counts as short.
    Unsure,
    /// A against A was never near 1: not judged.
    Noisy,
    /// There is no figure.
    Failed,
    /// Nothing was wanted.
    Told,
}

impl Verdict {
    /// Nothing is missing.
    pub(crate) const fn is_good(self) -> bool {
        matches!(self, Self::Holds | Self::Told)
    }
}

/// One goal of an issue.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// In words; unique in a run.
    pub(crate) what: String,
    /// What was found; NaN when nothing was.
    pub(crate) figure: f64,
    /// Of the figure; empty for ratios.
    pub(crate) unit: &'static str,
    /// The bound.
    pub(crate) wanted: Wanted,
    /// A against A, where there is an A to compare: ratios, one per round.
    pub(crate) same: Option<Vec<f64>>,
    /// Of a ratio: its true median lies in here with 95 % certainty.
    pub(crate) interval: Option<(f64, f64)>,
    /// The same, measured again since a goal of its group was noisy.
    pub(crate) again: Vec<Goal>,
    /// Why there is no figure.
    pub(crate) trouble: Option<String>,
}

impl Goal {
    /// Judged without a comparison of A with A.
    pub(crate) fn new(
        what: impl Into<String>,
        figure: f64,
        unit: &'static str,
        wanted: Wanted,
    ) -> Self {
        let (what, same, interval, again, trouble) = (what.into(), None, None, Vec::new(), None);
        Self { what, figure, unit, wanted, same, interval, again, trouble }
    }

    /// Judged only if these ratios of equals are near 1.
    pub(crate) fn same_as(mut self, same: Vec<f64>) -> Self {
        self.same = Some(same);
        self
    }

    /// A cost, one for each round: the median is the figure. Where every round is within the bound, no
    /// unevenness matters; otherwise rounds are compared with each other.
    pub(crate) fn cost(
        what: impl Into<String>,
        costs: &[f64],
        unit: &'static str,
        bound: f64,
    ) -> Self {
        let figure = stats::median(costs).unwrap_or(f64::NAN);
        let goal = Self::new(what, figure, unit, Wanted::AtMost(bound));
        match costs.iter().all(|cost| *cost <= bound) {
            true => goal,
            false => goal.same_as(stats::consecutive(costs)),
        }
    }

    /// A goal that could not be measured.
    pub(crate) fn failed(what: impl Into<String>, error: &anyhow::Error) -> Self {
        let mut goal = Self::new(what, f64::NAN, "", Wanted::AtLeast(0.0));
        goal.trouble = Some(format!("{error:#}"));
        goal
    }

    /// Median of A against A.
    pub(crate) fn same(&self) -> Option<f64> {
        self.same.as_deref().and_then(stats::median)
    }

    /// Whether it is reached: every even repetition counts, and they must agree.
    pub(crate) fn verdict(&self) -> Verdict {
        let mut counting =
            self.repetitions().map(Self::own_verdict).filter(|v| *v != Verdict::Noisy);
        let Some(first) = counting.next() else { return Verdict::Noisy };
        if counting.all(|other| other == first) { first } else { Verdict::Unsure }
    }

    /// The first time, and those after it.
    pub(crate) fn repetitions(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.again)
    }

    /// Of one repetition.
    fn own_verdict(&self) -> Verdict {
        if self.trouble.is_some() || !self.figure.is_finite() {
            return Verdict::Failed;
        }
        if self.wanted == Wanted::Told {
            return Verdict::Told;
        }
        if self.same.is_some() && !self.same().is_some_and(|same| EVEN.contains(&same)) {
            return Verdict::Noisy;
        }
        let reached = match self.wanted {
            Wanted::AtLeast(bound) => self.figure >= bound,
            Wanted::AtMost(bound) => self.figure <= bound,
            Wanted::Within(bound) => return within(bound, self.interval),
            Wanted::Told => true,
        };
        if reached { Verdict::Holds } else { Verdict::Short }
    }

    /// The figures of all repetitions, with their unit.
    pub(crate) fn figures(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let figures: Vec<_> = self.repetitions().map(|goal| number(goal.figure)).collect();
        let interval =
            self.interval.map(|(low, high)| format!(" ({} to {})", number(low), number(high)));
        format!("{}{unit}{}", figures.join(" and "), interval.unwrap_or_default())
    }

    /// A against A of all repetitions.
    pub(crate) fn sames(&self) -> Option<String> {
        let same =
            |goal: &Self| goal.same().map_or_else(|| "-".to_owned(), |same| format!("{same:.2}"));
        let any = self.repetitions().any(|goal| goal.same().is_some());
        any.then(|| self.repetitions().map(same).collect::<Vec<_>>().join(" and "))
    }
}

/// Short only where the whole interval lies above the bound. One that reaches from well below to well above it
/// neither shows a change nor excludes one.
fn within(bound: f64, interval: Option<(f64, f64)>) -> Verdict {
    match interval {
        Some((low, _)) if low > bound => Verdict::Short,
        Some((_, high)) if high <= bound => Verdict::Holds,
        Some((low, high)) if high / low <= WIDEST => Verdict::Holds,
        _ => Verdict::Unsure,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Short => "short",
            Self::Unsure => "unsure",
            Self::Noisy => "noisy",
            Self::Failed => "short: not measured",
            Self::Told => "not judged",
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {}", number(*bound)),
            Self::AtMost(bound) => write!(f, "at most {}", number(*bound)),
            Self::Within(bound) => write!(f, "within {} of before", number(*bound)),
            Self::Told => f.write_str("-"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goal: {}: {} ", self.what, self.figures())?;
        write!(f, "(wanted: {}): {}", self.wanted, self.verdict())?;
        for trouble in self.repetitions().filter_map(|goal| goal.trouble.as_ref()) {
            write!(f, ": {trouble}")?;
        }
        if let Some(sames) = self.sames() {
            write!(f, " [A/A {sames}]")?;
        }
        if self.again.is_empty() { Ok(()) } else { f.write_str(" [repeated]") }
    }
}

/// Three digits that count, and no exponent.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_when_equals_are_equal() {
        let check = |figure, wanted, same: Option<Vec<f64>>, verdict| {
            let mut goal = Goal::new("x", figure, "", wanted);
            goal.same = same;
            assert_eq!(goal.verdict(), verdict, "{goal}");
        };
        check(0.85, Wanted::AtLeast(0.85), None, Verdict::Holds);
        check(0.84, Wanted::AtLeast(0.85), Some(vec![1.0, 9.0, 1.0]), Verdict::Short);
        check(2.0, Wanted::AtMost(2.0), None, Verdict::Holds);
        check(2.1, Wanted::AtMost(2.0), None, Verdict::Short);
        check(9.0, Wanted::AtLeast(0.1), Some(vec![1.2, 1.2]), Verdict::Noisy);
        check(9.0, Wanted::AtLeast(0.1), Some(vec![]), Verdict::Noisy);
        check(0.1, Wanted::Told, Some(vec![9.0]), Verdict::Told);
        check(f64::NAN, Wanted::Told, None, Verdict::Failed);
        check(f64::NAN, Wanted::AtLeast(0.1), None, Verdict::Failed);
        check(f64::INFINITY, Wanted::AtLeast(0.1), None, Verdict::Failed);
    }

    #[test]
    fn costs_within_the_bound_need_not_be_even() {
        let check = |costs: &[f64], verdict| {
            assert_eq!(Goal::cost("x", costs, "us", 1.0).verdict(), verdict, "{costs:?}");
        };
        check(&[0.1, 0.9], Verdict::Holds);
        check(&[0.1, 1.5], Verdict::Noisy);
        check(&[1.5, 1.5], Verdict::Short);
        check(&[], Verdict::Failed);
    }

    #[test]
    fn even_repetitions_must_agree() {
        let goal =
            |figure, same| Goal::new("x", figure, "", Wanted::AtLeast(1.0)).same_as(vec![same]);
        let check = |first: (f64, f64), again: (f64, f64), verdict| {
            let goal = Goal { again: vec![goal(again.0, again.1)], ..goal(first.0, first.1) };
            assert_eq!(goal.verdict(), verdict, "{goal}");
        };
        check((2.0, 1.0), (3.0, 1.0), Verdict::Holds);
        check((0.5, 1.0), (0.6, 1.0), Verdict::Short);
        check((2.0, 1.0), (0.36, 1.0), Verdict::Unsure);
        check((0.36, 1.0), (2.0, 1.0), Verdict::Unsure);
        check((2.0, 1.0), (0.36, 1.5), Verdict::Holds);
        check((0.36, 1.5), (2.0, 1.0), Verdict::Holds);
        check((2.0, 1.5), (2.0, 1.5), Verdict::Noisy);
        check((2.0, 1.0), (f64::NAN, 1.0), Verdict::Unsure);
        assert!(!Verdict::Unsure.is_good());
    }

    #[test]
    fn only_an_interval_wholly_above_is_short() {
        let check = |interval, verdict| {
            assert_eq!(within(1.05, interval), verdict, "{interval:?}");
        };
        check(Some((0.98, 1.02)), Verdict::Holds);
        check(Some((1.01, 1.09)), Verdict::Holds);
        check(Some((1.06, 1.09)), Verdict::Short);
        check(Some((1.06, 9.0)), Verdict::Short);
        check(Some((0.2, 0.9)), Verdict::Holds);
        check(Some((0.9, 1.3)), Verdict::Unsure);
        check(Some((0.9, f64::INFINITY)), Verdict::Unsure);
        check(None, Verdict::Unsure);
    }

    #[test]
    fn a_goal_is_one_line() {
        let goal = Goal::new("up of 3 nodes", 1.234, "s", Wanted::AtMost(2.0)).same_as(vec![1.0]);
        let line = "goal: up of 3 nodes: 1.23 s (wanted: at most 2.00): holds [A/A 1.00]";
        assert_eq!(goal.to_string(), line);
        let goal = Goal::failed("library", &anyhow::anyhow!("no job"));
        assert!(goal.to_string().ends_with("short: not measured: no job"), "{goal}");
        let again = Goal::new("x", 0.361, "", Wanted::AtLeast(1.0)).same_as(vec![1.02]);
        let first = Goal::new("x", 1.2, "", Wanted::AtLeast(1.0)).same_as(vec![0.98]);
        let both = Goal { again: vec![again], ..first };
        let line =
            "goal: x: 1.20 and 0.36 (wanted: at least 1.00): unsure [A/A 0.98 and 1.02] [repeated]";
        assert_eq!(both.to_string(), line);
        let ratio = Goal::new("x", 1.01, "", Wanted::Within(1.05));
        let ratio = Goal { interval: Some((0.99, 1.03)), ..ratio };
        let line = "goal: x: 1.01 (0.99 to 1.03) (wanted: within 1.05 of before): holds";
        assert_eq!(ratio.to_string(), line);
        assert_eq!(number(15012.3), "15012");
        assert_eq!(number(0.00123), "0.00123");
    }
}
