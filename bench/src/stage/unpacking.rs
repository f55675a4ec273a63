//! Packs against the floor: the same tree through `tar | tar` between two directories in memory; and packs that are
//! read and checked as streams, without making files (`hayase pack verify`).

use std::process::Command;

use super::ground::{Files, Ground};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

const TAR: [&str; 2] = ["tar | tar", "tar | tar again"];
const PACKED: &str = "packed";
const READ: &str = "read only";
/// CPU microseconds for each file that is only read.
const READ_MAX: f64 = 10.0;
const MIB: f64 = 1_048_576.0;

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let files = Files { count: bench.rounds(4_000, 20_000), bytes: 16 << 10 };
    ground.make_tree("tree", files)?;
    let url = ground.url(PACKED);
    ground.run(ground.hayase(&["stage", "out", "tree", &url, "--pack", "16MiB"]))?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(4, 8) {
        for variant in order(round, TAR, &[PACKED, READ]) {
            let ran = if variant == PACKED {
                ground.run(ground.hayase(&["stage", "in", &url, "in"]))?
            } else if variant == READ {
                ground.run(ground.hayase(&["pack", "verify", &url]))?
            } else {
                let mut command = Command::new("sh");
                command.args(["-c", "mkdir in && tar -C tree -cf - . | tar -C in -xf -"]);
                command.current_dir(ground.path(""));
                ground.run(command)?
            };
            samples.0.push(ran.sample(("down", variant, round), files.total()));
            ground.clear("in")?;
        }
    }
    let mut table =
        Table::new("From packs in a bucket, and from a directory", &["", "MiB/s", "CPU us/file"]);
    let cpu = |variant| samples.cpu_per_amount("down", variant).0 * files.bytes as f64 * 1e6;
    for variant in [TAR[0], PACKED, READ] {
        let cpu = cpu(variant);
        let rate = samples.rate("down", variant) / MIB;
        table.row(vec![variant.to_owned(), number(rate), number(cpu)]);
    }
    let compared = samples.compare("down", PACKED, TAR);
    let figure = stats::median(&compared.ratios).unwrap_or(f64::NAN);
    let goal = Goal::new("packs down, of tar | tar in memory", figure, "", Wanted::AtLeast(0.9));
    let read = "packs read and checked as a stream, CPU for each file";
    let read = Goal::new(read, cpu(READ), "us", Wanted::AtMost(READ_MAX));
    let goals = vec![goal.same_as(compared.same), read];
    Ok(Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0 })
}
