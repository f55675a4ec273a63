//! Jobs that are killed, started wrongly, or damaged behind their back: each time a clear answer,
//! and nothing left behind.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::job::is_alive;
use hayase_e2e::process::{Finished, run, wait};
use hayase_e2e::{
    Data, Job, JobOptions, Suite, TestResult, TierDir, Trial, eventually, expect_errno, note,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn suite() -> Suite {
    Suite::new("faults", JobOptions::three())
        .alone("fault_launcher_killed_while_coming_up", launcher_killed_while_coming_up)
        .alone("fault_up_interrupted", up_interrupted)
        .alone("fault_run_killed", run_killed)
        .alone("fault_run_gives_the_status_of_its_program", run_gives_the_status_of_its_program)
        .alone("fault_everything_killed_then_up_again", everything_killed_then_up_again)
        .alone("fault_supervisor_killed", supervisor_killed)
        .alone("fault_supervisors_killed_then_down", supervisors_killed_then_down)
        .alone("fault_down_with_open_files", down_with_open_files)
        .alone("fault_second_up_on_the_same_storage", second_up_on_the_same_storage)
        .alone("fault_two_jobs_on_one_machine", two_jobs_on_one_machine)
        .alone("fault_storage_too_small", storage_too_small)
        .alone("fault_mount_point_unusable", mount_point_unusable)
        .alone("fault_part_removed", part_removed)
        .alone("fault_striped_part_removed", striped_part_removed)
        .alone("fault_store_corrupt", store_corrupt)
        .alone("fault_wrong_secret", wrong_secret)
        .alone("fault_garbage_at_a_server_port", garbage_at_a_server_port)
}

/// How long it may take until a job without its launcher has cleared itself away.
const CLEARED: Duration = Duration::from_secs(15);
const COMMAND: Duration = Duration::from_secs(40);

fn signal(pid: u32, signal: Signal) -> TestResult {
    let pid = Pid::from_raw(pid as i32).context("a process number")?;
    kill_process(pid, signal).context("send a signal")
}

/// kill -9 of `hayase up` at any moment leaves no mount, no process and no device. Where nobody was
/// left to remove the areas, the next `up` of this user does it; an empty directory may stay.
fn launcher_killed_while_coming_up() -> TestResult {
    let mut trials = Vec::new();
    for millis in [10, 60, 150, 300, 600, 1000] {
        let trial = Trial::new()?;
        let mut up = trial.spawn(&mut trial.up(&JobOptions::three())?)?;
        std::thread::sleep(Duration::from_millis(millis));
        let ended = up.try_wait()?;
        up.kill()?;
        up.wait()?;
        if let Some(status) = ended {
            ensure!(status.success(), "up ended with {status}: {}", trial.said());
            note(&format!("up was done before {millis} ms"));
            stop_by_path(&trial)?;
            trial.end()?;
        } else if trial.tree().job_dir().join("kept").exists() {
            note(&format!("up had let its nodes go before {millis} ms"));
            expect_all_up(&trial)?;
            stop_by_path(&trial)?;
            trial.end()?;
        } else {
            let left = trial.expect_nothing_running(CLEARED);
            left.with_context(|| format!("killed after {millis} ms"))?;
            trials.push(trial);
        }
    }
    let next = Trial::new()?;
    run(&mut next.up(&JobOptions::nodes(1))?, COMMAND)?.success()?;
    stop_by_path(&next)?;
    next.end()?;
    for trial in trials {
        let stored = trial.stored();
        ensure!(stored.is_empty(), "after the next up is left: {}", stored.join(", "));
        trial.end()?;
    }
    Ok(())
}

/// All of its three nodes, or none: no other state is left by a launcher that is killed while it lets them go.
fn expect_all_up(trial: &Trial) -> TestResult {
    let mut status = std::process::Command::new(hayase_e2e::job::binary()?);
    status.args(["status", "--json", "--job"]).arg(trial.tree().job_dir());
    let told = run(&mut status, COMMAND)?;
    let status: serde_json::Value = serde_json::from_str(&told.stdout)?;
    ensure!(status["jobs"][0]["state"] == "up", "{status}");
    Ok(())
}

fn stop_by_path(trial: &Trial) -> TestResult {
    let mut down = std::process::Command::new(hayase_e2e::job::binary()?);
    run(down.arg("down").arg("--job").arg(trial.tree().job_dir()), COMMAND)?.success()?;
    trial.expect_nothing_left(CLEARED)
}

/// SIGTERM and SIGINT end it in order.
fn up_interrupted() -> TestResult {
    for (signal_sent, millis) in [(Signal::TERM, 100), (Signal::INT, 250), (Signal::TERM, 500)] {
        let trial = Trial::new()?;
        let mut up = trial.spawn(&mut trial.up(&JobOptions::three())?)?;
        std::thread::sleep(Duration::from_millis(millis));
        if let Some(status) = up.try_wait()? {
            ensure!(status.success(), "up ended with {status}: {}", trial.said());
            note(&format!("up was done before {millis} ms"));
            stop_by_path(&trial)?;
            continue;
        }
        signal(up.id(), signal_sent)?;
        let code = wait(&mut up, COMMAND)?.context("up did not end after a signal")?;
        // It may have been done in the very moment.
        if code == Some(0) {
            stop_by_path(&trial)?;
        }
        trial.expect_nothing_left(Duration::from_secs(2)).context("as soon as up has ended")?;
        trial.end()?;
    }
    Ok(())
}

/// `hayase run` is killed while its program runs: the program and the job go with it.
fn run_killed() -> TestResult {
    for sent in [Signal::KILL, Signal::TERM, Signal::INT] {
        let trial = Trial::new()?;
        let started = trial.tree().path().join("started");
        // Who starts us in the background may have us ignore SIGINT, and children inherit that.
        let script = format!(": > {} && exec env --default-signal sleep 300", started.display());
        let mut job = trial.spawn(&mut trial.run(&JobOptions::three(), &script)?)?;
        eventually(COMMAND, || {
            ensure!(started.exists(), "the program has not started: {}", trial.said());
            Ok(())
        })?;
        ensure!(trial.processes().len() >= 10, "daemons: {:?}", trial.processes());
        signal(job.id(), sent)?;
        let code = wait(&mut job, CLEARED)?.context("run did not end after a signal")?;
        ensure!(code != Some(0), "run ended with 0 after {sent:?}");
        trial.expect_nothing_left(CLEARED).with_context(|| format!("after {sent:?}"))?;
        trial.end()?;
    }
    Ok(())
}

fn run_gives_the_status_of_its_program() -> TestResult {
    let trial = Trial::new()?;
    let script =
        "echo $HAYASE_NODE; echo x > $HAYASE_SHARED/file && cat $HAYASE_SHARED/file; exit 7";
    let found = run(&mut trial.run(&JobOptions::nodes(2), script)?, COMMAND)?;
    ensure!(found.code == Some(7), "{found:?}");
    ensure!(found.stdout == "0\nx\n", "{found:?}");
    trial.expect_nothing_left(Duration::from_secs(2))?;
    trial.end()
}

/// The supervisors of a job are killed while a program has a file of the cache area open: `down` ends the rest, and the
/// command that it prints brings the file to the tier.
fn supervisors_killed_then_down() -> TestResult {
    let (tier, trial) = (TierDir::new()?, Trial::new()?);
    run(&mut trial.up(&tier.job(2))?, COMMAND)?.success()?;
    let hayase = |words: &[&str]| -> anyhow::Result<std::process::Command> {
        let mut command = std::process::Command::new(hayase_e2e::job::binary()?);
        command.arg(words[0]).arg("--job").arg(trial.tree().job_dir()).args(&words[1..]);
        Ok(command)
    };
    let script =
        "echo bytes >$HAYASE_CACHE/file; echo has started; exec sleep 300 >>$HAYASE_CACHE/file";
    let mut program =
        trial.spawn(&mut hayase(&["exec", "--node", "0", "--", "sh", "-c", script])?)?;
    eventually(COMMAND, || {
        ensure!(trial.said().contains("has started"), "{}", trial.said());
        Ok(())
    })?;
    let named = |name: &str| -> Vec<u32> {
        let pids =
            trial.processes().into_iter().filter_map(|line| line.split(':').next()?.parse().ok());
        let comm =
            |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        pids.filter(|pid| comm(pid).trim() == name).collect()
    };
    let supervisors = named("hayase-node");
    ensure!(supervisors.len() == 2, "supervisors: {supervisors:?}");
    supervisors.iter().try_for_each(|pid| signal(*pid, Signal::KILL))?;
    eventually(CLEARED, || {
        ensure!(named("hayase-serve").is_empty(), "servers do not end");
        Ok(())
    })?;
    ensure!(program.try_wait()?.is_none(), "the program ended by itself");
    let status = run(&mut hayase(&["status"])?, COMMAND)?;
    ensure!(status.stdout.contains("`hayase down --job "), "{status:?}");
    let down = run(&mut hayase(&["down"])?, COMMAND)?;
    ensure!(down.code == Some(3), "the tier may not have the file: {down:?}");
    // The ledger does not know how large a file is that was never sent, and its image is not mounted any more.
    for said in [" is down (", "node 0: ended programs of the job: ", "1 file, 0 B or more"] {
        ensure!(down.stdout.contains(said), "{said} is not said: {down:?}");
    }
    wait(&mut program, CLEARED)?.context("the program lives on")?;
    trial.expect_nothing_running(CLEARED)?;
    let printed = down.stdout.lines().find_map(|line| line.strip_prefix("hayase resume "));
    let mut resume = std::process::Command::new(hayase_e2e::job::binary()?);
    let place = printed.with_context(|| format!("no command is printed: {down:?}"))?;
    run(resume.arg("resume").arg(place), COMMAND)?.success()?;
    ensure!(tier.read("file")? == b"bytes\n", "the tier has another file");
    trial.expect_nothing_left(CLEARED)?;
    trial.end()
}

/// All processes of a job are killed, as by a crash: the next `up` finds and removes what is left.
fn everything_killed_then_up_again() -> TestResult {
    let trial = Trial::new()?;
    let up = |name: &str| -> anyhow::Result<Finished> {
        let options =
            JobOptions { extra: vec!["--job".into(), name.into()], ..JobOptions::nodes(2) };
        run(&mut trial.up(&options)?, COMMAND)?.success()
    };
    let names = [unique("one"), unique("two")];
    up(&names[0])?;
    let supervised: Vec<u32> = pids(&trial);
    ensure!(supervised.len() >= 6, "{:?}", trial.processes());
    for pid in supervised {
        // Children die with their supervisors: then there is nobody to signal.
        let _ = signal(pid, Signal::KILL);
    }
    eventually(CLEARED, || {
        ensure!(trial.processes().is_empty(), "processes: {:?}", trial.processes());
        Ok(())
    })?;
    up(&names[1]).context("up on the storage and mount of a dead job")?;
    let storage = trial.tree().path().join("storage");
    ensure!(!storage.join(&names[0]).exists(), "what the dead job stored is still there");
    ensure!(storage.join(&names[1]).exists(), "the new job's storage");
    stop_by_path(&trial)?;
    trial.end()
}

fn unique(name: &str) -> String {
    format!("e2e-{name}-{}", std::process::id())
}

fn pids(trial: &Trial) -> Vec<u32> {
    let processes = trial.processes();
    processes.iter().filter_map(|line| line.split(':').next()?.parse().ok()).collect()
}

/// kill -9 of one node's supervisor: that node is gone, the others work on, `down` clears all away.
fn supervisor_killed() -> TestResult {
    let job = Job::up(JobOptions::three())?;
    let (a, c) = (job.node(0)?, job.node(2)?);
    let own = format!("{}/on-a", job.shared());
    // Names lie on the server that their hash says: one that survives is found by trying.
    a.write_file(&own, Data::pattern(1, 100_000))?;
    let held = c.open(&own, "r")?;
    let cluster = job.cluster().context("a real job")?;
    let lost = cluster.daemons().supervisors;
    let victim =
        lost.iter().find(|pid| node_of(**pid) == Some(1)).context("supervisor of node 1")?;
    let daemons: Vec<u32> =
        cluster.daemons().all().filter(|pid| node_of(*pid) == Some(1)).collect();
    ensure!(daemons.len() == 3, "daemons of node 1: {daemons:?}");
    signal(*victim, Signal::KILL)?;
    eventually(Duration::from_secs(3), || {
        let left: Vec<&u32> = daemons.iter().filter(|pid| is_alive(**pid)).collect();
        ensure!(left.is_empty(), "daemons of the lost node: {left:?}");
        Ok(())
    })?;
    held.check(0, Data::pattern(1, 100_000)).context("an open file between living nodes")?;
    let status = cluster.run("status", &["--json"])?;
    ensure!(status.stdout.contains("\"damaged\""), "status: {status:?}");
    // Anything about the lost node ends with an answer; EIO where its names or bytes are needed.
    for number in 0..12 {
        let path = format!("{}/try-{number}", job.shared());
        match a.write_file(&path, Data::fill(1, 10)) {
            Ok(()) => ensure!(c.read_file(&path)? == [1; 10], "{path}"),
            Err(refused) => ensure!(refused.errno == "EIO", "{refused}"),
        }
    }
    held.close()?;
    job.down()
}

/// The number after `--node` in a daemon's command line.
fn node_of(pid: u32) -> Option<u16> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split('\0').skip_while(|word| *word != "--node");
    words.nth(1)?.parse().ok()
}

