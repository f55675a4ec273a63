//! Tests 28 (death of a node), 35, 36 and 39 of the coherence protocol: nodes that are lost, cut off,
//! or back again, and a coordinator that is silent.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hayase_e2e::actor::LockKind::Fcntl;
use hayase_e2e::{
    Data, File, Job, JobOptions, Node, Suite, TestResult, eventually, expect_errno, note,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_losses", JobOptions::three())
        .alone("coherence_28_39_a_lost_node_holds_nothing", || on_a_job(lost_for_good))
        .alone("coherence_28_the_only_other_node_is_lost", the_only_other_is_lost)
        .alone("coherence_35_a_reader_that_is_cut_off_never_reads_old_bytes", || {
            on_a_job(reader_cut_off)
        })
        .alone("coherence_35_nodes_that_do_not_reach_each_other_work_on", || {
            on_a_job(cut_from_each_other)
        })
        .alone("coherence_36_a_lock_of_a_node_that_was_cut_off_is_lost", || {
            on_a_job(holder_cut_off)
        })
        .alone("coherence_36_without_a_coordinator_nothing_is_released", || {
            on_a_job(no_coordinator)
        })
}

/// Declared in 3 to 5 s; generous, for loaded machines.
const DECLARED: Duration = Duration::from_secs(40);

fn on_a_job(test: fn(&Job) -> TestResult) -> TestResult {
    let job = Job::up(JobOptions::three())?;
    test(&job).map_err(|error| error.context(job.logs()))?;
    job.down()
}

/// The only process of this kind that serves `node`.
fn pid_of(job: &Job, node: u16, kind: &str) -> anyhow::Result<Pid> {
    let daemons = job.cluster().context("a real job")?.daemons();
    let pids = if kind == "serve" { daemons.servers } else { daemons.supervisors };
    let pid = pids.into_iter().find(|pid| node_of(*pid) == Some(node));
    let pid = pid.with_context(|| format!("{kind} of node {node}"))?;
    Pid::from_raw(pid as i32).context("a process number")
}

fn node_of(pid: u32) -> Option<u16> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0').skip_while(|word| *word != "--node");
    words.nth(1)?.parse().ok()
}

fn held_elsewhere(file: &File) -> TestResult {
    let tried = file.lock(Fcntl);
    if tried.is_ok() {
        file.unlock(Fcntl)?;
    }
    expect_errno(tried, &["EAGAIN", "EACCES"])
}

fn cut(node: &Node) -> TestResult {
    node.shell("ip link set eth0 down")?;
    Ok(())
}

fn join(node: &Node) -> TestResult {
    node.shell("ip link set eth0 up")?;
    Ok(())
}

fn status(job: &Job) -> anyhow::Result<String> {
    Ok(job.cluster().context("a real job")?.run("status", &[])?.stdout)
}

/// kill -9 of a node's supervisor takes its daemons along, and nobody starts them again.
fn lost_for_good(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    let path = |name: &str| format!("{}/{name}", job.shared());
    a.write_file(&path("locked"), Data::pattern(1, 1000))?;
    for i in 0..8 {
        b.write_file(&path(&format!("of-b-{i}")), Data::pattern(2, 1000))?;
    }
    let (on_a, on_b, on_c) = (
        a.open(&path("locked"), "rw")?,
        b.open(&path("locked"), "rw")?,
        c.open(&path("locked"), "rw")?,
    );
    on_b.lock(Fcntl)?;
    held_elsewhere(&on_a)?;
    let lost: Vec<File> =
        (0..8).filter_map(|i| c.open(&path(&format!("of-b-{i}")), "r").ok()).collect();
    ensure!(lost.len() == 8, "opens of files of node 1");
    let begin = Instant::now();
    kill_process(pid_of(job, 1, "node")?, Signal::KILL)?;
    eventually(DECLARED, || Ok(on_a.lock(Fcntl)?)).context("the lock of a lost node is free")?;
    note(&format!("its lock is free after {:?}", begin.elapsed()));
    for file in &lost {
        expect_errno(file.pread(0, 10), &["EIO"])?;
    }
    note(&format!("its files answer EIO after {:?}", begin.elapsed()));
    on_a.pwrite(0, Data::pattern(3, 100))?;
    on_c.check(0, Data::pattern(3, 100)).context("every other open file goes on")?;
    // Names: of its shard EIO, of others what they are; never ENOENT for what was there.
    let mut errors = 0;
    for i in 0..8 {
        let found = c.stat(&path(&format!("of-b-{i}")));
        errors += u32::from(found.is_err());
        expect_errno(found, &["EIO"])?;
    }
    ensure!(errors == 8, "inodes of the lost node answer");
    let said = status(job)?;
    ensure!(said.contains("node 1 is lost"), "{said}");
    let listed = (0..8).filter(|i| said.contains(&format!("of-b-{i}"))).count();
    note(&format!("{listed} of 8 lost files have their names on living nodes"));
    ensure!(listed > 0, "lost files by path: {said}");
    job.restart_actors();
    Ok(())
}

