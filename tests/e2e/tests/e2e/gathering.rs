//! Small writes that a mount gathers while its node alone has the file open: nobody can tell, but by the time they take.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hayase_e2e::cached::kill_server;
use hayase_e2e::random::Random;
use hayase_e2e::{
    Data, File, Job, JobOptions, Node, Scene, Suite, TestResult, eventually, expect_errno, note,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn suite() -> Suite {
    Suite::new("gathering", gathering(3))
        .job("gather_many_small_writes_are_few_requests", few_requests)
        .posix("gather_other_nodes_see_each_write", others_see_each_write)
        .posix("gather_appends_are_whole_and_at_the_end", appends)
        .posix("gather_times_are_those_of_the_writes", times)
        .posix("gather_what_the_writer_does_itself", own_calls)
        .job("gather_leaves_room_of_programs_and_holes_alone", room_of_programs)
        .job("gather_room_is_kept_and_given_back", room)
        .alone("gather_killed_servers_lose_nothing", || on_a_job(servers_killed))
        .alone("gather_a_killed_mount_loses_only_its_last_second", || on_a_job(mount_killed))
        .alone("gather_a_node_that_is_cut_off_overwrites_nothing", || on_a_job(cut_off))
        .alone("gather_who_looks_takes_nothing_from_a_mount_that_hangs", || on_a_job(looked_at))
        .alone("gather_who_hung_overwrites_nothing_at_a_home_started_anew", || on_a_job(home_anew))
        .alone("gather_without_passthrough", without_passthrough)
        .alone("gather_is_not_done_when_not_wanted", not_wanted)
}

const RECORD: u64 = 100;
/// As many small writes come before the first that a window gathers, at most.
const BEFORE: u64 = 8;
/// A daemon that was killed is back after this; generous, for loaded machines.
const BACK: Duration = Duration::from_secs(40);

/// Nodes whose mounts gather.
fn gathering(nodes: u16) -> JobOptions {
    let mut options = JobOptions::nodes(nodes);
    options.extra = vec!["--gather".into()];
    options
}

fn on_a_job(test: fn(&Job) -> TestResult) -> TestResult {
    let job = Job::up(gathering(3))?;
    test(&job).map_err(|error| error.context(job.logs()))?;
    job.down()
}

/// Bytes that came to all servers gathered.
fn gathered(job: &Job) -> anyhow::Result<u64> {
    let told = job.cluster().context("a real job")?.run("status", &["--json"])?.success()?;
    let told: serde_json::Value = serde_json::from_str(&told.stdout)?;
    let nodes = told["jobs"][0]["nodes"].as_array().context("nodes")?;
    let of = |node: &serde_json::Value| {
        node["server"]["bytes_gathered"].as_u64().context("no `bytes_gathered`")
    };
    nodes.iter().map(of).sum()
}

/// A file of A, empty, that B has open for writing; nobody else has, and no mapping of A may be left.
fn opened(a: &Node, b: &Node, path: &str, flags: &str) -> anyhow::Result<File> {
    a.write_file(path, Data::fill(0, 0))?;
    // A's own open lingers for a moment.
    std::thread::sleep(Duration::from_millis(200));
    Ok(b.open(path, flags)?)
}

/// Records from number `from` on, one behind the other.
fn write_records(file: &File, from: u64, count: u64) -> TestResult {
    for number in from..from + count {
        file.pwrite(number * RECORD, record(number))?;
    }
    Ok(())
}

fn record(number: u64) -> Data {
    Data::fill(number as u8, RECORD)
}

fn check_records(node: &Node, path: &str, count: u64) -> TestResult {
    let bytes = node.read_file(path)?;
    ensure!(bytes.len() as u64 == count * RECORD, "{} bytes of {count} records", bytes.len());
    for (number, found) in bytes.chunks(RECORD as usize).enumerate() {
        ensure!(found.iter().all(|byte| *byte == number as u8), "record {number} is another");
    }
    Ok(())
}

fn few_requests(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    let before = gathered(scene.job)?;
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    let begin = Instant::now();
    write_records(&file, 0, 1000)?;
    file.fsync()?;
    // What is gathered goes to the home after a second: a loaded machine needs several windows.
    let windows = 1 + begin.elapsed().as_secs();
    let came = gathered(scene.job)? - before;
    let least = 1000_u64.saturating_sub(BEFORE * windows) * RECORD;
    ensure!(came >= least, "{came} bytes of {} came gathered", 1000 * RECORD);
    for node in [&scene.a, &scene.b, &scene.c] {
        check_records(node, &path, 1000)?;
    }
    file.close()?;
    Ok(())
}

/// In any way in which others may look: after each write(2) has returned they find it.
fn others_see_each_write(scene: &Scene<'_>) -> TestResult {
    let mut random = Random::new(7);
    for round in 0..12 {
        let path = scene.path(&format!("file-{round}"));
        let file = opened(&scene.a, &scene.b, &path, "rw")?;
        let mut written = 0;
        for _ in 0..12 {
            let more = 1 + random.below(40);
            write_records(&file, written, more)?;
            written += more;
            let end = written * RECORD;
            let other = if random.below(2) == 0 { &scene.a } else { &scene.c };
            match random.below(6) {
                0 | 1 => ensure!(other.stat(&path)?.size == end, "round {round}: size"),
                2 => {
                    let listed = other.shell(&format!("stat -c %s {}/*", scene.dir()))?.stdout;
                    ensure!(
                        listed.contains(&end.to_string()),
                        "round {round}: {listed} lacks {end}"
                    );
                }
                3 => {
                    let reader = other.open(&path, "r")?;
                    reader.check((written - 1) * RECORD, record(written - 1))?;
                    reader.close()?;
                }
                4 => check_records(other, &path, written)?,
                _ => {
                    // Somebody cuts it by its name; the writer goes on where it was, as if nothing were.
                    other.truncate(&path, end - 50)?;
                    ensure!(file.attr()?.size == end - 50, "round {round}: cut");
                    file.pwrite(end - 50, Data::fill((written - 1) as u8, 50))?;
                }
            }
        }
        check_records(&scene.c, &path, written)?;
        file.close()?;
    }
    Ok(())
}

fn appends(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("log");
    let file = opened(&scene.a, &scene.b, &path, "w+append")?;
    for number in 0..300 {
        file.write_once(record(number))?;
        if number % 50 == 49 {
            ensure!(scene.c.stat(&path)?.size == (number + 1) * RECORD, "the size after {number}");
        }
    }
    // Another appends in between: each record is whole, and at the end as it was then.
    let other = scene.c.open(&path, "w+append")?;
    for number in 300..400 {
        let writer = if number % 3 == 0 { &other } else { &file };
        writer.write_once(record(number))?;
    }
    other.close()?;
    for number in 400..700 {
        file.write_once(record(number))?;
    }
    check_records(&scene.a, &path, 700)?;
    check_records(&scene.b, &path, 700)?;
    // Beside one that cuts it, through the same mount.
    scene.b.truncate(&path, 600 * RECORD)?;
    for number in 600..650 {
        file.write_once(record(number))?;
    }
    check_records(&scene.a, &path, 650)?;
    file.close()?;
    Ok(())
}

/// A file that was written first is not the newer one, though its bytes may come to its home later: make(1).
fn times(scene: &Scene<'_>) -> TestResult {
    for round in 0..6 {
        let (first, second) =
            (scene.path(&format!("{round}.o")), scene.path(&format!("{round}.a")));
        let file = opened(&scene.a, &scene.b, &first, "rw")?;
        match round {
            // Up to the end of a window, whose room is all used.
            4 | 5 => {
                let write = |at: u64| file.pwrite(at << 12, Data::fill(9, 4096)).map(drop);
                (0..256).try_for_each(write)?;
            }
            _ => write_records(&file, 0, 50)?,
        }
        // Longer than a loaded machine delays a message: its way is not part of the age that it tells.
        std::thread::sleep(Duration::from_millis(300));
        scene.b.write_file(&second, Data::fill(1, 10))?;
        // In every second round what was gathered is still there when it is asked for.
        if round % 2 == 0 {
            file.close()?;
        }
        let (old, new) = (scene.c.stat(&first)?.mtime, scene.c.stat(&second)?.mtime);
        ensure!(old <= new, "round {round}: {old} was written after {new}");
        ensure!(new - old < 5_000_000_000, "round {round}: {old} is long before {new}");
    }
    Ok(())
}

/// The writer itself, in any order of calls, beside a plain array of bytes.
fn own_calls(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    let mut random = Random::new(11);
    let (mut plain, mut next) = (Vec::<u8>::new(), 0_u64);
    for round in 0..1500 {
        match random.below(24) {
            0 => next = random.below(300_000),
            1 => {
                let size = random.below(300_000);
                file.truncate(size)?;
                plain.resize(size as usize, 0);
            }
            2 => {
                let (at, len) = (random.below(300_000), random.below(5000));
                let found = file.pread(at, len)?;
                let start = (at as usize).min(plain.len());
                let end = (start + len as usize).min(plain.len());
                ensure!(found == plain[start..end], "round {round}: {len} bytes at {at}");
            }
            3 => ensure!(file.attr()?.size == plain.len() as u64, "round {round}: size"),
            4 => file.fsync()?,
            5 => ensure!(scene.b.stat(&path)?.size == plain.len() as u64, "round {round}: stat"),
            _ => {
                let len = 1 + random.below(700);
                let end = next + len;
                file.pwrite(next, Data::fill(round as u8, len))?;
                plain.resize(plain.len().max(end as usize), 0);
                plain[next as usize..end as usize].fill(round as u8);
                next = end;
            }
        }
    }
    ensure!(scene.c.read_file(&path)? == plain, "the bytes are others on another node");
    file.close()?;
    Ok(())
}

/// What was taken finds room, however full the disk is by then; and what was kept for nothing is free again.
fn room(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    write_records(&file, 0, 100)?;
    file.close()?;
    eventually(BACK, || {
        let blocks = scene.a.stat(&path)?.blocks;
        ensure!(blocks <= 64, "{blocks} blocks of 512 bytes for {} bytes", 100 * RECORD);
        Ok(())
    })?;
    if !scene.job.owns_space() {
        note("others use this file system: it was not filled");
        return Ok(());
    }
    let path = scene.path("beside-a-full-disk");
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    write_records(&file, 0, 50)?;
    let full = scene.path("full");
    let filler = scene.a.open(&full, "rw+creat")?;
    let mut filled = 0;
    while filler.pwrite(filled, Data::fill(1, 1 << 20)).is_ok() {
        filled += 1 << 20;
    }
    while filler.pwrite(filled, Data::fill(1, 4096)).is_ok() {
        filled += 4096;
    }
    file.fsync().context("what was taken before the disk was full")?;
    check_records(&scene.c, &path, 50)?;
    // From here on each write says for itself whether there is room.
    let mut written = 50;
    let error = loop {
        match file.pwrite(written * RECORD, record(written)) {
            Ok(_) if written < 1 << 20 => written += 1,
            other => break other,
        }
    };
    expect_errno(error, &["ENOSPC"])?;
    file.fsync().context("what was acknowledged is there")?;
    filler.close()?;
    scene.a.unlink(&full)?;
    let bytes = scene.c.read_file(&path)?;
    ensure!(bytes.len() as u64 >= written * RECORD, "{} bytes of {written} records", bytes.len());
    Ok(())
}

/// fallocate(2) with `FALLOC_FL_KEEP_SIZE`, and files with holes.
fn room_of_programs(scene: &Scene<'_>) -> TestResult {
    const KEEP_SIZE: u32 = 1;
    let path = scene.path("kept");
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    write_records(&file, 0, 50)?;
    file.allocate(KEEP_SIZE, 0, 8 << 20)?;
    write_records(&file, 50, 50)?;
    file.fsync()?;
    file.close()?;
    // What a closed file would give back is given back within moments.
    std::thread::sleep(Duration::from_millis(500));
    let blocks = scene.a.stat(&path)?.blocks;
    ensure!(blocks * 512 >= 8 << 20, "{blocks} blocks of 512 bytes are left of 8 MiB");
    check_records(&scene.c, &path, 100)?;

    let path = scene.path("holes");
    let file = opened(&scene.a, &scene.b, &path, "rw")?;
    file.truncate(64 << 20)?;
    for place in 0..60 {
        for number in 0..10 {
            file.pwrite(place * (1 << 20) + number * RECORD, record(number))?;
        }
    }
    file.fsync()?;
    let blocks = scene.a.stat(&path)?.blocks;
    ensure!(blocks * 512 < 8 << 20, "{blocks} blocks of 512 bytes for 60 kB");
    file.close()?;
    Ok(())
}

/// Whether a kernel without passthrough is played already.
fn is_masked() -> bool {
    std::env::var("HAYASE_E2E_PROFILE").is_ok_and(|profile| !profile.is_empty())
}

fn servers_killed(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    // Not more often: a server that is killed again and again stays away until its node counts as lost.
    for (round, victims) in [&[0][..], &[1], &[0, 1]].into_iter().enumerate() {
        let path = format!("{}/file-{round}", job.shared());
        let file = opened(&a, &b, &path, "rw")?;
        write_records(&file, 0, 60)?;
        for victim in victims {
            kill_server(job, *victim)?;
        }
        write_records(&file, 60, 60)?;
        eventually(BACK, || {
            ensure!(c.stat(&path)?.size == 120 * RECORD, "round {round}: size");
            Ok(())
        })?;
        file.fsync()?;
        check_records(&c, &path, 120)?;
        file.close()?;
    }
    Ok(())
}

/// The only process of this kind of node 1.
fn pid_of(job: &Job, kind: &str) -> anyhow::Result<Pid> {
    let daemons = job.cluster().context("a real job")?.daemons();
    let pids = if kind == "mount" { daemons.mounts } else { daemons.servers };
    let is_of_node_1 = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--node\u{0}1\u{0}")
    };
    let pid =
        pids.into_iter().find(is_of_node_1).with_context(|| format!("the {kind} of node 1"))?;
    Pid::from_raw(pid as i32).context("a process number")
}

