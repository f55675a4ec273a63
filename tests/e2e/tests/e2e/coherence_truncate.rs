//! Tests 14-16 of the coherence protocol: a truncate is before or after a write, never inside it.

use std::time::Instant;

use anyhow::{Context, ensure};
use hayase_e2e::random::Random;
use hayase_e2e::{Command, Data, JobOptions, Loop, Scene, Suite, TestResult, Until, note};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_truncate", JobOptions::three())
        .posix("coherence_14_truncate_against_local_write", truncate_against_local_write)
        .posix("coherence_14_truncate_against_striped_write", truncate_against_striped_write)
        .posix("coherence_15_no_zeros_in_a_completed_write", no_zeros_in_a_completed_write)
        .posix("coherence_16_old_bytes_do_not_come_back", old_bytes_do_not_come_back)
        .posix("coherence_16_open_with_truncate", open_with_truncate)
}

/// B truncates while A writes: the result is one of the two orders.
fn truncate_against_local_write(scene: &Scene<'_>) -> TestResult {
    race(scene, &scene.path("file"), 1 << 20)
}

/// Within one request to the servers; above that a write(2) is several.
fn truncate_against_striped_write(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    race(scene, &format!("{dir}/file"), 256 << 10)
}

fn race(scene: &Scene<'_>, path: &str, len: u64) -> TestResult {
    scene.a.write_file(path, Data::fill(0, 0))?;
    let writer = scene.a.open(path, "rw")?;
    let truncater = scene.b.open(path, "rw")?;
    let mut random = Random::new(14);
    let (mut truncated, mut write_us) = (0, 0);
    for round in 0..200 {
        truncater.truncate(0)?;
        let size = random.below(len);
        let data = Data::pattern(round, len);
        let write = Command::Pwrite { file: writer.id(), offset: 0, data: data.clone() };
        let cut = Command::Ftruncate { file: truncater.id(), size };
        // Begun at a random moment of the time that a write takes.
        let micros = random.below(write_us + 1);
        let start = Instant::now();
        let begun = scene.b.begin(Command::After { micros, command: Box::new(cut) });
        scene.a.begin(write).wait()?;
        write_us = start.elapsed().as_micros() as u64;
        begun.wait()?;
        let found = writer.attr()?.size;
        let story = || format!("round {round}: truncate to {size} against a write of {len}");
        ensure!(found == size || found == len, "{}: the size is {found}", story());
        truncated += u32::from(found == size);
        for reader in [&writer, &truncater] {
            reader.check(0, Data::pattern(round, found)).with_context(story)?;
            ensure!(reader.pread(found, 1)?.is_empty(), "{}: bytes after the end", story());
        }
        ensure!(scene.c.stat(path)?.size == found, "{}: the third node", story());
    }
    note(&format!("the truncate came last in {truncated} of 200"));
    Ok(())
}

/// A writes over stripes again and again while B truncates to nothing without pause.
fn no_zeros_in_a_completed_write(scene: &Scene<'_>) -> TestResult {
    const STRIPE: u64 = 64 << 10;
    const ROUNDS: u64 = 1_000;
    let dir = scene.striped("striped")?;
    // A kernel that writes through its cache sends what is in the middle of a page on its own.
    // And what it reads through its cache it fills up with zeros to the end that it knew before.
    let (before, len, read_flags) =
        if scene.job.maps_direct_files() { (3000, 6000, "r") } else { (4096, 8192, "r+direct") };
    // The first two units lie on different servers; neither begins at the start of the file.
    for (name, offset, len) in [("two", STRIPE - before, len), ("three", STRIPE / 2, 2 * STRIPE)] {
        let path = format!("{dir}/{name}");
        scene.a.write_file(&path, Data::fill(0, 0))?;
        let truncate = Loop::Truncate { path: path.clone(), size: 0 };
        let truncate = scene.b.begin_loop(truncate, Until::raised("written", 120.0));
        let read_flags = read_flags.to_owned();
        let write = Loop::WriteAcross { path: path.clone(), offset, len, read_flags };
        let written = scene.a.run_loop(write, Until::rounds(ROUNDS, 100.0));
        scene.b.call(Command::Raise { flag: "written".into() })?;
        let (written, truncated) = (written?, truncate.wait()?);
        ensure!(written.violations == 0, "{name}: {written:?}");
        ensure!(truncated.violations == 0, "{name}: {truncated:?}");
        ensure!(written.good == ROUNDS, "{name}: only {} writes", written.good);
        note(&format!("{} writes against {} truncates", written.good, truncated.good));
        // Undisturbed, the last state is one of the two orders.
        let file = scene.c.open(&path, "r")?;
        let bytes = file.pread(offset, len)?;
        ensure!(bytes.is_empty() || bytes.len() as u64 == len, "{} bytes left", bytes.len());
        ensure!(!bytes.contains(&0), "zeros in the last write");
        scene.b.call(Command::Reset)?;
    }
    Ok(())
}