/// Programs of the job with open files, mappings and a working directory in the mount.
fn down_with_open_files() -> TestResult {
    let trial = Trial::new()?;
    let said = run(&mut trial.up(&JobOptions::three())?, COMMAND)?.success()?;
    let job_dir = trial.tree().job_dir();
    let exec = |node: &str, script: &str| -> anyhow::Result<std::process::Child> {
        let mut exec = std::process::Command::new(hayase_e2e::job::binary()?);
        exec.args(["exec", "--node", node, "--job"]).arg(&job_dir).args(["--", "sh", "-c", script]);
        trial.spawn(&mut exec)
    };
    let mut children = vec![
        exec("0", "cd $HAYASE_SHARED && exec 3> file && : > ready-0 && sleep 300")?,
        exec("1", "cd $HAYASE_LOCAL && exec 3> file && : > $HAYASE_SHARED/ready-1 && sleep 300")?,
        exec(
            "2",
            "trap '' TERM; cd $HAYASE_SHARED && : > ready-2 && while :; do echo x >> busy; done",
        )?,
    ];
    let mut ready = exec(
        "0",
        "cd $HAYASE_SHARED; until [ -e ready-0 -a -e ready-1 -a -e ready-2 ]; do sleep 0.05; done",
    )?;
    ensure!(wait(&mut ready, COMMAND)? == Some(Some(0)), "not ready: {}", said.stdout);
    let mut down = std::process::Command::new(hayase_e2e::job::binary()?);
    let down = run(down.arg("down").arg("--job").arg(&job_dir), COMMAND)?;
    ensure!(matches!(down.code, Some(0 | 3)), "{down:?}");
    for child in &mut children {
        ensure!(wait(child, COMMAND)?.is_some(), "a program of the job is left");
    }
    trial.expect_nothing_left(Duration::from_secs(2))?;
    note(&format!("down took {:.1} s", down.took.as_secs_f64()));
    trial.end()
}

