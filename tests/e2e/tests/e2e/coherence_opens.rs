//! Tests 6-9 of the coherence protocol: whatever is open where, an open never fails for our reasons.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hayase_e2e::random::Random;
use hayase_e2e::{
    Data, File, JobOptions, Loop, MapKind, Node, Scene, Suite, TestResult, Until, eventually,
    expect_errno, note,
};

pub(crate) fn suite() -> Suite {
    Suite::new("coherence_opens", JobOptions::three())
        .posix("coherence_06_pairs_of_opens", pairs_of_opens)
        .posix("coherence_06_triples_of_opens", triples_of_opens)
        .posix("coherence_07_opens_beside_a_shared_mapping", opens_beside_a_shared_mapping)
        .posix("coherence_07_a_direct_file_is_mapped", a_direct_file_is_mapped)
        .posix("coherence_08_mapping_outlives_its_descriptor", mapping_outlives_its_descriptor)
        .posix("coherence_09_reopen_at_once", reopen_at_once)
        .job("coherence_09_always_passthrough", always_passthrough)
}

const KINDS: [&str; 6] = ["r", "w", "rw", "w+append", "rw+trunc", "rw+direct"];
/// Bytes of the file in the tests of opens: whole blocks, for O_DIRECT.
const BLOCKS: u64 = 8192;

/// A way to open, on the node of the bytes or on another.
fn ways<'a>(scene: &'a Scene<'_>) -> Vec<(&'a Node, &'static str)> {
    let on = |node| KINDS.into_iter().map(move |kind| (node, kind));
    on(&scene.a).chain(on(&scene.b)).collect()
}

fn pairs_of_opens(scene: &Scene<'_>) -> TestResult {
    let ways = ways(scene);
    for first in &ways {
        for second in &ways {
            open_together(scene, &[first, second])?;
            scene.b.unlink(&scene.path("file"))?;
        }
    }
    Ok(())
}

fn triples_of_opens(scene: &Scene<'_>) -> TestResult {
    // A quiet machine does them all in a part of this time.
    const SECONDS: u64 = 45;
    let ways = ways(scene);
    let mut pairs: Vec<_> =
        ways.iter().flat_map(|first| ways.iter().map(move |second| (first, second))).collect();
    // In another order than by kind, so that a loaded machine does not leave out the same ones.
    let mut random = Random::new(6);
    // One number for each: a comparison must not change its mind.
    pairs.sort_by_cached_key(|_| random.next());
    let (start, mut done) = (Instant::now(), 0);
    for (first, second) in pairs {
        if start.elapsed().as_secs() > SECONDS {
            break;
        }
        for third in &ways {
            open_together(scene, &[first, second, third])?;
            done += 1;
        }
        scene.b.unlink(&scene.path("file"))?;
    }
    note(&format!("{done} of {} triples in {} s", ways.len().pow(3), start.elapsed().as_secs()));
    Ok(())
}

/// Opens one file in several ways, one after the other, uses each descriptor, closes all.
fn open_together(scene: &Scene<'_>, ways: &[&(&Node, &'static str)]) -> TestResult {
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(b'x', BLOCKS))?;
    let story = || {
        let open = |(node, kind): &(&Node, &str)| format!("{kind} on {}", node.index());
        ways.iter().map(|way| open(way)).collect::<Vec<_>>().join(", ")
    };
    let mut files = Vec::new();
    for (node, kind) in ways {
        files.push((node.open(&path, kind).with_context(story)?, *kind));
        for (file, kind) in &files {
            touch(file, kind).with_context(story)?;
        }
    }
    for (file, _) in files {
        file.close()?;
    }
    Ok(())
}

fn touch(file: &File, kind: &str) -> TestResult {
    if kind.starts_with('w') {
        file.write(Data::fill(b'y', 100))?;
    } else {
        // A truncate may have emptied it, an append made it odd: only an error is wrong.
        file.pread(0, 4096)?;
    }
    if kind.contains("direct") {
        file.pwrite(4096, Data::fill(b'z', 4096))?;
        file.check(4096, Data::fill(b'z', 4096))?;
    }
    Ok(())
}