/// Truncate down and up again: zeros, on each node, in the cache and out of it.
fn old_bytes_do_not_come_back(scene: &Scene<'_>) -> TestResult {
    const LEN: u64 = 300_000;
    let striped = scene.striped("striped")?;
    for dir in [scene.dir(), &striped] {
        let path = format!("{dir}/file");
        for (round, cut) in [0, 1, 4095, 4096, 10_000, 65_536, 131_071, 200_000].iter().enumerate()
        {
            let story = || format!("{path}: cut at {cut}");
            let nodes = scene.nodes();
            let (down, up) = (nodes[round % 3], nodes[(round + 1) % 3]);
            scene.a.write_file(&path, Data::fill(0xaa, LEN))?;
            let held: Vec<_> =
                nodes.iter().map(|node| node.open(&path, "r")).collect::<Result<_, _>>()?;
            for reader in &held {
                reader.check(0, Data::fill(0xaa, LEN))?;
            }
            down.truncate(&path, *cut)?;
            for node in nodes {
                ensure!(node.stat(&path)?.size == *cut, "{}: node {}", story(), node.index());
            }
            if round % 2 == 0 {
                up.truncate(&path, LEN)?;
            } else {
                // A write past the end leaves a hole.
                let file = up.open(&path, "w")?;
                file.pwrite(LEN - 1, Data::fill(0, 1))?;
                file.close()?;
            }
            let fresh: Vec<_> =
                nodes.iter().map(|node| node.open(&path, "r")).collect::<Result<_, _>>()?;
            for reader in held.iter().chain(&fresh) {
                ensure!(reader.attr()?.size == LEN, "{}: size", story());
                reader.check(0, Data::fill(0xaa, *cut)).with_context(story)?;
                reader.check(*cut, Data::fill(0, LEN - cut)).with_context(story)?;
            }
            for file in held.into_iter().chain(fresh) {
                file.close()?;
            }
        }
    }
    Ok(())
}

/// O_TRUNC on one node empties the file that others have open and cached.
fn open_with_truncate(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    for (round, node) in scene.nodes().into_iter().cycle().take(30).enumerate() {
        scene.a.write_file(&path, Data::fill(1, 20_000))?;
        let readers = [scene.a.open(&path, "r")?, scene.b.open(&path, "r")?];
        for reader in &readers {
            reader.check(0, Data::fill(1, 20_000))?;
        }
        let writer = node.open(&path, "w+trunc")?;
        for reader in readers {
            ensure!(
                reader.attr()?.size == 0,
                "round {round}: fstat on node {}",
                reader.node().index()
            );
            ensure!(reader.pread(0, 100)?.is_empty(), "round {round}: bytes of before");
            reader.close()?;
        }
        writer.pwrite(100, Data::fill(2, 100))?;
        for node in scene.nodes() {
            let bytes = node.read_file(&path)?;
            ensure!(bytes.len() == 200, "round {round}: {} bytes", bytes.len());
            ensure!(bytes[..100] == [0; 100] && bytes[100..] == [2; 100], "round {round}");
        }
        writer.close()?;
    }
    Ok(())
}
