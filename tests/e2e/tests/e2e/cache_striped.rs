//! Striped files in the cache area: one file on several nodes, one object in the tier.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{bytes_of, expect_file, expect_tier, flush, kill_server, pattern};
use hayase_e2e::job::binary;
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Data, Job, JobOptions, Suite, TestResult, TierDir, eventually};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_striped", JobOptions::three())
        .alone("cache_striped_files_come_to_the_tier_as_one", come_to_the_tier)
        .alone("cache_striped_file_is_larger_than_a_node", larger_than_a_node)
        .alone("cache_striped_tier_file_larger_than_a_node_is_changed_in_part", changed_in_part)
        .alone("cache_striped_servers_killed_in_the_middle_of_flushes", servers_killed)
        .alone("cache_striped_two_versions_are_both_kept", two_versions)
}

const BACK: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// New files below `s` lie on all nodes.
fn striped(job: &Job) -> TestResult {
    job.node(0)?.mkdir(&job.cached("s"))?;
    job.stripe(&job.cached("s"), "64KiB", 0)
}

fn evict(job: &Job, path: &str) -> anyhow::Result<Finished> {
    let mut process = job.cluster().context("a real job")?.exec(0, &[&binary()?]);
    run(process.arg("evict").arg(path), BACK)
}

fn come_to_the_tier() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3))?;
    striped(&job)?;
    let (path, bytes) = (job.cached("s/f"), pattern(1, 21 * MIB + 4097));
    job.node(0)?.write_file(&path, bytes.clone())?;
    let mut explain = job.cluster().context("a real job")?.exec(1, &[&binary()?]);
    let told = run(explain.arg("explain").arg(&path), BACK)?;
    ensure!(told.stdout.contains("striped"), "{told:?}");
    flush(&job)?;
    expect_tier(&tier, "s/f", &bytes)?;
    ensure!(tier.files()? == ["s/f"], "{:?}", tier.files());
    // Changed in part by another node, cut, and written on.
    let file = job.node(2)?.open(&path, "rw")?;
    file.pwrite(MIB - 7, Data::bytes(b"across two stripes"))?;
    file.truncate(9 * MIB + 5)?;
    file.close()?;
    flush(&job)?;
    let mut expected = hayase_e2e::cached::bytes_of(&bytes)?;
    expected.truncate(9 * MIB as usize + 5);
    expected[MIB as usize - 7..][..18].copy_from_slice(b"across two stripes");
    ensure!(tier.read("s/f")? == expected, "changed in part");
    let verified = job.cluster().context("a real job")?.run("flush", &["--verify"])?;
    ensure!(verified.code == Some(0), "{verified:?}");
    // Its room comes back, and it is fetched again.
    evict(&job, &path)?.success()?;
    for node in [0, 1, 2] {
        expect_file(&job.node(node)?, &path, &Data::bytes(&expected))?;
    }
    // Renamed over, and removed.
    let other = pattern(2, 3 * MIB);
    job.node(1)?.write_file(&job.cached("s/new"), other.clone())?;
    job.node(1)?.rename(&job.cached("s/new"), &path)?;
    flush(&job)?;
    expect_tier(&tier, "s/f", &other)?;
    job.node(2)?.unlink(&path)?;
    flush(&job)?;
    eventually(BACK, || {
        ensure!(tier.files()?.is_empty(), "{:?}", tier.files());
        Ok(())
    })?;
    job.down()
}

fn larger_than_a_node() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3).shared("300MiB"))?;
    striped(&job)?;
    let (path, bytes) = (job.cached("s/large"), pattern(3, 400 * MIB));
    job.node(0)?.write_file(&path, bytes.clone())?;
    flush(&job)?;
    expect_tier(&tier, "s/large", &bytes)?;
    expect_file(&job.node(1)?, &path, &bytes)?;
    // Given back, it has no room on any one node: it is read from the tier.
    evict(&job, &path)?.success()?;
    expect_file(&job.node(2)?, &path, &bytes)?;
    job.down()
}

