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

/// Fixed, where a goal is about so many connections.
const FOUR: &str = "loose, 4 streams";

/// Sent without checksums, as to a server that knows none: what is left to compare large files with are the MD5s of
/// their parts.
const BY_MD5: &str = "loose, by MD5s";

/// The same, not compared at all.
const UNCOMPARED: &str = "loose, not compared";

/// What is measured of files of one size, and what is wanted of it.
pub(super) struct Size {
    pub(super) name: &'static str,
    pub(super) files: Files,
    pub(super) rounds: usize,
    /// Variants besides rclone, which is always there.
    pub(super) both: &'static [&'static str],
    pub(super) down_only: &'static [&'static str],
    /// What variants reach of rclone's rate.
    pub(super) rate: &'static [(&'static str, Wanted)],
    /// Of rclone's CPU, loose.
    pub(super) cpu: Option<f64>,
    /// Files a second that [`FOUR`] brings.
    pub(super) four: Option<f64>,
}

pub(super) fn run_small(bench: &Bench) -> anyhow::Result<Outcome> {
    let size = Size {
        name: "16 KiB files",
        files: Files { count: bench.rounds(4_000, 20_000), bytes: 16 << 10 },
        rounds: bench.rounds(2, 4),
        both: &["loose", "packed"],
        down_only: &[],
        rate: &[("loose", Wanted::AtLeast(1.3)), ("packed", Wanted::Told)],
        cpu: Some(0.33),
        four: None,
    };
    run(&Ground::new(bench)?, &size)
}

pub(super) fn run_medium(bench: &Bench) -> anyhow::Result<Outcome> {
    let size = Size {
        name: "1 MiB files",
        files: Files { count: bench.rounds(200, 1_000), bytes: 1 << 20 },
        rounds: bench.rounds(2, 4),
        both: &["loose"],
        down_only: &[],
        rate: &[("loose", Wanted::AtLeast(1.0))],
        cpu: Some(0.6),
        four: None,
    };
    run(&Ground::new(bench)?, &size)
}

pub(super) fn run_large(bench: &Bench) -> anyhow::Result<Outcome> {
    let size = Size {
        name: "512 MiB files",
        files: Files { count: 4, bytes: 512 << 20 },
        rounds: bench.rounds(2, 4),
        both: &["loose", BY_MD5],
        down_only: &[UNCOMPARED],
        rate: &[("loose", Wanted::AtLeast(1.0))],
        cpu: None,
        four: None,
    };
    let mut outcome = run(&Ground::new(bench)?, &size)?;
    outcome.notes.push(
        "This server keeps the CRC32C of all bytes of what is sent in parts, as AWS does; each copy is compared with \
         it. Older servers know none: there, without TLS, parts are compared with their MD5s, by the two cores that \
         the server shares. rclone does not compare files of several parts that others sent."
            .to_owned(),
    );
    Ok(outcome)
}

/// Measures with a tree that is made for it and removed.
pub(super) fn run(ground: &Ground<'_>, size: &Size) -> anyhow::Result<Outcome> {
    ground.make_tree("tree", size.files)?;
    let mut samples = Samples::default();
    // Up: into an empty bucket each time.
    for round in 0..size.rounds {
        for variant in order(round, RCLONE, size.both) {
            ground.empty_bucket()?;
            let ran = ground.run(up(ground, variant, "up")?)?;
            samples.0.push(ran.sample(("up", variant, round), size.files.total()));
        }
    }
    // Down: each from what suits it, which is there once.
    ground.empty_bucket()?;
    for variant in size.both {
        ground.run(up(ground, variant, variant)?)?;
    }
    // Memory of a virtual machine that nobody has used yet is slow the first time.
    ground.run(down(ground, RCLONE[0])?)?;
    ground.clear("in")?;
    let others = [size.both, size.down_only].concat();
    for round in 0..size.rounds {
        for variant in order(round, RCLONE, &others) {
            let ran = ground.run(down(ground, variant)?)?;
            samples.0.push(ran.sample(("down", variant, round), size.files.total()));
            if round == 0 {
                ground.check_same("tree", "in")?;
            }
            ground.clear("in")?;
        }
    }
    ground.clear("tree")?;
    let mut goals: Vec<Goal> =
        ["down", "up"].iter().flat_map(|what| goals(size, what, &samples)).collect();
    let ours = ["down", "up"].iter().flat_map(|what| others.iter().map(move |name| (what, name)));
    let memory = ours.map(|(what, name)| samples.memory(what, name)).max().unwrap_or(0);
    let name = format!("memory of a copy of {}", size.name);
    goals.push(Goal::new(name, memory as f64 / MIB, "MiB", Wanted::AtMost(MEMORY_MIB)));
    let tables = vec![table(size, &others, &samples)];
    Ok(Outcome { goals, tables, notes: Vec::new(), samples: samples.0 })
}

