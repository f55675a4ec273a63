//! Every other tool that is on the PATH, each at settings that suit it, on the same trees and the same server.
//!
//! The daemon of s3fs is not counted in its CPU.

use std::fs;
use std::process::Command;

use anyhow::Context;

use super::ground::{Files, Ground, PATIENCE};
use super::tools::{TOOLS, Tool};
use crate::bench::Bench;
use crate::command;
use crate::guard::unmount;
use crate::journal::Thing;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::Samples;

const MIB: f64 = 1_048_576.0;

/// At a time, for those that can be told.
const TRANSFERS: usize = 32;
const BOTH: [&str; 2] = ["down", "up"];

/// A mount of the bucket by s3fs, which caches nothing from one copy to the next.
struct Mount<'a>(&'a Bench, std::path::PathBuf);

impl<'a> Mount<'a> {
    fn new(bench: &'a Bench, ground: &Ground<'_>) -> anyhow::Result<Self> {
        let point = ground.path("mount");
        fs::create_dir_all(&point)?;
        let url = ground.url("");
        let bucket = url.trim_start_matches("s3://").trim_end_matches('/');
        let mut command = Command::new("s3fs");
        ground.tell(&mut command);
        command.arg(bucket).arg(&point).args(["-o", &format!("url={}", ground.endpoint())]);
        command.args(["-o", "use_path_request_style,parallel_count=16,multireq_max=64"]);
        bench.guard().made(Thing::Mount(point.clone()))?;
        let mount = Self(bench, point);
        command::run(&mut command, PATIENCE)?.success("mount by s3fs")?;
        Ok(mount)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        unmount(&self.1);
        let _ = self.0.guard().removed(Thing::Mount(self.1.clone()));
    }
}

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    let here: Vec<Tool> = TOOLS.into_iter().filter(|tool| tool.is_here()).collect();
    let mut outcome = Outcome::default();
    // A tool that can not do it is told, and not waited for.
    let few = Files { count: 3, bytes: 10_000 };
    let works = |tool: &Tool| match measure(bench, &ground, &[*tool], few, 1) {
        Err(error) if *tool != Tool::Hayase => {
            let _ = ["tree", "in"].map(|name| ground.clear(name));
            outcome.notes.push(format!("{} cannot be measured: {error:#}.", tool.name()));
            None
        }
        measured => Some(measured.map(|_| *tool)),
    };
    let tools = here.iter().filter_map(works).collect::<anyhow::Result<Vec<Tool>>>()?;
    let large = bench.rounds(64, 256) << 20;
    let sizes = [
        ("16 KiB", Files { count: bench.rounds(400, 2_000), bytes: 16 << 10 }),
        ("1 MiB", Files { count: bench.rounds(100, 500), bytes: 1 << 20 }),
        (
            if bench.rounds(0, 1) == 0 { "64 MiB" } else { "256 MiB" },
            Files { count: 4, bytes: large },
        ),
    ];
    for (name, files) in sizes {
        let samples = measure(bench, &ground, &tools, files, bench.rounds(2, 4))?;
        judge(name, files, &tools, &samples, &mut outcome);
        outcome.samples.extend(samples.0);
    }
    for tool in TOOLS.into_iter().filter(|tool| !here.contains(tool)) {
        outcome.notes.push(format!("{} is not on the PATH of this machine.", tool.name()));
    }
    Ok(outcome)
}

fn measure(
    bench: &Bench,
    ground: &Ground<'_>,
    tools: &[Tool],
    files: Files,
    rounds: usize,
) -> anyhow::Result<Samples> {
    ground.make_tree("tree", files)?;
    let mut samples = Samples::default();
    for round in 0..rounds {
        for turn in 0..tools.len() {
            let tool = tools[(turn + round) % tools.len()];
            ground.empty_bucket()?;
            for what in ["up", "down"] {
                let mount = (tool == Tool::S3fs).then(|| Mount::new(bench, ground)).transpose()?;
                let ran = ground.run(tool.command(ground, what, TRANSFERS)?);
                drop(mount);
                let ran = ran.with_context(|| format!("{} {what}", tool.name()))?;
                samples.0.push(ran.sample((what, tool.name(), round), files.total()));
            }
            if round == 0 {
                ground.check_same("tree", "in").with_context(|| tool.name())?;
            }
            ground.clear("in")?;
        }
    }
    ground.clear("tree")?;
    Ok(samples)
}

fn judge(name: &str, files: Files, tools: &[Tool], samples: &Samples, outcome: &mut Outcome) {
    let mut table = Table::new(
        format!("{} x {name}, loose", files.count),
        &["", "down MiB/s", "up MiB/s", "down CPU s/GiB", "up CPU s/GiB", "memory MiB"],
    );
    for tool in tools.iter().map(|tool| tool.name()) {
        let rates = BOTH.map(|what| samples.rate(what, tool) / MIB);
        let costs = BOTH.map(|what| samples.cpu_per_amount(what, tool).0 * MIB * 1024.0);
        let memory = BOTH.map(|what| samples.memory(what, tool)).into_iter().max().unwrap_or(0);
        let memory = memory as f64 / MIB;
        let cells = rates.iter().chain(&costs).chain([&memory]).map(|value| number(*value));
        table.row(std::iter::once(tool.to_owned()).chain(cells).collect());
    }
    outcome.tables.push(table);
    for what in BOTH {
        let rate = |tool: &Tool| samples.rate(what, tool.name());
        let others = tools.iter().filter(|tool| **tool != Tool::Hayase);
        if let Some(best) = others.max_by(|a, b| rate(a).total_cmp(&rate(b))) {
            let figure = rate(&Tool::Hayase) / rate(best);
            let goal = format!("{name} files {what}, of the best peer ({})", best.name());
            outcome.goals.push(Goal::new(goal, figure, "", Wanted::AtLeast(1.0)));
        }
        if tools.contains(&Tool::S5cmd) {
            let figure = rate(&Tool::Hayase) / rate(&Tool::S5cmd);
            let goal = format!("{name} files {what}, of s5cmd");
            outcome.goals.push(Goal::new(goal, figure, "", Wanted::AtLeast(0.95)));
        }
    }
}