/// B maps a file of A shared, then opens it in every other way; likewise A itself.
fn opens_beside_a_shared_mapping(scene: &Scene<'_>) -> TestResult {
    for mapper in [&scene.b, &scene.a] {
        for kind in ["r", "rw"] {
            let path = scene.path(&format!("file-{}-{kind}", mapper.index()));
            scene.a.write_file(&path, Data::fill(b'x', BLOCKS))?;
            // A writer on the node of the bytes makes the other node's open a direct one.
            let _writer = scene.a.open(&path, "w")?;
            let file = mapper.open(&path, kind)?;
            let write = kind == "rw";
            let how = if write { MapKind::SharedWrite } else { MapKind::SharedRead };
            if !scene.job.maps_direct_files() && mapper.index() != scene.a.index() {
                // What the kernel can not do fails, and nothing else does for it.
                expect_errno(file.map(BLOCKS, how).map(drop), &["ENODEV"])?;
                continue;
            }
            let map = file.map(BLOCKS, how)?;
            map.check(0, &[b'x'; BLOCKS as usize])?;
            file.close()?;
            for node in [mapper, &scene.a, &scene.b, &scene.c] {
                for further in ["r", "w", "rw", "w+append", "rw+direct"] {
                    let opened = node.open(&path, further);
                    let opened = opened.with_context(|| format!("beside a mapping of {kind}"))?;
                    if !further.starts_with('w') && scene.job.maps_direct_files() {
                        let again = opened.map(BLOCKS, MapKind::SharedRead)?;
                        again.read(0, BLOCKS)?;
                        again.unmap()?;
                    }
                    opened.close()?;
                }
            }
            if write {
                map.write(5000, Data::fill(b'm', 100))?;
                map.sync()?;
                for node in scene.nodes() {
                    let reader = node.open(&path, "r")?;
                    reader.check(5000, Data::fill(b'm', 100)).context("written by the mapping")?;
                }
            }
            map.unmap()?;
        }
    }
    Ok(())
}

/// A descriptor with O_DIRECT is mapped shared where one node has the file open, before Linux 6.6 too; what it, the mapping
/// and a later writer on another node write is seen by all.
fn a_direct_file_is_mapped(scene: &Scene<'_>) -> TestResult {
    let cached = !scene.job.is_plain() && !scene.job.has_passthrough();
    for (node, other) in [(&scene.a, &scene.b), (&scene.b, &scene.a)] {
        // Mappings of the part itself are never behind.
        let behind = cached || node.index() != scene.a.index();
        let bound = if behind { Duration::from_millis(1500) } else { Duration::ZERO };
        let path = scene.path(&format!("file-{}", node.index()));
        scene.a.write_file(&path, Data::fill(b'x', BLOCKS))?;
        // What lingers of the writer's open is given back.
        let file = node.open(&path, "rw+direct")?;
        let map = file.map(BLOCKS, MapKind::SharedWrite).context("alone")?;
        for round in 0..20_u8 {
            file.pwrite(0, Data::fill(b'a' + round, 4096))?;
            map.check(0, &[b'a' + round; 4096]).context("the mapping sees the descriptor")?;
            map.write(4096, Data::fill(b'A' + round, 4096))?;
            map.sync()?;
            file.check(4096, Data::fill(b'A' + round, 4096)).context("the descriptor reads it")?;
            other.open(&path, "r")?.check(4096, Data::fill(b'A' + round, 4096))?;
        }
        let writer = other.open(&path, "w")?;
        for round in 0..3_u8 {
            writer.pwrite(0, Data::fill(b'0' + round, 4096))?;
            file.check(0, Data::fill(b'0' + round, 4096)).context("of the other node")?;
            eventually(bound, || map.check(0, &[b'0' + round; 4096]))?;
        }
        writer.close()?;
        map.unmap()?;
        file.close()?;
    }
    Ok(())
}

