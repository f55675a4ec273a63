//! Tests 1-5 of the coherence protocol: what a node writes, the others see at once.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hayase_e2e::actor::Answer;
use hayase_e2e::{
    Command, Data, File, JobOptions, MapKind, Scene, Suite, TestResult, Whence, eventually, note,
};
use rustix::time::{ClockId, clock_gettime};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_sizes", JobOptions::three())
        .posix("coherence_01_size_after_remote_write", size_after_remote_write)
        .posix("coherence_01_size_of_striped_file", size_of_striped_file)
        .posix("coherence_02_reads_every_acknowledged_byte", reads_every_acknowledged_byte)
        .posix("coherence_02_open_reader_sees_each_append", open_reader_sees_each_append)
        .posix("coherence_02_open_reader_during_stat", open_reader_sees_each_append_during_stat)
        .posix("coherence_03_open_reader_sees_new_bytes", open_reader_sees_new_bytes)
        .posix("coherence_03_reader_between_writers", reader_between_writers)
        .posix("coherence_04_mapping_is_new_within_a_second", mapping_is_new_within_a_second)
        .posix("coherence_05_local_reader_sees_remote_writer", local_reader_sees_remote_writer)
}

/// Kernel clocks of file times tick this far apart, where they are not finer.
const TICK: Duration = Duration::from_millis(10);

const LENGTHS: [u64; 12] =
    [1, 99, 100, 3896, 4096, 5000, 65_536, 65_537, 131_072, 1_000_000, 1_048_576, 3_000_000];

/// A writes through the kernel alone; B, which has not opened it, sees size and mtime of each write.
fn size_after_remote_write(scene: &Scene<'_>) -> TestResult {
    sizes_follow(scene, &scene.path("whole"))
}

fn size_of_striped_file(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    sizes_follow(scene, &format!("{dir}/file"))
}

fn sizes_follow(scene: &Scene<'_>, path: &str) -> TestResult {
    let file = scene.a.open(path, "w+creat+excl")?;
    ensure!(scene.b.stat(path)?.size == 0, "a new file is not empty");
    let (mut size, mut mtime) = (0, scene.b.stat(path)?.mtime);
    for (round, len) in LENGTHS.into_iter().cycle().take(60).enumerate() {
        let before = now();
        file.pwrite(size, Data::pattern(1, len))?;
        size += len;
        let seen = scene.b.stat(path)?;
        ensure!(seen.size == size, "round {round}: size {} of {size}", seen.size);
        ensure!(seen.mtime >= mtime, "round {round}: mtime went back");
        ensure!(seen.mtime >= before, "round {round}: mtime {} before {before}", seen.mtime);
        let own = scene.a.stat(path)?;
        ensure!(own.mtime == seen.mtime, "round {round}: mtime here {own:?}, there {seen:?}");
        ensure!(file.attr()?.size == size, "round {round}: the writer's own size");
        ensure!(scene.c.stat(path)?.size == size, "round {round}: the third node's size");
        mtime = seen.mtime;
    }
    Ok(())
}