/// A file of the tier, larger than what any node stores: who changes it finds it on all nodes.
fn changed_in_part() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3).shared("300MiB"))?;
    let bytes = pattern(6, 400 * MIB + 11);
    tier.write("large", &bytes_of(&bytes)?)?;
    let path = job.cached("large");
    // Its readers come and go: those that read it now are not those that have it open when it is changed.
    let read = job.node(1)?.open(&path, "r")?;
    read.check(0, bytes.clone())?;
    read.close()?;
    let file = job.node(2)?.open(&path, "rw")?;
    file.pwrite(200 * MIB - 5, Data::bytes(b"changed in part"))?;
    file.close()?;
    let mut explain = job.cluster().context("a real job")?.exec(1, &[&binary()?]);
    let told = run(explain.arg("explain").arg(&path), BACK)?;
    ensure!(told.stdout.contains("striped"), "{told:?}");
    let mut expected = bytes_of(&bytes)?;
    expected[200 * MIB as usize - 5..][..15].copy_from_slice(b"changed in part");
    let read = job.node(0)?.open(&path, "r")?;
    let (before, after) = (200 * MIB - 5, 200 * MIB + 10);
    read.check(0, pattern(6, before))?;
    read.check(before, Data::bytes(b"changed in part"))?;
    read.check(after, pattern(6, bytes.len() - after))?;
    read.close()?;
    flush(&job)?;
    ensure!(tier.read("large")? == expected, "changed in the tier");
    // In a striped directory also small ones, and those whose room was given back.
    striped(&job)?;
    tier.write("s/small", &bytes_of(&pattern(7, 300_000))?)?;
    for text in [b"first", b"again"] {
        let file = job.node(1)?.open(&job.cached("s/small"), "rw")?;
        file.pwrite(100_000, Data::bytes(text))?;
        file.close()?;
        flush(&job)?;
        ensure!(tier.read("s/small")?[100_000..100_005] == *text, "changed in the tier");
        let mut explain = job.cluster().context("a real job")?.exec(0, &[&binary()?]);
        let told = run(explain.arg("explain").arg(job.cached("s/small")), BACK)?;
        ensure!(told.stdout.contains("striped"), "{told:?}");
        evict(&job, &job.cached("s/small"))?.success()?;
    }
    job.down()
}

fn servers_killed() -> TestResult {
    const FILES: u8 = 4;
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3))?;
    striped(&job)?;
    let name = |index: u8| format!("s/f{index}");
    for (round, server) in [0, 1, 2].into_iter().enumerate() {
        let seed = |index: u8| index + FILES * round as u8;
        for index in 0..FILES {
            job.node(0)?.write_file(&job.cached(&name(index)), pattern(seed(index), 9 * MIB))?;
        }
        kill_server(&job, server)?;
        eventually(BACK, || {
            let flushed = job.cluster().context("a real job")?.run("flush", &[])?;
            flushed.success().map(drop)
        })?;
        for index in 0..FILES {
            let bytes = pattern(seed(index), 9 * MIB);
            expect_tier(&tier, &name(index), &bytes)?;
            expect_file(&job.node(1)?, &job.cached(&name(index)), &bytes)?;
        }
        let shown = tier.files()?;
        ensure!(!shown.iter().any(|name| name.contains("conflict")), "{shown:?}");
    }
    job.down()
}

fn two_versions() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(tier.job(3))?;
    striped(&job)?;
    let (path, first, ours) = (job.cached("s/f"), pattern(4, 2 * MIB), pattern(5, 5 * MIB));
    job.node(0)?.write_file(&path, first)?;
    flush(&job)?;
    let file = job.node(1)?.open(&path, "rw+trunc")?;
    tier.write("s/f", b"theirs")?;
    file.pwrite(0, ours.clone())?;
    file.close()?;
    flush(&job)?;
    ensure!(tier.read("s/f")? == b"theirs");
    let shown = tier.files()?;
    let beside = shown.iter().find(|name| name.contains(".hayase-conflict-")).context("none")?;
    expect_tier(&tier, beside, &ours)?;
    job.down()
}
