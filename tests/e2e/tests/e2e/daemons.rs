//! What the daemons of a job cost: nothing when idle, bounded memory under load.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::Answer;
use hayase_e2e::cached::{expect_tier, flush, in_front_of};
use hayase_e2e::job::{binary, is_alive};
use hayase_e2e::process::run;
use hayase_e2e::{
    Command, Data, Job, JobOptions, Scene, Suite, TestResult, TierDir, Trial, eventually, note,
};

pub(crate) fn suite() -> Suite {
    Suite::new("daemons", JobOptions::three())
        .job("daemons_are_all_there", all_there)
        .job("daemons_idle_cost_nothing", idle_cost_nothing)
        .job("daemons_memory_is_bounded", memory_is_bounded)
        .job("daemons_count_what_a_kernel_moves", kernel_is_counted)
        .alone("daemons_of_counted_areas_have_no_passthrough", counted_areas)
        .alone("daemons_of_root_in_a_user_namespace", in_a_user_namespace)
        .alone("daemons_idle_with_a_tier_cost_nothing", idle_with_a_tier)
        .alone("daemons_stay_on_system_cores", stay_on_system_cores)
        .alone("daemons_interrupts_go_and_come_back", interrupts_move)
        .alone("daemons_stay_within_their_budget", within_budget)
        .alone("daemons_system_cores_that_are_not_there", no_such_cores)
}

/// A server and a mount for each node, kept by a supervisor; ps(1) shows which is which.
fn all_there(scene: &Scene<'_>) -> TestResult {
    let daemons = scene.job.cluster().context("a real job")?.daemons();
    for (name, found) in [
        ("hayase-serve", &daemons.servers),
        ("hayase-mount", &daemons.mounts),
        ("hayase-node", &daemons.supervisors),
    ] {
        ensure!(found.len() == 3, "{} processes {name}", found.len());
        for pid in found {
            let shown = std::fs::read_to_string(format!("/proc/{pid}/comm"))?;
            ensure!(shown.trim() == name, "{name} is called {shown}");
        }
    }
    Ok(())
}

/// What a program writes to a part on its own node never passes a server, and is in the figures of the area all the same.
fn kernel_is_counted(scene: &Scene<'_>) -> TestResult {
    const BYTES: u64 = 8 << 20;
    let written = || -> anyhow::Result<Option<(u64, u64)>> {
        let mut status = std::process::Command::new(binary()?);
        status.args(["status", "--json", "--job"]).arg(scene.job.tree().job_dir());
        let told = run(&mut status, Duration::from_secs(40))?.success()?;
        let told: serde_json::Value = serde_json::from_str(&told.stdout)?;
        let server = &told["jobs"][0]["nodes"][0]["server"];
        let written = server["area"]["written"].as_u64();
        ensure!(written.is_some() || server["limiter"] != "image", "not counted: {server}");
        Ok(written.zip(server["bytes_written"].as_u64()))
    };
    let Some(before) = written()? else { return Ok(()) };
    scene.a.write_file(&scene.path("counted"), Data::fill(1, BYTES))?;
    let after = written()?.context("it was counted before")?;
    ensure!(after.0 - before.0 >= BYTES, "{} bytes are counted", after.0 - before.0);
    if scene.job.has_passthrough() {
        ensure!(after.1 - before.1 < BYTES, "{} bytes passed the server", after.1 - before.1);
    }
    let said = |args: &[&str]| -> anyhow::Result<String> {
        let mut command = std::process::Command::new(binary()?);
        command.args(args).arg("--job").arg(scene.job.tree().job_dir());
        Ok(run(&mut command, Duration::from_secs(40))?.success()?.stdout)
    };
    let page = std::env::temp_dir().join(format!("report-{}.html", std::process::id()));
    said(&["report", "--output", page.to_str().context("a path in UTF-8")?])?;
    let html = std::fs::read_to_string(&page)?;
    std::fs::remove_file(&page)?;
    ensure!(html.contains("written to the areas"), "not in the report: {html}");
    ensure!(!html.contains("0 B</b><span>written to the areas"), "{html}");
    let metrics = said(&["status", "--prometheus"])?;
    let counted =
        metrics.lines().filter(|line| line.starts_with("hayase_area_written_bytes_total"));
    let total: f64 = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    ensure!(total >= BYTES as f64, "{metrics}");
    Ok(())
}

