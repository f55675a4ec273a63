//! What the daemons of a job cost: nothing when idle, bounded memory under load.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::Answer;
use hayase_e2e::process::run;
use hayase_e2e::{Command, Data, Job, JobOptions, Scene, Suite, TestResult, Trial, note};

fn main() -> ExitCode {
    Suite::new("daemons", JobOptions::three())
        .job("daemons_are_all_there", all_there)
        .job("daemons_idle_cost_nothing", idle_cost_nothing)
        .job("daemons_memory_is_bounded", memory_is_bounded)
        .alone("daemons_stay_on_system_cores", stay_on_system_cores)
        .alone("daemons_system_cores_that_are_not_there", no_such_cores)
        .run()
}

/// A server and a mount for each node, kept by a supervisor.
fn all_there(scene: &Scene<'_>) -> TestResult {
    let daemons = scene.job.cluster().context("a real job")?.daemons();
    for (what, found) in [
        ("serve", &daemons.servers),
        ("serve-mount", &daemons.mounts),
        ("node", &daemons.supervisors),
    ] {
        ensure!(found.len() == 3, "{} processes of hayase {what}", found.len());
    }
    Ok(())
}

/// Ten seconds without requests: no processor time beyond a clock tick, few wake-ups.
fn idle_cost_nothing(scene: &Scene<'_>) -> TestResult {
    const SECONDS: u64 = 10;
    /// Of a build without optimization, beside other tests.
    const MILLISECONDS_MAX: u64 = 10;
    /// Two heartbeats, each with a few timers of the runtime, and threads that end.
    const WAKES_MAX: u64 = 3 * SECONDS;
    // Everything has been used, then left alone for longer than an open lingers.
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 100_000))?;
    for node in scene.nodes() {
        node.read_file(&path)?;
    }
    std::thread::sleep(Duration::from_secs(7));
    let pids: Vec<u32> = scene.job.cluster().context("a real job")?.daemons().all().collect();
    let before = pids.iter().map(|pid| used(*pid)).collect::<anyhow::Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_secs(SECONDS));
    for (pid, before) in pids.iter().zip(&before) {
        let now = used(*pid)?;
        // Threads that have ended since take their wake-ups with them.
        let wakes = now.wakes.saturating_sub(before.wakes);
        let since = |(thread, ran): (&String, &u64)| {
            ran.saturating_sub(before.ran.get(thread).copied().unwrap_or(0))
        };
        let ran: u64 = now.ran.iter().map(since).sum();
        let name = &now.name;
        note(&format!("{name}: {} us of CPU, {wakes} wake-ups in {SECONDS} s", ran / 1000));
        ensure!(ran <= MILLISECONDS_MAX * 1_000_000, "{name} ran {} us while idle", ran / 1000);
        ensure!(wakes <= WAKES_MAX, "{name} woke {wakes} times while idle");
    }
    Ok(())
}

struct Used {
    name: String,
    /// Nanoseconds that each thread ran: clock ticks are as coarse as what is allowed.
    ran: BTreeMap<String, u64>,
    /// Voluntary context switches of all threads.
    wakes: u64,
}

fn used(pid: u32) -> anyhow::Result<Used> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .with_context(|| format!("process {pid}"))?;
    let name = line.split('\0').nth(1).unwrap_or_default();
    let (mut ran, mut wakes) = (BTreeMap::new(), 0);
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        // One that has just ended has nothing to tell.
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let times = read("schedstat");
        let time = times.split(' ').next().and_then(|time| time.parse().ok());
        ran.insert(thread.file_name().to_string_lossy().into_owned(), time.unwrap_or(0));
        let status = read("status");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        let count = line.and_then(|line| line.split_whitespace().nth(1));
        wakes += count.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    }
    ensure!(ran.values().any(|time| *time > 0), "no schedstat of process {pid}");
    Ok(Used { name: format!("{name} {pid}"), ran, wakes })
}

