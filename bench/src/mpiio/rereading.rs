//! The weak point of a file in parts: reading it with another decomposition, against stock MPI-IO on one flat file.

use std::process::Command;

use super::launch::{By, Mpi, make_cold, tool, words};
use super::patterns::push;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

const WANTED: f64 = 0.7;
const STOCK: [&str; 2] = ["flat", "flat again"];
/// As it is, and with exchanges in no call and in every call.
const OURS: [(&str, By); 3] = [
    ("hayase", By::Hayase),
    ("alone", By::Hinted("hayase_exchange:off")),
    ("exchanged", By::Hinted("hayase_exchange:on")),
];

/// Written by 4 processes.
struct Case {
    name: &'static str,
    file: &'static str,
    pattern: &'static str,
    /// Steps that 4 processes write, in a quick run and in a full one.
    steps: (usize, usize),
    ranks: u64,
}

impl Case {
    /// As many bytes in all, whoever moves them: blocks have one for each process and step.
    fn arguments(&self, bench: &Bench, ranks: u64, doing: &str) -> Vec<String> {
        let steps = bench.rounds(self.steps.0, self.steps.1) as u64;
        let steps = if self.file == BLOCKS { steps * 4 / ranks } else { steps };
        words(&format!("{} steps={steps} check=all do={doing}", self.pattern))
    }
}

const BLOCKS: &str = "blocks";

const CASES: &[Case] = &[
    Case {
        name: "BT-IO W read by 2",
        file: "bt",
        pattern: "pattern=nested side=24",
        steps: (20, 40),
        ranks: 2,
    },
    Case {
        name: "BT-IO W read by 9",
        file: "bt",
        pattern: "pattern=nested side=24",
        steps: (20, 40),
        ranks: 9,
    },
    Case {
        name: "47008 B blocks read by 3",
        file: BLOCKS,
        pattern: "pattern=blocks block=47008",
        steps: (120, 450),
        ranks: 3,
    },
];
const CACHES: [&str; 2] = ["warm", "cold"];

/// Every byte that is read is checked, outside of what is timed.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let mut samples = Samples::default();
    mpi.clean()?;
    let mut written = "";
    for case in CASES {
        if written != case.file {
            mpi.run(By::Hayase, 4, case.file, &case.arguments(bench, 4, "write"))?;
            let (container, flat) =
                (mpi.path(By::Hayase, case.file), mpi.path(By::STOCK, case.file));
            tool(
                Command::new(bench.hayase()).args(["container", "export"]).arg(container).arg(flat),
            )?;
            written = case.file;
        }
        measure(bench, &mpi, case, &mut samples)?;
    }
    mpi.clean()?;
    let note = format!(
        "{}, collective calls. Written by 4 processes through Hayase; `flat` is the exported file, read by the MPI \
         itself. Open, calls and close together. The last two columns are ratios to `flat` too.",
        mpi.kind.name()
    );
    let mut outcome = Outcome { notes: vec![note], ..Outcome::default() };
    judge(&mut outcome, &samples);
    outcome.samples = samples.0;
    Ok(outcome)
}

fn what(case: &Case, cache: &str) -> String {
    format!("{}, {cache}", case.name)
}

fn measure(bench: &Bench, mpi: &Mpi, case: &Case, samples: &mut Samples) -> anyhow::Result<()> {
    for cache in CACHES {
        for round in 0..bench.rounds(2, 7) {
            for variant in order(round, STOCK, &OURS.map(|(variant, _)| variant)) {
                let by = OURS.iter().find(|(name, _)| *name == variant);
                let by = by.map_or(By::STOCK, |(_, by)| *by);
                if cache == "cold" {
                    make_cold(&mpi.path(by, case.file))?;
                }
                let said =
                    mpi.run(by, case.ranks, case.file, &case.arguments(bench, case.ranks, "read"))?;
                let measured = said.phases("read")?.together();
                push(samples, &what(case, cache), (variant, round), measured);
            }
        }
    }
    Ok(())
}

fn judge(outcome: &mut Outcome, samples: &Samples) {
    let head = [
        "read with another decomposition",
        "flat MiB/s",
        "hayase MiB/s",
        "ratio",
        "A/A",
        "without exchange",
        "exchange in every call",
    ];
    let mut table = Table::new("Another decomposition", &head);
    for case in CASES {
        for cache in CACHES {
            let what = what(case, cache);
            let found = samples.compare(&what, "hayase", STOCK);
            let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
            let rate = |variant: &str| number(samples.rate(&what, variant) / 1_048_576.0);
            let of_stock = |variant: &str| {
                let ratios = samples.compare(&what, variant, STOCK).ratios;
                number(stats::median(&ratios).unwrap_or(f64::NAN))
            };
            table.row(vec![
                what.clone(),
                rate(STOCK[0]),
                rate("hayase"),
                number(figure),
                number(stats::median(&found.same).unwrap_or(f64::NAN)),
                of_stock("alone"),
                of_stock("exchanged"),
            ]);
            let goal = Goal::new(format!("{what}: of stock"), figure, "", Wanted::AtLeast(WANTED));
            outcome.goals.push(goal.same_as(found.same));
        }
    }
    outcome.tables.push(table);
}
