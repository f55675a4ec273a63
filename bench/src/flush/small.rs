//! The first read of a tree of small files through `cache`, in front of a tier that answers late, beside the
//! fastest parallel copy of the same tree out of that tier.
//!
//! All of them are as parallel as each other: who reads is `xargs -P` with cat(1), who copies `xargs -P`
//! with cp(1), or rclone with as many transfers. Each round has a tree that nobody has looked at before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::distant_tier::DistantTier;
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::guard::remove_tree;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;

const DELAY_MS: u64 = 5;
const FILE_BYTES: usize = 16 << 10;
const DIRECTORY_FILES: usize = 500;

/// Programs, or transfers, at a time, and files that each program is given.
const PARALLEL: usize = 32;
const FILES_EACH: usize = 50;

const WANTED: f64 = 1.2;
const WHAT: &str = "first read";
const CACHE: &str = "cache";
const RCLONE: &str = "rclone";
const COPIES: [&str; 2] = ["cp", "cp again"];

const PATIENCE: Duration = Duration::from_secs(600);
/// The kernel forgets what it knows of names in the tier.
const FORGOTTEN: Duration = Duration::from_millis(1100);

/// All of it on one node.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let files = bench.rounds(6_000, 20_000);
    let tier = DistantTier::start(bench, DELAY_MS)?;
    let options = JobOptions { tier: Some(tier.path().to_owned()), ..JobOptions::nodes(1) };
    let job = Job::up(bench, &options)?;
    let copy = bench.scratch().join("copy");
    let small = Small { job: &job, tier: &tier, copy };
    let mut samples = Samples::default();
    for round in 0..bench.rounds(2, 5) {
        make_tree(&tier.source().join(tree(round)), files)?;
        for variant in rounds::order(round, COPIES, &[CACHE, RCLONE]) {
            std::thread::sleep(FORGOTTEN);
            let seconds = small.one(variant, round, files)?;
            samples.0.push(sample(variant, round, files, seconds));
        }
        // Not through the area: nothing is left of it there that anybody would be measured with.
        remove_tree(&tier.source().join(tree(round)))?;
    }
    job.down()?;
    Ok(outcome(samples, files))
}

fn tree(round: usize) -> String {
    format!("tree-{round}")
}

fn make_tree(path: &Path, files: usize) -> anyhow::Result<()> {
    let bytes = vec![b'x'; FILE_BYTES];
    for number in 0..files {
        let directory = path.join(format!("d{:03}", number / DIRECTORY_FILES));
        if number % DIRECTORY_FILES == 0 {
            fs::create_dir_all(&directory)?;
        }
        let file = directory.join(format!("f{number:06}"));
        fs::write(&file, &bytes).with_context(|| format!("make {}", file.display()))?;
    }
    Ok(())
}

struct Small<'a> {
    job: &'a Job<'a>,
    tier: &'a DistantTier<'a>,
    copy: PathBuf,
}

impl Small<'_> {
    /// Seconds until every byte of the tree was read, or copied.
    fn one(&self, variant: &str, round: usize, files: usize) -> anyhow::Result<f64> {
        let in_tier = self.tier.path().join(tree(round));
        let mut command = match variant {
            CACHE => self.for_each(&self.job.cache().join(tree(round)), "", "cat"),
            RCLONE => self.rclone(&in_tier),
            _ => {
                let to = self.copy.display();
                // Programs that make the same directory at the same time fail.
                let begin = format!("find . -type d -printf '{to}/%P\\0' | xargs -0 mkdir -p && ");
                self.for_each(&in_tier, &begin, &format!("cp --parents -t {to}"))
            }
        };
        let ended = run_command(&mut command, PATIENCE)?;
        let seconds = ended.took.as_secs_f64();
        let output = ended.success(variant)?;
        let found: usize = match variant {
            CACHE => output.trim().parse().context("count what was read")?,
            _ => bytes_below(&self.copy)?,
        };
        ensure!(found == files * FILE_BYTES, "{variant}: {found} bytes of {files} files");
        remove_tree(&self.copy)?;
        Ok(seconds)
    }

    /// Gives all files below `path` to programs that run at the same time; how many bytes they say.
    fn for_each(&self, path: &Path, begin: &str, program: &str) -> Command {
        let mut command = self.job.on_node(0, "bash");
        command.args(["-o", "pipefail", "-c"]).arg(format!(
            "cd {} && {begin}find . -type f -print0 | xargs -0 -P {PARALLEL} -n {FILES_EACH} {program} | wc -c",
            path.display()
        ));
        command
    }

    fn rclone(&self, from: &Path) -> Command {
        let mut command = self.job.on_node(0, "rclone");
        command.env_remove("AWS_CA_BUNDLE").arg("copy").arg(from).arg(&self.copy);
        let parallel = PARALLEL.to_string();
        command.args(["--config", "/dev/null", "--transfers", &parallel, "--checkers", &parallel]);
        command
    }
}

fn bytes_below(path: &Path) -> anyhow::Result<usize> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            false => entry.metadata()?.len() as usize,
        };
    }
    Ok(bytes)
}

fn sample(variant: &str, round: usize, files: usize, seconds: f64) -> Sample {
    Sample {
        what: WHAT.to_owned(),
        variant: variant.to_owned(),
        round,
        measured: Measured { amount: files as f64, seconds, own_cpu: 0.0 },
        ..Sample::default()
    }
}

fn outcome(samples: Samples, files: usize) -> Outcome {
    let found = samples.compare(WHAT, CACHE, COPIES);
    let rate = |variant: &str| samples.rate(WHAT, variant);
    let against_copy = stats::median(&found.ratios).unwrap_or(f64::NAN);
    let against_rclone = rate(CACHE) / rate(RCLONE);
    // The better tool is the one against which less is reached.
    let figure = 1.0 / against_copy.min(against_rclone);
    let name = "first read of small files, time of that of the best parallel copy tool";
    let goal = Goal::new(name, figure, "", Wanted::AtMost(WANTED)).same_as(found.same);
    let mut table = Table::new("files/s", &["", "files/s"]);
    for variant in [CACHE, COPIES[0], COPIES[1], RCLONE] {
        table.row(vec![variant.to_owned(), number(rate(variant))]);
    }
    let notes = vec![format!(
        "{files} files of {} KiB; every answer of the tier comes {DELAY_MS} ms late, by a FUSE daemon outside of the job.\n\
         `cache` is read by `find | xargs -P {PARALLEL} cat`, the tier copied by `find | xargs -P {PARALLEL} cp` and by rclone \
         with {PARALLEL} transfers; finding the files counts.",
        FILE_BYTES >> 10
    )];
    Outcome { goals: vec![goal], tables: vec![table], notes, samples: samples.0 }
}
