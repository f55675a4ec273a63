//! One file that three nodes write and read by MPI-IO: as a container, as a file for each process, and as the MPI's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cluster::{Cluster, HAYASE};
use crate::bench::Bench;
use crate::command::run as run_to_end;
use crate::mpiio::launch::{Kind, Said, library, tool, words};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::{Sample, Samples};
use crate::stats;

/// As a user must mount it for MPI-IO: what one node wrote the others see.
const OTHER: &str = "direct";
const NODES: u16 = 3;
/// N-1 by the MPI itself is slow, whatever the size.
const STOCK_SHARE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);

const DIRECTIONS: [&str; 2] = ["write", "read"];
/// Of N-N by the same MPI on the same mount.
const OF_EACH: f64 = 0.85;
/// Of N-1 by the MPI itself on gfarm2fs.
const OF_STOCK: f64 = 1.8;
/// Bytes on the links, of those read: the processes also talk to each other.
const SHARE_MAX: f64 = 0.01;

/// One way to write a file.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    mount: &'static str,
    /// With our library, in a marked directory.
    is_ours: bool,
    /// Instead of one for all.
    is_each: bool,
}

const EACH: [&str; 2] = ["N-N, our mount", "N-N, our mount, again"];
const EACH_OTHER: [&str; 2] = ["N-N, gfarm2fs", "N-N, gfarm2fs, again"];
const STOCK: [&str; 2] = ["N-1, gfarm2fs", "N-1, gfarm2fs, again"];
const OURS: &str = "container, our mount";
const OURS_OTHER: &str = "container, gfarm2fs";

const WAYS: [Way; 8] = [
    Way { name: EACH[0], mount: HAYASE, is_ours: false, is_each: true },
    Way { name: STOCK[0], mount: OTHER, is_ours: false, is_each: false },
    Way { name: OURS, mount: HAYASE, is_ours: true, is_each: false },
    Way { name: STOCK[1], mount: OTHER, is_ours: false, is_each: false },
    Way { name: EACH_OTHER[0], mount: OTHER, is_ours: false, is_each: true },
    Way { name: OURS_OTHER, mount: OTHER, is_ours: true, is_each: false },
    Way { name: EACH_OTHER[1], mount: OTHER, is_ours: false, is_each: true },
    Way { name: EACH[1], mount: HAYASE, is_ours: false, is_each: true },
];

/// The program, and where it runs.
struct Runs<'a> {
    cluster: &'a Cluster,
    /// MiB of each process, by the ways that do not put all on one node.
    steps: usize,
    program: PathBuf,
    library: PathBuf,
}

/// What the links carried while a file was read, of its bytes.
type Shares = Vec<(&'static str, f64)>;

/// One process on each node.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let cluster = Cluster::up(bench, &[OTHER])?;
    let program = bench.scratch().join(bench.new_name());
    Kind::Mpich.compile(&program)?;
    let steps = bench.rounds(256, 512);
    let runs = Runs { cluster: &cluster, steps, program, library: library(bench)? };
    let top = cluster.mount(HAYASE, 1);
    for directory in ["marked", "plain"] {
        std::fs::create_dir(top.join(directory))?;
    }
    tool(Command::new(bench.hayase()).args(["container", "enable"]).arg(top.join("marked")))?;
    let (mut samples, mut shares) = (Samples::default(), Shares::new());
    for round in 0..=bench.rounds(3, 8) {
        let names: Vec<&str> = WAYS[1..7].iter().map(|way| way.name).collect();
        for name in order(round, EACH, &names) {
            let Some(way) = WAYS.into_iter().find(|way| way.name == name) else { continue };
            let (found, share) = runs.one(way, round)?;
            // The first round makes connections.
            if round > 0 {
                samples.0.extend(found);
                shares.push((way.name, share));
            }
        }
    }
    Ok(judge(steps, samples, &shares))
}