/// The same name on the same storage is refused, and the first job does not notice.
fn second_up_on_the_same_storage() -> TestResult {
    let name = unique("same");
    let extra = vec!["--job".to_owned(), name.clone()];
    let first = Job::up(JobOptions { extra: extra.clone(), ..JobOptions::nodes(2) })?;
    let path = format!("{}/file", first.shared());
    first.node(0)?.write_file(&path, Data::pattern(3, 10_000))?;
    let storage = first.tree().path().join("storage");
    let other = Trial::new()?;
    let mut attempts = Vec::new();
    // The same name and storage; another name, but the same mount points.
    let up = |words: &[(&str, &Path)]| -> anyhow::Result<Finished> {
        let mut up = std::process::Command::new(hayase_e2e::job::binary()?);
        up.args(["up", "--nodes", "2", "--shared", "300MiB", "--local", "300MiB"]);
        for (option, value) in words {
            up.arg(option).arg(value);
        }
        run(&mut up, COMMAND)
    };
    let (mount, job_dir) = (other.tree().path().join("mount"), other.tree().job_dir());
    let places = [("--storage", &*storage), ("--mount", &*mount), ("--job-dir", &*job_dir)];
    attempts.push(up(&[&[("--job", Path::new(&name))], &places[..]].concat())?);
    let taken = first.tree().path().join("mount");
    let places = [("--storage", &*storage), ("--mount", &*taken), ("--job-dir", &*job_dir)];
    attempts.push(up(&places)?);
    for attempt in attempts {
        ensure!(matches!(attempt.code, Some(1 | 2)), "{attempt:?}");
        ensure!(attempt.stderr.contains(&name), "it does not name the job: {}", attempt.stderr);
    }
    other.expect_nothing_left(Duration::from_secs(2))?;
    let reader = first.node(1)?.open(&path, "r")?;
    reader.check(0, Data::pattern(3, 10_000)).context("the first job")?;
    other.end()?;
    first.down()
}