/// A maps shared on the node of the bytes, closes, and goes on writing: B reads it.
fn mapping_outlives_its_descriptor(scene: &Scene<'_>) -> TestResult {
    // Without passthrough the mapping is a cache of the writer's node: msync, then the 1 s bound.
    let cached = !scene.job.is_plain() && !scene.job.has_passthrough();
    let bound = if cached { Duration::from_millis(1500) } else { Duration::ZERO };
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(b'0', BLOCKS))?;
    let file = scene.a.open(&path, "rw")?;
    let map = file.map(BLOCKS, MapKind::SharedWrite)?;
    file.close()?;
    map.write(0, Data::fill(b'1', 10))?;
    let early = scene.b.open(&path, "r")?;
    for round in 0..40_u64 {
        let data = Data::fill(b'2' + (round % 60) as u8, 300);
        map.write(round * 100, data.clone())?;
        if cached {
            map.sync()?;
        }
        let late = scene.c.open(&path, "r")?;
        for reader in [&early, &late] {
            eventually(bound, || reader.check(round * 100, data.clone()))
                .with_context(|| format!("round {round}"))?;
        }
        late.close()?;
        // Beside the mapping, others may write as well, elsewhere in the file.
        let writer = scene.b.open(&path, "w")?;
        writer.pwrite(BLOCKS - 4096, data.clone())?;
        writer.close()?;
        eventually(bound, || map.check(BLOCKS - 4096, &data.at(0).map_err(anyhow::Error::msg)?))?;
    }
    Ok(())
}

/// Close and reopen at once, 10,000 times from 4 threads.
fn reopen_at_once(scene: &Scene<'_>) -> TestResult {
    for (kind, node) in [("rw", &scene.a), ("r", &scene.a), ("r", &scene.b), ("rw", &scene.b)] {
        let path = scene.path(&format!("file-{}-{kind}", node.index()));
        scene.a.write_file(&path, Data::fill(b'x', 4096))?;
        let count = if node.index() == 0 { 10_000 } else { 2_000 };
        let report = node.run_loop(
            Loop::Reopen { path: path.clone(), flags: kind.into(), threads: 4 },
            Until::rounds(count, 20.0).at_least(count / 10),
        )?;
        ensure!(report.violations == 0, "{kind} on {}: {report:?}", node.index());
        ensure!(report.good >= count / 10, "only {} opens", report.good);
        let rate = report.good * 1000 / report.millis.max(1);
        note(&format!("{} times {kind} on node {}: {rate}/s", report.good, node.index()));
    }
    Ok(())
}

/// The same, and each open on the node of the bytes is served by the kernel alone.
fn always_passthrough(scene: &Scene<'_>) -> TestResult {
    if !scene.job.has_passthrough() {
        note("no passthrough in this kernel profile: only that no open failed was tested");
        return Ok(());
    }
    let path = scene.path("file");
    scene.a.write_file(&path, Data::fill(b'x', 4096))?;
    let work = Loop::Reopen { path: path.clone(), flags: "rw".into(), threads: 4 };
    let pending = scene.a.begin_loop(work, Until::rounds(10_000, 15.0));
    let (mut asked, mut others) = (0, Vec::new());
    let watch = Instant::now();
    while watch.elapsed() < Duration::from_secs(1) {
        let held = scene.a.open(&path, "r")?;
        let explained = scene.a.get_xattr(&path, "user.hayase.explain")?;
        asked += 1;
        if !explained.to_lowercase().contains("passthrough") {
            others.push(explained);
        }
        held.close()?;
    }
    let report = pending.wait()?;
    ensure!(report.violations == 0, "{report:?}");
    ensure!(others.is_empty(), "{} of {asked} not passthrough: {:?}", others.len(), others.first());
    Ok(())
}
