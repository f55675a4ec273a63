//! Striped files of a job of which all was killed: `hayase resume` puts them together from the storage of all
//! nodes, and what is not there, or was lost with the power, is told and never sent.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{expect_tier, kill_job, pattern};
use hayase_e2e::job::{binary, is_alive};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Job, JobOptions, Suite, TestResult, TierDir, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) fn suite() -> Suite {
    Suite::new("cache_striped_resumed", JobOptions::three())
        .alone("cache_striped_whole_job_killed_then_resumed", resumed)
        .alone("cache_striped_resume_waits_for_all_nodes", waits_for_all_nodes)
        .alone("cache_striped_resume_tells_what_the_power_took", power_took)
        .alone("cache_striped_parts_stay_when_a_signal_ends_the_job", ended_by_a_signal)
}

const BACK: Duration = Duration::from_secs(60);
const COMMAND: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// A job whose directory `s` is striped, with a file of `len` bytes in it that stays open, so that it is not flushed
/// before all is killed.
fn written(tier: &TierDir, len: u64) -> anyhow::Result<Job> {
    let job = Job::up(tier.job(3))?;
    job.node(0)?.mkdir(&job.cached("s"))?;
    job.stripe(&job.cached("s"), "64KiB", 0)?;
    let open = job.node(1)?.open(&job.cached("s/open"), "rw+creat+trunc")?;
    open.pwrite(0, pattern(1, len))?;
    std::mem::forget(open);
    Ok(job)
}

fn resume(place: &Path) -> anyhow::Result<(Option<i32>, Value)> {
    let mut resume = Command::new(binary()?);
    told(&run(resume.args(["resume", "--verify", "--json"]).arg(place), COMMAND)?)
}

fn told(finished: &Finished) -> anyhow::Result<(Option<i32>, Value)> {
    let value = serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))?;
    Ok((finished.code, value))
}

/// Images are busy until the kernel has let go of the dead nodes' mounts: then it fails, and is tried again.
fn when_free(
    resume: impl Fn() -> anyhow::Result<(Option<i32>, Value)>,
) -> anyhow::Result<(Option<i32>, Value)> {
    let mut told = None;
    eventually(BACK, || {
        told = Some(resume()?);
        Ok(())
    })?;
    told.context("resume has ended")
}

fn resumed() -> TestResult {
    let tier = TierDir::new()?;
    let job = written(&tier, 21 * MIB + 4097)?;
    for seed in 2..6 {
        let path = job.cached(&format!("s/f{seed}"));
        job.node(u16::from(seed) % 3)?.write_file(&path, pattern(seed, 9 * MIB + 5))?;
    }
    // With a hole, and bytes behind it.
    let sparse = job.node(2)?.open(&job.cached("s/sparse"), "rw+creat+trunc")?;
    sparse.pwrite(3 * MIB + 7, pattern(7, 100))?;
    kill_job(&job)?;
    drop(sparse);
    let cluster = job.cluster().context("a real job")?;
    let (code, told) = when_free(|| resume(cluster.job_dir()))?;
    ensure!(code == Some(0) && told["removed"] == true, "{told}");
    expect_tier(&tier, "s/open", &pattern(1, 21 * MIB + 4097))?;
    for seed in 2..6 {
        expect_tier(&tier, &format!("s/f{seed}"), &pattern(seed, 9 * MIB + 5))?;
    }
    let mut expected = vec![0; 3 * MIB as usize + 7];
    expected.extend(pattern(7, 100).at(3 * MIB + 7).map_err(anyhow::Error::msg)?);
    ensure!(tier.read("s/sparse")? == expected, "holes are zeros");
    ensure!(tier.files()?.len() == 6, "{:?}", tier.files());
    ensure!(!cluster.job_dir().exists(), "nothing is left of the job");
    job.down()
}