/// Two jobs side by side share nothing.
fn two_jobs_on_one_machine() -> TestResult {
    let jobs = [Job::up(JobOptions::nodes(2))?, Job::up(JobOptions::nodes(2))?];
    for (job, byte) in jobs.iter().zip(1..) {
        let path = format!("{}/file", job.shared());
        expect_errno(job.node(1)?.stat(&path), &["ENOENT"])?;
        job.node(0)?.write_file(&path, Data::fill(byte, 1000))?;
    }
    for (job, byte) in jobs.iter().zip(1..) {
        let found = job.node(1)?.read_file(&format!("{}/file", job.shared()))?;
        ensure!(found == [byte; 1000], "a job sees another's bytes");
    }
    jobs.into_iter().try_for_each(Job::down)
}

/// A file system of its own that ends with the test.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn new(path: &Path, size: &str) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path)?;
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(path);
        run(&mut mount, COMMAND)?.success()?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = run(std::process::Command::new("umount").arg("-l").arg(&self.0), COMMAND);
    }
}

/// The areas do not fit: said before anything starts, also when the disk fills up in between.
fn storage_too_small() -> TestResult {
    let trial = Trial::new()?;
    let storage = trial.tree().path().join("storage");
    let tmpfs = Tmpfs::new(&storage, "500m")?;
    let refused = run(&mut trial.up(&JobOptions::nodes(2).shared("300MiB"))?, COMMAND)?;
    ensure!(matches!(refused.code, Some(1 | 2)), "{refused:?}");
    ensure!(refused.stderr.contains(&*storage.to_string_lossy()), "which: {}", refused.stderr);
    ensure!(refused.stderr.contains("free"), "how much: {}", refused.stderr);
    ensure!(!trial.tree().job_dir().exists(), "a job directory was made");
    ensure!(trial.processes().is_empty(), "{:?}", trial.processes());
    ensure!(std::fs::read_dir(&storage)?.next().is_none(), "something was stored");
    drop(tmpfs);
    trial.expect_nothing_left(Duration::from_secs(2))?;
    trial.end()
}

