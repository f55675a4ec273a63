//! Tests 34, 37 and 38 of the coherence protocol: daemons are killed with SIGKILL while programs
//! work, and started again; what was acknowledged stays, what was open and locked goes on.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::LockKind::{Fcntl, Flock};
use hayase_e2e::actor::{Answer, Output};
use hayase_e2e::job::is_alive;
use hayase_e2e::{
    Command, Data, File, Job, JobOptions, Loop, Node, Suite, TestResult, TierDir, Until,
    eventually, expect_errno, note,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_restarts", JobOptions::three())
        .alone("coherence_34_open_files_and_locks_outlive_a_server", || on_a_job(opens_and_locks))
        .alone("coherence_34_fio_verify_across_kills", || on_a_job(fio_across_kills))
        .alone("coherence_34_names_across_kills", || on_a_job(names_across_kills))
        .alone("coherence_34_a_file_without_a_name_outlives_a_server", || on_a_job(nameless))
        .alone("coherence_34_each_server_in_turn", || on_a_job(each_in_turn))
        .alone("coherence_37_a_mount_is_killed", || on_a_job(mount_killed))
        .alone("coherence_37_a_mount_is_killed_while_it_removes", || {
            on_a_job(mount_killed_removing)
        })
        .alone("coherence_37_a_job_ends_while_a_mount_is_to_come_back", ends_before_it_is_back)
}

/// Runs a test on a job of its own; the daemons' logs go with its error.
fn on_a_job(test: fn(&Job) -> TestResult) -> TestResult {
    let job = Job::up(JobOptions::three())?;
    test(&job).map_err(|error| error.context(job.logs()))?;
    job.down()
}

/// A daemon that was killed is back after this; generous, for loaded machines.
const BACK: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    Server,
    Mount,
}

fn pid_of(job: &Job, node: u16, which: Daemon) -> anyhow::Result<Option<u32>> {
    let daemons = job.cluster().context("a real job")?.daemons();
    let pids = if which == Daemon::Server { daemons.servers } else { daemons.mounts };
    Ok(pids.into_iter().find(|pid| node_of(*pid) == Some(node) && is_alive(*pid)))
}

/// Which node a daemon says in its command line that it serves.
fn node_of(pid: u32) -> Option<u16> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0').skip_while(|word| *word != "--node");
    words.nth(1)?.parse().ok()
}

/// kill -9.
fn kill(job: &Job, node: u16, which: Daemon) -> anyhow::Result<u32> {
    let pid = pid_of(job, node, which)?.with_context(|| format!("{which:?} of node {node}"))?;
    kill_process(Pid::from_raw(pid as i32).context("a process number")?, Signal::KILL)?;
    Ok(pid)
}

/// kill -9, and until its supervisor has started another one.
fn kill_and_wait(job: &Job, node: u16, which: Daemon) -> TestResult {
    let killed = kill(job, node, which)?;
    let waited = eventually(BACK, || {
        let now = pid_of(job, node, which)?;
        ensure!(now.is_some_and(|pid| pid != killed), "{which:?} of node {node} is not back");
        Ok(())
    })?;
    note(&format!("{which:?} of node {node} is back after {waited:?}"));
    Ok(())
}

fn held_elsewhere(file: &File, kind: hayase_e2e::actor::LockKind) -> TestResult {
    let tried = file.lock(kind);
    if tried.is_ok() {
        file.unlock(kind)?;
    }
    expect_errno(tried, &["EAGAIN", "EACCES"])
}