/// Where servers count what areas hold, every write passes them, also of root: status, report and explain agree on it.
fn counted_areas() -> TestResult {
    if std::env::var_os("HAYASE_E2E_PROFILE").is_some() || !rustix::process::geteuid().is_root() {
        note("no passthrough here, whatever areas are");
        return Ok(());
    }
    for (option, path, why) in [
        (&["--no-image"][..], "fuse", "count the sizes of areas that are no images"),
        (&[], "passthrough", ""),
    ] {
        let trial = Trial::new()?;
        let mut options = JobOptions::nodes(1).shared("64MiB");
        options.extra = option.iter().map(|word| (*word).to_owned()).collect();
        run(&mut trial.up(&options)?, Duration::from_secs(60))?.success()?;
        let hayase = |words: &[&str]| -> anyhow::Result<String> {
            let mut command = std::process::Command::new(binary()?);
            command.env("HAYASE_JOB", trial.tree().job_dir());
            Ok(run(command.args(words), Duration::from_secs(40))?.success()?.stdout)
        };
        let told: serde_json::Value = serde_json::from_str(&hayase(&["status", "--json"])?)?;
        let mount = &told["jobs"][0]["nodes"][0]["supervisor"]["ready"]["mount"];
        let said = mount["why"].as_str().context("no reason")?;
        ensure!(mount["path"] == path && said.contains(why), "{option:?}: {mount}");
        ensure!(said.is_empty() == why.is_empty(), "{option:?}: {mount}");
        let script =
            "echo x >$HAYASE_SHARED/f && exec <$HAYASE_SHARED/f && $0 explain $HAYASE_SHARED/f";
        let program = binary()?.display().to_string();
        let explained = hayase(&["exec", "--", "sh", "-c", script, &program])?;
        let by_kernel = explained.contains("by the kernel");
        ensure!(by_kernel == (path == "passthrough"), "{option:?}: {explained}");
        let page = trial.tree().path().join("report.html");
        hayase(&["report", "--output", page.to_str().context("a path in UTF-8")?])?;
        let html = std::fs::read_to_string(&page)?;
        ensure!(why.is_empty() || html.contains(&format!("fuse: the servers {why}")), "{html}");
        hayase(&["down"])?;
        std::fs::remove_file(&page)?;
        trial.expect_nothing_left(Duration::from_secs(20))?;
        trial.end()?;
    }
    Ok(())
}

/// As in a container without privileges: root there can mount FUSE, but no images, and gets no passthrough.
fn in_a_user_namespace() -> TestResult {
    let unshare = || {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--fork", "--kill-child"]);
        command
    };
    if run(unshare().arg("true"), Duration::from_secs(20))?.success().is_err() {
        note("skipped: no user namespaces here");
        return Ok(());
    }
    let trial = Trial::new()?;
    let up = trial.up(&JobOptions::nodes(2))?;
    let mut words = vec![up.get_program().to_owned()];
    words.extend(up.get_args().map(ToOwned::to_owned));
    let script = r#"set -e
        "$@" >/dev/null
        "$1" exec --job "$JOB" --node 0 -- sh -c 'echo x >$HAYASE_SHARED/f'
        "$1" exec --job "$JOB" --node 1 -- sh -c 'grep -q x $HAYASE_SHARED/f'
        "$1" status --json --job "$JOB"
        "$1" down --job "$JOB" >&2"#;
    let mut command = unshare();
    command.args(["sh", "-c", script, "sh"]).args(&words).env("JOB", trial.tree().job_dir());
    let told = run(&mut command, Duration::from_secs(120))?.success()?;
    let told: serde_json::Value = serde_json::from_str(&told.stdout)?;
    let job = &told["jobs"][0];
    ensure!(job["limiter"] == "counted", "limiter: {}", job["limiter"]);
    for node in job["nodes"].as_array().context("no nodes")? {
        let mount = &node["supervisor"]["ready"]["mount"];
        ensure!(mount["path"] == "fuse", "{mount}");
    }
    trial.expect_nothing_left(Duration::from_secs(20))?;
    trial.end()
}

/// Ten seconds without requests: no processor time beyond a clock tick, few wake-ups.
fn idle_cost_nothing(scene: &Scene<'_>) -> TestResult {
    // Everything has been used, then left alone for longer than an open lingers.
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 100_000))?;
    for node in scene.nodes() {
        node.read_file(&path)?;
    }
    expect_rest(scene.job)
}