/// A mount point that is a file, that is not empty, or that lies in a read-only file system.
fn mount_point_unusable() -> TestResult {
    for kind in ["file", "full", "read-only"] {
        let trial = Trial::new()?;
        let place = trial.tree().path().join("place");
        let mut tmpfs = None;
        match kind {
            "file" => std::fs::write(&place, "")?,
            "full" => {
                std::fs::create_dir_all(place.join("shared"))?;
                std::fs::write(place.join("shared/somebody's"), "")?;
            }
            _ => {
                tmpfs = Some(Tmpfs::new(&place, "1m")?);
                let mut remount = std::process::Command::new("mount");
                run(remount.args(["-o", "remount,ro"]).arg(&place), COMMAND)?.success()?;
            }
        }
        let mut up = std::process::Command::new(hayase_e2e::job::binary()?);
        up.args(["up", "--nodes", "2", "--shared", "300MiB", "--local", "300MiB"]);
        up.arg("--storage").arg(trial.tree().path()).arg("--job-dir").arg(trial.tree().job_dir());
        let refused = run(up.arg("--mount").arg(&place), COMMAND)?;
        ensure!(matches!(refused.code, Some(1 | 2)), "{kind}: {refused:?}");
        let text = &refused.stderr;
        ensure!(text.contains(&*place.to_string_lossy()), "{kind}: which place: {text}");
        ensure!(!text.contains("panicked"), "{kind}: {text}");
        drop(tmpfs);
        trial.expect_nothing_left(Duration::from_secs(3)).context(kind)?;
        trial.end()?;
    }
    Ok(())
}

/// A node may still know for this long that it had a file open.
const LINGERING: Duration = Duration::from_secs(6);

