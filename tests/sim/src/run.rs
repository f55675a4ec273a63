//! One run: a job, its programs, its faults, and the verdict.

use std::rc::Rc;

use tokio::task::{JoinSet, LocalSet};

use crate::faults;
use crate::job::Job;
use crate::mount::Mount;
use crate::network::Network;
use crate::random::Random;
use crate::workload::World;
use crate::workload::appends::Appends;
use crate::workload::locks::Locks;
use crate::workload::names::Names;
use crate::workload::registers::Registers;

const SERVERS: u16 = 3;

/// Runs in which links fall silent for longer than servers wait, in percent.
const HARSH: u64 = 30;

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls of programs.
    pub calls: u64,
    /// Of these, calls whose outcome nobody knows (`EIO`).
    pub unknown: u64,
    /// All calls and answers as one number: two runs of a seed have the same.
    pub trace: u64,
    /// Simulated milliseconds.
    pub milliseconds: u64,
    /// Whether links were silent for longer than servers wait.
    pub harsh: bool,
}

/// What was seen that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// To see it again.
    pub seed: u64,
    /// For people.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}:\n{}", self.seed, self.what.join("\n"))
    }
}

/// Runs a seed.
///
/// # Errors
/// With what the checkers found.
///
/// # Panics
/// When the machine has no memory or descriptors left.
pub fn run(seed: u64) -> Result<Report, Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let (report, what) = LocalSet::new().block_on(&runtime, job(seed));
    if what.is_empty() { Ok(report) } else { Err(Violation { seed, what }) }
}

async fn job(seed: u64) -> (Report, Vec<String>) {
    let began = tokio::time::Instant::now();
    let random = Random::new(seed);
    let harsh = random.chance(HARSH);
    let job = Job::up(SERVERS, Network::new(random.split())).await;
    let mut mounts = Vec::new();
    for node in 0..SERVERS {
        let mount = Mount::new(&job.server(node), u64::from(node) + 1).await;
        mounts.push(mount.expect("the server is there"));
    }
    let world = World::new(mounts);
    programs(&world, &job, harsh, &random).await;
    let (trace, calls, unknown) = world.sums();
    let mut what = world.violations();
    if !harsh && unknown > 0 {
        what.push(format!("{unknown} calls failed, though nothing was silent for long"));
    }
    let milliseconds = began.elapsed().as_millis() as u64;
    (Report { calls, unknown, trace, milliseconds, harsh }, what)
}

/// Two programs of each kind on each node, in trouble; then quiet, and a last look.
async fn programs(world: &Rc<World>, job: &Rc<Job>, harsh: bool, random: &Random) {
    let registers = Registers::new(world).await;
    let appends = Appends::new(world).await;
    let locks = Locks::new(world).await;
    let names = Names::new(world);
    let mut programs = JoinSet::new();
    for (owner, mount) in (1..).zip(world.mounts.iter().chain(&world.mounts)) {
        programs.spawn_local(Rc::clone(&registers).run(Rc::clone(mount), random.split()));
        programs.spawn_local(Rc::clone(&appends).run(Rc::clone(mount), random.split()));
        programs.spawn_local(Rc::clone(&locks).run(Rc::clone(mount), owner, random.split()));
        programs.spawn_local(Rc::clone(&names).run(Rc::clone(mount), random.split()));
    }
    let trouble = tokio::task::spawn_local(faults::trouble(Rc::clone(job), harsh, random.split()));
    while let Some(ended) = programs.join_next().await {
        ended.expect("programs do not panic");
    }
    trouble.abort();
    faults::over(job);
    registers.check();
    appends.check(&world.mounts[0]).await;
    locks.check(&world.mounts[0]).await;
    names.check(&world.mounts[0]).await;
}
