//! Small writes that a mount sends its server by messages: gathered, with `hayase up --gather`, and each one sent.
//!
//! Source: `docs/design/001-coherence.md`, "Small writes".

mod figures;

use std::path::PathBuf;

use anyhow::Context;

use self::figures::{goals, table};
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::rounds;
use crate::sample::Samples;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};
use crate::workloads::small::Small;

/// Mounts both, but all that they put off is one close for each block of work: not waited for ([`rounds::PUT_OFF`]).
const SENT: [&str; 2] = ["each sent", "each sent again"];
const GATHERED: &str = "gathered";

/// Who writes a file that node 0 has made.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    kernel_profile: Option<&'static str>,
    /// Of the program.
    node: u16,
    /// Of the rate when each is sent, for each of [`SIZES`].
    rates_min: [f64; SIZES.len()],
    /// Of the CPU time when each is sent, for calls of 4 KiB.
    cpu_max: f64,
}

const PLACES: [Place; 2] = [
    Place {
        name: "another node's file",
        kernel_profile: None,
        node: 1,
        rates_min: [4.0, 3.0, 1.2, 0.85],
        cpu_max: 0.25,
    },
    Place {
        name: "own file without passthrough",
        kernel_profile: Some("6.1"),
        node: 0,
        rates_min: [2.0, 1.5, 0.9, 0.85],
        cpu_max: 0.5,
    },
];

/// Calls of one size.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    bytes: usize,
    /// Of one pass.
    calls: u64,
    is_gathered: bool,
}

const SIZES: [Size; 4] = [
    Size { name: "512 B", bytes: 512, calls: 2048, is_gathered: true },
    Size { name: "4 KiB", bytes: 4 << 10, calls: 1024, is_gathered: true },
    Size { name: "64 KiB", bytes: 64 << 10, calls: 512, is_gathered: true },
    Size { name: "1 MiB", bytes: 1 << 20, calls: 32, is_gathered: false },
];

const WAYS: [(&str, bool); 2] = [("write", false), ("append", true)];

/// A kind of work.
#[derive(Clone, Copy)]
struct Case {
    place: Place,
    size: Size,
    /// Of the rate when each is sent.
    rate_min: f64,
    append: bool,
    way: &'static str,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        PLACES.into_iter().flat_map(Self::of)
    }

    fn of(place: Place) -> impl Iterator<Item = Self> {
        let sizes = SIZES.into_iter().zip(place.rates_min);
        sizes.flat_map(move |(size, rate_min)| {
            WAYS.map(|(way, append)| Self { place, size, rate_min, append, way })
        })
    }

    fn label(&self) -> String {
        format!("{} {}, {}", self.size.name, self.way, self.place.name)
    }
}

/// Two jobs of two nodes for each place, which take turns.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let (mut samples, mut came) = (Samples::default(), 0);
    for place in PLACES {
        came += measure(bench, place, &mut samples)?;
    }
    let notes = vec![note(bench)];
    Ok(Outcome {
        goals: goals(&samples, came),
        tables: vec![table(&samples)],
        notes,
        samples: samples.0,
    })
}

fn note(bench: &Bench) -> String {
    format!(
        "One program fills a file that a program of node 0 has made, call behind call, by write(2) and with O_APPEND; \
         passes of {} begin with an empty file and end with an fsync(2), which is in the time, and in the us of each \
         call: all bytes are on the disk of node 0 when the clock stops. Blocks of {} ms at least, in this order, {} rounds.\n\
         Gathered: in a job with `up --gather`; each sent: in one without, in turns. Calls of 1 MiB are never gathered.\n\
         Another node's file: the program is on node 1. Own file without passthrough: on node 0, with `up \
         --kernel-profile 6.1`.\nCPU: of the servers and mounts of both nodes, until they rest; what the kernel does for \
         them there is in it, for the program not.",
        SIZES
            .map(|size| format!("{} MiB ({})", (size.calls * size.bytes as u64) >> 20, size.name))
            .join(", "),
        SIZES.map(|size| milliseconds(bench, &size).to_string()).join(", "),
        rounds_of(bench)
    )
}

/// Of a block of work at least; more where the two are to be equal.
fn milliseconds(bench: &Bench, size: &Size) -> u64 {
    bench.block_milliseconds() * if size.is_gathered { 2 } else { 4 }
}

fn rounds_of(bench: &Bench) -> usize {
    bench.rounds(6, 12)
}

/// A job with a program in it, which ends first.
struct Side<'a> {
    program: Worker,
    job: Job<'a>,
    directory: PathBuf,
}

impl<'a> Side<'a> {
    fn up(bench: &'a Bench, place: Place, gather: bool) -> anyhow::Result<Self> {
        let kernel_profile = place.kernel_profile;
        let shared = "600MiB";
        let job =
            Job::up(bench, &JobOptions { shared, kernel_profile, gather, ..JobOptions::nodes(2) })?;
        let (mut home, program) = (job.worker(0)?, job.worker(place.node)?);
        let directory = job.shared().join("small");
        home.perform(&Task::MakeDirectory { path: directory.clone() })?;
        for case in Case::of(place) {
            let path = directory.join(case.label());
            let fill = Sequential::new(Operation::New, path, 1);
            home.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..fill }))?;
        }
        // Calls of 1 MiB pass by what is not in memory there.
        home.perform(&Task::Evict { path: job.image(0) })?;
        Ok(Self { program, job, directory })
    }

    fn task(&self, case: &Case, milliseconds: u64) -> Task {
        let path = self.directory.join(case.label());
        let (append, call_bytes, calls) = (case.append, case.size.bytes, case.size.calls);
        Task::Small(Small { path, append, call_bytes, calls, milliseconds })
    }
}

/// Also the bytes that came gathered in the job that gathers nothing.
fn measure(bench: &Bench, place: Place, samples: &mut Samples) -> anyhow::Result<u64> {
    let [mut sent, mut gathered] = [Side::up(bench, place, false)?, Side::up(bench, place, true)?];
    let mut cases: Vec<Case> = Case::of(place).collect();
    // The first round makes connections.
    for case in &cases {
        for side in [&mut sent, &mut gathered] {
            side.program.measure(&side.task(case, 0)).with_context(|| case.label())?;
        }
    }
    let mut came = gathered.job.counter("bytes_gathered")?;
    for round in 0..rounds_of(bench) {
        for case in &cases {
            let label = case.label();
            for variant in rounds::order(round, SENT, &[GATHERED]) {
                let side = if variant == GATHERED { &mut gathered } else { &mut sent };
                let task = side.task(case, milliseconds(bench, &case.size));
                let place = (label.as_str(), variant, round);
                let daemons = side.job.daemons();
                rounds::measure(samples, place, &daemons, || side.program.measure(&task))
                    .with_context(|| label.clone())?;
                if let (GATHERED, Some(sample)) = (variant, samples.0.last_mut()) {
                    let now = side.job.counter("bytes_gathered")?;
                    sample.gathered = Some(now - std::mem::replace(&mut came, now));
                }
            }
        }
        // Each case comes as often late as early.
        cases.reverse();
    }
    let came = sent.job.counter("bytes_gathered")?;
    for Side { job, program, .. } in [sent, gathered] {
        drop(program);
        job.down()?;
    }
    Ok(came)
}
