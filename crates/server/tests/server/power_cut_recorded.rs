//! Files of the cache area that MPI-IO keeps as one part per writer, when their nodes lose power or an error of their storage
//! is told: what nobody has synced, and what the storage has lost, replaces nothing in the tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cluster::recorded_file::{BLOCK, Recorded, WRITERS, block, published, step};
use crate::cluster::{Cluster, RW, eventually};
use hayase_container::{Access, Container, ContainerFile, Creation, Durability, Identity, MARK};
use hayase_layout::{ByteCount, GlobalOffset, InodeId, NodeId, Rank, ServerId, StripePolicy};
use hayase_server::{LeftNode, LeftNodes, Resumed, ResumedJob, Salvaging, salvage};
use hayase_store::{Area, Batch, Device, Ledger, LedgerRecord, MemoryStore, MetaStore};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Flaky, Key, Memory, Tier};
use hayase_wire::message::{FileKind, Flushed, NodeReply, NodeRequest, RecordedStep, Refused};

const TOP: InodeId = InodeId::CACHE_ROOT;
const SERVERS: u16 = 3;
const EIO: i32 = 5;
const ENODATA: i32 = 61;

/// Lives of the machines, for those who resume.
const LATER: u64 = 2;
const STILL_THE_SAME: u64 = 1;

/// A job with a file `out`, of which the tier has the first round, while it takes nothing more.
struct Job {
    cluster: Cluster,
    takes: Arc<AtomicBool>,
    /// Versions that were begun in it.
    begun: Arc<AtomicU32>,
    tier: Memory,
    file: Recorded,
}

/// What is left of it.
struct Ended {
    job: Job,
    parts: Vec<Arc<dyn Device>>,
    names: Vec<Arc<MemoryStore>>,
}

struct Found(Vec<LeftNode>);

impl LeftNodes for Found {
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused> {
        Ok(&self.0[usize::from(server.0)])
    }
}

impl Job {
    fn up() -> Self {
        Self::of(|_, _| ())
    }

    /// `furnish` may make files of the container before their bytes come.
    fn of(furnish: impl FnOnce(&Cluster, &mut Recorded)) -> Self {
        let (tier, takes) = (Memory::new(), Arc::new(AtomicBool::new(true)));
        let (asked, begun) = (Arc::clone(&takes), Arc::<AtomicU32>::default());
        let counted = Arc::clone(&begun);
        let flaky = Flaky::new(tier.clone(), move |call| {
            let is_begin = call == Call::Begun(Action::Begin);
            counted.fetch_add(u32::from(is_begin), Ordering::Relaxed);
            let is_change = is_begin || call == Call::Begun(Action::Delete);
            (is_change && !asked.load(Ordering::Relaxed)).then_some(Fault::Io)
        });
        let cluster = Cluster::up_on_crash_devices(SERVERS, Arc::new(flaky));
        let mut file = Recorded::make_in(&cluster, TOP, "out");
        furnish(&cluster, &mut file);
        file.publish(&cluster);
        let job = Self { cluster, takes, begun, tier, file };
        eventually("it is durable", || job.flush() == Ok(Flushed::Durable));
        job.takes.store(false, Ordering::Relaxed);
        job
    }

