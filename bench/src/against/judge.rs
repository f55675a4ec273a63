//! The table and the goals of two builds that were compared.

use super::pairs::{Costs, Key, Measure, Pair, costs, figures, keys, of_key, totals};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::run::{Compared, Group};
use crate::sample::Sample;
use crate::stats;

/// CPU seconds of a repetition, below which a ratio says nothing.
const CPU_LEAST: f64 = 0.001;

/// Calls in a repetition, below which a ratio says nothing: what timers and heartbeats add is in it.
const CALLS_LEAST: f64 = 100.0;

/// Tables and goals, and the samples of both builds.
pub(super) fn judge(group: &Group, pairs: &[Pair], within: f64) -> Outcome {
    let mut report = Report::new(group, within);
    match group.compared {
        Compared::Work(yardsticks) => {
            let ours = |key: &Key| !yardsticks.iter().any(|yardstick| is_of(&key.1, yardstick));
            for key in keys(pairs).into_iter().filter(ours) {
                report.add_work(pairs, &key);
            }
        }
        Compared::Figures => report.add_figures(pairs),
        Compared::Linked => {}
    }
    report.finish(pairs)
}

/// A yardstick has its name, or that with something behind it, as in `native again`.
fn is_of(variant: &str, yardstick: &str) -> bool {
    let rest = variant.strip_prefix(yardstick);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// What is being written of a group.
struct Report<'a> {
    group: &'a Group,
    within: f64,
    table: Table,
    goals: Vec<Goal>,
    missing: Vec<String>,
}

impl<'a> Report<'a> {
    fn new(group: &'a Group, within: f64) -> Self {
        let head = [
            "what",
            "on",
            "measure",
            "this",
            "before",
            "cost of before's",
            "95 % between",
            "A/A between",
        ];
        let table = Table::new(format!("{}, this build and the one before", group.title), &head);
        Self { group, within, table, goals: Vec::new(), missing: Vec::new() }
    }

    fn add_work(&mut self, pairs: &[Pair], key: &Key) {
        let mut any = false;
        for measure in Measure::ALL {
            let Some(costs) = costs(pairs, key, measure) else { continue };
            if costs.this.iter().chain(&costs.before).all(|cost| *cost == 0.0)
                && !measure.is_count()
            {
                continue;
            }
            any = true;
            let place = (key.0.as_str(), key.1.as_str(), measure.name());
            self.row(place, &costs, |cost| shown(measure, cost));
            if is_enough(pairs, key, measure) {
                self.goal(place, &costs, measure.is_count());
            }
        }
        if !any {
            self.missing.push(format!("{}, {}", key.0, key.1));
        }
    }

    /// Of groups whose samples are no work: the figures of their goals, and requests as they were counted.
    fn add_figures(&mut self, pairs: &[Pair]) {
        let goals = pairs.first().map(|pair| pair.this.goals.clone()).unwrap_or_default();
        for goal in goals.iter().filter(|goal| goal.wanted != Wanted::Told) {
            let place = (goal.what.as_str(), "", "figure");
            let Some(costs) = figures(pairs, &goal.what) else {
                self.missing.push(goal.what.clone());
                continue;
            };
            let inverse = matches!(goal.wanted, Wanted::AtLeast(_));
            let figure = |cost: f64| number(if inverse { 1.0 / cost } else { cost });
            self.row(place, &costs, |cost| format!("{} {}", figure(cost), goal.unit));
            self.goal(place, &costs, false);
        }
        for key in keys(pairs) {
            let Some(costs) = totals(pairs, &key, Measure::Requests) else { continue };
            let place = (key.0.as_str(), key.1.as_str(), Measure::Requests.name());
            self.row(place, &costs, number);
            self.goal(place, &costs, true);
        }
    }

    fn row(
        &mut self,
        (what, on, measure): (&str, &str, &str),
        costs: &Costs,
        shown: impl Fn(f64) -> String,
    ) {
        let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
        let ratios = costs.ratios();
        let mut row: Vec<String> = [what, on, measure].map(str::to_owned).into();
        row.extend([&costs.this, &costs.before].map(|build| shown(median(build))));
        row.push(number(median(&ratios)));
        row.push(range(stats::median_interval_95(&ratios)));
        let same = costs.same();
        row.push(range(stats::quantile(&same, 0.0).zip(stats::quantile(&same, 1.0))));
        self.table.row(row);
    }

