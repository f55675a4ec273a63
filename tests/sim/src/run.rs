//! One run: a job, its programs, its faults, and the verdict.

use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::task::{JoinSet, LocalSet};

use crate::check::storage;
use crate::faults;
use crate::job::Job;
use crate::kind::Kind;
use crate::network::Network;
use crate::random::Random;
use crate::workload::World;
use crate::workload::appends::Appends;
use crate::workload::locks::Locks;
use crate::workload::names::Names;
use crate::workload::registers::Registers;
use crate::workload::small_writes::SmallWrites;
use crate::workload::synced::SyncedFiles;

const SERVERS: u16 = 3;

/// Runs of links in which they fall silent for nearly as long as servers bear, in percent.
const HARSH: u64 = 30;

/// After the last trouble, before the last look: longer than it takes to declare a node lost.
const SETTLING: Duration = Duration::from_secs(10);

/// After the last look, before what lies on the nodes is looked at: several times what it takes until
/// somebody finishes an operation that was left half done.
const FINISHING: Duration = Duration::from_secs(90);

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What happened to its job.
    pub kind: Kind,
    /// Calls of programs.
    pub calls: u64,
    /// Of these, calls whose outcome nobody knows (`EIO`, or a mount that died).
    pub unknown: u64,
    /// All calls and answers as one number: two runs of a seed have the same.
    pub trace: u64,
    /// Simulated milliseconds.
    pub milliseconds: u64,
    /// Whether links were silent for nearly as long as servers bear.
    pub harsh: bool,
    /// Starts of servers after the first of each.
    pub restarts: u64,
    /// Histories with so many calls of unknown outcome that no search decided whether they can be.
    pub undecided: u64,
    /// Whether mounts gathered small writes.
    pub writes: Writes,
    /// Windows of them that mounts began.
    pub windows: u64,
    /// Writes of mounts that live which were acknowledged and lost: each was told.
    pub refused: u64,
}

/// What was seen that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// To see it again, with its kind.
    pub seed: u64,
    /// What happened to the job.
    pub kind: Kind,
    /// Where its programs worked.
    pub place: Place,
    /// Whether its mounts gathered small writes.
    pub writes: Writes,
    /// For people.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seed, kind, place, writes) = (self.seed, self.kind, self.place, self.writes);
        write!(f, "seed {seed} of {kind}, {place:?}, {writes:?}:\n{}", self.what.join("\n"))
    }
}

/// Where the programs of a run work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The names are at their shards.
    #[default]
    Root,
    /// The names are at its home first, and at their shards later.
    Directory,
}

impl Place {
    /// That of a seed that is run without saying where.
    pub fn of(seed: u64) -> Self {
        match Random::new(seed ^ PLACE).chance(50) {
            true => Self::Directory,
            false => Self::Root,
        }
    }
}

/// How mounts write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Each write is sent before it is answered.
    #[default]
    AtOnce,
    /// Small writes of a file that a node alone has open are gathered; there are programs that make such ones.
    Gathered,
}

impl Writes {
    /// That of a seed that is run without saying how.
    pub fn of(seed: u64) -> Self {
        match Random::new(seed ^ WRITES).chance(60) {
            true => Self::Gathered,
            false => Self::AtOnce,
        }
    }
}

/// Makes of a seed another random number.
const PLACE: u64 = 0x5370_7265_6164;
const WRITES: u64 = 0x4761_7468_6572;

/// Runs a seed, of the kind and at the place that follow from it.
///
/// # Errors
/// With what the checkers found.
///
/// # Panics
/// When the machine has no memory or descriptors left, or the job is not dropped at its end.
pub fn run(seed: u64) -> Result<Report, Violation> {
    run_kind(Kind::of(seed), Place::of(seed), Writes::of(seed), seed)
}

/// Runs a seed of a kind at a place.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_kind(kind: Kind, place: Place, writes: Writes, seed: u64) -> Result<Report, Violation> {
    let runtime = runtime();
    let ran = LocalSet::new().block_on(&runtime, job(kind, place, writes, seed));
    let (report, what, job) = ran;
    if !what.is_empty() {
        return Err(Violation { seed, kind, place, writes, what });
    }
    assert_eq!(
        job.strong_count(),
        0,
        "seed {seed}: the job outlives its tasks, with its directory"
    );
    Ok(report)
}

