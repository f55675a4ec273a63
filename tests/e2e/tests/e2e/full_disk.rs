//! The disk that names are kept on is filled by others: what was answered stays, and all is well again when it has room.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::{Data, Job, JobOptions, Node, Suite, TestResult, TierDir, eventually, note};
use rustix::fs::{FallocateFlags, fallocate};

pub(crate) fn suite() -> Suite {
    Suite::new("full_disk", JobOptions::nodes(2))
        .alone("full_disk_under_the_names", under_the_names)
}

/// XFS images have 300 MiB at least.
const AREA: &str = "300MiB";
const DISK_BYTES: u64 = 3 << 30;
/// More names than fit into the room that a server leaves alone.
const NAMES_MAX: usize = 20_000;
const HEALED: Duration = Duration::from_secs(30);

/// Both servers still think that there is room when it is gone. They are started again with the room that is kept for
/// them, refuse what is new, remove what is there, and take new names when others have left.
fn under_the_names() -> TestResult {
    // Nothing stands behind this job: a small file system of its own is what is wanted of it.
    let disk = TierDir::hanging(DISK_BYTES)?;
    let storage = Some(disk.file("storage"));
    let options =
        JobOptions { shared: AREA.into(), local: AREA.into(), storage, ..JobOptions::nodes(2) };
    std::fs::create_dir(disk.file("storage"))?;
    let job = Job::up(options)?;
    if job.is_plain() {
        note("a plain directory has no servers");
        return job.down();
    }
    let nodes = [job.node(0)?, job.node(1)?];
    let dir = |node: &Node| format!("{}/of-{}", job.shared(), node.index());
    let name = |node: &Node, number: usize| format!("{}/{number}", dir(node));
    for node in &nodes {
        node.mkdir(&dir(node))?;
        node.write_file(&name(node, 0), Data::pattern(7, 100_000))?;
    }
    let ballast = fill(&disk.file("ballast"))?;
    let mut made = Vec::new();
    for node in &nodes {
        made.push(make_until_refused(node, |number| name(node, number))?);
    }
    for (node, made) in nodes.iter().zip(&made) {
        for other in &nodes {
            let found = other.list(&dir(node))?.len();
            ensure!(found == made + 1, "{found} names where {made} and one were answered");
        }
        node.open(&name(node, 0), "r")?.check(0, Data::pattern(7, 100_000))?;
        for number in 1..=*made {
            let by = &nodes[number % nodes.len()];
            by.unlink(&name(node, number)).context("on a full disk")?;
        }
    }
    let restarts = restarts(&job)?;
    ensure!(restarts >= 1, "no server found the disk full: this tested nothing");
    drop(ballast);
    std::fs::remove_file(disk.file("ballast"))?;
    for node in &nodes {
        eventually(HEALED, || Ok(node.write_file(&name(node, 1), Data::pattern(8, 10))?))?;
    }
    for node in &nodes {
        ensure!(node.names(&dir(node))? == ["0", "1"]);
    }
    job.down()
}

/// How many names were answered before the first ENOSPC.
fn make_until_refused(node: &Node, name: impl Fn(usize) -> String) -> anyhow::Result<usize> {
    for number in 1..NAMES_MAX {
        match node.write_file(&name(number), Data::fill(0, 0)) {
            Ok(()) => {}
            Err(refused) if refused.errno == "ENOSPC" => return Ok(number - 1),
            Err(refused) => return Err(refused.into()),
        }
    }
    anyhow::bail!("{NAMES_MAX} names on a full disk")
}

/// All that the file system has, also what is kept for root.
fn fill(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path)?;
    let mut end = 0;
    for step in (12..28).rev().map(|bits| 1 << bits) {
        while fallocate(&file, FallocateFlags::empty(), end, step).is_ok() {
            end += step;
        }
    }
    Ok(file)
}

/// Of servers, so far.
fn restarts(job: &Job) -> anyhow::Result<u64> {
    let cluster = job.cluster().context("a real job")?;
    let status: serde_json::Value =
        serde_json::from_str(&cluster.run("status", &["--json"])?.stdout)?;
    let nodes = status["jobs"][0]["nodes"].as_array().context("`status --json` tells nodes")?;
    Ok(nodes.iter().filter_map(|node| node["supervisor"]["server_restarts"].as_u64()).sum())
}