    /// A count that is the same in every repetition of a build is judged exactly, as is what was nothing before: there
    /// is no ratio to it. Everything else is judged by the interval of its ratios.
    fn goal(&mut self, (what, on, measure): (&str, &str, &str), costs: &Costs, is_count: bool) {
        let on = if on.is_empty() { String::new() } else { format!(", {on}") };
        let name = format!("{}: {what}{on}: {measure}", self.group.name);
        let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
        let was_nothing = costs.before.contains(&0.0);
        self.goals.push(if was_nothing || (is_count && costs.are_constant()) {
            let bound = Wanted::AtMost(median(&costs.before));
            Goal::new(name, median(&costs.this), "", bound)
        } else {
            let ratios = costs.ratios();
            let goal = Goal::new(name, median(&ratios), "", Wanted::Within(self.within));
            Goal { interval: stats::median_interval_95(&ratios), ..goal }
        });
    }

    fn finish(mut self, pairs: &[Pair]) -> Outcome {
        if self.goals.is_empty() {
            let error = anyhow::anyhow!("nothing was measured by both builds");
            self.goals.push(Goal::failed(self.group.title, &error));
        }
        let mut notes = pairs.first().map(|pair| pair.this.notes.clone()).unwrap_or_default();
        notes.push(format!(
            "Compared in {} pairs. Ratios are of costs (time, CPU or number for each unit of work), so more than 1 is \
             worse; the interval is of their median, by the sign test; A/A is a build against itself, run twice in a row.",
            pairs.len()
        ));
        if !self.missing.is_empty() {
            notes.push(format!("Not measured by both builds: {}.", self.missing.join("; ")));
        }
        let samples = (0..).zip(pairs).flat_map(|(number, pair)| marked(number, pair)).collect();
        Outcome { goals: self.goals, tables: vec![self.table], notes, samples }
    }
}

/// The samples of a pair, each with its build and repetition.
fn marked(number: usize, pair: &Pair) -> impl Iterator<Item = Sample> + '_ {
    let both = [("this", &pair.this), ("before", &pair.before)];
    both.into_iter().flat_map(move |(build, outcome)| {
        let mark = move |sample: &Sample| Sample {
            build: Some(build),
            repetition: Some(number),
            ..sample.clone()
        };
        outcome.samples.iter().map(mark)
    })
}

/// Whether there is enough of it in every repetition for a ratio to mean something.
fn is_enough(pairs: &[Pair], key: &Key, measure: Measure) -> bool {
    let least = match measure {
        Measure::Cpu => CPU_LEAST,
        Measure::Calls => CALLS_LEAST,
        Measure::Time | Measure::Requests | Measure::Refused | Measure::Memory => return true,
    };
    let of =
        |outcome: &Outcome| measure.total(&of_key(outcome, key)).is_some_and(|all| all >= least);
    pairs.iter().all(|pair| of(&pair.this) && of(&pair.before))
}

/// A cost as people read it: time as the rate that it means.
fn shown(measure: Measure, cost: f64) -> String {
    match measure {
        Measure::Time => si(1.0 / cost, "/s"),
        Measure::Cpu => si(cost, "s"),
        Measure::Memory => si(cost, "B"),
        Measure::Requests | Measure::Refused | Measure::Calls => si(cost, ""),
    }
}

/// Three digits and a prefix of the SI.
fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 8] = [
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-3, "m"),
        (1e-6, "u"),
        (1e-9, "n"),
        (1e-12, "p"),
    ];
    let prefix = PREFIXES.iter().find(|(size, _)| value.abs() >= *size);
    let Some((size, prefix)) = prefix else { return format!("{} {unit}", number(value)) };
    format!("{} {prefix}{unit}", number(value / size)).trim_end().to_owned()
}