/// One thread and a clock that jumps.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

async fn job(
    kind: Kind,
    place: Place,
    writes: Writes,
    seed: u64,
) -> (Report, Vec<String>, Weak<Job>) {
    let began = tokio::time::Instant::now();
    let random = Random::new(seed);
    let harsh = kind == Kind::Links && random.chance(HARSH);
    let network = Network::new(random.split());
    let job = Job::up(SERVERS, network, Random::new(!seed)).await;
    if writes == Writes::Gathered {
        job.let_mounts_gather(Random::new(seed ^ !WRITES));
    }
    let world = World::new(&job, kind, harsh);
    if place == Place::Directory {
        let maker = Random::new(seed ^ !PLACE).pick(&world.seats).mount();
        job.work_in_a_new_directory(&maker).await;
    }
    match kind {
        Kind::PowerCut => programs_that_sync(&world, &job, &random).await,
        _ => programs(&world, &job, (harsh, writes), &random).await,
    }
    let (trace, calls, unknown) = world.sums();
    let mut what = world.violations();
    what.extend(job.complaints());
    let milliseconds = began.elapsed().as_millis() as u64;
    let (undecided, restarts) = (world.undecided(), job.lives() - u64::from(SERVERS));
    let report = Report {
        kind,
        calls,
        unknown,
        trace,
        milliseconds,
        harsh,
        restarts,
        undecided,
        writes,
        windows: job.windows(),
        refused: world.refused(),
    };
    (report, what, Rc::downgrade(&job))
}

/// Two programs of each kind on each node, in trouble; then quiet, and a last look.
async fn programs(
    world: &Rc<World>,
    job: &Rc<Job>,
    (harsh, writes): (bool, Writes),
    random: &Random,
) {
    let registers = Registers::new(world).await;
    let appends = Appends::new(world).await;
    let locks = Locks::new(world).await;
    let names = Names::new(world);
    let small = match writes {
        Writes::Gathered => Some(SmallWrites::new(world).await),
        Writes::AtOnce => None,
    };
    let mut programs = JoinSet::new();
    for (owner, seat) in (1..).zip(world.seats.iter().chain(&world.seats)) {
        programs.spawn_local(Rc::clone(&registers).run(Rc::clone(seat), random.split()));
        programs.spawn_local(Rc::clone(&appends).run(Rc::clone(seat), random.split()));
        programs.spawn_local(Rc::clone(&locks).run(Rc::clone(seat), owner, random.split()));
        programs.spawn_local(Rc::clone(&names).run(Rc::clone(seat), random.split()));
    }
    if let Some(small) = &small {
        for seat in &world.seats {
            programs.spawn_local(Rc::clone(small).run(Rc::clone(seat), random.split()));
        }
    }
    in_trouble(world, job, harsh, random, programs).await;
    if let Some(small) = small {
        small.check().await;
    }
    registers.check().await;
    appends.check().await;
    locks.check().await;
    names.check().await;
    tokio::time::sleep(FINISHING).await;
    for what in storage::check(job) {
        world.violated(what);
    }
}

/// Two programs on each node that sync what they write, until the power fails; then what is left.
async fn programs_that_sync(world: &Rc<World>, job: &Rc<Job>, random: &Random) {
    let synced = SyncedFiles::new(world);
    let mut programs = JoinSet::new();
    for (owner, seat) in (1..).zip(world.seats.iter().chain(&world.seats)) {
        programs.spawn_local(Rc::clone(&synced).run(Rc::clone(seat), owner, random.split()));
    }
    in_trouble(world, job, false, random, programs).await;
    synced.check().await;
}

/// Troubles until the programs are done, then none.
async fn in_trouble(
    world: &Rc<World>,
    job: &Rc<Job>,
    harsh: bool,
    random: &Random,
    mut programs: JoinSet<()>,
) {
    let (seats, what) = (world.seats.clone(), (world.kind(), harsh));
    let trouble = faults::trouble(Rc::clone(job), seats, what, random.split());
    let trouble = tokio::task::spawn_local(trouble);
    while let Some(ended) = programs.join_next().await {
        ended.expect("programs do not panic");
    }
    trouble.abort();
    faults::over(job).await;
    if world.kind() != Kind::Links {
        tokio::time::sleep(SETTLING).await;
    }
}