/// What is lost is an end of what was written: never a piece in between, and nothing that is older than a second.
fn mount_killed(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    let path = format!("{}/file", job.shared());
    let file = opened(&a, &b, &path, "rw")?;
    write_records(&file, 0, 500)?;
    std::thread::sleep(Duration::from_secs(4));
    write_records(&file, 500, 300)?;
    kill_process(pid_of(job, "mount")?, Signal::KILL)?;
    // The others find what is there at once or a little later.
    eventually(BACK, || Ok(c.stat(&path).map(drop)?))?;
    let kept = c.read_file(&path)?;
    ensure!(
        kept.len() as u64 >= 500 * RECORD,
        "what is older than a second is lost: {}",
        kept.len()
    );
    ensure!((kept.len() as u64).is_multiple_of(RECORD), "a piece of a record: {}", kept.len());
    check_records(&c, &path, kept.len() as u64 / RECORD)?;
    note(&format!("{} of 800 records were kept", kept.len() as u64 / RECORD));
    job.restart_actors();
    eventually(BACK, || {
        let b = job.node(1)?;
        check_records(&b, &path, kept.len() as u64 / RECORD)
    })?;
    Ok(())
}

/// B has bytes that are not handed on and is cut off; C writes the same place; what B has comes too late.
fn cut_off(job: &Job) -> TestResult {
    let (a, b, c) = (job.node(0)?, job.node(1)?, job.node(2)?);
    // The names of some are at the node that is cut off.
    let path = |number: usize| format!("{}/file-{number}", job.shared());
    let files: Vec<File> =
        (0..8).map(|number| opened(&a, &b, &path(number), "rw")).collect::<Result<_, _>>()?;
    files.iter().try_for_each(|file| write_records(file, 0, 30))?;
    b.shell("ip link set eth0 down")?;
    let begin = Instant::now();
    let reached = |number| Some((number, c.open(&path(number), "rw").ok()?));
    let others: Vec<(usize, File)> = (0..files.len()).filter_map(reached).collect();
    note(&format!("{} of 8 are open elsewhere after {:?}", others.len(), begin.elapsed()));
    ensure!(!others.is_empty(), "no writer is let at a file of who does not answer");
    for (_, other) in &others {
        other.pwrite(0, Data::fill(200, 30 * RECORD))?;
    }
    b.shell("ip link set eth0 up")?;
    for (number, other) in &others {
        // The descriptor that lost something says so, and goes on saying so.
        eventually(BACK, || expect_errno(files[*number].fsync(), &["EIO"]))?;
        other.check(0, Data::fill(200, 30 * RECORD)).context("what was written later")?;
    }
    let (number, other) = &others[0];
    files.into_iter().try_for_each(File::close)?;
    eventually(BACK, || {
        let anew = b.open(&path(*number), "rw")?;
        let written = anew.pwrite(0, Data::fill(6, 10));
        anew.close()?;
        Ok(written.map(drop)?)
    })
    .context("closed and opened again it is a file as any other")?;
    other.check(0, Data::fill(6, 10))
}

