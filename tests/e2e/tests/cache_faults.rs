//! The cache area when the tier fails, servers die in the middle of a flush, or the whole job does:
//! nothing that was acknowledged is lost unnoticed, and what is missing is told and can be resumed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::job::{binary, is_alive};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Data, Job, JobOptions, Node, Suite, TestResult, TierDir, eventually, note};
use rustix::process::{Pid, Signal, kill_process};

fn main() -> ExitCode {
    Suite::new("cache_faults", JobOptions::three())
        .alone("cache_full_tier_down_lists_and_resume_completes", full_tier)
        .alone("cache_read_only_tier_is_tried_again", read_only_tier)
        .alone("cache_server_killed_in_the_middle_of_flushes", server_killed)
        .alone("cache_whole_job_killed_then_resumed", job_killed)
        .alone("cache_down_waits_until_the_tier_has_everything", down_drains)
        .alone("cache_full_of_copies_gives_room_back", room_comes_back)
        .run()
}

const COMMAND: Duration = Duration::from_secs(120);
const BACK: Duration = Duration::from_secs(60);

fn pattern(seed: u8, len: u64) -> Data {
    Data::pattern(u64::from(seed), len)
}

/// The bytes, as they lie in a file from its start.
fn bytes_of(data: &Data) -> anyhow::Result<Vec<u8>> {
    data.at(0).map_err(anyhow::Error::msg)
}

/// The file holds just this.
fn expect_file(node: &Node, path: &str, data: &Data) -> TestResult {
    let file = node.open(path, "r")?;
    let size = file.attr()?.size;
    ensure!(size == data.len(), "{path} has {size} bytes on node {}", node.index());
    file.check(0, data.clone())?;
    Ok(file.close()?)
}

fn expect_tier(tier: &TierDir, name: &str, data: &Data) -> TestResult {
    ensure!(tier.read(name)? == bytes_of(data)?, "{name} in the tier");
    Ok(())
}

fn kill(pid: u32) -> TestResult {
    kill_process(Pid::from_raw(pid as i32).context("a process number")?, Signal::KILL)?;
    Ok(())
}

fn resume(place: &std::path::Path) -> anyhow::Result<Finished> {
    let mut resume = std::process::Command::new(binary()?);
    run(resume.arg("resume").arg("--json").arg(place), COMMAND)
}

fn told(finished: &Finished) -> anyhow::Result<serde_json::Value> {
    serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))
}

/// The tier is full: the job goes on, `status` says why, `down` keeps and lists what is missing, and
/// when there is room `resume` brings it there.
fn full_tier() -> TestResult {
    let tier = TierDir::small(8 << 20)?;
    let job = Job::up(tier.job(2))?;
    let cluster = job.cluster().context("a real job")?;
    let (fits, large) = (pattern(1, 1 << 20), pattern(2, 12 << 20));
    job.node(0)?.write_file(&job.cached("fits"), fits.clone())?;
    job.node(1)?.write_file(&job.cached("large"), large.clone())?;
    eventually(BACK, || {
        let status = told(&cluster.run("status", &["--json"])?)?;
        let lines = &status["jobs"][0]["nodes"][1]["server"]["cache"]["lines"];
        ensure!(lines[0]["path"] == "large" && lines[0]["state"] == "failed", "{lines}");
        ensure!(lines[0]["errno"] == 28 && lines[0]["attempts"].as_u64() > Some(0), "{lines}");
        Ok(())
    })?;
    expect_file(&job.node(0)?, &job.cached("large"), &large)?;
    expect_tier(&tier, "fits", &fits)?;
    ensure!(tier.files()? == ["fits"], "{:?}", tier.files());
    job.restart_actors();
    let down = cluster.run("down", &["--json", "--drain", "1"])?;
    ensure!(down.code == Some(3), "{down:?}");
    let said = told(&down)?;
    ensure!(said["left"]["files"] == 1 && said["left"]["lines"][0]["path"] == "large", "{said}");
    let kept = std::path::PathBuf::from(said["kept"].as_str().context("where it is kept")?);
    // Nobody is hurt by trying too early.
    let early = resume(&kept)?;
    ensure!(early.code == Some(3) && early.stdout.contains("large"), "{early:?}");
    std::fs::remove_file(tier.file("fits"))?;
    let grown = std::process::Command::new("mount")
        .args(["-o", "remount,size=64m"])
        .arg(tier.path())
        .status()?;
    ensure!(grown.success(), "make the tier larger");
    let resumed = resume(&kept)?.success()?;
    ensure!(told(&resumed)?["durable_files"] == 1, "{resumed:?}");
    expect_tier(&tier, "large", &large)?;
    ensure!(!kept.exists(), "the storage is removed when nothing is missing");
    job.down()
}

fn read_only_tier() -> TestResult {
    let tier = TierDir::small(64 << 20)?;
    let job = Job::up(tier.job(2))?;
    let cluster = job.cluster().context("a real job")?;
    tier.read_only(true)?;
    let bytes = pattern(3, 100_000);
    job.node(0)?.write_file(&job.cached("f"), bytes.clone())?;
    eventually(BACK, || {
        let status = cluster.run("status", &["--ledger"])?.success()?;
        ensure!(status.stdout.contains("Read-only file system"), "{}", status.stdout);
        Ok(())
    })?;
    let flush = cluster.run_on(0, "flush", &[&job.cached("f")])?;
    ensure!(flush.code == Some(3) && flush.stdout.contains("failed"), "{flush:?}");
    tier.read_only(false)?;
    cluster.run("flush", &[])?.success()?;
    expect_tier(&tier, "f", &bytes)?;
    job.down()
}