/// Descriptors of every class, and locks, of all nodes on a file whose home is killed.
fn opens_and_locks(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::pattern(1, 300_000))?;
    let (on_a, on_b, on_c) = (a.open(&path, "rw")?, b.open(&path, "rw")?, c.open(&path, "r")?);
    on_b.lock(Fcntl)?;
    held_elsewhere(&on_a, Fcntl)?;
    let other = format!("{}/other", job.shared());
    b.write_file(&other, Data::fill(1, 10))?;
    let flocked = c.open(&other, "rw")?;
    flocked.lock(Flock)?;
    let waiter = a.open(&other, "rw")?;
    let waiting = waiter.begin_lock(Flock);
    for node in [0, 1, 2, 0] {
        kill_and_wait(job, node, Daemon::Server)?;
        let story = || format!("after the server of node {node} was killed");
        on_a.pwrite(0, Data::pattern(u64::from(node) + 2, 1000)).with_context(story)?;
        on_b.check(0, Data::pattern(u64::from(node) + 2, 1000)).with_context(story)?;
        on_b.pwrite(200_000, Data::pattern(u64::from(node) + 7, 1000)).with_context(story)?;
        on_c.check(200_000, Data::pattern(u64::from(node) + 7, 1000)).with_context(story)?;
        held_elsewhere(&on_a, Fcntl).with_context(story)?;
        let third = b.open(&other, "rw")?;
        held_elsewhere(&third, Flock).with_context(story)?;
        third.close()?;
    }
    flocked.unlock(Flock)?;
    waiting.wait().context("who waited for a lock through four restarts has it")?;
    held_elsewhere(&flocked, Flock)?;
    on_b.unlock(Fcntl)?;
    on_a.lock(Fcntl)?;
    on_a.close()?;
    on_b.lock(Fcntl).context("a close after restarts ends a lock")?;
    let status = job.cluster().context("a real job")?.run("status", &[])?.success()?;
    ensure!(status.stdout.contains("serve ended and was started again: 2"), "{}", status.stdout);
    ensure!(status.stdout.contains(": up"), "{}", status.stdout);
    Ok(())
}

/// fio writes random blocks, on the home of the file and elsewhere, and checks each of them, while
/// the home's server is killed again and again.
fn fio_across_kills(job: &Job) -> TestResult {
    if std::process::Command::new("fio").arg("--version").output().is_err() {
        note("SKIP: fio is not installed (apt install fio)");
        return Ok(());
    }
    let (a, b) = (job.node(0)?, job.node(1)?);
    let paths = ["local", "remote"].map(|name| format!("{}/{name}", job.shared()));
    for path in &paths {
        a.shell(&format!("truncate -s 16M {path}"))?;
    }
    let fio = |path: &str, more: &str| {
        format!(
            "fio --name=verify --filename={path} --size=16m --rw=randwrite --bsrange=4k-64k \
             --blockalign=4k --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
             --fallocate=none --ioengine=psync --randseed=3 {more} 2>&1"
        )
    };
    let slowly = "--thinktime=20ms --thinktime_blocks=4 --do_verify=1 --end_fsync=1";
    let work = |node: &Node, path: &str| {
        let (node, script) = (node.clone(), fio(path, slowly));
        std::thread::spawn(move || node.shell(&script))
    };
    let works = [work(&a, &paths[0]), work(&b, &paths[1])];
    let mut kills = 0;
    while kills < 2 || (kills < 4 && works.iter().any(|work| !work.is_finished())) {
        std::thread::sleep(Duration::from_millis(150));
        kill_and_wait(job, 0, Daemon::Server)?;
        a.stat(&paths[0]).context("it serves again")?;
        kills += 1;
    }
    note(&format!("{kills} kills"));
    for work in works {
        let output = work.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        ensure!(output.code == Some(0), "fio: {}", output.stdout);
    }
    for path in &paths {
        let check = job.node(2)?.shell(&fio(path, "--verify_only=1"))?;
        ensure!(check.code == Some(0), "fio on a third node: {}", check.stdout);
    }
    Ok(())
}

