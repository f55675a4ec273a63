//! Tests 11-13 of the coherence protocol: what is appended is whole, and none of it is lost.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use hayase_e2e::actor::loops::{RECORD_BYTES, record};
use hayase_e2e::{Data, JobOptions, Loop, Node, Report, Scene, Suite, TestResult, Until, note};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_append", JobOptions::three())
        .posix("coherence_11_two_nodes_append", two_nodes_append)
        .posix("coherence_12_striped_append", striped_append)
        .posix("coherence_12_append_beside_a_shell", append_beside_a_shell)
        .posix("coherence_12_short_lived_appenders", short_lived_appenders)
        .posix("coherence_13_append_of_three_mebibytes", append_of_three_mebibytes)
        .posix("coherence_13_striped_append_of_three_mebibytes", striped_three_mebibytes)
}

const RECORDS: u64 = 10_000;
/// Of each loop; all writers of a test run at the same time.
const SECONDS: f64 = 20.0;

/// A and B append 10,000 records of 100 bytes each.
fn two_nodes_append(scene: &Scene<'_>) -> TestResult {
    append_and_check(&scene.path("file"), &[&scene.a, &scene.b])
}

fn striped_append(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    append_and_check(&format!("{dir}/file"), &scene.nodes())
}

fn append_and_check(path: &str, nodes: &[&Node]) -> TestResult {
    nodes[0].write_file(path, Data::fill(0, 0))?;
    let loops: Vec<_> = nodes
        .iter()
        .zip(0..)
        .map(|(node, writer)| {
            let work = Loop::Append { path: path.into(), writer };
            node.begin_loop(work, Until::rounds(RECORDS, SECONDS).at_least(RECORDS / 10))
        })
        .collect();
    let mut written = BTreeMap::new();
    for (pending, writer) in loops.into_iter().zip(0..) {
        written.insert(writer, appended(&pending.wait()?)?);
    }
    nodes.iter().try_for_each(|node| check_records(node, path, &written))
}

/// How many records a loop wrote; it must have come far enough to mean something.
fn appended(report: &Report) -> anyhow::Result<u64> {
    ensure!(report.violations == 0 && report.errors.is_empty(), "{report:?}");
    ensure!(report.good >= RECORDS / 10, "only {} records", report.good);
    let rate = report.good * 1000 / report.millis.max(1);
    note(&format!("{} records, {rate}/s", report.good));
    Ok(report.good)
}

/// All records of all writers are whole, once each, and in the order of their writer.
fn check_records(node: &Node, path: &str, written: &BTreeMap<u8, u64>) -> TestResult {
    let bytes = node.read_file(path)?;
    let expected: u64 = written.values().sum();
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    ensure!(rest.is_empty(), "node {}: {} bytes are no whole records", node.index(), bytes.len());
    ensure!(
        records.len() as u64 == expected,
        "node {}: {} records of {expected}",
        node.index(),
        records.len()
    );
    let mut next: BTreeMap<u8, u64> = written.keys().map(|writer| (*writer, 0)).collect();
    for (place, found) in records.iter().enumerate() {
        let writer = found[0].wrapping_sub(b'A');
        let number = next.get_mut(&writer).with_context(|| {
            format!("record {place} begins with {:?}", String::from_utf8_lossy(&found[..12]))
        })?;
        ensure!(
            *found == record(writer, *number),
            "node {}: record {place} is {:?} where number {number} of writer {writer} is next",
            node.index(),
            String::from_utf8_lossy(found)
        );
        *number += 1;
    }
    ensure!(next == *written, "node {}: {next:?} of {written:?}", node.index());
    Ok(())
}