/// Which node a daemon says in its command line that it serves.
fn node_of(pid: u32) -> Option<u16> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0').skip_while(|word| *word != "--node");
    words.nth(1)?.parse().ok()
}

fn server_of(job: &Job, node: u16) -> anyhow::Result<u32> {
    let servers = job.cluster().context("a real job")?.daemons().servers;
    let found = servers.into_iter().find(|pid| node_of(*pid) == Some(node) && is_alive(*pid));
    found.with_context(|| format!("the server of node {node}"))
}

fn server_killed() -> TestResult {
    const FILES: u8 = 12;
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(2))?;
    let node = job.node(0)?;
    let name = |index: u8| format!("f{index}");
    for (round, pause) in [0, 20, 60].into_iter().enumerate() {
        let seed = |index: u8| index + FILES * round as u8;
        for index in 0..FILES {
            let bytes = pattern(seed(index), 2 << 20);
            node.write_file(&job.cached(&name(index)), bytes)?;
        }
        std::thread::sleep(Duration::from_millis(pause));
        let killed = server_of(&job, 0)?;
        let arrived = tier.files()?.len();
        kill(killed)?;
        note(&format!("killed when the tier had {arrived} files"));
        eventually(BACK, || {
            ensure!(server_of(&job, 0)? != killed, "not back yet");
            Ok(())
        })?;
        eventually(BACK, || {
            let flushed = job.cluster().context("a real job")?.run("flush", &[])?;
            flushed.success().map(drop)
        })?;
        for index in 0..FILES {
            let bytes = pattern(seed(index), 2 << 20);
            expect_tier(&tier, &name(index), &bytes)?;
            expect_file(&node, &job.cached(&name(index)), &bytes)?;
        }
        let shown: Vec<_> = tier.files()?;
        let foreign = |name: &&String| !name.starts_with('f') && !name.contains(".hayase-partial-");
        ensure!(!shown.iter().any(|name| name.contains("conflict")), "{shown:?}");
        ensure!(shown.iter().find(foreign).is_none(), "{shown:?}");
    }
    job.down()
}

/// Everything is killed while most is not flushed: the left job directory is enough.
fn job_killed() -> TestResult {
    const FILES: u8 = 10;
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(2))?;
    let cluster = job.cluster().context("a real job")?;
    job.node(0)?.mkdir(&job.cached("deep"))?;
    for index in 0..FILES {
        let node = job.node(u16::from(index % 2))?;
        let bytes = pattern(index, 3 << 20);
        node.write_file(&job.cached(&format!("deep/f{index}")), bytes)?;
    }
    // Still open when the job dies: it is flushed as it stood.
    let open = job.node(1)?.open(&job.cached("log"), "rw+creat+trunc")?;
    open.pwrite(0, Data::bytes(b"so far"))?;
    let daemons = cluster.daemons();
    for pid in daemons.supervisors.iter().chain(&daemons.servers).chain(&daemons.mounts) {
        // One may end with another.
        let _ = kill(*pid);
    }
    drop(open);
    job.restart_actors();
    let all = || daemons.all().filter(|pid| is_alive(*pid)).count();
    eventually(BACK, || {
        ensure!(all() == 0, "{} daemons live", all());
        Ok(())
    })?;
    note(&format!("the tier had {} files when all was killed", tier.files()?.len()));
    // Another `up` of this user leaves the bytes alone.
    let other = Job::up(JobOptions::nodes(1))?;
    other.down()?;
    let resumed = eventually(BACK, || {
        // Images are busy until the kernel has let go of the dead nodes' mounts.
        resume(cluster.job_dir())?.success().map(drop)
    })?;
    note(&format!("resumed after {resumed:?}"));
    for index in 0..FILES {
        expect_tier(&tier, &format!("deep/f{index}"), &pattern(index, 3 << 20))?;
    }
    ensure!(tier.read("log")? == b"so far");
    ensure!(!cluster.job_dir().exists(), "nothing is left of the job");
    job.down()
}

fn down_drains() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(2))?;
    let bytes = pattern(9, 40 << 20);
    for node in [0, 1] {
        let path = job.cached(&format!("f{node}"));
        job.node(node)?.write_file(&path, bytes.clone())?;
    }
    job.down()?; // Ends with 0 only.
    for node in [0, 1] {
        expect_tier(&tier, &format!("f{node}"), &bytes)?;
    }
    Ok(())
}

/// More than the area holds is read and written: copies of what the tier has give their room back.
fn room_comes_back() -> TestResult {
    const FILES: u8 = 12;
    let tier = TierDir::new()?;
    let mut options = tier.job(1);
    options.shared = "64MiB".into();
    let job = Job::up(options)?;
    let node = job.node(0)?;
    for index in 0..FILES {
        let bytes = pattern(index, 10 << 20);
        node.write_file(&job.cached(&format!("f{index}")), bytes)?;
    }
    job.cluster().context("a real job")?.run("flush", &[])?.success()?;
    for index in 0..FILES {
        let bytes = pattern(index, 10 << 20);
        expect_tier(&tier, &format!("f{index}"), &bytes)?;
        expect_file(&node, &job.cached(&format!("f{index}")), &bytes)?;
    }
    job.down()
}