/// Stops the mount of node 1 while it has records of a new file that are not handed on.
fn stopped_mount(job: &Job, path: &str) -> anyhow::Result<(File, Pid)> {
    let (a, b) = (job.node(0)?, job.node(1)?);
    let (mount, file) = (pid_of(job, "mount")?, opened(&a, &b, path, "rw")?);
    write_records(&file, 0, 60)?;
    kill_process(mount, Signal::STOP)?;
    Ok((file, mount))
}

/// A mount that does not answer while others look, read and change attributes: its bytes come when it goes on.
fn looked_at(job: &Job) -> TestResult {
    let path = format!("{}/file", job.shared());
    let (file, mount) = stopped_mount(job, &path)?;
    let c = job.node(2)?;
    let begin = Instant::now();
    let size = c.stat(&path)?.size;
    note(&format!("{size} of {} bytes after {:?}", 60 * RECORD, begin.elapsed()));
    let reader = c.open(&path, "r")?;
    reader.pread(0, RECORD)?;
    c.chmod(&path, 0o640)?;
    // Whoever came first has waited; the next ones need not.
    let begin = Instant::now();
    (0..20).try_for_each(|_| c.stat(&path).map(drop))?;
    let waited = begin.elapsed();
    kill_process(mount, Signal::CONT)?;
    ensure!(waited < Duration::from_secs(9), "20 looks took {waited:?}");
    file.fsync().context("nobody has written, and nothing is lost")?;
    ensure!(c.stat(&path)?.size == 60 * RECORD, "the size after it went on");
    check_records(&c, &path, 60)?;
    reader.close()?;
    write_records(&file, 60, 60)?;
    ensure!(c.stat(&path)?.size == 120 * RECORD, "it is waited for again");
    file.close()?;
    check_records(&c, &path, 120)
}

