//! Tests 40 and 41 of the coherence protocol: different ways into one block of one file.

use anyhow::{Context, ensure};
use hayase_e2e::{Data, JobOptions, Loop, Scene, Suite, TestResult, Until, note};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_blocks", JobOptions::three())
        .posix("coherence_40_neighbours_in_one_block", neighbours_in_one_block)
        .posix("coherence_40_striped_neighbours", striped_neighbours)
        .posix("coherence_41_direct_beside_buffered", direct_beside_buffered)
}

const BLOCK: u64 = 4096;
/// Writes of each node.
const WRITES: u64 = 100_000;
/// What a loaded machine has time for.
const WRITES_MIN: u64 = 2000;
const SECONDS: f64 = 15.0;

/// A writes through its own kernel, B and C by messages, each its own bytes of one block: none is lost.
fn neighbours_in_one_block(scene: &Scene<'_>) -> TestResult {
    write_together(scene, &scene.path("file"))
}

fn striped_neighbours(scene: &Scene<'_>) -> TestResult {
    let dir = scene.striped("striped")?;
    write_together(scene, &format!("{dir}/file"))
}

fn write_together(scene: &Scene<'_>, path: &str) -> TestResult {
    scene.a.write_file(path, Data::fill(0, BLOCK))?;
    let nodes = scene.nodes();
    let begin = |(writer, node): (u32, &&hayase_e2e::Node)| {
        // 7: pieces begin and end within words and sectors.
        let (path, flags) = (path.to_owned(), "rw".to_owned());
        let work = Loop::WriteOwn { path, flags, piece: 7, writer, writers: nodes.len() as u32 };
        node.begin_loop(work, Until::rounds(WRITES, SECONDS).at_least(WRITES_MIN))
    };
    let loops: Vec<_> = (0..).zip(&nodes).map(begin).collect();
    for work in loops {
        let report = work.wait()?;
        note(&format!("{} writes in {} ms", report.rounds, report.millis));
        ensure!(report.violations == 0 && report.errors.is_empty(), "{report:?}");
    }
    Ok(())
}

/// O_DIRECT on one node against the page cache of another, both ways: each reads what the other has written.
fn direct_beside_buffered(scene: &Scene<'_>) -> TestResult {
    const BLOCKS: u64 = 16;
    const ROUNDS: u64 = 100;
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(0, BLOCKS * BLOCK))?;
    for (one, other) in [(&scene.a, &scene.b), (&scene.b, &scene.a), (&scene.b, &scene.c)] {
        let story = || format!("direct on {}, buffered on {}", one.index(), other.index());
        let (direct, buffered) = (one.open(&path, "rw+direct")?, other.open(&path, "rw")?);
        for round in 0..ROUNDS {
            let offset = round * 7 % BLOCKS * BLOCK;
            direct.pwrite(offset, Data::pattern(round, BLOCK)).with_context(story)?;
            buffered.check(offset, Data::pattern(round, BLOCK)).with_context(story)?;
            buffered.pwrite(offset + 5, Data::pattern(round + 1, 100)).with_context(story)?;
            let bytes = direct.pread(offset, BLOCK).with_context(story)?;
            let expected =
                Data::pattern(round + 1, 100).at(offset + 5).map_err(anyhow::Error::msg)?;
            ensure!(bytes[5..105] == expected[..], "round {round}, {}", story());
        }
        direct.close()?;
        buffered.close()?;
    }
    Ok(())
}
