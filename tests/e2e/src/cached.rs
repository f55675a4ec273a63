//! What tests of the cache area say again and again: a file holds this here, and that in the tier.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::actor::Data;
use crate::expect::eventually;
use crate::job::{Job, is_alive};
use crate::node::Node;
use crate::tier_dir::TierDir;

/// How long a killed server may take to be back.
const BACK: Duration = Duration::from_secs(60);

/// Runs `test` on a job of two nodes in front of a tier of its own, and takes it down: which fails while
/// something is not in the tier.
///
/// # Errors
/// What the test says, with the logs.
pub fn in_front_of(tier: &TierDir, test: fn(&Job, &TierDir) -> Result<()>) -> Result<()> {
    let job = Job::up(tier.job(2))?;
    test(&job, tier).map_err(|error| error.context(job.logs()))?;
    job.down()
}

/// Waits until the tier has everything.
///
/// # Errors
/// What is left.
pub fn flush(job: &Job) -> Result<()> {
    job.cluster().context("a real job")?.run("flush", &[])?.success().map(drop)
}

/// A pattern of its own for each `seed`.
pub fn pattern(seed: u8, len: u64) -> Data {
    Data::pattern(u64::from(seed), len)
}

/// The bytes, as they lie in a file from its start.
///
/// # Errors
/// When they are no bytes.
pub fn bytes_of(data: &Data) -> Result<Vec<u8>> {
    data.at(0).map_err(anyhow::Error::msg)
}

/// The file holds just this.
///
/// # Errors
/// When it does not.
pub fn expect_file(node: &Node, path: &str, data: &Data) -> Result<()> {
    let file = node.open(path, "r")?;
    let size = file.attr()?.size;
    ensure!(size == data.len(), "{path} has {size} bytes on node {}", node.index());
    file.check(0, data.clone())?;
    Ok(file.close()?)
}

/// The file in the tier holds just this.
///
/// # Errors
/// When it does not.
pub fn expect_tier(tier: &TierDir, name: &str, data: &Data) -> Result<()> {
    ensure!(tier.read(name)? == bytes_of(data)?, "{name} in the tier");
    Ok(())
}

/// The process that serves a node now.
///
/// # Errors
/// When there is none.
pub fn server_of(job: &Job, node: u16) -> Result<u32> {
    let servers = job.cluster().context("a real job")?.daemons().servers;
    let found = servers.into_iter().find(|pid| node_of(*pid) == Some(node) && is_alive(*pid));
    found.with_context(|| format!("the server of node {node}"))
}

/// Which node a daemon says in its command line that it serves.
fn node_of(pid: u32) -> Option<u16> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0').skip_while(|word| *word != "--node");
    words.nth(1)?.parse().ok()
}

/// kill -9.
///
/// # Errors
/// When there is no such process.
pub fn kill(pid: u32) -> Result<()> {
    kill_process(Pid::from_raw(pid as i32).context("a process number")?, Signal::KILL)?;
    Ok(())
}

/// Kills the server of a node and waits until another one serves it.
///
/// # Errors
/// When none does.
pub fn kill_server(job: &Job, node: u16) -> Result<()> {
    let killed = server_of(job, node)?;
    kill(killed)?;
    let is_back = || {
        ensure!(server_of(job, node)? != killed, "not back yet");
        Ok(())
    };
    eventually(BACK, is_back).map(drop)
}

/// kill -9 of everything that the job runs, on all nodes at once.
///
/// # Errors
/// What is still alive.
pub fn kill_job(job: &Job) -> Result<()> {
    let daemons = job.cluster().context("a real job")?.daemons();
    for pid in daemons.supervisors.iter().chain(&daemons.servers).chain(&daemons.mounts) {
        // One may end with another.
        let _ = kill(*pid);
    }
    job.restart_actors();
    let alive = || daemons.all().filter(|pid| is_alive(*pid)).count();
    eventually(BACK, || {
        ensure!(alive() == 0, "{} daemons live", alive());
        Ok(())
    })
    .map(drop)
}