/// Nobody is left to be told of it, and all the same what it held is free.
fn the_only_other_is_lost() -> TestResult {
    let job = Job::up(JobOptions::nodes(2))?;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/locked", job.shared());
    a.write_file(&path, Data::pattern(1, 1000))?;
    let (on_a, on_b) = (a.open(&path, "rw")?, b.open(&path, "rw")?);
    on_b.lock(Fcntl)?;
    held_elsewhere(&on_a)?;
    kill_process(pid_of(&job, 1, "node")?, Signal::KILL)?;
    let freed = eventually(DECLARED, || Ok(on_a.lock(Fcntl)?));
    freed.context("the lock of the only other node is free").map_err(|e| e.context(job.logs()))?;
    on_a.check(0, Data::pattern(1, 1000))?;
    job.down()
}

/// What the mount of a node tells of a file, and its home.
fn explained(node: &Node, path: &str) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&node.get_xattr(path, "user.hayase.explain")?)?)
}

/// B reads a file through its cache; its network is cut; A writes. B reads an error or the new bytes.
fn reader_cut_off(job: &Job) -> TestResult {
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::fill(1, 8192))?;
    // As long as the home takes its maker for a writer, nobody may cache it.
    eventually(DECLARED, || {
        let told = explained(&a, &path)?;
        let opens = told["opens"].as_array().context("opens")?;
        ensure!(opens.iter().all(|open| open["write"] == false), "it is written: {told}");
        Ok(())
    })?;
    let on_b = b.open(&path, "r")?;
    on_b.check(0, Data::fill(1, 8192))?;
    let told = explained(&b, &path)?;
    ensure!(told["here"]["cache"] == true, "B caches nothing that could be old: {told}");
    cut(&b)?;
    let begin = Instant::now();
    let on_a = a.open(&path, "rw").context("a writer, while a reader does not give back")?;
    note(&format!("the writer waited for {:?}", begin.elapsed()));
    on_a.pwrite(0, Data::fill(2, 8192))?;
    for _ in 0..3 {
        match on_b.pread(0, 8192) {
            Ok(bytes) => ensure!(bytes.iter().all(|byte| *byte == 2), "old bytes were read"),
            Err(error) => ensure!(error.errno == "EIO", "{error:?}"),
        }
    }
    join(&b)?;
    eventually(DECLARED, || {
        let bytes = b.read_file(&path)?;
        ensure!(bytes.iter().all(|byte| *byte == 2), "old bytes after it is back");
        Ok(())
    })
    .context("the node is back")?;
    Ok(())
}

/// Drops what comes from `from` at `to`, or no more.
fn drop_packets((from, to): (&Node, &Node), verb: &str) -> TestResult {
    let address = |node: &Node| {
        let asked = "ip -4 -o addr show eth0 | awk '{ sub(\"/.*\", \"\", $4); print $4 }'";
        Ok::<_, anyhow::Error>(node.shell(asked)?.stdout.trim().to_owned())
    };
    let (source, target) = (address(from)?, address(to)?);
    let action = if verb == "add" { "action block" } else { "" };
    to.shell(&format!("ip xfrm policy {verb} src {source} dst {target} dir in {action}"))?;
    Ok(())
}

