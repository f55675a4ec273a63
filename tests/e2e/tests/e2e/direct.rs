//! Large requests of other nodes go past the page cache of the node that has the part, beside everything else
//! that programs do with the same file.

use std::time::Duration;

use anyhow::{Context, ensure};
use hayase_e2e::actor::Command;
use hayase_e2e::random::Random;
use hayase_e2e::{Data, Job, JobOptions, MapKind, Scene, Suite, TestResult, eventually, note};

pub(crate) fn suite() -> Suite {
    Suite::new("direct", JobOptions::three())
        .job("direct_large_requests_pass_by_the_page_cache", pass_by)
        .job("direct_from_the_first_write_after_a_close", from_the_first)
        .job("direct_striped_parts_too", striped)
        .posix("direct_unaligned_writes_at_once_leave_one_whole", unaligned_at_once)
        .posix("direct_append_beside_an_unaligned_write", append_beside)
        .posix("direct_any_place_and_length", any_place)
        .posix("direct_beside_a_mapping_of_the_home", beside_a_mapping)
        .alone("direct_is_not_used_when_not_wanted", not_wanted)
}

const MIB: u64 = 1 << 20;
const BLOCKS: u64 = 8;

/// Bytes that went past the page cache, on all servers together.
fn direct_bytes(job: &Job) -> anyhow::Result<u64> {
    let told = job.cluster().context("a real job")?.run("status", &["--json"])?.success()?;
    let told: serde_json::Value = serde_json::from_str(&told.stdout)?;
    let nodes = told["jobs"][0]["nodes"].as_array().context("nodes")?;
    let of = |node: &serde_json::Value| {
        node["server"]["bytes_direct"].as_u64().context("no `bytes_direct`")
    };
    nodes.iter().map(of).sum()
}

/// Whether this machine lets servers have a ring; where not, the way through the page cache is tested.
fn has_rings(job: &Job) -> anyhow::Result<bool> {
    let told = job.cluster().context("a real job")?.run("status", &[])?.success()?;
    Ok(!told.stdout.contains("since there is no io_uring"))
}

/// A file whose node has nobody with it open: what others write and read of it is not in its memory.
fn pass_by(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(0, 1))?;
    let before = direct_bytes(scene.job)?;
    let file = scene.b.open(&path, "rw")?;
    // The first write of a node asks whether a mapping is left; the later ones know.
    eventually(Duration::from_secs(10), || {
        for block in 0..BLOCKS {
            file.pwrite(block * MIB, Data::pattern(3, MIB))?;
        }
        let moved = direct_bytes(scene.job)? - before;
        ensure!(
            moved >= BLOCKS * MIB || !has_rings(scene.job)?,
            "{moved} bytes went past the page cache"
        );
        Ok(())
    })?;
    file.fsync()?;
    let written = direct_bytes(scene.job)?;
    scene.c.open(&path, "r")?.check(0, Data::pattern(3, BLOCKS * MIB))?;
    let read = direct_bytes(scene.job)? - written;
    ensure!(read >= BLOCKS * MIB / 2 || !has_rings(scene.job)?, "{read} bytes were read so");
    scene.a.open(&path, "r")?.check(0, Data::pattern(3, BLOCKS * MIB))?;
    note(&format!("{} bytes written, {read} read past the page cache", written - before));
    Ok(())
}

/// A file that a program of its node has written and closed: the next large write, of another node, waits until it is
/// known that no mapping is left, and nothing of it is in its node's memory.
fn from_the_first(scene: &Scene<'_>) -> TestResult {
    let number = std::cell::Cell::new(0);
    eventually(Duration::from_secs(10), || {
        number.set(number.get() + 1);
        let path = scene.path(&format!("first-{}", number.get()));
        scene.a.write_file(&path, Data::fill(0, 1))?;
        let before = direct_bytes(scene.job)?;
        let file = scene.b.open(&path, "rw")?;
        for block in 0..BLOCKS {
            file.pwrite(block * MIB, Data::pattern(4, MIB))?;
        }
        let moved = direct_bytes(scene.job)? - before;
        // The kernel may tell of a close late: then the next file is tried.
        ensure!(
            moved == BLOCKS * MIB || !has_rings(scene.job)?,
            "{moved} bytes went past the page cache"
        );
        scene.c.open(&path, "r")?.check(0, Data::pattern(4, BLOCKS * MIB))
    })?;
    Ok(())
}

/// Less than one request of a kernel, and not whole blocks: the end of it goes through the page cache.
const UNALIGNED: u64 = (512 << 10) - 16;

/// Of two writes of two nodes to the same place one is there, from its first byte to its last. Over bytes that are on
/// the disk already: there the kernel lets direct writes overlap.
fn unaligned_at_once(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("at-once");
    scene.a.write_file(&path, Data::fill(0, 0))?;
    let files = [scene.b.open(&path, "rw")?, scene.c.open(&path, "rw")?];
    files[0].pwrite(0, Data::pattern(0, UNALIGNED))?;
    files[0].fsync()?;
    let before = direct_bytes(scene.job)?;
    for round in 0..1_000 {
        let wrote = [2 * round, 2 * round + 1].map(|seed| Data::pattern(seed, UNALIGNED));
        let write = |place: usize| {
            let (file, data) = (files[place].id(), wrote[place].clone());
            Command::Pwrite { file, offset: 0, data }
        };
        let begun = [scene.b.begin(write(0)), scene.c.begin(write(1))];
        begun.into_iter().try_for_each(|write| write.wait().map(drop))?;
        files[1]
            .check(0, wrote[0].clone())
            .or_else(|_| files[1].check(0, wrote[1].clone()))
            .with_context(|| format!("round {round}: neither write is there whole"))?;
    }
    let moved = direct_bytes(scene.job)? - before;
    ensure!(moved > 0 || !has_rings(scene.job)?, "nothing went past the page cache");
    note(&format!("{moved} bytes past the page cache"));
    Ok(())
}