    fn flush(&self) -> Result<Flushed, Refused> {
        match self.cluster.process(1).ask(&NodeRequest::Flush { ino: self.file.ino })? {
            NodeReply::Flushed(flushed) => Ok(flushed),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until so many more flushes of it have failed, while the tier takes everything.
    fn fails(&self, more: u32) {
        self.takes.store(true, Ordering::Relaxed);
        let attempts = || match self.flush().unwrap() {
            Flushed::Failed { errno: EIO, attempts } => Some(attempts),
            Flushed::Durable => panic!("it was sent"),
            _ => None,
        };
        let mut before = None;
        eventually("a flush fails", || {
            before = before.or_else(attempts);
            before.is_some()
        });
        let enough = before.map(|before| before + more);
        eventually("flushes fail", || attempts() >= enough);
        self.takes.store(false, Ordering::Relaxed);
    }

    /// Every writer publishes one more block.
    fn write(&mut self) {
        self.file.publish(&self.cluster);
    }

    /// Of the tier's version.
    fn good(&self) -> Vec<u8> {
        (0..WRITERS).flat_map(block).collect()
    }

    fn in_tier(&self) -> Vec<u8> {
        let key = Key::new("out").unwrap();
        let mut bytes = vec![0; self.tier.stat(&key).unwrap().size.get() as usize];
        self.tier.open(&key).unwrap().read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// Every node loses power. Of what was not synced storage keeps some, and of the names so many commits.
    fn cut(mut self, mut survives: impl FnMut() -> bool, commits: usize) -> Ended {
        let parts = (0..SERVERS).map(|server| {
            let left = self.cluster.device(server).after_power_cut(&mut survives);
            Arc::new(left) as Arc<dyn Device>
        });
        let parts = parts.collect();
        let left = |server| Arc::new(self.cluster.store(server).after_power_cut(commits));
        let names = (0..SERVERS).map(left).collect();
        self.cluster.end();
        Ended { job: self, parts, names }
    }

    /// All processes are killed.
    fn killed(mut self) -> Ended {
        let names: Vec<_> =
            (0..SERVERS).map(|server| Arc::new(self.cluster.store(server).after_kill())).collect();
        for names in &names {
            let mut batch = Batch::new();
            batch.put(b"mboot".to_vec(), vec![1, 1, b'0' + STILL_THE_SAME as u8]);
            names.commit(batch).unwrap();
            names.sync().unwrap();
        }
        self.cluster.end();
        let device = |server| Arc::clone(self.cluster.device(server)) as Arc<dyn Device>;
        let parts = (0..SERVERS).map(device).collect();
        Ended { job: self, parts, names }
    }

    /// The server of a file of the container.
    fn server_of(&self, name: &str) -> u16 {
        self.file.copied[name].0.home().0
    }
}

impl Ended {
    fn ledger(&self, server: u16) -> Ledger {
        Ledger::open(self.job.cluster.area(server).ledger_device().unwrap()).unwrap()
    }

    fn nodes(&self, life: u64) -> Found {
        let left = |server: u16| {
            let at = usize::from(server);
            let (parts, names) = (Arc::clone(&self.parts[at]), Arc::clone(&self.names[at]));
            LeftNode::simulated(ServerId(server), parts, names, life)
        };
        Found((0..SERVERS).map(left).collect())
    }

    /// Each time another process.
    fn resume(&self, life: u64) -> Vec<Resumed> {
        let found = self.nodes(life);
        let all = (0..SERVERS).flat_map(|server| {
            self.ledger(server).records().cloned().collect::<Vec<LedgerRecord>>()
        });
        let (mut job, mut told) = (ResumedJob::new(all.collect::<Vec<_>>()), Vec::new());
        for server in 0..SERVERS {
            let mut ledger = self.ledger(server);
            let home = (ServerId(server), &mut ledger);
            job.files(home, &found, &self.job.tier, |file| told.push(file)).unwrap();
        }
        told
    }

    /// What `down` does with what it keeps.
    fn seal(&self, life: u64) {
        for (server, left) in self.nodes(life).0.iter().enumerate() {
            left.seal(&mut self.ledger(server as u16)).unwrap();
        }
    }

    fn brings_all(&self, life: u64) {
        let told = self.resume(life);
        assert_eq!((told.len(), &told[0].failure), (1, &None), "{told:?}");
        assert!(self.job.in_tier() == self.job.file.bytes(), "other bytes");
    }

    /// The good version is still in the tier, and what is here stays; each time.
    fn refuses(&self, life: u64, errno: i32, why: &str) {
        for round in 0..3 {
            let told = self.resume(life);
            let failure = told[0].failure.as_ref().expect("it is not sent");
            assert_eq!((told.len(), failure.errno), (1, errno), "round {round}: {told:?}");
            assert!(failure.to_string().contains(why), "{failure} does not tell of {why}");
            assert!(self.job.in_tier() == self.job.good(), "round {round}: other bytes");
        }
    }
}

/// Numbers that look random, the same for each seed.
fn drawn(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 33
    }
}

/// Indexes and sizes reach the disk, and pages of the parts do not.
#[test]
fn what_mpi_programs_did_not_sync_replaces_nothing_after_a_power_cut() {
    for seed in 0..12 {
        let mut job = Job::up();
        job.write();
        let mut draw = drawn(seed);
        let commits = if seed % 3 == 0 { 0 } else { usize::MAX };
        let ended = job.cut(|| !draw().is_multiple_of(4), commits);
        let told = ended.resume(LATER);
        assert!(ended.job.in_tier() == ended.job.good(), "seed {seed}: {told:?}");
        assert!(told.len() == 1, "seed {seed}: {told:?}");
    }
    let mut job = Job::up();
    job.write();
    let ended = job.cut(|| true, usize::MAX);
    ended.refuses(LATER, ENODATA, "resume --salvage");
    ended.refuses(LATER + 1, ENODATA, " of its container: node");
    // A node that is sealed afterwards does not get back what it may have lost.
    ended.seal(LATER + 1);
    ended.refuses(LATER + 2, ENODATA, " of its container: node");
}

#[test]
fn what_mpi_programs_synced_comes_after_a_power_cut() {
    for seed in 0..8 {
        let mut job = Job::up();
        job.write();
        job.cluster.process(1).fsync(job.file.ino).unwrap();
        // One is closed, which its index tells; another writes on, and does not publish it.
        job.file.writers[0].close(Durability::Written).unwrap();
        job.file.writers[1].write_at(GlobalOffset(1 << 30), b"beyond the end").unwrap();
        job.file.copy(&job.cluster);
        let mut draw = drawn(seed);
        let ended = job.cut(|| !draw().is_multiple_of(2), 0);
        ended.brings_all(LATER);
    }
}

/// The tier has an earlier file of its name, which was removed.
#[test]
fn a_new_file_of_mpi_programs_that_nobody_synced_replaces_nothing() {
    for seed in 0..8 {
        let mut job = Job::up();
        let good = job.good();
        job.cluster.process(1).remove(TOP, "out", false).unwrap();
        job.file = Recorded::make_in(&job.cluster, TOP, "out");
        if seed > 0 {
            job.write();
        }
        let (mut draw, commits) = (drawn(seed), if seed % 2 == 0 { 0 } else { usize::MAX });
        let ended = job.cut(|| seed > 2 && draw().is_multiple_of(2), commits);
        let told = ended.resume(LATER);
        assert!(ended.job.in_tier() == good, "seed {seed}: {told:?}");
        let fails = told.iter().all(|file| file.failure.is_some());
        assert!(!told.is_empty() && fails, "seed {seed}: {told:?}");
    }
}

/// A program cuts the file, and is about to write it again. The index reaches the disk.
#[test]
fn a_cut_that_was_not_synced_replaces_nothing_after_a_power_cut() {
    for (is_synced, is_larger) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut job = Job::up();
        let (first, size) = (&job.file.writers[0], if is_larger { 1 << 20 } else { 0 });
        first.set_size(ByteCount(size), first.proposed_epoch()).unwrap();
        job.file.copy(&job.cluster);
        step(&mut job.cluster.process(1), job.file.ino, published("")).unwrap();
        if is_synced {
            job.cluster.process(1).fsync(job.file.ino).unwrap();
        }
        let mut expected = job.good();
        expected.resize(size as usize, 0);
        let ended = job.cut(|| true, usize::MAX);
        match is_synced {
            true => {
                assert_eq!(ended.resume(LATER)[0].failure, None);
                assert!(ended.job.in_tier() == expected);
            }
            false => ended.refuses(LATER, ENODATA, "n0-p0-o0.index of its container: node"),
        }
    }
}

/// What the last program to close makes of the indexes.
#[test]
fn merged_indexes_of_what_was_synced_count_after_a_power_cut() {
    for is_synced in [true, false] {
        let mut job = Job::up();
        job.write();
        for writer in &job.file.writers {
            writer.close(Durability::Written).unwrap();
        }
        let container = Container::open(&job.file.path(), Creation::Never).unwrap();
        container.compact(hayase_container::Finished::Closed).unwrap();
        let mut process = job.cluster.process(1);
        // Its writer makes it durable under the name that it has first.
        let names = std::fs::read_dir(job.file.path()).unwrap();
        let mut names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
        let merged = names.find(|name| name.starts_with("merged-")).unwrap();
        let bytes = std::fs::read(job.file.path().join(&merged)).unwrap();
        let begun = merged.replace("merged-", "merging-").replace(".index", "");
        let container = job.file.container;
        let ino = process.create(container, &begun, FileKind::Regular).unwrap().ino;
        process.open(ino, RW).unwrap();
        process.write(ino, 0, &bytes).unwrap();
        process.fsync(ino).unwrap();
        process.rename((container, &begun), (container, &merged)).unwrap();
        let old: Vec<_> = job.file.copied.keys().filter(|name| name.ends_with(".index")).collect();
        for name in old {
            process.remove(container, name, false).unwrap();
        }
        process.fsync(container).unwrap();
        for writer in 0..if is_synced { WRITERS } else { 0 } {
            process.fsync(job.file.part(writer).1).unwrap();
        }
        let ended = job.cut(|| true, usize::MAX);
        match is_synced {
            true => ended.brings_all(LATER),
            false => ended.refuses(LATER, ENODATA, ".part of its container: node"),
        }
    }
}

/// One of three processes died before MPI_File_sync.
#[test]
fn one_part_that_was_not_synced_keeps_the_file_from_the_tier() {
    let mut job = Job::up();
    job.write();
    let (last, _) = job.file.part(2);
    for (name, (ino, _)) in job.file.copied.clone() {
        if name != last {
            job.cluster.process(1).fsync(ino).unwrap();
        }
    }
    let ended = job.cut(|| true, usize::MAX);
    ended.refuses(LATER, ENODATA, &last);
}

/// And its bytes are nowhere to be seen any more.
#[test]
fn a_part_that_was_not_synced_and_is_written_over_is_not_needed() {
    let mut job = Job::up();
    job.write();
    write_over(&mut job, 60);
    for (name, (ino, _)) in job.file.copied.clone() {
        let is_first = name.ends_with(".part") && !name.starts_with("n0-p60-");
        if !is_first {
            job.cluster.process(1).fsync(ino).unwrap();
        }
    }
    let expected = written_over(&job);
    let ended = job.cut(|| true, usize::MAX);
    assert_eq!(ended.resume(LATER)[0].failure, None);
    assert!(ended.job.in_tier() == expected);
}

/// All bytes of the file, by another writer.
fn write_over(job: &mut Job, process: u32) {
    let container = Container::open(&job.file.path(), Creation::Never).unwrap();
    let identity = Identity { node: NodeId(0), process, opening: 0, rank: Rank(0) };
    let writer = ContainerFile::open(container, Access::Write, identity, None).unwrap();
    writer.write_at(GlobalOffset(0), &written_over(job)).unwrap();
    writer.publish(Durability::Written).unwrap();
    job.file.writers.push(writer);
    job.file.copy(&job.cluster);
    step(&mut job.cluster.process(1), job.file.ino, published("")).unwrap();
}

fn written_over(job: &Job) -> Vec<u8> {
    (0..job.file.rounds * WRITERS * BLOCK).map(|at| (at % 199) as u8).collect()
}

#[test]
fn what_down_or_resume_made_durable_of_mpi_programs_comes_after_a_power_cut() {
    let mut job = Job::up();
    job.write();
    let ended = job.killed();
    ended.seal(STILL_THE_SAME);
    ended.brings_all(LATER);
    // The tier took nothing the first time.
    let mut job = Job::up();
    job.write();
    let ended = job.killed();
    let failing = Flaky::new(ended.job.tier.clone(), |call| {
        (call == Call::Begun(Action::Begin)).then_some(Fault::Io)
    });
    let (found, mut failed) = (ended.nodes(STILL_THE_SAME), 0);
    let records: Vec<_> = (0..SERVERS)
        .flat_map(|server| ended.ledger(server).records().cloned().collect::<Vec<_>>())
        .collect();
    let mut resumed = ResumedJob::new(records);
    for server in 0..SERVERS {
        let mut ledger = ended.ledger(server);
        let home = (ServerId(server), &mut ledger);
        let told = |file: Resumed| failed += usize::from(file.failure.is_some());
        resumed.files(home, &found, &failing, told).unwrap();
    }
    assert_eq!(failed, 1);
    let ended = Ended { names: synced(&ended.names), ..ended };
    ended.brings_all(LATER);
}

fn synced(names: &[Arc<MemoryStore>]) -> Vec<Arc<MemoryStore>> {
    names.iter().map(|names| Arc::new(names.after_power_cut(0))).collect()
}

#[test]
fn what_a_kill_left_of_mpi_programs_comes_whoever_synced() {
    let mut job = Job::up();
    job.write();
    job.killed().brings_all(STILL_THE_SAME);
}

#[test]
fn parts_on_several_nodes_come_after_a_power_cut_where_they_were_synced() {
    for is_synced in [false, true] {
        let policy = StripePolicy { stripe: ByteCount::kib(4), width: 3 };
        let mut job = Job::of(|cluster, file| {
            let (dir, name) = (file.container, "n0-p1-o0.part");
            let mut process = cluster.process(1);
            let made = process.create_with(dir, name, FileKind::Regular, Some(policy));
            file.copied.insert(name.to_owned(), (made.unwrap().ino, 0));
        });
        job.write();
        let last = &job.file.copied["n0-p1-o0.part"].0;
        for ino in job.file.copied.values().map(|(ino, _)| ino) {
            if is_synced || ino != last {
                job.cluster.process(1).fsync(*ino).unwrap();
            }
        }
        let ended = job.cut(|| true, usize::MAX);
        match is_synced {
            true => ended.brings_all(LATER),
            false => ended.refuses(LATER, ENODATA, "n0-p1-o0.part of its container: node"),
        }
    }
}

#[test]
fn what_stays_of_mpi_programs_after_a_power_cut_can_be_salvaged() {
    let mut job = Job::up();
    job.write();
    let ended = job.cut(|| true, usize::MAX);
    ended.refuses(LATER, ENODATA, "--salvage");
    let (found, mut told) = (ended.nodes(LATER), Vec::new());
    for home in (0..SERVERS).map(ServerId) {
        let home = (home, &std::collections::BTreeMap::new());
        salvage("job", home, &found, &ended.job.tier, |file| told.push(file)).unwrap();
    }
    assert_eq!((told.len(), &told[0].what), (1, &Salvaging::Conflict), "{told:?}");
    assert!(ended.job.in_tier() == ended.job.good());
}

/// The kernel tells an error of write-back once: to the program, to the flush, or to who resumes.
#[test]
fn what_the_storage_has_lost_of_mpi_programs_is_never_sent() {
    for heard_by in ["the program", "the flush", "the resume", "nobody before the end"] {
        let mut job = Job::up();
        job.write();
        let (name, ino) = job.file.part(1);
        let server = job.server_of(&name);
        let failing = Arc::clone(job.cluster.device(server));
        if heard_by == "the program" {
            failing.fail_syncs(1);
            let refused = job.cluster.process(server).fsync(ino).unwrap_err();
            assert!(refused.errno == EIO && refused.to_string().contains(&name), "{refused}");
            job.cluster.process(server).fsync(ino).unwrap_err();
        }
        if heard_by != "the resume" && heard_by != "nobody before the end" {
            failing.fail_syncs(if heard_by == "the flush" { 8 } else { 0 });
            job.fails(1);
            failing.fail_syncs(0);
            let before = job.begun.load(Ordering::Relaxed);
            job.fails(1);
            assert_eq!(job.begun.load(Ordering::Relaxed), before, "all of it is sent again");
            assert!(job.in_tier() == job.good(), "{heard_by}: other bytes");
        }
        let is_late = heard_by == "nobody before the end";
        let ended = job.killed();
        if is_late {
            failing.fail_syncs(8);
            ended.seal(STILL_THE_SAME);
            failing.fail_syncs(0);
            ended.refuses(STILL_THE_SAME, EIO, "of its container");
            ended.refuses(LATER, EIO, "of its container");
            continue;
        }
        failing.fail_syncs(if heard_by == "the resume" { 8 } else { 0 });
        assert!(ended.resume(STILL_THE_SAME)[0].failure.is_some());
        failing.fail_syncs(0);
        ended.refuses(STILL_THE_SAME, EIO, "of its container");
        ended.refuses(LATER, EIO, "of its container");
    }
}

#[test]
fn a_file_of_mpi_programs_comes_when_what_was_lost_is_written_again() {
    let mut job = Job::up();
    job.write();
    let (name, ino) = job.file.part(1);
    let server = job.server_of(&name);
    job.cluster.device(server).fail_syncs(1);
    job.cluster.process(server).fsync(ino).unwrap_err();
    job.fails(1);
    job.takes.store(true, Ordering::Relaxed);
    // Nor is it hidden in a plain file.
    let flatten = RecordedStep::Flatten { keep: None };
    let refused = step(&mut job.cluster.process(1), job.file.ino, flatten).unwrap_err();
    assert!(refused.errno == EIO && refused.to_string().contains(&name), "{refused}");
    write_over(&mut job, 61);
    eventually("it is durable", || job.flush() == Ok(Flushed::Durable));
    assert!(job.in_tier() == written_over(&job));
    assert!(job.file.copied.contains_key(MARK));
}