fn up(ground: &Ground<'_>, variant: &str, name: &str) -> anyhow::Result<Command> {
    let pack = if variant.starts_with("loose") { "none" } else { "16MiB" };
    let key: &[&str] = if variant == "sealed" { &["--key-file", "key"] } else { &[] };
    match variant {
        _ if variant.starts_with("rclone") => ground.rclone("tree", &format!("s3:{name}")),
        _ => {
            let url = ground.url(name);
            let arguments = [&["stage", "out", "tree", &url, "--pack", pack], key].concat();
            let mut command = ground.hayase(&arguments);
            if variant == BY_MD5 {
                command.env("HAYASE_S3_CHECKSUM", "off");
            }
            Ok(command)
        }
    }
}

fn down(ground: &Ground<'_>, variant: &str) -> anyhow::Result<Command> {
    let (name, options): (&str, &[&str]) = match variant {
        FOUR => ("loose", &["--streams", "4"]),
        UNCOMPARED => {
            let mut command = ground.hayase(&["stage", "in", &ground.url(BY_MD5), "in"]);
            command.env("HAYASE_S3_ETAG_MD5", "no");
            return Ok(command);
        }
        "sealed" => (variant, &["--key-file", "key"]),
        _ if variant.starts_with("rclone") => return ground.rclone("s3:loose", "in"),
        _ => (variant, &[]),
    };
    let url = ground.url(name);
    Ok(ground.hayase(&[&["stage", "in", &url, "in"], options].concat()))
}

fn goals(size: &Size, what: &str, samples: &Samples) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (variant, wanted) in size.rate {
        let compared = samples.compare(what, variant, RCLONE);
        let figure = stats::median(&compared.ratios).unwrap_or(f64::NAN);
        let name = format!("{} {what}, {variant}, of rclone's loose", size.name);
        goals.push(Goal::new(name, figure, "", *wanted).same_as(compared.same));
    }
    if let Some(wanted) = size.cpu {
        let cpu = |variant| samples.cpu_per_amount(what, variant).0;
        let name = format!("CPU for {} {what}, loose, of rclone's", size.name);
        let figure = cpu("loose") / cpu(RCLONE[0]);
        goals.push(Goal::new(name, figure, "", Wanted::AtMost(wanted)));
    }
    if let Some(wanted) = size.four.filter(|_| what == "down") {
        let name = format!("{} by 4 connections, each second", size.name);
        let figure = samples.rate(what, FOUR) / size.files.bytes as f64;
        goals.push(Goal::new(name, figure, "", Wanted::AtLeast(wanted)));
    }
    goals
}

fn table(size: &Size, others: &[&str], samples: &Samples) -> Table {
    let mut table = Table::new(
        format!("{} x {}", size.files.count, size.name),
        &["", "MiB/s", "files/s", "CPU us/file", "memory MiB", "of rclone"],
    );
    for what in ["down", "up"] {
        for variant in std::iter::once(&RCLONE[0]).chain(others) {
            let rate = samples.rate(what, variant);
            if rate.is_nan() {
                continue;
            }
            let files = rate / size.files.bytes as f64;
            let cpu = samples.cpu_per_amount(what, variant).0 * size.files.bytes as f64 * 1e6;
            let of_rclone = match variant.starts_with("rclone") {
                true => 1.0,
                false => {
                    let compared = samples.compare(what, variant, RCLONE);
                    stats::median(&compared.ratios).unwrap_or(f64::NAN)
                }
            };
            let memory = samples.memory(what, variant) as f64 / MIB;
            let cells = [rate / MIB, files, cpu, memory, of_rclone].map(number);
            table.row(std::iter::once(format!("{what}, {variant}")).chain(cells).collect());
        }
    }
    table
}