fn range(ends: Option<(f64, f64)>) -> String {
    ends.map_or_else(|| "-".to_owned(), |(low, high)| format!("{}-{}", number(low), number(high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::goal::Verdict;
    use crate::sample::Measured;

    const GROUP: Group = Group {
        name: "local",
        title: "Local files",
        compared: Compared::Work(&["native"]),
        run: |_| Ok(Outcome::default()),
    };

    fn sample(variant: &str, seconds: f64, requests: u64) -> Sample {
        Sample {
            what: "read".to_owned(),
            variant: variant.to_owned(),
            measured: Measured { amount: 8e8, seconds, own_cpu: 0.0 },
            requests: Some(requests),
            ..Sample::default()
        }
    }

    /// Pairs in which this build takes so long and asks so often.
    fn pairs(this: &[(f64, u64)]) -> Vec<Pair> {
        let outcome = |seconds, requests| Outcome {
            samples: vec![sample("native again", 9.0, 9), sample("mount", seconds, requests)],
            ..Outcome::default()
        };
        let pair = |&(seconds, requests)| {
            let (this, before) = (outcome(seconds, requests), outcome(1.0, 100));
            Pair { this, before }
        };
        this.iter().map(pair).collect()
    }

    fn verdicts(this: &[(f64, u64)]) -> Vec<Verdict> {
        judge(&GROUP, &pairs(this), 1.05).goals.iter().map(Goal::verdict).collect()
    }

    #[test]
    fn times_are_judged_by_their_interval_and_counts_exactly() {
        let check = |this: [(f64, u64); 6], expected: [Verdict; 2]| {
            assert_eq!(verdicts(&this), expected, "{this:?}");
        };
        check([(1.0, 100); 6], [Verdict::Holds, Verdict::Holds]);
        check([(1.1, 99); 6], [Verdict::Short, Verdict::Holds]);
        check([(1.0, 101); 6], [Verdict::Holds, Verdict::Short]);
        let wide = [0.9, 1.1, 1.3, 1.0, 1.0, 1.0].map(|seconds| (seconds, 100));
        check(wide, [Verdict::Unsure, Verdict::Holds]);
        // Counts that vary are costs like the others.
        let vary = [101, 100, 99, 101, 102, 100].map(|requests| (1.0, requests));
        check(vary, [Verdict::Holds, Verdict::Holds]);
        assert_eq!(verdicts(&[(1.0, 100); 5]), [Verdict::Unsure, Verdict::Holds], "too few");
    }

    #[test]
    fn the_table_has_the_product_alone() {
        let outcome = judge(&GROUP, &pairs(&[(2.0, 100); 6]), 1.05);
        let text = outcome.tables[0].to_text();
        assert!(text.contains("400 M/s") && text.contains("800 M/s"), "{text}");
        assert!(text.contains("2.00-2.00") && !text.contains("native"), "{text}");
        assert_eq!(outcome.samples.len(), 24);
        assert_eq!(outcome.samples[3].build, Some("before"));
        assert_eq!(outcome.goals[0].what, "local: read, mount: rate");
    }

    #[test]
    fn what_one_build_does_not_measure_is_named() {
        let mut pairs = pairs(&[(1.0, 100); 6]);
        pairs[0].before.samples.clear();
        let outcome = judge(&GROUP, &pairs, 1.05);
        assert_eq!(outcome.goals[0].verdict(), Verdict::Failed, "an empty list is no success");
        let note = "Not measured by both builds: read, mount.";
        assert!(outcome.notes.iter().any(|line| line == note), "{:?}", outcome.notes);
    }

    #[test]
    fn groups_without_work_are_compared_by_their_figures() {
        let group = Group { compared: Compared::Figures, ..GROUP };
        let of = |figure| Outcome {
            goals: vec![
                Goal::new("wake-ups", figure, "/s", Wanted::AtMost(0.0)),
                Goal::new("told", 1.0, "", Wanted::Told),
            ],
            ..Outcome::default()
        };
        let verdict = |this: f64, before: f64| {
            let pairs: Vec<Pair> =
                (0..6).map(|_| Pair { this: of(this), before: of(before) }).collect();
            let outcome = judge(&group, &pairs, 1.05);
            assert_eq!(outcome.goals.len(), 1);
            outcome.goals[0].verdict()
        };
        assert_eq!(verdict(1.0, 1.0), Verdict::Holds);
        assert_eq!(verdict(2.0, 1.0), Verdict::Short);
        assert_eq!(verdict(0.0, 0.0), Verdict::Holds);
        assert_eq!(verdict(0.1, 0.0), Verdict::Short);
    }

    #[test]
    fn yardsticks_are_known_by_their_names() {
        let check = |variant, yardstick, expected| {
            assert_eq!(is_of(variant, yardstick), expected, "{variant} of {yardstick}");
        };
        check("native", "native", true);
        check("native again (6.1)", "native", true);
        check("N-N, gfarm2fs, again", "N-N, gfarm2fs", true);
        check("N-N, our mount", "N-N, gfarm2fs", false);
        check("loose, 4 streams", "loop", false);
        check("nativeness", "native", false);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(si(12_345_678_901.0, "/s"), "12.3 G/s");
        assert_eq!(si(3.5e-10, "s"), "350 ps");
        assert_eq!(si(3.0, ""), "3.00");
        assert_eq!(si(0.0, "s"), "0 s");
    }
}