/// Another writes while a mount does not answer, and the home is started anew: what the mount brings comes too late.
fn home_anew(job: &Job) -> TestResult {
    let path = format!("{}/file", job.shared());
    let (file, mount) = stopped_mount(job, &path)?;
    let c = job.node(2)?;
    let other = c.open(&path, "rw")?;
    other.pwrite(0, Data::fill(200, 60 * RECORD))?;
    other.close()?;
    kill_server(job, 0)?;
    kill_process(mount, Signal::CONT)?;
    eventually(BACK, || expect_errno(file.fsync(), &["EIO"]))?;
    let found = c.read_file(&path)?;
    ensure!(found == vec![200; 60 * RECORD as usize], "old bytes are over later ones");
    file.close()?;
    let b = job.node(1)?;
    let file = b.open(&path, "rw")?;
    write_records(&file, 0, 60)?;
    file.close()?;
    check_records(&c, &path, 60).context("closed and opened again it is a file as any other")
}

/// Where no file is passed through to the kernel, those of the own node are gathered too.
fn without_passthrough() -> TestResult {
    let mut options = gathering(2);
    if !is_masked() {
        options.extra.extend(["--kernel-profile".into(), "6.1".into()]);
    }
    let job = Job::up(options)?;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let test = || {
        let path = format!("{}/file", job.shared());
        let file = a.open(&path, "rw+creat+excl")?;
        write_records(&file, 0, 400)?;
        ensure!(b.stat(&path)?.size == 400 * RECORD, "the size on the other node");
        write_records(&file, 400, 400)?;
        check_records(&b, &path, 800)?;
        ensure!(gathered(&job)? >= 400 * RECORD, "nothing came gathered");
        file.close()?;
        Ok(())
    };
    test().map_err(|error: anyhow::Error| error.context(job.logs()))?;
    job.down()
}

fn not_wanted() -> TestResult {
    let job = Job::up(JobOptions::nodes(2))?;
    let path = format!("{}/file", job.shared());
    let file = opened(&job.node(0)?, &job.node(1)?, &path, "rw")?;
    write_records(&file, 0, 200)?;
    file.fsync()?;
    ensure!(gathered(&job)? == 0, "small writes were gathered");
    check_records(&job.node(0)?, &path, 200)?;
    job.down()
}