/// By the clock that stamps files before Linux 6.13: that of the last tick, which a busy machine may be late with.
fn now() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// B opened for reading while A writes: each byte is there as soon as A's write(2) returned.
fn reads_every_acknowledged_byte(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    let writer = scene.a.open(&path, "rw+creat+excl")?;
    let reader = scene.b.open(&path, "r")?;
    let mut end = 0;
    for len in LENGTHS.into_iter().cycle().take(36) {
        writer.pwrite(end, Data::pattern(2, len))?;
        reader.check(end, Data::pattern(2, len))?;
        ensure!(reader.pread(end + len, 1)?.is_empty(), "bytes after the end");
        end += len;
    }
    reader.check(0, Data::pattern(2, end))?;
    // The same place again and again, of changing length: nothing old may stay in a cache.
    for round in 0..400_u64 {
        let (offset, len) = (round % 7 * 3000, 1 + round * 37 % 9000);
        writer.pwrite(offset, Data::pattern(round, len))?;
        reader
            .check(offset, Data::pattern(round, len))
            .with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// B has it open and cached, and reads without a pause while A appends: the kernel of B loses no answer about the length,
/// though mappings are refreshed meanwhile.
fn open_reader_sees_each_append(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    let (writer, reader) = appended_and_read(scene, &path)?;
    see_each_append(&writer, &reader, Duration::from_secs(4))
}

/// The same while other processes of B ask for the attributes all the time, so that answers cross.
fn open_reader_sees_each_append_during_stat(scene: &Scene<'_>) -> TestResult {
    for dir in [scene.dir().to_owned(), scene.striped("striped")?] {
        let path = format!("{dir}/file");
        let (writer, reader) = appended_and_read(scene, &path)?;
        let ask = format!("timeout 3 perl -e 'stat \"{path}\" while 1'");
        let shell = Command::Shell { script: format!("{ask} & {ask}") };
        let asking = scene.b.begin_within(shell, Duration::from_secs(20));
        see_each_append(&writer, &reader, Duration::from_secs(2)).context(dir)?;
        match asking.wait()? {
            Answer::Output(output) if output.code == Some(124) => {}
            other => anyhow::bail!("the processes that ask: {other:?}"),
        }
    }
    Ok(())
}

/// Open by A for writing, and before by B for reading, with pages in its cache.
fn appended_and_read(scene: &Scene<'_>, path: &str) -> anyhow::Result<(File, File)> {
    scene.a.write_file(path, Data::fill(1, 1))?;
    // Not while the writer's close lingers: then the open would not be one that caches.
    std::thread::sleep(Duration::from_millis(300));
    let reader = scene.b.open(path, "r")?;
    reader.check(0, Data::fill(1, 1))?;
    Ok((scene.a.open(path, "rw")?, reader))
}

fn see_each_append(writer: &File, reader: &File, time: Duration) -> TestResult {
    let (begin, mut end) = (Instant::now(), 1);
    while begin.elapsed() < time {
        writer.pwrite(end, Data::pattern(end, 100))?;
        reader.check(end, Data::pattern(end, 100)).with_context(|| format!("at {end}"))?;
        end += 100;
    }
    Ok(())
}

/// B has it open and cached when A opens it for writing: B's next read is new.
fn open_reader_sees_new_bytes(scene: &Scene<'_>) -> TestResult {
    let mut late = 0;
    for dir in [scene.dir().to_owned(), scene.striped("striped")?] {
        let path = format!("{dir}/file");
        scene.a.write_file(&path, Data::fill(1, 300_000))?;
        let readers = [scene.b.open(&path, "r")?, scene.c.open(&path, "r")?];
        for reader in &readers {
            reader.check(0, Data::fill(1, 300_000))?;
        }
        let writer = scene.a.open(&path, "w")?;
        for round in 0..200_u64 {
            let data = Data::fill((round % 250 + 2) as u8, 1 + round * 1499 % 300_000);
            writer.pwrite(0, data.clone())?;
            for reader in &readers {
                let waited = eventually(TICK, || reader.check(0, data.clone()))
                    .with_context(|| format!("round {round}"))?;
                late += u32::from(!waited.is_zero());
            }
        }
    }
    // File times of ext4 and XFS since Linux 6.13 tell any two writes apart once they were looked at.
    ensure!(late == 0 || !fine_times()?, "{late} reads were old at first");
    note(&format!("{late} of 800 reads were old within one clock tick"));
    Ok(())
}

fn fine_times() -> anyhow::Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    Ok((numbers.next(), numbers.next()) >= (Some(6), Some(13)))
}

/// The writer comes and goes while B keeps its descriptor and others open anew.
fn reader_between_writers(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 50_000))?;
    let held = scene.b.open(&path, "r")?;
    for round in 0..60_u64 {
        let data = Data::pattern(round, 50_000);
        let node = scene.nodes()[(round % 3) as usize];
        let writer = node.open(&path, "w")?;
        writer.pwrite(0, data.clone())?;
        writer.close()?;
        eventually(TICK, || held.check(0, data.clone()))
            .with_context(|| format!("round {round}"))?;
        for node in scene.nodes() {
            let fresh = node.open(&path, "r")?;
            fresh.check(0, data.clone()).with_context(|| format!("opened anew, round {round}"))?;
            fresh.close()?;
        }
    }
    Ok(())
}

/// A mapping made before the writer came shows its bytes within a second.
fn mapping_is_new_within_a_second(scene: &Scene<'_>) -> TestResult {
    const LEN: u64 = 256 * 1024;
    // The promise, and what a loaded machine may add.
    const BOUND: Duration = Duration::from_millis(1500);
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(b'o', LEN))?;
    let reader = scene.b.open(&path, "r")?;
    let map = reader.map(LEN, MapKind::SharedRead)?;
    map.check(0, &[b'o'; LEN as usize])?;
    let writer = scene.a.open(&path, "rw")?;
    let mut slowest = Duration::ZERO;
    for round in 0..4_u64 {
        let byte = b'p' + round as u8;
        writer.pwrite(round * 4096, Data::fill(byte, 70_000))?;
        let fresh = || map.check(round * 4096, &[byte; 70_000]);
        slowest = slowest.max(eventually(BOUND, fresh)?);
    }
    note(&format!("a mapping was new after {} ms at most", slowest.as_millis()));
    Ok(())
}

/// A reads on the node of the bytes, B writes from afar.
fn local_reader_sees_remote_writer(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(1, 10_000))?;
    let reader = scene.a.open(&path, "r")?;
    reader.check(0, Data::fill(1, 10_000))?;
    let writer = scene.b.open(&path, "rw")?;
    let mut size = 10_000;
    for round in 0..150_u64 {
        let (offset, len) = (round * 997 % (size + 5000), 1 + round * 811 % 40_000);
        writer.pwrite(offset, Data::pattern(round, len))?;
        size = size.max(offset + len);
        reader
            .check(offset, Data::pattern(round, len))
            .with_context(|| format!("round {round}"))?;
        ensure!(reader.attr()?.size == size, "round {round}: fstat says {}", reader.attr()?.size);
        let end = reader.seek(Whence::End, 0)?;
        ensure!(end == size, "round {round}: SEEK_END is {end}, the size {size}");
    }
    writer.truncate(123)?;
    ensure!(reader.attr()?.size == 123, "fstat after a truncate elsewhere");
    ensure!(reader.seek(Whence::End, 0)? == 123, "SEEK_END after a truncate elsewhere");
    Ok(())
}