fn waits_for_all_nodes() -> TestResult {
    let tier = TierDir::new()?;
    let job = written(&tier, 5 * MIB + 1)?;
    kill_job(&job)?;
    let cluster = job.cluster().context("a real job")?;
    // Of each file the home is the node that made it: take away one that only has a part.
    let storage = cluster.node_storage(2)?;
    let aside = storage.with_extension("aside");
    std::fs::rename(&storage, &aside).context("take a node's storage away")?;
    let (code, told) = when_free(|| resume(cluster.job_dir()))?;
    ensure!(code == Some(3) && told["removed"] == false, "{told}");
    let failed = &told["failed"][0];
    let why = failed["why"].as_str().context("a reason")?;
    ensure!(failed["path"] == "s/open" && why.contains("the storage of node 2"), "{told}");
    ensure!(told["not_here"] == serde_json::json!([2]), "{told}");
    ensure!(tier.files()?.is_empty(), "{:?}", tier.files());
    std::fs::rename(&aside, &storage).context("bring a node's storage back")?;
    let (code, told) = resume(cluster.job_dir())?;
    ensure!(code == Some(0) && told["removed"] == true, "{told}");
    expect_tier(&tier, "s/open", &pattern(1, 5 * MIB + 1))?;
    job.down()
}

/// The machine is started anew, as `resume` sees it.
fn power_took() -> TestResult {
    let tier = TierDir::new()?;
    let job = written(&tier, 5 * MIB)?;
    let synced = job.node(1)?.open(&job.cached("s/synced"), "rw+creat+trunc")?;
    synced.pwrite(0, pattern(2, 3 * MIB))?;
    synced.fsync()?;
    kill_job(&job)?;
    drop(synced);
    let cluster = job.cluster().context("a real job")?;
    let boot = job.tree().path().join("boot-id");
    std::fs::write(&boot, "00000000-1111-2222-3333-444444444444\n")?;
    let script =
        "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && exec \"$2\" resume --json \"$3\"";
    let (code, told) = when_free(|| {
        let mut booted = Command::new("unshare");
        booted.args(["--mount", "sh", "-c", script, "sh"]).arg(&boot).arg(binary()?);
        told(&run(booted.arg(cluster.job_dir()), COMMAND)?)
    })?;
    ensure!(code == Some(3) && told["durable_files"] == 1 && told["removed"] == false, "{told}");
    let failed = &told["failed"][0];
    let why = failed["why"].as_str().context("a reason")?;
    ensure!(failed["path"] == "s/open" && why.contains("lost with the power of node"), "{told}");
    expect_tier(&tier, "s/synced", &pattern(2, 3 * MIB))?;
    ensure!(tier.files()? == ["s/synced"], "{:?}", tier.files());
    // Nor in a later life.
    let (code, told) = resume(cluster.job_dir())?;
    ensure!(code == Some(3) && told["failed"][0]["path"] == "s/open", "{told}");
    cluster.run("down", &["--discard"])?.success()?;
    job.down()
}

/// The home keeps what the tier did not take, and the other nodes keep their parts of it.
fn ended_by_a_signal() -> TestResult {
    let tier = TierDir::small(64 * MIB)?;
    let job = written(&tier, 5 * MIB + 1)?;
    tier.read_only(true)?;
    let cluster = job.cluster().context("a real job")?;
    let daemons = cluster.daemons();
    for pid in &daemons.supervisors {
        kill_process(Pid::from_raw(*pid as i32).context("a process number")?, Signal::TERM)?;
    }
    job.restart_actors();
    eventually(BACK, || {
        let alive = daemons.all().filter(|pid| is_alive(*pid)).count();
        ensure!(alive == 0, "{alive} daemons live");
        Ok(())
    })?;
    tier.read_only(false)?;
    let kept = cluster.node_storage(0)?;
    let kept = kept.parent().context("the storage of the job")?;
    let (code, told) = when_free(|| resume(kept))?;
    ensure!(code == Some(0) && told["durable_files"] == 1, "{told}");
    expect_tier(&tier, "s/open", &pattern(1, 5 * MIB + 1))?;
    job.down()
}