/// For a script that starts many programs: on a loaded machine it takes longer than one call.
fn many_calls(node: &Node, script: String) -> anyhow::Result<Output> {
    let bound = Duration::from_secs(120);
    match node.begin_within(Command::Shell { script }, bound).wait()? {
        Answer::Output(output) => Ok(output),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Names are made, moved and removed on two nodes while servers are killed: every call succeeds once,
/// nothing is there twice and nothing is missing.
fn names_across_kills(job: &Job) -> TestResult {
    let dir = format!("{}/names", job.shared());
    job.node(0)?.mkdir(&dir)?;
    const ROUNDS: u64 = 80;
    let script = |node: u16| {
        format!(
            "cd {dir} && for i in $(seq {ROUNDS}); do \
               mkdir d{node}-$i && (set -C; echo $i > d{node}-$i/f) && ln d{node}-$i/f l{node}-$i && \
               mv d{node}-$i/f m{node}-$i && rm l{node}-$i && rmdir d{node}-$i && \
               ln m{node}-$i again{node} && rm again{node} && ln m{node}-$i again{node} && \
               [ $(stat -c %h m{node}-$i) = 2 ] && rm again{node} && [ $(stat -c %h m{node}-$i) = 1 ] && \
               [ $(cat m{node}-$i) = $i ] || {{ echo \"round $i failed\"; exit 1; }}; \
             done 2>&1"
        )
    };
    let works = [0, 1].map(|index| {
        let (node, script) = (job.node(index), script(index));
        std::thread::spawn(move || many_calls(&node?, script))
    });
    let mut victims = [1, 2, 0].into_iter().cycle();
    let mut kills = 0;
    while kills < 6 && (kills < 2 || works.iter().any(|work| !work.is_finished())) {
        kill_and_wait(job, victims.next().expect("endless"), Daemon::Server)?;
        std::thread::sleep(Duration::from_millis(300));
        kills += 1;
    }
    note(&format!("{kills} kills"));
    for work in works {
        let output = work.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        ensure!(output.code == Some(0), "{}", output.stdout);
    }
    let c = job.node(2)?;
    let mut names = c.names(&dir)?;
    names.sort();
    let mut expected: Vec<String> =
        (0..2).flat_map(|node| (1..=ROUNDS).map(move |i| format!("m{node}-{i}"))).collect();
    expected.sort();
    ensure!(names == expected, "{} names: {names:?}", names.len());
    for name in ["m0-1", "m1-80"] {
        ensure!(c.stat(&format!("{dir}/{name}"))?.nlink == 1, "links of {name}");
    }
    Ok(())
}

/// A file that was removed while it is open stays readable through a restart of its home.
fn nameless(job: &Job) -> TestResult {
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::pattern(5, 100_000))?;
    let (on_a, on_b) = (a.open(&path, "r")?, b.open(&path, "rw")?);
    a.unlink(&path)?;
    kill_and_wait(job, 0, Daemon::Server)?;
    on_b.check(0, Data::pattern(5, 100_000))?;
    on_b.pwrite(0, Data::pattern(6, 1000))?;
    on_a.check(0, Data::pattern(6, 1000))?;
    ensure!(on_b.attr()?.nlink == 0, "it has no name");
    on_a.close()?;
    on_b.close()?;
    Ok(())
}

/// Appends of two nodes and a counter under a lock, while every server is killed once: an append
/// that was told to be done is there once, one that failed (EIO) at most once.
fn each_in_turn(job: &Job) -> TestResult {
    let nodes = [job.node(0)?, job.node(1)?, job.node(2)?];
    let path = format!("{}/counter", job.shared());
    nodes[0].write_file(&path, Data::fill(0, 8))?;
    let begin = |node: &Node| {
        let work = Loop::CountUnderLock { path: path.clone(), kind: Fcntl };
        node.begin_loop(work, Until::raised("enough", 120.0))
    };
    let loops = [begin(&nodes[0]), begin(&nodes[1]), begin(&nodes[2])];
    for index in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        kill_and_wait(job, index, Daemon::Server)?;
    }
    std::thread::sleep(Duration::from_millis(500));
    for node in &nodes {
        node.call(hayase_e2e::Command::Raise { flag: "enough".into() })?;
    }
    let mut good = 0;
    for counting in loops {
        let report = counting.wait()?;
        ensure!(report.errors.is_empty() && report.violations == 0, "{report:?}");
        good += report.good;
    }
    let bytes = nodes[2].read_file(&path)?;
    let counted = u64::from_le_bytes(bytes.try_into().map_err(|_| anyhow::anyhow!("8 bytes"))?);
    note(&format!("{good} rounds"));
    ensure!(counted == good && good > 0, "counted {counted} in {good} rounds");
    Ok(())
}

