//! What the samples say: rates and CPU time of gathered writes, of those when each is sent.

use super::{Case, GATHERED, SENT};
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Comparison, Sample, Samples};
use crate::stats;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;
const MICROSECONDS: f64 = 1e6;
/// Whose CPU time is judged.
const CPU_SIZE: &str = "4 KiB";
/// Of the bytes of small calls: else something else was measured.
const GATHERED_MIN: f64 = 0.95;

pub(super) fn goals(samples: &Samples, came: u64) -> Vec<Goal> {
    let mut goals = Vec::new();
    for case in Case::all() {
        let name = case.label();
        let found = samples.compare(&name, GATHERED, SENT);
        let wanted = Wanted::AtLeast(case.rate_min);
        let goal = format!("{name}, of the rate when each is sent");
        goals.push(Goal::new(goal, middle(&found.ratios), "", wanted).same_as(found.same));
        if case.size.name == CPU_SIZE && !case.append {
            let found = compare_costs(samples, &name);
            let wanted = Wanted::AtMost(case.place.cpu_max);
            let goal = format!("{name}, of the CPU of servers and mounts when each is sent");
            goals.push(Goal::new(goal, middle(&found.ratios), "", wanted).same_as(found.same));
        }
    }
    let goal = "small writes that came gathered, of their bytes, least of all sizes";
    let small = Case::all().filter(|case| case.size.is_gathered);
    let least = small.map(|case| gathered_share(samples, &case.label())).fold(1.0, f64::min);
    goals.push(Goal::new(goal, least, "", Wanted::AtLeast(GATHERED_MIN)));
    let goal = "bytes that came gathered without `--gather`";
    goals.push(Goal::new(goal, came as f64, "", Wanted::AtMost(0.0)));
    goals
}

/// Of the bytes of all rounds.
fn gathered_share(samples: &Samples, what: &str) -> f64 {
    let bytes = |sample: &Sample| sample.gathered.unwrap_or(0) as f64;
    let came: f64 = samples.of(what, GATHERED).map(bytes).sum();
    came / samples.of(what, GATHERED).map(|sample| sample.measured.amount).sum::<f64>()
}

fn middle(values: &[f64]) -> f64 {
    stats::median(values).unwrap_or(f64::NAN)
}

/// CPU seconds of the daemons for each byte, round by round.
fn costs(samples: &Samples, what: &str, variant: &str) -> Vec<f64> {
    let cost = |sample: &Sample| sample.served_cpu / sample.measured.amount;
    samples.of(what, variant).map(cost).collect()
}

fn compare_costs(samples: &Samples, what: &str) -> Comparison {
    let [before, after] = SENT.map(|variant| costs(samples, what, variant));
    let ratios = stats::ratios_in_between(&costs(samples, what, GATHERED), &before, &after);
    Comparison { ratios, same: stats::of_neighbours(&stats::ratios(&before, &after)) }
}

pub(super) fn table(samples: &Samples) -> Table {
    let head = [
        "calls",
        "each sent MiB/s",
        "us a call",
        "gathered MiB/s",
        "us a call",
        "ratio",
        "half between",
        "A/A",
        "came gathered %",
        "CPU s/GiB: each sent",
        "gathered",
        "ratio",
        "A/A",
    ];
    let mut table = Table::new("Calls one behind the other, and fsync(2)", &head);
    for case in Case::all() {
        let name = case.label();
        let (rates, cpu) = (samples.compare(&name, GATHERED, SENT), compare_costs(samples, &name));
        let (low, high) = stats::quartiles(&rates.ratios).unwrap_or((f64::NAN, f64::NAN));
        let mut cells = vec![name.clone()];
        for variant in [SENT[0], GATHERED] {
            let rate = samples.rate(&name, variant);
            cells.push(number(rate / MIB));
            cells.push(number(case.size.bytes as f64 / rate * MICROSECONDS));
        }
        cells.push(number(middle(&rates.ratios)));
        cells.push(format!("{}-{}", number(low), number(high)));
        cells.push(number(middle(&rates.same)));
        cells.push(number(gathered_share(samples, &name) * 100.0));
        for variant in [SENT[0], GATHERED] {
            cells.push(number(samples.cpu_per_amount(&name, variant).1 * GIB));
        }
        cells.extend([number(middle(&cpu.ratios)), number(middle(&cpu.same))]);
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::goal::Verdict;
    use crate::sample::Measured;

    #[test]
    fn gathered_is_judged_against_sent() {
        let mut samples = Samples::default();
        for (variant, seconds) in [(SENT[0], 8.0), (SENT[1], 8.0), (GATHERED, 1.0)] {
            for (case, round) in Case::all().flat_map(|case| [0, 1].map(|round| (case, round))) {
                let measured = Measured { amount: GIB, seconds, own_cpu: 0.0 };
                let gathered = (variant == GATHERED).then_some((GIB * 0.96) as u64);
                let (what, variant, served_cpu) = (case.label(), variant.to_owned(), seconds);
                let sample = Sample { what, variant, round, measured, ..Sample::default() };
                samples.0.push(Sample { served_cpu, gathered, ..sample });
            }
        }
        let goals = goals(&samples, 0);
        assert_eq!(goals.len(), 16 + 2 + 2);
        for goal in &goals {
            assert_eq!(goal.verdict(), Verdict::Holds, "{goal}");
        }
        let figures: Vec<f64> = goals[..4].iter().map(|goal| goal.figure).collect();
        assert_eq!(figures, [8.0, 8.0, 8.0, 0.125], "write and append, 512 B and 4 KiB");
    }
}
