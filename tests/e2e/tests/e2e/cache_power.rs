//! The cache area after the machine was started again: what was synced comes to the tier, and nothing else.
//!
//! No power is cut here: `hayase resume` sees another boot id, and every byte is still there.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{expect_tier, kill_job, pattern};
use hayase_e2e::job::{Cluster, binary};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Job, JobOptions, Suite, TestResult, TierDir, eventually};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_power", JobOptions::three())
        .alone("cache_what_was_not_synced_stays_when_the_power_fails", unsynced_stays)
        .alone("cache_what_down_kept_outlives_the_power", kept_outlives)
}

const MIB: u64 = 1 << 20;
const COMMAND: Duration = Duration::from_secs(120);
const BACK: Duration = Duration::from_secs(60);
const BOOT: &str = "00000000-0000-4000-8000-000000000001\n";

/// `hayase resume` as after a restart of the machine: in a mount namespace that shows another boot id.
fn resume_later(cluster: &Cluster, place: &Path) -> anyhow::Result<Finished> {
    let boot = cluster.job_dir().with_extension("boot");
    std::fs::write(&boot, BOOT)?;
    let script =
        "mount --bind \"$1\" /proc/sys/kernel/random/boot_id && exec \"$2\" resume --json \"$3\"";
    let mut resume = std::process::Command::new("unshare");
    resume.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    let resumed = run(resume.arg(&boot).arg(binary()?).arg(place), COMMAND);
    std::fs::remove_file(&boot)?;
    resumed
}

/// Files that are written over a version of the tier: one is synced, one is not, and one is written after its sync. They stay
/// open, so that none is flushed before the job is killed.
fn unsynced_stays() -> TestResult {
    let tier = TierDir::new()?;
    let names = ["synced", "unsynced", "written"];
    for name in names {
        tier.write(name, &pattern(1, MIB).at(0).map_err(anyhow::Error::msg)?)?;
    }
    let job = Job::up(tier.job(1))?;
    let node = job.node(0)?;
    for name in names {
        let file = node.open(&job.cached(name), "rw")?;
        file.pwrite(0, pattern(2, MIB))?;
        if name != "unsynced" {
            file.fsync()?;
        }
        if name == "written" {
            file.pwrite(0, pattern(3, 4096))?;
        }
        std::mem::forget(file);
    }
    kill_job(&job)?;
    let cluster = job.cluster().context("a real job")?;
    let mut told = None;
    eventually(BACK, || {
        let resumed = resume_later(cluster, cluster.job_dir())?;
        ensure!(resumed.code == Some(3), "{resumed:?}");
        told = Some(resumed);
        Ok(())
    })?;
    let told = told.context("resume has ended")?;
    let says = |text: &str| told.stdout.contains(text);
    ensure!(says("\"unsynced\"") && says("\"written\"") && says("--salvage"), "{told:?}");
    expect_tier(&tier, "synced", &pattern(2, MIB))?;
    for name in ["unsynced", "written"] {
        expect_tier(&tier, name, &pattern(1, MIB))
            .with_context(|| format!("{name} is replaced"))?;
    }
    // What is there can be had, and replaces nothing.
    let mut salvage = std::process::Command::new(binary()?);
    salvage.args(["resume", "--salvage", "--discard"]).arg(cluster.job_dir());
    run(&mut salvage, COMMAND)?.success()?;
    expect_tier(&tier, "unsynced", &pattern(1, MIB))?;
    let files = tier.files()?;
    ensure!(files.iter().any(|file| file.starts_with("unsynced.hayase-conflict")), "{files:?}");
    job.down()
}

/// `hayase down` makes durable what it keeps.
fn kept_outlives() -> TestResult {
    let tier = TierDir::small(64 << 20)?;
    let job = Job::up(tier.job(1))?;
    tier.read_only(true)?;
    job.node(0)?.write_file(&job.cached("f"), pattern(1, MIB))?;
    let cluster = job.cluster().context("a real job")?;
    let storage = cluster.node_storage(0)?.parent().context("of the job")?.to_owned();
    let down = cluster.run("down", &["--drain", "1"])?;
    ensure!(down.code == Some(3), "{down:?}");
    tier.read_only(false)?;
    let resumed = resume_later(cluster, &storage)?;
    ensure!(resumed.code == Some(0), "{resumed:?}");
    expect_tier(&tier, "f", &pattern(1, MIB))?;
    job.down()
}