/// A by the kernel alone, a shell's `>>` on A (an open for each record), and B.
fn append_beside_a_shell(scene: &Scene<'_>) -> TestResult {
    const SHELL_RECORDS: u64 = 5000;
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(0, 0))?;
    let append = |node: &Node, writer| {
        let work = Loop::Append { path: path.clone(), writer };
        node.begin_loop(work, Until::rounds(RECORDS, SECONDS).at_least(RECORDS / 10))
    };
    // A record as `record` makes it, of writer C.
    let filler = "C".repeat(RECORD_BYTES - 12);
    let script = format!(
        "i=0; while [ $i -lt {SHELL_RECORDS} ]; do \
         printf 'C:%08d:{filler}\\n' $i >> {path} || exit 1; i=$((i+1)); done"
    );
    let shell = scene
        .a
        .begin_within(hayase_e2e::Command::Shell { script }, std::time::Duration::from_secs(60));
    let (local, remote) = (append(&scene.a, 0), append(&scene.b, 1));
    let local = appended(&local.wait()?)?;
    let remote = appended(&remote.wait()?)?;
    match shell.wait()? {
        hayase_e2e::actor::Answer::Output(output) if output.code == Some(0) => {}
        other => anyhow::bail!("the shell: {other:?}"),
    }
    let written = BTreeMap::from([(0, local), (1, remote), (2, SHELL_RECORDS)]);
    check_records(&scene.a, &path, &written)?;
    check_records(&scene.c, &path, &written)
}

/// Each record by an open of its own, dealt to all nodes: the end is never old.
fn short_lived_appenders(scene: &Scene<'_>) -> TestResult {
    let path = scene.path("file");
    scene.b.write_file(&path, Data::fill(0, 0))?;
    let mut written = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
    for round in 0..300 {
        let writer = (round * 7 % 3) as u8;
        let node = scene.nodes()[usize::from(writer)];
        let number = written.entry(writer).or_default();
        let file = node.open(&path, "w+append")?;
        file.write(Data::bytes(&record(writer, *number)))?;
        file.close()?;
        *number += 1;
        let size = scene.c.stat(&path)?.size;
        ensure!(size == (round + 1) * RECORD_BYTES as u64, "round {round}: the size is {size}");
    }
    check_records(&scene.a, &path, &written)
}

/// Two nodes append 3 MiB with each write(2): each MiB is of one of them, and theirs are in order.
fn append_of_three_mebibytes(scene: &Scene<'_>) -> TestResult {
    append_large(scene, &scene.path("file"))
}

fn striped_three_mebibytes(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    append_large(scene, &format!("{dir}/file"))
}

fn append_large(scene: &Scene<'_>, path: &str) -> TestResult {
    const MIB: usize = 1 << 20;
    const ROUNDS: u64 = 8;
    scene.a.write_file(path, Data::fill(0, 0))?;
    let files = [scene.a.open(path, "w+append")?, scene.b.open(path, "w+append")?];
    for round in 0..ROUNDS {
        let begun: Vec<_> = files
            .iter()
            .zip(1_u8..)
            .map(|(file, writer)| {
                let data = Data::fill(writer * 16 + round as u8, 3 * MIB as u64);
                file.node().begin(hayase_e2e::Command::Write { file: file.id(), data })
            })
            .collect();
        for pending in begun {
            pending.wait()?;
        }
    }
    let bytes = scene.c.read_file(path)?;
    ensure!(bytes.len() == 2 * ROUNDS as usize * 3 * MIB, "{} bytes", bytes.len());
    let mut count: BTreeMap<u8, u32> = BTreeMap::new();
    let mut last = [0_u8; 3];
    for (place, block) in bytes.chunks(MIB).enumerate() {
        let byte = block[0];
        ensure!(block.iter().all(|other| *other == byte), "MiB {place} is of two writes");
        let writer = usize::from(byte / 16);
        ensure!((1..3).contains(&writer), "MiB {place} holds {byte:#04x}");
        ensure!(byte >= last[writer], "MiB {place}: {byte:#04x} after {:#04x}", last[writer]);
        last[writer] = byte;
        *count.entry(byte).or_default() += 1;
    }
    ensure!(count.values().all(|times| *times == 3), "MiB of each write: {count:?}");
    Ok(())
}