/// Removes the one part of `size` bytes that node 0 holds, behind the job's back.
fn remove_part(job: &Job, size: u64) -> TestResult {
    let cluster = job.cluster().context("a real job")?;
    let parts = cluster.node_storage(0)?.join("shared/parts");
    let find = format!("find {} -type f -size {size}c -print -delete", parts.display());
    let removed = job.node(0)?.shell(&find)?.stdout;
    ensure!(removed.lines().count() == 1, "parts of {size} bytes: {removed:?}");
    std::thread::sleep(LINGERING);
    Ok(())
}

/// A part is unlinked behind our back: EIO on it, never zeros, and everything else goes on.
fn part_removed() -> TestResult {
    const LEN: u64 = 2 << 20;
    let job = Job::up(JobOptions::three())?;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let (lost, other) = (format!("{}/lost", job.shared()), format!("{}/other", job.shared()));
    a.write_file(&lost, Data::pattern(1, LEN))?;
    remove_part(&job, LEN)?;
    a.write_file(&other, Data::pattern(2, LEN))?;
    for node in [&a, &b] {
        let read = node.open(&lost, "r").and_then(|file| file.pread(0, LEN));
        expect_errno(read, &["EIO"]).with_context(|| format!("on node {}", node.index()))?;
        let reader = node.open(&other, "r")?;
        reader.check(0, Data::pattern(2, LEN)).context("another file")?;
        reader.close()?;
    }
    // What is lost can still be removed, and its name used again.
    b.unlink(&lost).context("unlink what is lost")?;
    b.write_file(&lost, Data::fill(4, 100))?;
    ensure!(a.read_file(&lost)? == [4; 100], "a new file of the old name");
    job.down()
}

/// One part of a striped file is gone: EIO on its ranges, the right bytes on the others.
fn striped_part_removed() -> TestResult {
    const UNIT: u64 = 64 << 10;
    let job = Job::up(JobOptions::three())?;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let dir = format!("{}/striped", job.shared());
    a.mkdir(&dir)?;
    job.stripe(&dir, "64KiB", 3)?;
    let path = format!("{dir}/file");
    // One unit on each server.
    a.write_file(&path, Data::pattern(3, 3 * UNIT))?;
    remove_part(&job, UNIT)?;
    for node in [&a, &b] {
        let mut lost = 0;
        for unit in 0..3 {
            let found = node.open(&path, "r").and_then(|file| {
                let found = file.pread(unit * UNIT, UNIT);
                file.close().and(found)
            });
            match found {
                Err(refused) => {
                    ensure!(refused.errno == "EIO", "{refused}");
                    lost += 1;
                }
                Ok(found) => ensure!(
                    Ok(found) == Data::pattern(3, UNIT).at(unit * UNIT),
                    "unit {unit} on node {} is wrong",
                    node.index()
                ),
            }
        }
        // None, when the server had the part open still: then its bytes are there.
        note(&format!("node {}: {lost} of 3 units are refused", node.index()));
    }
    b.unlink(&path).context("unlink what is lost")?;
    job.down()
}

/// Damaged metadata: the server says so and does not start on it.
fn store_corrupt() -> TestResult {
    let job = Job::up(JobOptions::nodes(2))?;
    let a = job.node(0)?;
    a.shell(&format!(
        "cd {} && i=0; while [ $i -lt 500 ]; do : > n$i; i=$((i+1)); done",
        job.shared()
    ))?;
    let cluster = job.cluster().context("a real job")?;
    let servers = cluster.daemons().servers;
    let server =
        servers.iter().find(|pid| node_of(**pid) == Some(0)).context("server of node 0")?;
    // Or it would be started again at once.
    let supervisors = cluster.daemons().supervisors;
    let supervisor = supervisors.iter().find(|pid| node_of(**pid) == Some(0));
    let supervisor = *supervisor.context("supervisor of node 0")?;
    signal(supervisor, Signal::STOP)?;
    signal(*server, Signal::KILL)?;
    eventually(Duration::from_secs(3), || {
        ensure!(!is_alive(*server), "the server lives");
        Ok(())
    })?;
    let meta = cluster.node_storage(0)?.join("shared.meta");
    // Every file of the store, from its second block (or all of it) on.
    let damage = format!(
        "for f in $(find {} -type f -size +0); do s=$(stat -c %s $f); k=$((s > 8192)); \
         dd if=/dev/urandom of=$f bs=4096 seek=$k count=$(((s + 4095) / 4096)) \
         conv=notrunc status=none; done",
        meta.display()
    );
    a.shell(&damage).context("damage the store")?;
    let binary = hayase_e2e::job::binary()?;
    let mut serve = cluster.exec(0, &[&binary, Path::new("serve"), Path::new("--node")]);
    let said = run(serve.arg("0").arg("--job-dir").arg(cluster.job_dir()), COMMAND);
    signal(supervisor, Signal::CONT)?;
    let said = said?;
    ensure!(matches!(said.code, Some(1 | 2)), "{said:?}");
    let text = format!("{}{}", said.stdout, said.stderr);
    ensure!(text.contains(&*meta.to_string_lossy()), "it does not name the store: {text}");
    ensure!(!text.contains("panicked"), "{text}");
    job.down()
}