/// The same where a cache area has flushed what was written: nothing is looked for again and again.
fn idle_with_a_tier() -> TestResult {
    in_front_of(&TierDir::new()?, |job, tier| {
        let path = job.cached("file");
        job.node(0)?.write_file(&path, Data::fill(1, 100_000))?;
        job.node(1)?.read_file(&path)?;
        flush(job)?;
        expect_rest(job)?;
        // And what is written then is noticed as ever.
        job.node(1)?.write_file(&job.cached("later"), Data::fill(2, 100))?;
        eventually(Duration::from_secs(10), || expect_tier(tier, "later", &Data::fill(2, 100)))?;
        Ok(())
    })
}

/// All processes of a job that was used a moment ago.
fn expect_rest(job: &Job) -> TestResult {
    const SECONDS: u64 = 10;
    /// What a loop without any pause exceeds by far; what polls is seen by its wake-ups, which do not depend on what else
    /// the machine does.
    const MILLISECONDS_MAX: u64 = 200;
    /// Two heartbeats, each with a few timers of the runtime, and threads that end.
    const WAKES_MAX: u64 = 3 * SECONDS;
    std::thread::sleep(Duration::from_secs(7));
    let pids: Vec<u32> = job.cluster().context("a real job")?.daemons().all().collect();
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
    for (cores, said) in [
        ("1000", "processors 1000 cannot be used here"),
        ("0-999", "-999 cannot be used here"),
        ("3-1", "neither a number nor a range"),
    ] {
        options.extra = vec!["--system-cores".into(), cores.into()];
        let ended = run(&mut trial.up(&options)?, Duration::from_secs(40))?;
        ensure!(ended.code == Some(2), "up with --system-cores {cores}: {:?}", ended.code);
        ensure!(ended.stderr.contains(said), "{cores}: {}", ended.stderr);
    }
    trial.end()
}

/// Interrupts of the machine's disk and network go to the system core, and come back with `down`; also after
/// everything was killed.
fn interrupts_move() -> TestResult {
    let processors = std::thread::available_parallelism()?.get();
    if interrupts().is_empty() || processors < 2 || !rustix::process::geteuid().is_root() {
        note("skipped: no interrupts in /proc/irq, one processor only, or not root");
        return Ok(());
    }
    let _found = SpreadInterrupts::over(processors);
    let before = interrupts();
    let mut options = JobOptions::nodes(2);
    options.extra = vec!["--system-cores".into(), "1".into(), "--move-interrupts".into()];
    for is_killed in [false, true] {
        let job = Job::up(options.clone())?;
        let told = interrupts_told(&job)?;
        let moved = told["moved"].as_u64().with_context(|| format!("nothing told: {told}"))?;
        let refused = told["not_moved"].as_array().map_or(0, Vec::len);
        note(&format!("{moved} moved, {refused} not: {}", told["not_moved"]));
        let now = interrupts();
        let changed = now.iter().filter(|(number, list)| before.get(*number) != Some(*list));
        let changed: Vec<_> = changed.collect();
        ensure!(changed.iter().all(|(_, list)| *list == "1"), "{changed:?}");
        ensure!(moved > 0 && changed.len() as u64 <= moved, "{changed:?}, told {told}");
        ensure!(!changed.is_empty() || before.values().all(|list| list == "1"), "none moved");
        // Not by another job meanwhile.
        let second = Job::up(JobOptions { nodes: 1, ..options.clone() })?;
        let told = interrupts_told(&second)?.to_string();
        ensure!(told.contains("another job"), "{told}");
        second.down()?;
        ensure!(interrupts() == now, "the second job moved some");
        if is_killed {
            let pids: Vec<u32> = job.cluster().context("a real job")?.daemons().all().collect();
            pids.iter().try_for_each(|pid| kill(*pid))?;
            // One that is just dying takes a call of `down` and answers nothing: told, and no success.
            eventually(Duration::from_secs(20), || {
                ensure!(!pids.iter().any(|pid| is_alive(*pid)), "killed processes are there");
                Ok(())
            })?;
        }
        job.down()?;
        ensure!(interrupts() == before, "{:?} before, {before:?} after", interrupts());
    }
    Ok(())
}

/// What the first node says of them.
fn interrupts_told(job: &Job) -> anyhow::Result<serde_json::Value> {
    let status = job.cluster().context("a real job")?.run("status", &["--json"])?.success()?.stdout;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    Ok(status["jobs"][0]["nodes"][0]["supervisor"]["ready"]["interrupts"].clone())
}

fn kill(pid: u32) -> TestResult {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    Ok(())
}

