//! The runner of all groups: each in a process of its own, a few of them at the same time.
//!
//! Tests wait more than they compute, so several groups run at the same time. They share nothing but the machine: each has its
//! job, tree and guard, and its own registry of jobs, since every `hayase up` removes what dead jobs of its registry
//! have left, and tests kill jobs to see just that. What a test looks for on the machine carries its tree's name.
//!
//! Command line: see [`Wanted`]; `HAYASE_E2E_STREAMS` says as well how many groups run at once.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::Suite;
use crate::job::{Guard, temporary_dir};
use crate::suite::{print, print_in_turns};
use crate::wanted::Wanted;

/// Groups that run at once, unless it is said. Each has about 4 GiB of areas on its disk.
const STREAMS: usize = 3;

/// Says to the process of a group where the run has its directory.
const RUN_DIR: &str = "HAYASE_E2E_RUN_DIR";

/// Runs what the command line asks for; `suites` start in this order, so the longest come first.
pub fn run(suites: &[Suite]) -> ExitCode {
    let wanted = Wanted::from_arguments(std::env::args().skip(1));
    let asked: Vec<&Suite> = suites.iter().filter(|suite| suite.is_wanted(&wanted)).collect();
    if wanted.list {
        asked.iter().for_each(|suite| suite.list(&wanted));
        return ExitCode::SUCCESS;
    }
    let result = match &wanted.group {
        Some(group) => run_one(&asked, group, &wanted),
        None => run_all(&asked, &wanted),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print(&format!("FAILED e2e: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The part of a group's process; true when nothing failed.
fn run_one(suites: &[&Suite], group: &str, wanted: &Wanted) -> Result<bool> {
    // Otherwise it would keep running after the whole run was killed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(dir) = std::env::var_os(RUN_DIR) {
        print_in_turns(&Path::new(&dir).join("print"))?;
    }
    let suite = suites.iter().find(|suite| suite.name() == group);
    Ok(suite.with_context(|| format!("no group {group}"))?.run(wanted))
}

/// The part of the process that was started by hand or by cargo; true when nothing failed.
fn run_all(suites: &[&Suite], wanted: &Wanted) -> Result<bool> {
    if suites.is_empty() {
        return Ok(true);
    }
    let (dir, start) = (RunDir::new()?, Instant::now());
    print_in_turns(&dir.path.join("print"))?;
    let waiting: VecDeque<_> = suites.iter().map(|suite| suite.name()).collect();
    let (waiting, failed) = (Mutex::new(waiting), Mutex::new(0));
    let streams = streams(wanted).clamp(1, suites.len());
    let next = || waiting.lock().expect("no holder panics").pop_front();
    let work = || {
        while let Some(group) = next() {
            if !run_beside(group, &dir.path) {
                *failed.lock().expect("no holder panics") += 1;
            }
        }
    };
    std::thread::scope(|scope| (0..streams).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().expect("no holder panics");
    let seconds = start.elapsed().as_secs_f64();
    print(&format!(
        "\ne2e: {failed} groups failed of {}, {streams} at a time, {seconds:.1} s",
        suites.len()
    ));
    Ok(failed == 0)
}

fn streams(wanted: &Wanted) -> usize {
    // Groups on one plain file system that tests may fill: each would see it full by another.
    if std::env::var_os("HAYASE_E2E_PRIVATE").is_some() {
        return 1;
    }
    let typed = || std::env::var("HAYASE_E2E_STREAMS").ok()?.parse().ok();
    wanted.groups.or_else(typed).unwrap_or(STREAMS)
}

/// Runs a group in a process of its own, which prints for itself; true when nothing failed.
fn run_beside(group: &str, dir: &Path) -> bool {
    let why = match start(group, dir) {
        Ok(status) if status.success() => return true,
        // It has said what failed.
        Ok(status) if status.code() == Some(1) => return false,
        Ok(status) => format!("its process ended with {status}"),
        Err(error) => format!("{error:#}"),
    };
    print(&format!("FAILED {group}: {why}"));
    false
}

fn start(group: &str, dir: &Path) -> Result<std::process::ExitStatus> {
    let this = std::env::current_exe().context("where is this program")?;
    Command::new(this)
        .args(["--group", group])
        .args(std::env::args_os().skip(1))
        .env(RUN_DIR, dir)
        .env("HAYASE_RUNTIME_DIR", dir.join(group))
        .stdin(Stdio::null())
        .status()
        .context("start its process")
}

/// The directory of this run: the groups' registries of jobs, and a file that is locked by who prints. Goes when this
/// process has ended, however it did.
struct RunDir {
    path: PathBuf,
    _guard: Guard,
}

impl RunDir {
    fn new() -> Result<Self> {
        let path = temporary_dir().join(format!("hayase-e2e-run-{}", std::process::id()));
        // Closed to others, as a registry must be.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("make {}", path.display()))?;
        let guard = Guard::of_directory(&path)?;
        Ok(Self { path, _guard: guard })
    }
}