/// A server with another secret than the job's is told from the members file that it is none of them.
fn wrong_secret() -> TestResult {
    let job = Job::up(JobOptions::nodes(2))?;
    let cluster = job.cluster().context("a real job")?;
    // The job's directory with another secret, and in the place of its storage one that nobody uses.
    let (copy, store) = (job.tree().path().join("copy"), job.tree().path().join("store"));
    let storage = cluster.node_storage(1)?.parent().context("a node's storage")?.to_owned();
    let binary = hayase_e2e::job::binary()?;
    let script = format!(
        "mkdir -p {copy}/members.d {copy}/node-1 {store}/node-1/shared && \
         cp {from}/job.json {from}/members.json {copy} && head -c 32 /dev/urandom > {copy}/secret && \
         mount --bind {store} {storage} && exec {binary} serve --node 1 --job-dir {copy}",
        from = cluster.job_dir().display(),
        copy = copy.display(),
        store = store.display(),
        storage = storage.display(),
        binary = binary.display(),
    );
    let alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
    let said = run(&mut cluster.exec(1, &alone.map(Path::new)), COMMAND)?;
    ensure!(matches!(said.code, Some(1 | 2)), "{said:?}");
    let text = format!("{}{}", said.stdout, said.stderr);
    ensure!(!text.contains("panicked"), "{text}");
    ensure!(text.contains("secret") || text.contains("members"), "it does not say why: {text}");
    let path = format!("{}/file", job.shared());
    job.node(0)?.write_file(&path, Data::fill(1, 10))?;
    ensure!(job.node(1)?.read_file(&path)? == [1; 10], "the job itself");
    job.down()
}

/// Random bytes, cut off frames and silent connections at each server's port cost it nothing.
fn garbage_at_a_server_port() -> TestResult {
    let job = Job::up(JobOptions::three())?;
    let cluster = job.cluster().context("a real job")?;
    let members = std::fs::read_to_string(cluster.job_dir().join("members.json"))?;
    let ports = addresses(&members);
    ensure!(ports.len() >= 3, "addresses in {members}");
    let servers = cluster.daemons().servers;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::pattern(1, 1 << 20))?;
    for (host, port) in &ports {
        let attack = format!(
            "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
             (exec 3<>/dev/tcp/{host}/{port} && sleep 4) & \
             (exec 3<>/dev/tcp/{host}/{port} && head -c $((n * 7)) /dev/urandom >&3) & \
             (exec 3<>/dev/tcp/{host}/{port} && head -c 100000 /dev/urandom >&3) & \
             (exec 3<>/dev/tcp/{host}/{port} && head -c 64 /dev/zero >&3 && sleep 1) & done; wait"
        );
        let script = format!("bash -c '{attack}' 2>/dev/null; true");
        let attacker = b.begin(hayase_e2e::Command::Shell { script });
        for round in 0..20 {
            let data = Data::pattern(round, 1 << 20);
            b.open(&path, "w")?.pwrite(0, data.clone())?;
            let reader = a.open(&path, "r")?;
            reader.check(0, data).with_context(|| format!("while {host}:{port} is attacked"))?;
            reader.close()?;
        }
        attacker.wait()?;
    }
    ensure!(cluster.daemons().servers == servers, "a server has died");
    job.down()
}

/// Every `tcp:host:port` that is named in a text of JSON.
fn addresses(text: &str) -> Vec<(String, u16)> {
    let mut found: Vec<(String, u16)> = text
        .split('"')
        .filter_map(|word| word.strip_prefix("tcp:")?.parse::<std::net::SocketAddr>().ok())
        .map(|address| (address.ip().to_string(), address.port()))
        .collect();
    found.sort();
    found.dedup();
    found
}
