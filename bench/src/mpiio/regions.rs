//! Regions of 8 bytes, as HPIO has them: what each costs, with memory in one piece and with gaps.

use super::launch::{By, Mpi, processors, words};
use super::patterns::push;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, number};
use crate::report::table::Table;
use crate::sample::Samples;

const COUNT: u64 = 65_536;
/// Microseconds for each region.
const WANTED: f64 = 0.1;
const VARIANTS: [(&str, By); 2] = [("stock", By::STOCK), ("hayase", By::Hayase)];
const MEMORIES: [(&str, &str); 2] =
    [("dense", "memory in one piece"), ("gaps", "memory with gaps")];
const CALLS: [(&str, &str); 2] = [("all", "collective"), ("own", "independent")];

/// As many processes as processors: none waits for one.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let steps = bench.rounds(4, 16) as u64;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(3, 7) {
        for (memory, _) in MEMORIES {
            for (calls, _) in CALLS {
                for (variant, by) in VARIANTS {
                    mpi.clean()?;
                    let line = format!(
                        "pattern=regions count={COUNT} steps={steps} memory={memory} calls={calls}"
                    );
                    let said = mpi.run(by, processors(), "regions", &words(&line))?;
                    for direction in ["write", "read"] {
                        let measured = said.phases(direction)?.calls_of((COUNT * steps) as f64);
                        push(
                            &mut samples,
                            &what(memory, calls, direction),
                            (variant, round),
                            measured,
                        );
                    }
                }
            }
        }
    }
    mpi.clean()?;
    let notes = vec![format!(
        "{}, {} processes, {COUNT} regions of each, 8 bytes between two, {steps} times; all regions in one call. \
         Microseconds for each region of a process, of the calls alone.",
        mpi.kind.name(),
        processors()
    )];
    let mut outcome = Outcome { notes, ..Outcome::default() };
    judge(&mut outcome, &samples);
    outcome.samples = samples.0;
    Ok(outcome)
}

fn what(memory: &str, calls: &str, direction: &str) -> String {
    format!("{memory} {calls} {direction}")
}

fn judge(outcome: &mut Outcome, samples: &Samples) {
    let mut table = Table::new("Regions of 8 bytes", &["us per region", "stock", "hayase"]);
    for (memory, memory_words) in MEMORIES {
        for (calls, calls_words) in CALLS {
            for direction in ["write", "read"] {
                let what = what(memory, calls, direction);
                let each = |variant: &str| 1e6 / samples.rate(&what, variant);
                let name = format!("regions of 8 bytes, {memory_words}, {calls_words} {direction}");
                table.row(vec![name.clone(), number(each("stock")), number(each("hayase"))]);
                let rates = samples.rates(&what, "hayase");
                let costs: Vec<_> = rates.into_iter().map(|rate| 1e6 / rate).collect();
                outcome.goals.push(Goal::cost(name, &costs, "us", WANTED));
            }
        }
    }
    outcome.tables.push(table);
}
