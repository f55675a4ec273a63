//! Simulated nodes whose disks and links have a known speed, and the ways to keep one shared file on them.
//!
//! One node more than ranks run on: it is the one server. All that is started from here is in the control group that
//! limits the disks, the bench too: its launchers, and what those start.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::bench::Bench;
use crate::command::run as run_command;
use crate::disk_limit::{self, DiskLimit, device_of_mount};
use crate::job::{Job, JobOptions};
use crate::mpiio::launch::{By, Mpi, Phases, words};
use crate::mpiio::mounted::drop_caches;
use crate::report::goal::number;
use crate::rounds::PUT_OFF;

/// Most nodes that ranks run on, one on each.
pub(super) const NODES: u16 = 7;
/// Keeps the file of [`Way::OneServer`].
const SERVER: u16 = NODES;

/// Of each disk, reads and writes alike; the paper's were twice as fast.
const DISK_MIB: u64 = 24;
/// From each node to all others.
const LINK_MIB: u64 = 48;
/// Of the write that proves a disk's limit.
const PROOF_BLOCKS: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(60);

/// How one file of all ranks is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Not at all: each rank has a file of its own, on its node.
    Each,
    /// The same once more, to see how even the run is.
    EachAgain,
    /// A part for each rank, by our library.
    Ours,
    /// Striped over seven nodes, whatever the number of ranks; by the MPI alone.
    Striping,
    /// Whole on a node on which no rank runs; by the MPI alone.
    OneServer,
}

pub(super) const EACH: [Way; 2] = [Way::Each, Way::EachAgain];
pub(super) const OURS: Way = Way::Ours;
/// In the order in which figures show them.
pub(super) const WAYS: [Way; 4] = [Way::Each, Way::Ours, Way::Striping, Way::OneServer];
/// A round: N-N around the others.
pub(super) const ROUND: [Way; 5] =
    [Way::Each, Way::Ours, Way::Striping, Way::OneServer, Way::EachAgain];

impl Way {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Each => "N-N",
            Self::EachAgain => "N-N again",
            Self::Ours => "hayase",
            Self::Striping => "striping",
            Self::OneServer => "one server",
        }
    }

    /// Its directory in `shared`.
    const fn place(self) -> &'static str {
        match self {
            Self::Each | Self::EachAgain => "each",
            Self::Ours => "ours",
            Self::Striping => "striped",
            Self::OneServer => "whole",
        }
    }

    fn is_each(self) -> bool {
        EACH.contains(&self)
    }
}

/// See the module. The job ends before the limit.
pub(super) struct Ground<'a> {
    job: Job<'a>,
    mpi: Mpi,
    /// What direct writes reach on each node, in MiB/s.
    proved: Vec<f64>,
    _limit: DiskLimit<'a>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(bench: &'a Bench) -> anyhow::Result<Self> {
        let mpi = Mpi::any(bench)?;
        let limit = DiskLimit::new(bench.guard())?;
        limit.add(std::process::id())?;
        let options = JobOptions { shared: "700MiB", ..JobOptions::nodes(NODES + 1) };
        let job = Job::up(bench, &options)?;
        let mut proved = Vec::new();
        for (node, daemons) in (0..).zip(job.nodes()) {
            let device = device_of_mount(daemons.server, &job.image(node))?;
            limit.limit(&device, DISK_MIB << 20)?;
            let mut worker = job.worker(node)?;
            proved.push(disk_limit::prove(&mut worker, &job.image(node), PROOF_BLOCKS, DISK_MIB)?);
        }
        let ground = Self { job, mpi, proved, _limit: limit };
        for node in 0..=NODES {
            let rate = format!("rate {}bps burst 256k latency 500ms", LINK_MIB << 20);
            ground.on(node, "tc", &format!("qdisc add dev eth0 root tbf {rate}"))?;
        }
        let shared = ground.job.shared();
        let shared = shared.display();
        for place in WAYS.map(Way::place) {
            ground.on(0, "mkdir", &format!("{shared}/{place}"))?;
        }
        let hayase = bench.hayase().display().to_string();
        let stripes = format!("layout set --stripe 1MiB --width {NODES} {shared}/striped");
        ground.on(0, &hayase, &stripes)?;
        Ok(ground)
    }

    /// For the notes of each figure.
    pub(super) fn note(&self) -> String {
        let proved: Vec<_> = self.proved.iter().map(|rate| number(*rate)).collect();
        format!(
            "{}; one rank on each of 1 to {NODES} simulated nodes of one machine. Each node's disk is limited to {DISK_MIB} \
             MiB/s in both directions (control group; direct writes: {} MiB/s), what it sends to {LINK_MIB} MiB/s (tbf; MPI's \
             own messages too); what it receives is not limited.\n`N-N`: a file for each rank. `striping`: the MPI alone on a \
             file striped over {NODES} nodes by 1 MiB, however few ranks write it. `one server`: the MPI alone on a file that \
             is whole on a further node. All of it lies in `shared` of one job.\nWriting ends with MPI_File_sync, which \
             counts, as do open and close; reading finds nothing in memory.",
            self.mpi.kind.name(),
            proved.join(", "),
        )
    }

    /// Writes a new file, in a number of ranks on as many nodes.
    pub(super) fn write(&self, way: Way, ranks: u16, line: &str) -> anyhow::Result<Phases> {
        if way == Way::OneServer {
            self.on(SERVER, "touch", &self.path(way).display().to_string())?;
        }
        self.run(way, ranks, &format!("{line} sync=1"), "write")
    }

    /// Reads what was written, from disks.
    pub(super) fn read(&self, way: Way, ranks: u16, line: &str) -> anyhow::Result<Phases> {
        drop_caches()?;
        self.run(way, ranks, line, "read")
    }

    /// Removes what was written.
    pub(super) fn remove(&self, way: Way) -> anyhow::Result<()> {
        let place = self.job.shared().join(way.place());
        self.on(0, "find", &format!("{} -type f -delete", place.display()))?;
        std::thread::sleep(PUT_OFF);
        Ok(())
    }

    pub(super) fn end(self) -> anyhow::Result<()> {
        self.job.down().map(drop)
    }

    fn run(&self, way: Way, ranks: u16, line: &str, doing: &str) -> anyhow::Result<Phases> {
        let files = if way.is_each() { "each" } else { "one" };
        let by = if way == OURS { By::Hayase } else { By::STOCK };
        let arguments = words(&format!("{line} files={files} do={doing}"));
        // The launcher there finds the nodes, one rank for each.
        let on_node = |program: &str| self.job.on_node(0, program);
        let said = self.mpi.run_at(on_node, by, ranks.into(), (&self.path(way), &arguments))?;
        said.phases(doing)
    }

    fn path(&self, way: Way) -> PathBuf {
        self.job.shared().join(way.place()).join("file")
    }

    fn on(&self, node: u16, program: &str, line: &str) -> anyhow::Result<()> {
        let mut command: Command = self.job.on_node(node, program);
        command.args(line.split(' '));
        run_command(&mut command, PATIENCE)?.success(&format!("{program} {line}")).map(drop)
    }
}
