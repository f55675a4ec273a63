//! The cache area when the ledger of a node is damaged: nothing is lost, and nothing is said to be well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{expect_tier, kill_job, pattern};
use hayase_e2e::job::{Cluster, binary};
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Job, JobOptions, Suite, TestResult, TierDir, eventually};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_ledger", JobOptions::three())
        .alone("cache_a_flipped_ledger_loses_nothing", both_copies)
        .alone("cache_a_flipped_copy_of_the_ledger_is_mended", one_copy)
        .alone("cache_a_ledger_that_is_gone_loses_nothing", no_copy)
}

const FILES: u8 = 5;
const COMMAND: Duration = Duration::from_secs(120);
const BACK: Duration = Duration::from_secs(60);

/// In the first record of a log: behind the header, the frame that ends what was copied, and the life of the machine.
const AT: usize = 1024 + 19 + 57 + 20;

fn name(index: u8) -> String {
    format!("deep/f{index}")
}

/// A job that was killed with files that are synced, and that the tier does not have.
fn killed(tier: &TierDir) -> anyhow::Result<Job> {
    let job = Job::up(tier.job(1))?;
    job.node(0)?.mkdir(&job.cached("deep"))?;
    tier.read_only(true)?;
    for index in 0..FILES {
        job.node(0)?.write_file(&job.cached(&name(index)), pattern(index, 1 << 20))?;
    }
    let synced = job.node(0)?.shell(&format!("sync {}/*", job.cached("deep")))?;
    ensure!(synced.code == Some(0), "{synced:?}");
    kill_job(&job)?;
    tier.read_only(false)?;
    ensure!(tier.files()?.is_empty(), "{:?}", tier.files());
    Ok(job)
}

/// The copies of the ledger of node 0.
fn ledger(cluster: &Cluster) -> anyhow::Result<Vec<PathBuf>> {
    let storage = cluster.node_storage(0)?;
    let places = [storage.join("ledger"), storage.join("shared/ledger")];
    let place = places.iter().find(|place| place.is_dir()).context("a ledger")?;
    let copies = std::fs::read_dir(place.join("00"))?.map(|entry| Ok(entry?.path()));
    let mut copies: Vec<_> = copies.collect::<std::io::Result<_>>()?;
    copies.sort();
    ensure!(copies.len() == 2, "{copies:?}");
    Ok(copies)
}

fn flip(file: &Path) -> TestResult {
    let mut bytes = std::fs::read(file)?;
    *bytes.get_mut(AT).context("it is too short")? ^= 4;
    Ok(std::fs::write(file, bytes)?)
}

fn resume(arguments: &[&str], place: &Path) -> anyhow::Result<Finished> {
    let mut resume = std::process::Command::new(binary()?);
    run(resume.arg("resume").args(arguments).arg(place), COMMAND)
}

fn all_are_in(tier: &TierDir) -> TestResult {
    ensure!(tier.files()?.len() == usize::from(FILES), "{:?}", tier.files());
    (0..FILES).try_for_each(|index| expect_tier(tier, &name(index), &pattern(index, 1 << 20)))
}

/// `resume` refuses and names the place, nobody removes the storage, and `--salvage` brings everything.
fn both_copies() -> TestResult {
    let tier = TierDir::small(64 << 20)?;
    let job = killed(&tier)?;
    let cluster = job.cluster().context("a real job")?;
    let copies = ledger(cluster)?;
    copies.iter().try_for_each(|copy| flip(copy))?;
    eventually(BACK, || {
        let refused = resume(&[], cluster.job_dir())?;
        let file = copies[0].file_name().context("a name")?.to_string_lossy().into_owned();
        let says = |text: &str| refused.stderr.contains(text);
        ensure!(refused.code == Some(1), "{refused:?}");
        ensure!(says(&file) && says("is damaged at byte ") && says("--salvage"), "{refused:?}");
        Ok(())
    })?;
    // Another `up` of this user, and `down` of the job, leave the bytes alone.
    Job::up(JobOptions::nodes(1))?.down()?;
    let down = cluster.run("down", &[])?;
    ensure!(down.code == Some(1) && down.stdout.contains("is damaged at byte "), "{down:?}");
    ensure!(ledger(cluster)? == copies && tier.files()?.is_empty(), "something was done");
    let salvaged = resume(&["--salvage"], cluster.job_dir())?.success()?;
    ensure!(salvaged.stdout.contains("in the tier now: 5 files"), "{salvaged:?}");
    all_are_in(&tier)?;
    ensure!(ledger(cluster)? == copies, "the storage is kept");
    let again = resume(&["--salvage", "--discard"], cluster.job_dir())?.success()?;
    ensure!(again.stdout.contains("the tier had it: deep/f0"), "{again:?}");
    all_are_in(&tier)?;
    ensure!(!cluster.job_dir().exists(), "nothing is left of the job");
    job.down()
}

fn one_copy() -> TestResult {
    for copy in [0, 1] {
        let tier = TierDir::small(64 << 20)?;
        let job = killed(&tier)?;
        let cluster = job.cluster().context("a real job")?;
        flip(&ledger(cluster)?[copy])?;
        eventually(BACK, || resume(&[], cluster.job_dir())?.success().map(drop))?;
        all_are_in(&tier)?;
        ensure!(!cluster.job_dir().exists(), "nothing is left of the job");
        job.down()?;
    }
    Ok(())
}

/// What there is proves that there was one; the names of the job still say what the files are called.
fn no_copy() -> TestResult {
    let tier = TierDir::small(64 << 20)?;
    let job = killed(&tier)?;
    let cluster = job.cluster().context("a real job")?;
    ledger(cluster)?.iter().try_for_each(std::fs::remove_file)?;
    eventually(BACK, || {
        let refused = resume(&[], cluster.job_dir())?;
        ensure!(refused.code == Some(1) && refused.stderr.contains("does not list"), "{refused:?}");
        Ok(())
    })?;
    Job::up(JobOptions::nodes(1))?.down()?;
    resume(&["--salvage"], cluster.job_dir())?.success()?;
    all_are_in(&tier)?;
    resume(&["--salvage", "--discard"], cluster.job_dir())?.success()?;
    job.down()
}
