//! Reading every file of a tree once: packs that are mounted, against plain files in `shared`.
//!
//! CPU counts the program that reads and the daemons behind both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::ground::{Files, Ground};
use super::program;
use crate::bench::Bench;
use crate::command;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::Samples;
use crate::stats;

const SHARED: [&str; 2] = ["shared", "shared again"];
const MOUNTED: &str = "packs";
const PATIENCE: Duration = Duration::from_secs(120);

/// CPU for each file, of that in `shared`.
const CPU_MAX: f64 = 1.2;

/// Reads all, without a process for each file.
const READ_ALL: &str = "find . -type f -print0 | xargs -0 -n 4096 cat > /dev/null";

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let files = Files { count: bench.rounds(4_000, 20_000), bytes: 16 << 10 };
    let tree = ground.make_tree("tree", files)?;
    ground.run(ground.hayase(&["pack", "create", "tree", "packs"]))?;
    let job = Job::up(bench, &JobOptions::nodes(1))?;
    let copy = format!("cp -r {} {}/tree", tree.display(), job.shared().display());
    let mut shell = job.on_node(0, "sh");
    command::run(shell.args(["-c", &copy]), PATIENCE)?.success("fill the shared area")?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(4, 8) {
        for variant in order(round, SHARED, &[MOUNTED]) {
            let (ran, daemons) = if variant == MOUNTED {
                read_mounted(&ground)?
            } else {
                // Names and pages of the kernel are as cold as those of a new mount.
                std::fs::write("/proc/sys/vm/drop_caches", "2").context("drop names")?;
                let script = format!("cd {}/tree && {READ_ALL}", job.shared().display());
                let mut shell = job.on_node(0, "sh");
                shell.args(["-c", &script]);
                read(&ground, shell, &job.daemons())?
            };
            let mut sample = ran.sample(("read", variant, round), files.count as f64);
            sample.served_cpu = daemons;
            samples.0.push(sample);
        }
    }
    job.down()?;
    let cpu = |variant| {
        let (own, served) = samples.cpu_per_amount("read", variant);
        (own + served) * 1e6
    };
    let mut table = Table::new("Every file read once, names cold", &["", "files/s", "CPU us/file"]);
    for variant in [SHARED[0], MOUNTED] {
        table.row(vec![
            variant.to_owned(),
            number(samples.rate("read", variant)),
            number(cpu(variant)),
        ]);
    }
    let same = stats::of_neighbours(&stats::ratios(
        &times(&samples, SHARED[0]),
        &times(&samples, SHARED[1]),
    ));
    let figure = cpu(MOUNTED) / cpu(SHARED[0]);
    let goal = Goal::new(
        "CPU for a file of mounted packs, of shared",
        figure,
        "",
        Wanted::AtMost(CPU_MAX),
    );
    let goals = vec![goal.same_as(same)];
    Ok(Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0 })
}

/// CPU of each round.
fn times(samples: &Samples, variant: &str) -> Vec<f64> {
    samples.of("read", variant).map(|s| s.measured.own_cpu + s.served_cpu).collect()
}

/// A mount of packs, for one reading.
struct Mounted {
    point: PathBuf,
    daemon: u32,
}

impl Mounted {
    fn new(ground: &Ground<'_>) -> anyhow::Result<Self> {
        let point = ground.path("mount");
        std::fs::create_dir_all(&point)?;
        let mut command = ground.hayase(&["mount", "packs", "mount", "--json"]);
        let told = command::run(&mut command, PATIENCE)?.success("mount packs")?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let daemon = told["process"].as_u64().and_then(|id| u32::try_from(id).ok());
        Ok(Self { point, daemon: daemon.context("the mount tells no process")? })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

fn read_mounted(ground: &Ground<'_>) -> anyhow::Result<(program::Ran, f64)> {
    let mounted = Mounted::new(ground)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", READ_ALL]).current_dir(Path::new(&mounted.point));
    read(ground, shell, &[mounted.daemon])
}

fn read(
    ground: &Ground<'_>,
    command: Command,
    daemons: &[u32],
) -> anyhow::Result<(program::Ran, f64)> {
    let before = CpuTimes::of(daemons);
    let ran = ground.run(command)?;
    settle(daemons);
    Ok((ran, CpuTimes::of(daemons).since(&before)))
}
