//! The same large calls to files of another node through our mount, GlusterFS and gfarm2fs: what a byte costs on the
//! node that has the file, and on the one that uses it.
//!
//! Source: issue 7.

mod figures;
mod peer;

use std::path::PathBuf;

use anyhow::{Context, ensure};

use self::figures::{goal, table};
use self::peer::Peer;
use super::homed;
use crate::at_once::together;
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle};
use crate::report::Outcome;
use crate::rounds::{self, PUT_OFF};
use crate::sample::{Measured, Sample, Samples};
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// Size of each file, in blocks of 1 MiB.
const BLOCKS: u64 = 96;
const PROGRAMS: usize = 4;
/// The last one ends each pass with fsync(2): only then all systems have their bytes on the disk.
const KINDS: [(&str, Operation, bool); 3] = [
    ("read", Operation::Read, false),
    ("write", Operation::Overwrite, false),
    ("write to disk", Operation::Overwrite, true),
];
const OURS: [&str; 2] = ["mount", "mount again"];

/// Programs on node 1; each system has its files on node 0.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions { shared: "2000MiB", ..JobOptions::nodes(2) })?;
    let mut notes = vec![note()];
    let mut peers = Vec::new();
    for kind in &peer::KINDS {
        match Peer::up(bench, &job, kind) {
            Ok(peer) => peers.push(peer),
            Err(error) => notes.push(format!("{} cannot be measured: {error:#}.", kind.name)),
        }
    }
    ensure!(!peers.is_empty(), "{}", notes[1..].join(" "));
    let (samples, direct) = measure(bench, &job, &peers)?;
    notes.push(format!(
        "{:.0} % of our mount's bytes went past the page cache of node 0.",
        direct / OURS.map(|name| moved(&samples, name)).iter().sum::<f64>() * 100.0
    ));
    let names = ways(&peers);
    drop(peers);
    job.down()?;
    let goals = KINDS.iter().map(|(what, ..)| goal(&samples, what, &names)).collect();
    Ok(Outcome { goals, tables: vec![table(&samples, &names)], notes, samples: samples.0 })
}

fn note() -> String {
    format!(
        "{PROGRAMS} programs on node 1, a file of {BLOCKS} MiB on node 0 for each, 1 MiB calls; `write to disk` ends each \
         pass with fsync(2). Before each block of work what node 0 has cached of the files goes to its disk and out of \
         memory, and before each pass of reads what node 1 has cached.\nAll systems keep their files on the same XFS \
         image of node 0. GlusterFS: a volume of one brick, all options as they come. gfarm2fs: one file server on node \
         0, two sets of options, no caching of attributes.\nCPU, node 0: of our server, of glusterfsd, of gfsd; node 1: \
         of our server and mount, of the mounts of the others. What the kernel writes later is not in it: ours has \
         written when it answers a write, the others at an fsync(2)."
    )
}

/// Bytes, of all kinds of work.
fn moved(samples: &Samples, name: &str) -> f64 {
    let of = |what| samples.of(what, name).map(|sample| sample.measured.amount).sum::<f64>();
    KINDS.iter().map(|(what, ..)| of(what)).sum()
}

/// Of all peers.
fn ways(peers: &[Peer<'_>]) -> Vec<&'static str> {
    peers.iter().flat_map(|peer| peer.kind.ways).map(|(name, _)| *name).collect()
}

/// What moves bytes, ours or a peer's.
enum System<'a> {
    Ours(&'a Job<'a>),
    Peer(&'a Peer<'a>),
}

impl System<'_> {
    /// On node 0 and on node 1, as they are now.
    fn processes(&self) -> anyhow::Result<[Vec<u32>; 2]> {
        Ok(match self {
            Self::Ours(job) => {
                let [home, other] = [0, 1].map(|node| &job.nodes()[node]);
                [
                    vec![home.server],
                    [Some(other.server), other.mount].into_iter().flatten().collect(),
                ]
            }
            Self::Peer(peer) => [peer.serving()?, peer.clients()?],
        })
    }
}