/// kill -9 of the process behind a mount: a new mount takes its place, what the old one had locked is
/// free, the other nodes notice nothing.
fn mount_killed(job: &Job) -> TestResult {
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::pattern(1, 100_000))?;
    let (on_a, on_b) = (a.open(&path, "rw")?, b.open(&path, "rw")?);
    on_b.lock(Fcntl)?;
    held_elsewhere(&on_a, Fcntl)?;
    kill_and_wait(job, 1, Daemon::Mount)?;
    eventually(BACK, || Ok(on_a.lock(Fcntl)?)).context("its lock is free")?;
    ensure!(on_b.pread(0, 10).is_err(), "a descriptor of the dead mount answers");
    on_a.pwrite(0, Data::pattern(2, 1000))?;
    eventually(BACK, || {
        let bytes = b.read_file(&path)?;
        ensure!(bytes.len() == 100_000, "{} bytes", bytes.len());
        Ok(())
    })
    .context("a new mount of node 1")?;
    b.open(&path, "r")?.check(0, Data::pattern(2, 1000))?;
    on_a.unlock(Fcntl)?;
    job.restart_actors();
    Ok(())
}

/// Its server removes a name for it, which waits for a third node: who waits in unlink(2) is told of the
/// mount's end at once, though its server had the kernel's device as well.
fn mount_killed_removing(job: &Job) -> TestResult {
    let (b, c) = (job.node(1)?, job.node(2)?);
    let path = format!("{}/file", job.shared());
    c.write_file(&path, Data::pattern(1, 1000))?;
    let home = pid_of(job, 2, Daemon::Server)?.context("the server of node 2")?;
    let home = Pid::from_raw(home as i32).context("a process number")?;
    // The kernel knows the name: only the removal itself has to ask.
    b.stat(&path)?;
    kill_process(home, Signal::STOP)?;
    let removing = b.begin(Command::Unlink { path: path.clone() });
    std::thread::sleep(Duration::from_millis(500));
    kill(job, 1, Daemon::Mount)?;
    // Had the server kept the device, it would answer when it gives node 2 up: with success.
    let removed = expect_errno(removing.wait(), &["ECONNABORTED", "ENOTCONN"]);
    kill_process(home, Signal::CONT)?;
    removed?;
    job.restart_actors();
    eventually(BACK, || Ok(job.node(1)?.names(&job.shared()).map(drop)?)).context("a new mount")?;
    Ok(())
}

/// The areas were taken away before the mount was due again, and the rest of the node a while after that: it does not come
/// back in between.
fn ends_before_it_is_back() -> TestResult {
    const KILLS: usize = 4; // The pause before the next restart is 800 ms then.
    let tier = TierDir::small(16 << 20)?;
    let job = Job::up(tier.job(1))?;
    tier.read_only(true)?;
    job.node(0)?.write_file(&job.cached("f"), Data::pattern(1, 1000))?;
    job.restart_actors();
    for _ in 0..KILLS {
        kill_and_wait(&job, 0, Daemon::Mount)?;
    }
    kill(&job, 0, Daemon::Mount)?;
    let down = job.cluster().context("a real job")?.run("down", &["--drain", "2"])?;
    ensure!(down.code == Some(3) && !down.stdout.contains("hung"), "{down:?}");
    ensure!(!down.stdout.contains("its supervisor"), "{down:?}");
    Ok(())
}