/// Where each one may go.
fn interrupts() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let list = std::fs::read_to_string(entry.path().join("smp_affinity_list")).ok()?;
        Some((entry.file_name().into_string().ok()?, list.trim().to_owned()))
    };
    entries.filter_map(of).collect()
}

/// Interrupts that may go to all processors, whatever a job that was killed has left: as they were found afterwards.
struct SpreadInterrupts {
    found: BTreeMap<String, String>,
}

impl SpreadInterrupts {
    fn over(processors: usize) -> Self {
        let found = interrupts();
        let all = format!("0-{}", processors - 1);
        found.keys().for_each(|number| Self::let_go_to(number, &all));
        Self { found }
    }

    /// The kernel refuses those that it manages itself.
    fn let_go_to(number: &str, processors: &str) {
        let _ = std::fs::write(format!("/proc/irq/{number}/smp_affinity_list"), processors);
    }
}

impl Drop for SpreadInterrupts {
    fn drop(&mut self) {
        self.found.iter().for_each(|(number, list)| Self::let_go_to(number, list));
    }
}

/// Under load from another node, the daemons of each node take what they may, and not more; and their group goes.
fn within_budget() -> TestResult {
    const CORES: f64 = 0.2;
    const SECONDS: u64 = 4;
    let mut options = JobOptions::nodes(2);
    options.extra = vec!["--cpu-budget".into(), CORES.to_string()];
    let mut doctor = std::process::Command::new(binary()?);
    let told = run(doctor.args(["doctor", "--json"]), Duration::from_secs(40))?.stdout;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let mut checks = told["checks"].as_array().context("no checks")?.iter();
    let check = checks.find(|check| check["name"] == "CPU budget").context("no such check")?;
    if check["health"] != "ok" {
        let trial = Trial::new()?;
        let refused = run(&mut trial.up(&options)?, Duration::from_secs(40))?;
        ensure!(refused.code != Some(0), "{}", refused.stdout);
        ensure!(refused.stderr.contains("cannot enforce --cpu-budget"), "{}", refused.stderr);
        note(&format!("skipped, and refused as it should be: {}", refused.stderr.trim()));
        return trial.end();
    }
    let job = Job::up(options)?;
    let path = format!("{}/file", job.shared());
    job.node(0)?.write_file(&path, Data::fill(1, 1))?;
    let daemons = job.cluster().context("a real job")?.daemons();
    let groups: Vec<String> = daemons
        .servers
        .iter()
        .map(|pid| Ok(std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
        .collect::<anyhow::Result<_>>()?;
    ensure!(groups.iter().all(|groups| groups.contains("/hayase-")), "{groups:?}");
    let pids: Vec<u32> = daemons.servers.iter().chain(&daemons.mounts).copied().collect();
    let used_now = |pids: &[u32]| -> anyhow::Result<u64> {
        let all = pids.iter().map(|pid| Ok(used(*pid)?.ran.values().sum::<u64>()));
        all.sum()
    };
    let script = format!(
        "end=$(($(date +%s) + {SECONDS} + 2)); while [ $(date +%s) -lt $end ]; do \
         dd if=/dev/zero of={path} bs=1M count=16 conv=notrunc status=none; done"
    );
    let bound = Duration::from_secs(60);
    let load = job.node(1)?.begin_within(Command::Shell { script }, bound);
    std::thread::sleep(Duration::from_secs(1));
    let (begin, before) = (std::time::Instant::now(), used_now(&pids)?);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let ran = (used_now(&pids)? - before) as f64 / 1e9 / begin.elapsed().as_secs_f64();
    match load.wait()? {
        Answer::Output(output) if output.code == Some(0) => {}
        other => anyhow::bail!("{other:?}"),
    }
    note(&format!("{ran:.3} processors on two nodes that may use {CORES} each"));
    // Both nodes together; how the kernel deals out is a little uneven.
    ensure!(ran <= 2.0 * CORES * 1.25, "{ran} processors");
    ensure!(ran >= CORES / 4.0, "the load was too small to say: {ran} processors");
    job.down()?;
    let left = groups.iter().flat_map(|groups| groups.lines()).find(|line| {
        let group = line.rsplit(':').next().unwrap_or_default();
        group.contains("/hayase-")
            && ["cpu", "unified", ""].iter().any(|root| {
                std::path::Path::new("/sys/fs/cgroup").join(root).join(&group[1..]).exists()
            })
    });
    ensure!(left.is_none(), "{left:?} is left");
    Ok(())
}