/// With a file for each program.
struct Variant<'a> {
    name: &'a str,
    system: System<'a>,
    files: Vec<PathBuf>,
}

fn prepare<'a>(
    job: &'a Job<'_>,
    peers: &'a [Peer<'_>],
    programs: &mut [Worker],
) -> anyhow::Result<Vec<Variant<'a>>> {
    let files = homed::make(job, programs, &job.shared().join("bench"), BLOCKS)?;
    let ours = |name| Variant { name, system: System::Ours(job), files: files.clone() };
    let mut variants: Vec<Variant<'a>> = OURS.map(ours).into();
    for peer in peers {
        let files = |way: &str| -> Vec<PathBuf> {
            (0..PROGRAMS).map(|n| peer.point(way).join(n.to_string())).collect()
        };
        for (program, path) in programs.iter_mut().zip(files(peer.kind.ways[0].1)) {
            let fill = Sequential::new(Operation::New, path, BLOCKS);
            let fill = Sequential { keep: true, sync: true, ..fill };
            let filled = program.measure(&Task::Sequential(fill));
            filled.with_context(|| format!("make a file of {}", peer.kind.name))?;
        }
        for (name, way) in peer.kind.ways {
            variants.push(Variant { name, system: System::Peer(peer), files: files(way) });
        }
    }
    Ok(variants)
}

/// Also the bytes of our mount that went past the page cache.
fn measure(bench: &Bench, job: &Job<'_>, peers: &[Peer<'_>]) -> anyhow::Result<(Samples, f64)> {
    let mut home = job.worker(0)?;
    let mut programs: Vec<Worker> =
        (0..PROGRAMS).map(|_| job.worker(1)).collect::<Result<_, _>>()?;
    let variants = prepare(job, peers, &mut programs)?;
    let names = ways(peers);
    let milliseconds = bench.block_milliseconds() * 4;
    let mut samples = Samples::default();
    let mut before = 0;
    // The first round makes connections.
    for round in 0..=bench.rounds(6, 11) {
        if round == 1 {
            before = job.counter("bytes_direct")?;
        }
        for (what, operation, sync) in KINDS {
            for name in rounds::order(round, OURS, &names) {
                let variant = variants.iter().find(|variant| variant.name == name);
                let variant = variant.context("a variant without files")?;
                home.perform(&Task::Evict { path: job.image(0) })?;
                let tasks = variant.files.iter().map(|path| {
                    let work = Sequential::new(operation, path, BLOCKS);
                    Task::Sequential(Sequential { milliseconds, cold: true, sync, ..work })
                });
                let pairs = programs.iter_mut().zip(tasks);
                let found = both_nodes((what, name, round), &variant.system, || together(pairs));
                let found = found.with_context(|| format!("{what} through {name}"))?;
                samples.0.extend(found.into_iter().filter(|_| round > 0));
            }
        }
    }
    let direct = job.counter("bytes_direct")? - before;
    Ok((samples, direct as f64))
}

/// What a kind of work costs on node 1 has a name of its own.
fn elsewhere(what: &str) -> String {
    format!("{what}, node 1")
}

/// One block of work, with the CPU time of the processes of either node until they rest.
fn both_nodes(
    (what, variant, round): (&str, &str, usize),
    system: &System<'_>,
    block: impl FnOnce() -> anyhow::Result<Measured>,
) -> anyhow::Result<[Sample; 2]> {
    // Processes may be started for new connections meanwhile.
    let now = || -> anyhow::Result<[CpuTimes; 2]> {
        Ok(system.processes()?.each_ref().map(|of_node| CpuTimes::of(of_node)))
    };
    let before = now()?;
    let measured = block()?;
    let meanwhile = now()?;
    std::thread::sleep(PUT_OFF);
    settle(&system.processes()?.concat());
    let after = now()?;
    let sample = |node: usize, what: String| Sample {
        what,
        variant: variant.to_owned(),
        round,
        measured,
        meanwhile_cpu: meanwhile[node].since(&before[node]),
        served_cpu: after[node].since(&before[node]),
        ..Sample::default()
    };
    Ok([sample(0, what.to_owned()), sample(1, elsewhere(what))])
}
