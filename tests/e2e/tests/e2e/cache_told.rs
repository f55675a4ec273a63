//! What is told of the cache area: bars, counters, pages, checksums, and files that stay open when their
//! time comes.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::cached::{flush, in_front_of, pattern};
use hayase_e2e::job::binary;
use hayase_e2e::process::{Finished, run};
use hayase_e2e::{Data, Job, JobOptions, Suite, TestResult, TierDir, eventually};

pub(crate) fn suite() -> Suite {
    Suite::new("cache_told", JobOptions::three())
        .alone("cache_what_is_missing_is_told_everywhere", missing_is_told)
        .alone("cache_counters_are_told_at_a_port", counters_at_a_port)
        .alone("cache_flush_verify_reads_the_tier_back", || in_front_of(&TierDir::new()?, verified))
        .alone("cache_a_file_that_stays_open_is_flushed_as_it_stands", stays_open)
        .alone("cache_open_files_go_at_the_deadline", deadline)
}

const BACK: Duration = Duration::from_secs(60);

fn hayase(arguments: &[&str]) -> anyhow::Result<Finished> {
    run(std::process::Command::new(binary()?).args(arguments), Duration::from_secs(120))
}

fn with(tier: &TierDir, more: &[&str]) -> JobOptions {
    let mut options = tier.job(2);
    options.extra.extend(more.iter().map(|&word| word.into()));
    options
}