/// What B sends to C does not arrive, later not the other way round either; both reach A, node 0.
fn cut_from_each_other(job: &Job) -> TestResult {
    let (b, c) = (job.node(1)?, job.node(2)?);
    let path = |name: &str| format!("{}/{name}", job.shared());
    let through = "only through node 0";
    b.write_file(&path("of-b"), Data::pattern(1, 3 << 20))?;
    c.write_file(&path("of-c"), Data::pattern(2, 3 << 20))?;
    // Connections that there were, and connections to be made.
    b.open(&path("of-c"), "r")?.check(0, Data::pattern(2, 3 << 20))?;
    for (round, way) in [(&b, &c), (&c, &b)].into_iter().enumerate() {
        drop_packets(way, "add")?;
        let begin = Instant::now();
        for (node, other) in [(&b, "of-c"), (&c, "of-b")] {
            let file = node.open(&path(other), "rw").context("the other's file")?;
            file.pwrite(4096, Data::fill(7 + round as u8, 2 << 20)).context("write to it")?;
            file.check(4096, Data::fill(7 + round as u8, 2 << 20))?;
            file.fsync()?;
            file.close()?;
        }
        note(&format!("both worked again after {:?}", begin.elapsed()));
        let said = status(job)?;
        ensure!(said.contains(through) && !said.contains("is lost"), "{said}");
    }
    for way in [(&b, &c), (&c, &b)] {
        drop_packets(way, "delete")?;
    }
    eventually(DECLARED, || {
        for (node, other) in [(&b, "of-c"), (&c, "of-b")] {
            let file = node.open(&path(other), "r")?;
            file.check(4096, Data::fill(8, 2 << 20))?;
            file.close()?;
        }
        let said = status(job)?;
        ensure!(!said.contains(through), "{said}");
        Ok(())
    })
    .context("the direct way is taken again")?;
    Ok(())
}

/// B holds a lock and is cut off; C gets the lock; B comes back: its descriptor answers EIO, what it
/// writes late is not written.
fn holder_cut_off(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::fill(1, 8192))?;
    let other = format!("{}/other", job.shared());
    a.write_file(&other, Data::fill(1, 100))?;
    let (on_b, on_c) = (b.open(&path, "rw")?, c.open(&path, "rw")?);
    on_b.lock(Fcntl)?;
    on_b.pwrite(0, Data::fill(2, 100))?;
    cut(&b)?;
    let begin = Instant::now();
    eventually(DECLARED, || Ok(on_c.lock(Fcntl)?)).context("the lock of a node that is cut off")?;
    note(&format!("the lock is free after {:?}", begin.elapsed()));
    on_c.pwrite(0, Data::fill(3, 100))?;
    // Without the others: an error, after a bounded time.
    expect_errno(on_b.pwrite(0, Data::fill(4, 100)), &["EIO"])?;
    join(&b)?;
    eventually(DECLARED, || b.read_file(&other).map(|_| ()).map_err(Into::into))
        .context("the node is back")?;
    expect_errno(on_b.pwrite(0, Data::fill(5, 100)), &["EIO"])?;
    expect_errno(on_b.pread(0, 100), &["EIO"])?;
    on_c.check(0, Data::fill(3, 100)).context("late writes of who lost the lock")?;
    on_b.close()?;
    on_c.unlock(Fcntl)?;
    eventually(DECLARED, || {
        let anew = b.open(&path, "rw")?;
        let written = anew.lock(Fcntl).and_then(|()| anew.pwrite(0, Data::fill(6, 100)));
        // The kernel tells the first close later than close(2) returns; until then the file is lost
        // still, and for as long as this descriptor is open, too.
        anew.close()?;
        Ok(written.map(drop)?)
    })
    .context("closed and opened again it is a file as any other")?;
    on_c.check(0, Data::fill(6, 100))
}

/// While server 0 is frozen nobody is declared lost, so the lock of a node that is gone stays held.
fn no_coordinator(job: &Job) -> TestResult {
    let (b, c) = (job.node(1)?, job.node(2)?);
    let path = format!("{}/file", job.shared());
    c.write_file(&path, Data::fill(1, 100))?;
    let (on_b, on_c) = (b.open(&path, "rw")?, c.open(&path, "rw")?);
    on_b.lock(Fcntl)?;
    let coordinator = pid_of(job, 0, "serve")?;
    kill_process(coordinator, Signal::STOP)?;
    kill_process(pid_of(job, 1, "node")?, Signal::KILL)?;
    std::thread::sleep(Duration::from_secs(8));
    let held = held_elsewhere(&on_c);
    let said = status(job);
    kill_process(coordinator, Signal::CONT)?;
    held.context("nobody may release it")?;
    ensure!(said?.contains("no coordinator"), "status");
    eventually(DECLARED, || Ok(on_c.lock(Fcntl)?)).context("the coordinator is back")?;
    job.restart_actors();
    Ok(())
}
