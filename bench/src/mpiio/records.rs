//! Records and bytes of the index: what regular patterns leave, whatever their number of regions. Nothing is timed.

use std::process::Command;

use anyhow::Context;
use serde::Deserialize;

use super::launch::{By, Mpi, tool, words};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted};
use crate::report::table::Table;

/// Most bytes of an index that many regions may add to that of few.
const BYTES_WANTED: f64 = 1.05;

/// By 4 processes.
struct Case {
    name: &'static str,
    pattern: &'static str,
    /// Records of one writer.
    wanted: f64,
}

const FEW: &str = "regions, 1,024";
const MANY: &str = "regions, 65,536";

const CASES: &[Case] = &[
    Case { name: "nested sub-arrays", pattern: "pattern=nested side=24 steps=40", wanted: 1.0 },
    Case {
        name: "4 MiB blocks",
        pattern: "pattern=blocks block=4194304 steps=4 calls=own",
        wanted: 3.0,
    },
    Case {
        name: "47008 B blocks",
        pattern: "pattern=blocks block=47008 steps=200 calls=own",
        wanted: 3.0,
    },
    Case {
        name: "BT-IO simple W",
        pattern: "pattern=simple side=24 steps=40 calls=own",
        wanted: 960.0,
    },
    Case { name: FEW, pattern: "pattern=regions count=1024", wanted: 1.0 },
    Case { name: MANY, pattern: "pattern=regions count=65536", wanted: 1.0 },
];

#[derive(Deserialize)]
struct Shown {
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    index_bytes: f64,
    each: Vec<Writer>,
}

#[derive(Deserialize)]
struct Writer {
    records: f64,
}

/// As `hayase container show` tells.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let head = ["by 4 processes", "records of a writer, at most", "index bytes of a writer"];
    let mut outcome = Outcome::default();
    let mut table = Table::new("Index", &head);
    let (mut few, mut many) = (f64::NAN, f64::NAN);
    for case in CASES {
        mpi.clean()?;
        mpi.run(By::Hayase, 4, "file", &words(&format!("{} do=write", case.pattern)))?;
        let mut show = Command::new(bench.hayase());
        show.args(["--json", "container", "show", "--writers"]).arg(mpi.path(By::Hayase, "file"));
        let shown: Shown = serde_json::from_str(&tool(&mut show)?.0)?;
        let [container] = &shown.containers[..] else { anyhow::bail!("not one container") };
        let records = container.each.iter().map(|writer| writer.records).reduce(f64::max);
        let records = records.context("no writer")?;
        let bytes = container.index_bytes / container.each.len() as f64;
        match case.name {
            FEW => few = bytes,
            MANY => many = bytes,
            _ => {}
        }
        table.row(vec![case.name.to_owned(), format!("{records}"), format!("{bytes:.0}")]);
        let name = format!("records of a writer, {}", case.name);
        outcome.goals.push(Goal::new(name, records, "", Wanted::AtMost(case.wanted)));
    }
    mpi.clean()?;
    let name = "index bytes of 65,536 regions, of those of 1,024";
    outcome.goals.push(Goal::new(name, many / few, "", Wanted::AtMost(BYTES_WANTED)));
    outcome.tables.push(table);
    Ok(outcome)
}
