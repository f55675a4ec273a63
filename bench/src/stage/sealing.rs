//! What sealing costs: packs with and without AES-256-GCM, up and down.

use super::ground::{Files, Ground};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

const PLAIN: [&str; 2] = ["plain", "plain again"];
const SEALED: &str = "sealed";
const MIB: f64 = 1_048_576.0;

/// Time sealed over time plain.
const COST_MAX: f64 = 1.05;

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let files = Files { count: bench.rounds(4_000, 20_000), bytes: 16 << 10 };
    ground.make_tree("tree", files)?;
    let key =
        |variant: &str| -> &[&str] { if variant == SEALED { &["--key-file", "key"] } else { &[] } };
    let mut samples = Samples::default();
    let rounds = bench.rounds(10, 12);
    for what in ["up", "down"] {
        for round in 0..rounds {
            for variant in order(round, PLAIN, &[SEALED]) {
                let url = ground.url(if variant == SEALED { SEALED } else { "plain" });
                let arguments: Vec<&str> = match what {
                    "up" => {
                        ground.empty_bucket()?;
                        [&["stage", "out", "tree", &url, "--pack", "16MiB"], key(variant)].concat()
                    }
                    _ => [&["stage", "in", &url, "in"], key(variant)].concat(),
                };
                let ran = ground.run(ground.hayase(&arguments))?;
                samples.0.push(ran.sample((what, variant, round), files.total()));
                if what == "down" {
                    ground.clear("in")?;
                }
            }
        }
        ground.empty_bucket()?;
        for variant in ["plain", SEALED] {
            let url = ground.url(variant);
            let arguments = [&["stage", "out", "tree", &url, "--pack", "16MiB"], key(variant)];
            ground.run(ground.hayase(&arguments.concat()))?;
        }
    }
    let mut table = Table::new("Packs of 16 KiB files", &["", "MiB/s", "CPU s/GiB"]);
    let mut goals = Vec::new();
    for what in ["down", "up"] {
        for variant in [PLAIN[0], SEALED] {
            let cpu = samples.cpu_per_amount(what, variant).0 * MIB * 1024.0;
            let rate = samples.rate(what, variant) / MIB;
            table.row(vec![format!("{what}, {variant}"), number(rate), number(cpu)]);
        }
        let compared = samples.compare(what, SEALED, PLAIN);
        let figure = 1.0 / stats::median(&compared.ratios).unwrap_or(f64::NAN);
        let goal = Goal::new(
            format!("time sealed {what}, of plain"),
            figure,
            "",
            Wanted::AtMost(COST_MAX),
        );
        goals.push(goal.same_as(compared.same));
    }
    Ok(Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0 })
}
