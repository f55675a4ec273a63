//! The cache area when the tier fails, servers die in the middle of a flush, or the whole job does:
//! nothing that was acknowledged is lost unnoticed, and what is missing is told and can be resumed.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{
    expect_file, expect_tier, flush, in_front_of, kill, kill_job, kill_server, pattern, server_of,
};
use hayase_e2e::job::binary;
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Data, Job, JobOptions, Suite, TestResult, TierDir, eventually, note};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_faults", JobOptions::three())
        .alone("cache_full_tier_down_lists_and_resume_completes", full_tier)
        .alone("cache_read_only_tier_is_tried_again", read_only_tier)
        .alone("cache_server_killed_in_the_middle_of_flushes", server_killed)
        .alone("cache_whole_job_killed_then_resumed", job_killed)
        .alone("cache_down_waits_until_the_tier_has_everything", down_drains)
        .alone("cache_full_of_copies_gives_room_back", room_comes_back)
        .alone("cache_a_write_finds_room_that_copies_take", room_for_a_write)
        .alone("cache_tier_hangs_and_nothing_else_does", || {
            in_front_of(&TierDir::hanging(256 << 20)?, tier_hangs)
        })
        .alone("cache_server_killed_while_the_tier_hangs", || {
            in_front_of(&TierDir::hanging(256 << 20)?, killed_while_it_hangs)
        })
        .alone("cache_many_files", || in_front_of(&TierDir::new()?, many_files))
}

const COMMAND: Duration = Duration::from_secs(120);
const BACK: Duration = Duration::from_secs(60);

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
        note(&format!("killed when the tier had {} files", tier.files()?.len()));
        kill_server(&job, 0)?;
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
        // What the kill cut off the next start removes.
        eventually(BACK, || {
            let shown = tier.files()?;
            ensure!(!shown.iter().any(|name| name.contains(".hayase-partial-")), "{shown:?}");
            Ok(())
        })?;
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
    kill_job(&job)?;
    drop(open);
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

/// The tier takes nothing any more, all threads that write to it wait: programs notice nothing as long as
/// they do not need it, and when it is back everything comes there.
fn tier_hangs(job: &Job, tier: &TierDir) -> TestResult {
    const FILES: u8 = 12;
    job.node(0)?.write_file(&job.cached("removed"), pattern(100, 5000))?;
    job.node(1)?.write_file(&job.cached("kept"), pattern(101, 5000))?;
    flush(job)?;
    tier.hang(true)?;
    for index in 0..FILES {
        let node = job.node(u16::from(index % 2))?;
        node.write_file(&job.cached(&format!("f{index}")), pattern(index, 3 << 20))?;
    }
    eventually(BACK, || {
        let status = told(&job.cluster().context("a real job")?.run("status", &["--json"])?)?;
        let cache = &status["jobs"][0]["nodes"][0]["server"]["cache"];
        let lines = cache["lines"].as_array().context("lines")?;
        ensure!(lines.iter().any(|line| line["state"] == "flushing"), "{cache}");
        Ok(())
    })?;
    for node in [0, 1] {
        let node = job.node(node)?;
        for area in [job.shared(), job.local()] {
            let path = |name: &str| format!("{area}/{name}-{}", node.index());
            node.write_file(&path("a"), pattern(7, 1 << 20))?;
            node.rename(&path("a"), &path("b"))?;
            expect_file(&node, &path("b"), &pattern(7, 1 << 20))?;
            node.unlink(&path("b"))?;
        }
        for index in 0..FILES {
            expect_file(&node, &job.cached(&format!("f{index}")), &pattern(index, 3 << 20))?;
        }
        expect_file(&node, &job.cached("kept"), &pattern(101, 5000))?;
    }
    job.node(1)?.unlink(&job.cached("removed"))?;
    job.node(0)?.unlink(&job.cached("f0"))?;
    job.node(0)?.rename(&job.cached("f1"), &job.cached("renamed"))?;
    job.node(1)?.write_file(&job.cached("f2"), pattern(50, 1 << 20))?;
    tier.hang(false)?;
    flush(job)?;
    expect_tier(tier, "renamed", &pattern(1, 3 << 20))?;
    expect_tier(tier, "f2", &pattern(50, 1 << 20))?;
    for index in 3..FILES {
        expect_tier(tier, &format!("f{index}"), &pattern(index, 3 << 20))?;
    }
    let shown = tier.files()?;
    ensure!(shown.len() == usize::from(FILES), "{shown:?}");
    Ok(())
}

/// Its threads hang in the tier: it is gone only when the tier is back. What one of them was about to
/// put there then is older than what the job has by now.
fn killed_while_it_hangs(job: &Job, tier: &TierDir) -> TestResult {
    for (index, node) in [(0, 0), (1, 1)] {
        let path = job.cached(&format!("f{index}"));
        job.node(node)?.write_file(&path, pattern(index, 2 << 20))?;
    }
    flush(job)?;
    tier.hang(true)?;
    for (index, node) in [(0, 0), (1, 1)] {
        let path = job.cached(&format!("f{index}"));
        job.node(node)?.write_file(&path, pattern(10 + index, 2 << 20))?;
    }
    std::thread::sleep(Duration::from_millis(500));
    let killed = server_of(job, 0)?;
    kill(killed)?;
    std::thread::sleep(Duration::from_millis(300));
    tier.hang(false)?;
    eventually(BACK, || {
        ensure!(server_of(job, 0)? != killed, "not back yet");
        Ok(())
    })?;
    eventually(BACK, || flush(job))?;
    for index in 0..2u8 {
        let name = format!("f{index}");
        expect_tier(tier, &name, &pattern(10 + index, 2 << 20))?;
        expect_file(&job.node(0)?, &job.cached(&name), &pattern(10 + index, 2 << 20))?;
    }
    Ok(())
}