/// A tier that is too small: the same file is missing in the words of `status`, the lines of `top`, the
/// counters and the page; the page is also written at the end.
fn missing_is_told() -> TestResult {
    let tier = TierDir::small(8 << 20)?;
    let job = Job::up(tier.job(2))?;
    let cluster = job.cluster().context("a real job")?;
    job.node(0)?.write_file(&job.cached("fits"), pattern(1, 1 << 20))?;
    job.node(1)?.write_file(&job.cached("too <large>"), pattern(2, 12 << 20))?;
    eventually(BACK, || {
        let status = cluster.run("status", &["--ledger"])?.success()?.stdout;
        ensure!(status.contains("failed") && status.contains("too <large>"), "{status}");
        ensure!(status.contains("12 MiB in 1 file left") && status.contains(" %: "), "{status}");
        Ok(())
    })?;
    let top = cluster.run("top", &["--interval", "1", "--count", "2"])?.success()?.stdout;
    ensure!(top.lines().count() == 2, "{top}");
    ensure!(top.lines().all(|line| line.contains("12 MiB in 1 file left")), "{top}");
    let counted = cluster.run("status", &["--prometheus"])?.success()?.stdout;
    let value = |name: &str, node: u16| {
        let node = format!("node=\"{node}\"");
        let of = |line: &&str| line.starts_with(name) && line.contains(&node);
        let line = counted.lines().find(of)?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    ensure!(value("hayase_cache_failed_files{", 1) == Some(1), "{counted}");
    ensure!(value("hayase_cache_dirty_bytes{", 1) == Some(12 << 20), "{counted}");
    ensure!(value("hayase_cache_flushed_bytes_total{", 0) >= Some(1 << 20), "{counted}");
    ensure!(value("hayase_up{", 0) == Some(1), "{counted}");
    let page = tier.path().with_extension("html");
    let path = page.display().to_string();
    let told = cluster.run("report", &["--output", &path])?.success()?.stdout;
    ensure!(told.contains("not in the tier: 1 file, 12 MiB"), "{told}");
    check_page(&page)?;
    job.restart_actors();
    let down = cluster.run("down", &["--drain", "0", "--report", &path])?;
    ensure!(down.code == Some(3), "{down:?}");
    check_page(&page)?;
    let kept = down.stdout.lines().find_map(|line| line.strip_prefix("hayase resume "));
    let kept = kept.context("where it is kept")?.to_owned();
    let list = std::fs::read_to_string(format!("{kept}/not-in-tier-1.json"))?;
    ensure!(list.contains("too <large>") && list.contains("12582912"), "{list}");
    enlarge(&tier)?;
    hayase(&["resume", &kept])?.success()?;
    job.down()
}

fn enlarge(tier: &TierDir) -> anyhow::Result<()> {
    let mut mount = std::process::Command::new("mount");
    let grown = mount.args(["-o", "remount,size=96m"]).arg(tier.path()).status()?;
    ensure!(grown.success(), "make the tier larger");
    Ok(())
}

fn check_page(page: &std::path::Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(page)?;
    std::fs::remove_file(page)?;
    for word in ["too &lt;large&gt;", "No space left on device", "<svg", "passthrough", "12 MiB"] {
        ensure!(text.contains(word), "{word} is not in the page: {text}");
    }
    ensure!(!text.contains("too <large>"), "a name changed the page");
    Ok(())
}

/// Nothing listens unless it was asked for.
fn counters_at_a_port() -> TestResult {
    let tier = TierDir::new()?;
    let ask = "exec 3<>/dev/tcp/127.0.0.1/9464 && \
               printf 'GET /metrics HTTP/1.1\\r\\n\\r\\n' >&3 && cat <&3";
    let ask = ["bash", "-c", ask].map(std::path::Path::new);
    for is_asked in [true, false] {
        let more: &[&str] = if is_asked { &["--metrics", "9464"] } else { &[] };
        let job = Job::up(with(&tier, more))?;
        job.node(1)?.write_file(&job.cached("f"), pattern(1, 1 << 20))?;
        flush(&job)?;
        let cluster = job.cluster().context("a real job")?;
        let told = run(&mut cluster.exec(1, &ask), BACK)?;
        if is_asked {
            ensure!(told.stdout.starts_with("HTTP/1.1 200 OK"), "{told:?}");
            let counted = "hayase_cache_flushed_files_total{job=";
            let line = told.stdout.lines().find(|line| line.starts_with(counted));
            ensure!(
                line.is_some_and(|line| line.contains("node=\"1\"") && line.ends_with(" 1")),
                "{told:?}"
            );
        } else {
            ensure!(told.code != Some(0) && !told.stdout.contains("hayase"), "{told:?}");
        }
        job.down()?;
    }
    Ok(())
}

fn verified(job: &Job, tier: &TierDir) -> TestResult {
    let cluster = job.cluster().context("a real job")?;
    job.node(0)?.mkdir(&job.cached("d"))?;
    for index in 0..4_u8 {
        let path = job.cached(&format!("d/f{index}"));
        job.node(u16::from(index % 2))?.write_file(&path, pattern(index, 9 << 20))?;
    }
    tier.write("theirs", b"of somebody else")?;
    job.node(0)?.read_file(&job.cached("theirs"))?;
    let told = cluster.run("flush", &["--verify"])?.success()?.stdout;
    ensure!(told.contains("verified: 4 files, 36 MiB,"), "{told}");
    // A copy that was given back is as it was sent too.
    let (program, copy) = (binary()?, job.cached("d/f0"));
    let evict = [program.as_path(), "evict".as_ref(), copy.as_ref()];
    run(&mut cluster.exec(0, &evict), BACK)?.success()?;
    let told = cluster.run_on(0, "flush", &["--verify", &job.cached("d/f0")])?.success()?.stdout;
    ensure!(told.contains("verified: 1 file, 9 MiB,"), "{told}");
    // So is what has another name or other rights since.
    job.node(1)?.rename(&job.cached("d/f1"), &job.cached("d/renamed"))?;
    job.node(1)?.chmod(&job.cached("d/f3"), 0o640)?;
    job.node(0)?.chmod(&job.cached("d/f0"), 0o600)?;
    let told = cluster.run("flush", &["--verify"])?.success()?.stdout;
    ensure!(told.contains("verified: 4 files, 36 MiB,"), "{told}");
    ensure!(!told.contains("not compared"), "{told}");
    let mut bytes = tier.read("d/f3")?;
    bytes[5 << 20] ^= 1;
    tier.write("d/f3", &bytes)?;
    std::fs::remove_file(tier.file("d/f2"))?;
    let told = cluster.run("flush", &["--verify"])?;
    ensure!(told.code == Some(3) && told.stdout.contains("verified: 2 files"), "{told:?}");
    ensure!(told.stdout.contains("d/f3: somebody has changed it"), "{told:?}");
    ensure!(told.stdout.contains("d/f2: it is not there any more"), "{told:?}");
    Ok(())
}

/// A program goes on writing, and what it had written is in the tier: always a beginning of the file.
fn stays_open() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(with(&tier, &["--flush-open", "1"]))?;
    let cluster = job.cluster().context("a real job")?;
    // Ends when it is told to; by itself only if nobody is left to tell it.
    let (log, stop) = (job.cached("log"), format!("{}/stop", job.shared()));
    let script = format!(
        "exec > {log}; i=0; while [ ! -e {stop} ] && [ $i -lt 60000 ]; do \
         echo line $i; i=$((i + 1)); sleep 0.01; done; echo end"
    );
    let arguments = ["sh", "-c", &script].map(std::path::Path::new);
    let mut writer = cluster.exec(0, &arguments).spawn().context("start a writer")?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        eventually(BACK, || {
            let now = tier.read("log")?.len();
            ensure!(now > seen.len(), "the tier has {now} bytes");
            Ok(())
        })?;
        seen = tier.read("log")?;
    }
    ensure!(!seen.ends_with(b"end\n"), "the writer was done before the tier had two versions");
    job.node(0)?.write_file(&stop, Data::bytes(b""))?;
    ensure!(writer.wait()?.success(), "the writer failed");
    flush(&job)?;
    let whole = tier.read("log")?;
    ensure!(whole.starts_with(&seen) && whole.ends_with(b"\nend\n"), "{} bytes", whole.len());
    job.down()
}

/// In the last seconds what is open goes too, is told as open, and is no second version afterwards.
fn deadline() -> TestResult {
    let tier = TierDir::new()?;
    let job = Job::up(with(&tier, &["--deadline", "6s", "--flush-open", "0"]))?;
    let cluster = job.cluster().context("a real job")?;
    let open = job.node(1)?.open(&job.cached("log"), "rw+creat+trunc")?;
    open.pwrite(0, Data::bytes(b"so far"))?;
    eventually(BACK, || {
        ensure!(tier.read("log")? == b"so far");
        Ok(())
    })?;
    let status = cluster.run("status", &["--ledger"])?.success()?.stdout;
    let is_listed = |line: &str| line.trim_start().starts_with("open ") && line.ends_with(" log");
    ensure!(status.lines().any(is_listed), "{status}");
    open.pwrite(6, Data::bytes(b", and on"))?;
    open.close()?;
    flush(&job)?;
    ensure!(tier.read("log")? == b"so far, and on");
    ensure!(tier.files()? == ["log"], "{:?}", tier.files());
    job.down()
}