/// An append comes before a write that makes the file longer, or behind it.
fn append_beside(scene: &Scene<'_>) -> TestResult {
    let (before, mut behind) = (direct_bytes(scene.job)?, 0);
    for round in 0..100 {
        let path = scene.path(&format!("append-{round}"));
        scene.a.write_file(&path, Data::fill(0, 0))?;
        let (b, c) = (scene.b.open(&path, "rw")?, scene.c.open(&path, "w+append")?);
        let (body, record) = (Data::pattern(round, UNALIGNED), Data::fill(200, 8_192));
        let write = Command::Pwrite { file: b.id(), offset: 0, data: body.clone() };
        let append = Command::Write { file: c.id(), data: record.clone() };
        let micros = 20 * round;
        let begun = scene.b.begin(write);
        scene.c.begin(Command::After { micros, command: Box::new(append) }).wait()?;
        begun.wait()?;
        let reader = scene.a.open(&path, "r")?;
        let size = reader.attr()?.size;
        ensure!(
            [UNALIGNED, UNALIGNED + 8_192].contains(&size),
            "round {round}: the size is {size}"
        );
        reader.check(0, body).with_context(|| format!("round {round}: the write, {size}"))?;
        if size > UNALIGNED {
            behind += 1;
            reader.check(UNALIGNED, record).with_context(|| format!("round {round}: append"))?;
        }
    }
    let moved = direct_bytes(scene.job)? - before;
    ensure!(moved > 0 || !has_rings(scene.job)?, "nothing went past the page cache");
    note(&format!("{behind} of 100 appends came behind, {moved} bytes past the page cache"));
    Ok(())
}

fn striped(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    let path = format!("{dir}/file");
    let before = direct_bytes(scene.job)?;
    scene.b.write_file(&path, Data::pattern(5, 12 * MIB))?;
    scene.c.open(&path, "r")?.check(0, Data::pattern(5, 12 * MIB))?;
    let moved = direct_bytes(scene.job)? - before;
    ensure!(moved > 0 || !has_rings(scene.job)?, "nothing went past the page cache");
    Ok(())
}

/// Writes of two nodes at any place, aligned or not, and truncations, agree with a vector.
fn any_place(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(0, 0))?;
    let (b, c) = (scene.b.open(&path, "rw")?, scene.c.open(&path, "rw")?);
    let (mut random, mut model) = (Random::new(11), Vec::new());
    for step in 0..40u64 {
        let file = if random.below(2) == 0 { &b } else { &c };
        let mut offset = random.below(6 * MIB);
        if random.below(2) == 0 {
            offset -= offset % 4096;
        }
        if random.below(8) == 0 {
            file.truncate(offset)?;
            model.resize(offset as usize, 0);
            continue;
        }
        let data = Data::pattern(step, MIB / 2 + random.below(MIB));
        file.pwrite(offset, data.clone())?;
        let end = (offset + data.len()) as usize;
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&data.at(offset).map_err(anyhow::Error::msg)?);
    }
    for node in scene.nodes() {
        let found = node.read_file(&path)?;
        ensure!(found.len() == model.len(), "{} bytes, not {}", found.len(), model.len());
        let differs = found.iter().zip(&model).position(|(one, other)| one != other);
        ensure!(differs.is_none(), "node {}: byte {differs:?} differs", node.index());
    }
    Ok(())
}

/// The home's own programs map the file and let go of it again and again, while another node writes the other
/// half of each MiB: nobody's bytes are lost.
fn beside_a_mapping(scene: &Scene<'_>) -> TestResult {
    const HALF: u64 = MIB / 2;
    if !scene.job.maps_direct_files() {
        note("this kernel maps no file that another node writes");
        return Ok(());
    }
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(0, BLOCKS * MIB))?;
    let far = scene.b.open(&path, "rw")?;
    for round in 0..3u64 {
        for block in 0..BLOCKS {
            far.pwrite(block * MIB, Data::pattern(round, HALF))?;
            if block % 2 == 0 {
                let near = scene.a.open(&path, "rw")?;
                let map = near.map(BLOCKS * MIB, MapKind::SharedWrite)?;
                map.write(block * MIB + HALF, Data::pattern(round + 9, HALF))?;
                far.pwrite(block * MIB, Data::pattern(round + 1, HALF))?;
                map.unmap()?;
                near.close()?;
            }
        }
        let seen = scene.c.open(&path, "r")?;
        for block in 0..BLOCKS {
            let seed = if block % 2 == 0 { round + 1 } else { round };
            seen.check(block * MIB, Data::pattern(seed, HALF))?;
            if block % 2 == 0 {
                seen.check(block * MIB + HALF, Data::pattern(round + 9, HALF))?;
            }
        }
        seen.close()?;
    }
    Ok(())
}

fn not_wanted() -> TestResult {
    let mut options = JobOptions::nodes(2);
    options.extra = vec!["--no-direct-io".into()];
    let job = Job::up(options)?;
    let (a, b) = (job.node(0)?, job.node(1)?);
    let path = format!("{}/file", job.shared());
    a.write_file(&path, Data::fill(0, 0))?;
    let file = b.open(&path, "rw")?;
    for _ in 0..3 {
        file.pwrite(0, Data::pattern(1, 4 * MIB))?;
    }
    a.open(&path, "r")?.check(0, Data::pattern(1, 4 * MIB))?;
    ensure!(direct_bytes(&job)? == 0, "bytes went past the page cache");
    job.down()
}