/// Files of [`many_files`]: as many as the environment says (`HAYASE_CACHE_FILES`), in whole directories of
/// both nodes; fewer than a real job has where it says nothing.
fn files_wanted() -> usize {
    let said = std::env::var("HAYASE_CACHE_FILES").ok().and_then(|said| said.parse().ok());
    said.unwrap_or(FILES).next_multiple_of(2 * FILES_OF_DIRECTORY)
}

const FILES: usize = 1000;

/// Made by one call each, which has its bound.
const FILES_OF_DIRECTORY: usize = 500;

/// One file at least comes to the tier, or goes from it, in this time.
const FILE: Duration = Duration::from_millis(20);

/// Waits until the tier has everything, for as long as so many files may take.
fn drain(job: &Job, files: usize) -> TestResult {
    let cluster = job.cluster().context("a real job")?;
    eventually(COMMAND.max(FILE * files as u32), || {
        let status = told(&cluster.run("status", &["--json"])?)?;
        let dirty =
            |node: usize| &status["jobs"][0]["nodes"][node]["server"]["cache"]["dirty_files"];
        ensure!((0..2).all(|node| *dirty(node) == 0), "{} and {} left", dirty(0), dirty(1));
        Ok(())
    })?;
    flush(job)
}

/// The note says how many.
fn many_files(job: &Job, tier: &TierDir) -> TestResult {
    let (files, begin) = (files_wanted(), std::time::Instant::now());
    let directories = files / 2 / FILES_OF_DIRECTORY;
    let made = |node: u16, directory: usize| -> TestResult {
        let script = format!(
            "mkdir -p {0} && cd {0} && i=0 && while [ $i -lt {FILES_OF_DIRECTORY} ]; do \
             echo file-$i-of-{node}-{directory} > f$i; i=$((i + 1)); done",
            job.cached(&format!("n{node}/d{directory}")),
        );
        let made = job.node(node)?.shell(&script)?;
        ensure!(made.code == Some(0), "{made:?}");
        Ok(())
    };
    for (node, directory) in (0..2).flat_map(|node| (0..directories).map(move |dir| (node, dir))) {
        made(node, directory)?;
    }
    let written = begin.elapsed();
    drain(job, files)?;
    note(&format!(
        "{files} files: written in {written:.1?}, in the tier after {:.1?}",
        begin.elapsed()
    ));
    let names: Vec<String> = tier.files()?;
    ensure!(names.len() == files, "{} files in the tier", names.len());
    for (node, directory) in (0..2).flat_map(|node| (0..directories).map(move |dir| (node, dir))) {
        for index in 0..FILES_OF_DIRECTORY {
            let name = format!("n{node}/d{directory}/f{index}");
            let expected = format!("file-{index}-of-{node}-{directory}\n");
            ensure!(tier.read(&name)? == expected.as_bytes(), "{name}");
        }
    }
    // And gone again: most of them while others are still being removed.
    for (node, directory) in (0..2).flat_map(|node| (0..directories).map(move |dir| (node, dir))) {
        let directory = job.cached(&format!("n{node}/d{directory}"));
        let removed = job.node(1)?.shell(&format!("rm -r {directory}"))?;
        ensure!(removed.code == Some(0), "{removed:?}");
    }
    drain(job, files)?;
    eventually(COMMAND.max(FILE * files as u32), || {
        ensure!(tier.files()?.is_empty(), "{} files left", tier.files()?.len());
        Ok(())
    })?;
    note(&format!("gone again after {:.1?}", begin.elapsed()));
    Ok(())
}

/// A file that is open already is written from the other node, where copies of what the tier has fill
/// the area: they go before anybody sees ENOSPC.
fn room_for_a_write() -> TestResult {
    let tier = TierDir::new()?;
    let mut options = tier.job(2);
    options.shared = "64MiB".into();
    let job = Job::up(options)?;
    let (here, there) = (job.node(0)?, job.node(1)?);
    let grows = pattern(9, 40 << 20);
    here.write_file(&job.cached("grows"), Data::bytes(b"x"))?;
    let file = there.open(&job.cached("grows"), "rw")?;
    for index in 0..4u8 {
        here.write_file(&job.cached(&format!("copy{index}")), pattern(index, 10 << 20))?;
    }
    eventually(BACK, || {
        ensure!(tier.files()?.len() >= 4, "not in the tier yet");
        Ok(())
    })?;
    file.pwrite(0, grows.clone())?;
    file.close()?;
    flush(&job)?;
    expect_tier(&tier, "grows", &grows)?;
    for index in 0..4u8 {
        expect_file(&there, &job.cached(&format!("copy{index}")), &pattern(index, 10 << 20))?;
    }
    job.down()
}
