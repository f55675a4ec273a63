//! Small, medium and large files, up and down, loose and packed, against rclone.

use std::process::Command;

use super::ground::{Files, Ground};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

/// All data that streams hold, the index and the program itself.
const MEMORY_MIB: f64 = 256.0;

const RCLONE: [&str; 2] = ["rclone", "rclone again"];
const MIB: f64 = 1_048_576.0;

/// What is measured of files of one size, and what is wanted of it.
struct Size {
    name: &'static str,
    files: Files,
    rounds: usize,
    /// Of rclone's rate: loose, packed.
    rate: (f64, Option<f64>),
    /// Of rclone's CPU, loose.
    cpu: Option<f64>,
}

pub(super) fn run_small(bench: &Bench) -> anyhow::Result<Outcome> {
    run(
        bench,
        &Size {
            name: "16 KiB files",
            files: Files { count: bench.rounds(4_000, 20_000), bytes: 16 << 10 },
            rounds: bench.rounds(2, 4),
            rate: (1.3, Some(15.0)),
            cpu: Some(0.33),
        },
    )
}

pub(super) fn run_medium(bench: &Bench) -> anyhow::Result<Outcome> {
    run(
        bench,
        &Size {
            name: "1 MiB files",
            files: Files { count: bench.rounds(200, 1_000), bytes: 1 << 20 },
            rounds: bench.rounds(2, 4),
            rate: (1.0, None),
            cpu: Some(0.6),
        },
    )
}

pub(super) fn run_large(bench: &Bench) -> anyhow::Result<Outcome> {
    run(
        bench,
        &Size {
            name: if bench.rounds(0, 1) == 0 { "128 MiB files" } else { "512 MiB files" },
            files: Files { count: 4, bytes: bench.rounds(128, 512) << 20 },
            rounds: bench.rounds(2, 4),
            rate: (1.0, None),
            cpu: None,
        },
    )
}

fn run(bench: &Bench, size: &Size) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    ground.make_tree("tree", size.files)?;
    let mut others = vec!["loose"];
    others.extend(size.rate.1.map(|_| "packed"));
    let (mut samples, mut memory) = (Samples::default(), 0);
    // Up: into an empty bucket each time.
    for round in 0..size.rounds {
        for variant in order(round, RCLONE, &others) {
            ground.empty_bucket();
            let ran = ground.run(up(&ground, variant, "up")?)?;
            samples.0.push(ran.sample(("up", variant, round), size.files.total()));
            memory = memory.max(if variant.starts_with("rclone") { 0 } else { ran.memory });
        }
    }
    // Down: each from what suits it, which is there once.
    ground.empty_bucket();
    for variant in &others {
        ground.run(up(&ground, variant, variant)?)?;
    }
    for round in 0..size.rounds {
        for variant in order(round, RCLONE, &others) {
            let ran = ground.run(down(&ground, variant)?)?;
            samples.0.push(ran.sample(("down", variant, round), size.files.total()));
            memory = memory.max(if variant.starts_with("rclone") { 0 } else { ran.memory });
            if round == 0 {
                ground.check_same("tree", "in")?;
            }
            ground.clear("in")?;
        }
    }
    Ok(outcome(size, &others, &samples, memory))
}

fn up(ground: &Ground<'_>, variant: &str, name: &str) -> anyhow::Result<Command> {
    let pack = if variant == "packed" { "16MiB" } else { "none" };
    match variant {
        "loose" | "packed" => {
            Ok(ground.hayase(&["stage", "out", "tree", &ground.url(name), "--pack", pack]))
        }
        _ => ground.rclone("tree", &format!("s3:{name}")),
    }
}

fn down(ground: &Ground<'_>, variant: &str) -> anyhow::Result<Command> {
    match variant {
        "loose" | "packed" => Ok(ground.hayase(&["stage", "in", &ground.url(variant), "in"])),
        _ => ground.rclone("s3:loose", "in"),
    }
}

fn outcome(size: &Size, others: &[&str], samples: &Samples, memory: u64) -> Outcome {
    let mut table = Table::new(
        format!("{} x {}", size.files.count, size.name),
        &["", "MiB/s", "files/s", "CPU us/file", "of rclone"],
    );
    let mut goals = Vec::new();
    for what in ["down", "up"] {
        for variant in std::iter::once(&RCLONE[0]).chain(others) {
            let rate = samples.rate(what, variant);
            let files = rate / size.files.bytes as f64;
            let cpu = samples.cpu_per_amount(what, variant).0 * size.files.bytes as f64 * 1e6;
            let of_rclone = match variant.starts_with("rclone") {
                true => 1.0,
                false => {
                    let compared = samples.compare(what, variant, RCLONE);
                    stats::median(&compared.ratios).unwrap_or(f64::NAN)
                }
            };
            let name = format!("{what}, {variant}");
            table.row(vec![
                name,
                number(rate / MIB),
                number(files),
                number(cpu),
                number(of_rclone),
            ]);
        }
        for (variant, wanted) in [("loose", Some(size.rate.0)), ("packed", size.rate.1)] {
            let Some(wanted) = wanted else { continue };
            let compared = samples.compare(what, variant, RCLONE);
            let figure = stats::median(&compared.ratios).unwrap_or(f64::NAN);
            let name = format!("{} {what}, {variant}, of rclone's loose", size.name);
            goals.push(Goal::new(name, figure, "", Wanted::AtLeast(wanted)).same_as(compared.same));
        }
        if let Some(wanted) = size.cpu {
            let cpu = |variant| samples.cpu_per_amount(what, variant).0;
            let figure = cpu("loose") / cpu(RCLONE[0]);
            let name = format!("CPU for {} {what}, loose, of rclone's", size.name);
            goals.push(Goal::new(name, figure, "", Wanted::AtMost(wanted)));
        }
    }
    let name = format!("memory of a copy of {}", size.name);
    goals.push(Goal::new(name, memory as f64 / MIB, "MiB", Wanted::AtMost(MEMORY_MIB)));
    Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0.clone() }
}