impl Runs<'_> {
    /// Writes a new file and reads it, by two runs of the program; the bytes that the links carried for the second.
    fn one(&self, way: Way, round: usize) -> anyhow::Result<(Vec<Sample>, f64)> {
        let directory = if way.is_ours { "marked" } else { "plain" };
        let name = format!("{}-{round}", way.name.replace([' ', ','], "-"));
        let path = format!("{directory}/{name}");
        let mut samples = Vec::new();
        let mut share = f64::NAN;
        for direction in DIRECTIONS {
            let before = self.carried()?;
            let phases = self.said(way, &path, direction)?.phases(direction)?;
            share = (self.carried()? - before) as f64 / phases.together().amount;
            for (what, measured) in
                [(direction.to_owned(), phases.together()), (calls_of(direction), phases.calls())]
            {
                let (variant, meanwhile_cpu, served_cpu) = (way.name.to_owned(), 0.0, 0.0);
                let requests = None;
                samples.push(Sample {
                    what,
                    variant,
                    round,
                    measured,
                    meanwhile_cpu,
                    served_cpu,
                    requests,
                    ..Sample::default()
                });
            }
        }
        remove(&self.cluster.mount(way.mount, 1).join(directory), &name)?;
        self.cluster.await_removals()?;
        Ok((samples, share))
    }

    fn said(&self, way: Way, path: &str, direction: &str) -> anyhow::Result<Said> {
        let mut command = Command::new(Kind::Mpich.tool("mpiexec"));
        // More ranks than cores: whoever waits lets the others go on.
        command.args(["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"]);
        let preload = if way.is_ours { self.library.display().to_string() } else { String::new() };
        command.env("PRELOAD", preload);
        let files = if way.is_each { "each" } else { "one" };
        let is_stock = !way.is_ours && !way.is_each;
        let steps = if is_stock { self.steps / STOCK_SHARE } else { self.steps };
        for node in 1..=NODES {
            let between: &[&str] = if node == 1 { &[] } else { &[":"] };
            command.args(between).args(["-n", "1"]).arg(self.cluster.rank());
            command.arg(node.to_string()).arg(way.mount).arg(&self.program);
            command.args(words("pattern=blocks block=1048576 calls=own check=all"));
            command.args([
                format!("steps={steps}"),
                format!("files={files}"),
                format!("do={direction}"),
            ]);
            command.arg(format!("file={}", self.cluster.place().join(path).display()));
        }
        Said::of(run_to_end(&mut command, PATIENCE)?, &format!("{direction}, {}", way.name))
    }

    fn carried(&self) -> anyhow::Result<u64> {
        (1..=NODES).map(|node| self.cluster.carried(node)).sum()
    }
}

/// Without open and close, as samples name it.
fn calls_of(direction: &str) -> String {
    format!("{direction}, calls alone")
}

/// A file, a file for each process, or a container.
fn remove(directory: &Path, name: &str) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match found.strip_prefix(name) {
            Some("") if path.is_dir() => std::fs::remove_dir_all(&path)?,
            Some(rest) if rest.is_empty() || rest.starts_with('.') => std::fs::remove_file(&path)?,
            _ => {}
        }
    }
    Ok(())
}

fn judge(steps: usize, samples: Samples, shares: &Shares) -> Outcome {
    let figure = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
    let share = |name: &str| {
        let of: Vec<f64> = shares.iter().filter(|(way, _)| *way == name).map(|(_, s)| *s).collect();
        figure(&of)
    };
    let head = [
        "3 processes on 3 nodes",
        "write MiB/s",
        "calls alone",
        "read MiB/s",
        "calls alone",
        "bytes on links, of those read",
    ];
    let mut table = Table::new("1 MiB calls, independent", &head);
    for way in WAYS.iter().filter(|way| !way.name.ends_with("again")) {
        let mut row = vec![way.name.to_owned()];
        for what in DIRECTIONS {
            for what in [what.to_owned(), calls_of(what)] {
                row.push(number(samples.rate(&what, way.name) / 1_048_576.0));
            }
        }
        row.push(number(share(way.name)));
        table.row(row);
    }
    let mut goals = Vec::new();
    for (ours, place, each) in [(OURS, "our mount", EACH), (OURS_OTHER, "gfarm2fs", EACH_OTHER)] {
        for (what, baseline, of, wanted) in [
            ("write", each, "N-N there", OF_EACH),
            ("read", each, "N-N there", OF_EACH),
            ("write", STOCK, "N-1 by the MPI itself on gfarm2fs", OF_STOCK),
            ("read", STOCK, "N-1 by the MPI itself on gfarm2fs", OF_STOCK),
        ] {
            let found = samples.compare(what, ours, baseline);
            let name = format!("N-1 of three nodes on {place}, {what}, of {of}");
            let goal = Goal::new(name, figure(&found.ratios), "", Wanted::AtLeast(wanted));
            goals.push(goal.same_as(found.same));
        }
        let name = format!("N-1 of three nodes on {place}, bytes on the links, of those read");
        goals.push(Goal::new(name, share(ours), "", Wanted::AtMost(SHARE_MAX)));
    }
    let notes = vec![format!(
        "One MPI process (MPICH) on each of three nodes; {steps} MiB each (a quarter of that for N-1 by the MPI itself, \
         which would take minutes), in blocks of 1 MiB that interleave rank by rank; \
         open, calls and close together; every byte is checked. Another run reads with the same pattern; the links are counted during all \
         of that run, also what the processes say to each other.\nContainers are made by `libhayase_mpiio.so`, preloaded. \
         gfarm2fs is mounted with `direct_io` and without caches of attributes, as MPI-IO over several nodes needs it.\nNothing \
         limits the links of these nodes, which are this machine's memory; N-1 by the MPI itself has all bytes on one node."
    )];
    Outcome { goals, tables: vec![table], notes, samples: samples.0 }
}