/// Large streams and many names, twice: the second time costs no more memory than the first.
fn memory_is_bounded(scene: &Scene<'_>) -> TestResult {
    /// Of a server: its slots (64 MiB), the name space's caches, and room for connections.
    const SERVER_MIB_MAX: u64 = 160;
    const GROWTH_MIB_MAX: u64 = 24;
    let cluster = scene.job.cluster().context("a real job")?;
    let peak = || -> anyhow::Result<Vec<u64>> {
        let daemons = cluster.daemons();
        daemons.servers.iter().chain(&daemons.mounts).map(|pid| resident_mib(*pid)).collect()
    };
    let start = peak()?;
    load(scene, "one")?;
    let first = peak()?;
    load(scene, "two")?;
    let second = peak()?;
    note(&format!(
        "MiB resident, servers then mounts: {start:?}, loaded {first:?}, again {second:?}"
    ));
    for (first, second) in first.iter().zip(&second) {
        ensure!(*second <= SERVER_MIB_MAX, "{second} MiB resident");
        ensure!(*second <= first + GROWTH_MIB_MAX, "grew from {first} to {second} MiB");
    }
    Ok(())
}

/// 96 MiB written and read on other nodes from several processes at once, and 1,200 names.
fn load(scene: &Scene<'_>, name: &str) -> TestResult {
    let dir = scene.path(name);
    scene.a.mkdir(&dir)?;
    let striped = scene.striped(&format!("{name}-striped"))?;
    for target in [&dir, &striped] {
        for file in 0..4 {
            scene.a.write_file(&format!("{target}/f{file}"), Data::fill(0, 0))?;
        }
        let write = format!(
            "cd {target} && for f in 0 1 2 3; do \
             dd if=/dev/zero of=f$f bs=1M count=12 conv=notrunc status=none & done; wait"
        );
        long_shell(&scene.b, write)?;
        let check = "cat f0 f1 f2 f3 | cmp -n 50331648 - /dev/zero";
        long_shell(&scene.c, format!("cd {target} && {check}"))?;
    }
    let names = "i=0; while [ $i -lt 400 ]; do : > n$i; i=$((i+1)); done";
    for node in scene.nodes() {
        let own = format!("{dir}/names-{}", node.index());
        long_shell(node, format!("mkdir {own} && cd {own} && {names}"))?;
    }
    for node in [&scene.c, &scene.a] {
        long_shell(node, format!("ls -lR {dir} | wc -l"))?;
    }
    long_shell(&scene.b, format!("rm -r {dir} {striped}"))
}

fn long_shell(node: &hayase_e2e::Node, script: String) -> TestResult {
    let bound = Duration::from_secs(120);
    match node.begin_within(Command::Shell { script }, bound).wait()? {
        Answer::Output(output) if output.code == Some(0) => Ok(()),
        other => anyhow::bail!("{other:?}"),
    }
}

fn resident_mib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib = line.split_whitespace().nth(1).context("odd VmRSS")?;
    Ok(kib.parse::<u64>()? / 1024)
}

/// Every thread of every daemon, and the kernel's workers for their rings; not the programs of the job.
fn stay_on_system_cores() -> TestResult {
    let mut options = JobOptions::nodes(2);
    options.extra = vec!["--system-cores".into(), "0".into()];
    let job = Job::up(options)?;
    let path = format!("{}/file", job.shared());
    job.node(0)?.write_file(&path, Data::fill(1, 1))?;
    let far = job.node(1)?.open(&path, "rw")?;
    for block in 0..16 {
        far.pwrite(block << 20, Data::pattern(block, 1 << 20))?;
    }
    for pid in job.cluster().context("a real job")?.daemons().all() {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // One that has just ended is nowhere.
            let Ok(status) = std::fs::read_to_string(thread?.path().join("status")) else {
                continue;
            };
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            ensure!(list.map(str::trim) == Some("0"), "a thread of {pid} may run on {list:?}");
        }
    }
    let here = std::fs::read_to_string("/proc/self/status")?;
    let allowed =
        here.lines().find(|line| line.starts_with("Cpus_allowed_list:")).context("no list")?;
    let there = job.node(0)?.shell("grep Cpus_allowed_list: /proc/self/status")?;
    ensure!(
        there.stdout.trim() == allowed,
        "programs may run on {:?}, here {allowed:?}",
        there.stdout
    );
    job.down()
}

fn no_such_cores() -> TestResult {
    let trial = Trial::new()?;
    let mut options = JobOptions::nodes(1);
    for (cores, said) in [("1000", "on the processors 1000"), ("3-1", "no range of them")] {
        options.extra = vec!["--system-cores".into(), cores.into()];
        let ended = run(&mut trial.up(&options)?, Duration::from_secs(40))?;
        ensure!(ended.code != Some(0), "up with --system-cores {cores}");
        ensure!(ended.stderr.contains(said), "{cores}: {}", ended.stderr);
    }
    trial.end()
}
