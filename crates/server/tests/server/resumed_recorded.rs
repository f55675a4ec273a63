//! Files of the cache area that MPI-IO keeps as one part per writer, of a job that ended before the tier had them: brought
//! there from the storage of all nodes, without servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cluster::recorded_file::{BLOCK, Recorded, block, published, step};
use crate::cluster::{Cluster, R, eventually};
use hayase_container::{AREA_DIRECTORY, Durability, MARK};
use hayase_layout::{
    ByteCount, GlobalOffset, InodeId, Layout, LocalOffset, ServerId, StripePolicy,
};
use hayase_server::{
    LeftNode, LeftNodes, Resumed, ResumedJob, Resuming, SalvagedFile, Salvaging, salvage,
};
use hayase_store::{Area, FileState, Ledger, LedgerRecord, PartId};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Attributes, Flaky, Key, ListRequest, Memory, Precondition, Tier};
use hayase_wire::message::{FileKind, Flushed, NodeReply, NodeRequest, RecordedStep, Refused};
use xxhash_rust::xxh3::xxh3_64;

const TOP: InodeId = InodeId::CACHE_ROOT;
const SERVERS: u16 = 3;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODATA: i32 = 61;

/// A job whose tier takes nothing while it is up, unless that is wanted.
struct Job {
    cluster: Cluster,
    takes: Arc<AtomicBool>,
    tier: Memory,
    /// Calls that write to the tier, of those who resume.
    writes: Arc<AtomicUsize>,
}

/// The storage of those nodes that are found.
struct Found(Vec<Option<LeftNode>>);

impl LeftNodes for Found {
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused> {
        let found = self.0[usize::from(server.0)].as_ref();
        found.ok_or_else(|| Refused::because(ENXIO, format!("node {server} is not found")))
    }
}

impl Job {
    fn up() -> Self {
        let (tier, takes) = (Memory::new(), Arc::<AtomicBool>::default());
        let asked = Arc::clone(&takes);
        let flaky = Flaky::new(tier.clone(), move |call| {
            let is_refused = call == Call::Begun(Action::Begin) && !asked.load(Ordering::Relaxed);
            is_refused.then_some(Fault::Io)
        });
        let cluster = Cluster::up_with_tier(SERVERS, Arc::new(flaky));
        Self { cluster, takes, tier, writes: Arc::default() }
    }

    /// With a file `out` in which this was published, the job over.
    fn ended_with(rounds: usize) -> (Self, Recorded) {
        let mut job = Self::up();
        let mut file = Recorded::make_in(&job.cluster, TOP, "out");
        for _ in 0..rounds {
            file.publish(&job.cluster);
        }
        job.cluster.end();
        (job, file)
    }

    fn ledger(&self, server: u16) -> Ledger {
        Ledger::open(self.cluster.area(server).ledger_device().unwrap()).unwrap()
    }

    fn record(&self, ino: InodeId) -> LedgerRecord {
        self.ledger(ino.home().0).get(ino).unwrap().clone()
    }

    /// The storage of `missing` is not there.
    fn resume_without(&self, missing: Option<u16>) -> Vec<Resumed> {
        let here = || (0..SERVERS).filter(|server| Some(*server) != missing);
        let left = |server| LeftNode::of(ServerId(server), &self.cluster.area(server)).unwrap();
        let found = (0..SERVERS).map(|server| (Some(server) != missing).then(|| left(server)));
        let found = Found(found.collect());
        let records: Vec<_> =
            here().flat_map(|s| self.ledger(s).records().cloned().collect::<Vec<_>>()).collect();
        let (mut job, mut told) = (ResumedJob::new(records), Vec::new());
        let writes = Arc::clone(&self.writes);
        let tier = Flaky::new(self.tier.clone(), move |call| {
            let is_write = call == Call::Begun(Action::Write);
            writes.fetch_add(usize::from(is_write), Ordering::Relaxed);
            None
        });
        for server in here() {
            let mut ledger = self.ledger(server);
            let home = (ServerId(server), &mut ledger);
            job.files(home, &found, &tier, |file| told.push(file)).unwrap();
        }
        told
    }

    fn resume(&self) -> Vec<Resumed> {
        self.resume_without(None)
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let key = Key::new(path).unwrap();
        let mut bytes = vec![0; self.tier.stat(&key).ok()?.size.get() as usize];
        let read = self.tier.open(&key).ok()?.read_at(0, &mut bytes).ok()?;
        (read == bytes.len()).then_some(bytes)
    }

    fn names(&self) -> Vec<String> {
        let page = self.tier.list(&ListRequest::all("")).unwrap();
        page.entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    }

    /// It comes to the tier, as `expected`, and only once.
    fn brings(&self, file: &Recorded, expected: &[u8]) {
        let told = self.resume();
        assert_eq!((told.len(), &told[0].failure), (1, &None), "{told:?}");
        let found = self.read("out").unwrap();
        assert!(found == expected, "other bytes: {} of {}", found.len(), expected.len());
        assert_eq!(self.names(), ["out"]);
        let known = self.record(file.ino);
        assert_eq!((known.state, known.bytes), (FileState::Durable, expected.len() as u64));
        assert_eq!(known.known_checksum(), Some(xxh3_64(expected)));
        assert!(self.resume().is_empty());
    }

    /// Nothing of the file comes to the tier, and it is told why.
    fn refuses(&self, file: &Recorded, missing: Option<u16>, errno: i32, why: &str) {
        let told = self.resume_without(missing);
        let failure = told[0].failure.as_ref().unwrap();
        assert_eq!((told.len(), failure.errno), (1, errno), "{told:?}");
        assert!(failure.to_string().contains(why), "{failure} does not tell of {why}");
        assert!(self.names().is_empty(), "{:?}", self.names());
        let known = self.record(file.ino);
        assert_eq!((known.state, known.errno), (FileState::Failed, errno));
    }

    /// What a node keeps of a file of a container.
    fn stored(&self, file: &Recorded, name: &str) -> (u16, PartId) {
        let ino = file.copied[name].0;
        (ino.home().0, PartId { ino, epoch: 0, index: 0 })
    }

    fn change(&self, (server, id): (u16, PartId), change: impl FnOnce(&mut Vec<u8>)) {
        let part = self.cluster.parts(server).get(id).unwrap();
        let mut bytes = vec![0; part.stat().unwrap().size as usize];
        assert_eq!(part.read_at(LocalOffset(0), &mut bytes).unwrap(), bytes.len());
        change(&mut bytes);
        part.truncate(0).unwrap();
        part.write_at(LocalOffset(0), &bytes).unwrap();
    }

    /// All of it, as programs read it while the job is up.
    fn shown(&self, file: &Recorded) -> Vec<u8> {
        let mut process = self.cluster.process(1);
        process.open(file.ino, R).unwrap();
        process.read(file.ino, 0, 1 << 20).unwrap()
    }
}

#[test]
fn what_was_published_is_put_together_from_all_nodes() {
    for rounds in [0, 1, 4] {
        let (job, file) = Job::ended_with(rounds);
        job.brings(&file, &file.bytes());
    }
}

#[test]
fn it_is_sent_in_large_requests_whatever_the_pattern() {
    let mut job = Job::up();
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    for _ in 0..400 {
        file.write();
    }
    file.copy(&job.cluster);
    step(&mut job.cluster.process(2), file.ino, published("")).unwrap();
    job.cluster.end();
    job.brings(&file, &file.bytes());
    assert_eq!(job.writes.load(Ordering::Relaxed), 2, "8 MiB, and the rest");
}

/// The home's as well: then its ledger is not here.
#[test]
fn it_waits_for_the_storage_of_all_its_nodes() {
    let (job, file) = Job::ended_with(2);
    for missing in 0..SERVERS {
        match file.ino.home().0 == missing {
            true => assert!(job.resume_without(Some(missing)).is_empty()),
            false => job.refuses(&file, Some(missing), ENXIO, &format!("node {missing} is not")),
        }
    }
    job.brings(&file, &file.bytes());
}

/// Parts are longer than what their indexes say of them, and the last block of an index is half there.
#[test]
fn what_was_not_published_is_not_in_it() {
    let mut job = Job::up();
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    file.publish(&job.cluster);
    for writer in &file.writers {
        writer.write_at(GlobalOffset(7), &block(99)).unwrap();
        writer.write_at(GlobalOffset(1 << 30), b"beyond the end").unwrap();
    }
    file.copy(&job.cluster);
    job.cluster.end();
    let torn = |bytes: &mut Vec<u8>| bytes.extend_from_slice(b"HYBK\xff\0\0\0 half of a block");
    job.change(job.stored(&file, "n0-p1-o0.index"), torn);
    job.brings(&file, &file.bytes());
}

/// Its writer was killed between its index and its word: as after a start of its home, it counts.
#[test]
fn a_publication_that_its_home_did_not_hear_of_is_in_it() {
    let mut job = Job::up();
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    file.publish(&job.cluster);
    file.write();
    file.copy(&job.cluster);
    job.cluster.end();
    job.brings(&file, &file.bytes());
}

#[test]
fn holes_overlaps_and_cuts_are_those_that_programs_saw() {
    let mut job = Job::up();
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    // In one epoch, where the lower rank wins, whoever publishes first.
    for (writer, at) in [(2, 0), (0, 3000), (1, 6000)] {
        file.writers[writer].write_at(GlobalOffset(at), &block(writer)).unwrap();
        file.writers[writer].publish(Durability::Written).unwrap();
    }
    // Behind a hole, then in a later epoch, cut, and grown again.
    file.writers[1].write_at(GlobalOffset(50_000), &block(4)).unwrap();
    for writer in &file.writers {
        writer.sync(Durability::Written).unwrap();
    }
    let (first, epoch) = (&file.writers[0], file.writers[0].proposed_epoch());
    file.writers.iter().for_each(|writer| writer.advance(epoch).unwrap());
    file.writers[2].write_at(GlobalOffset(5000), &block(5)[..2000]).unwrap();
    first.set_size(ByteCount(55_000), first.proposed_epoch()).unwrap();
    first.set_size(ByteCount(70_000), first.proposed_epoch()).unwrap();
    file.writers.iter().for_each(|writer| writer.publish(Durability::Written).unwrap());
    file.copy(&job.cluster);
    step(&mut job.cluster.process(1), file.ino, published("")).unwrap();
    let mut expected = vec![0; 70_000];
    expected[..BLOCK].copy_from_slice(&block(2));
    expected[6000..6000 + BLOCK].copy_from_slice(&block(1));
    expected[3000..3000 + BLOCK].copy_from_slice(&block(0));
    expected[5000..7000].copy_from_slice(&block(5)[..2000]);
    expected[50_000..55_000].copy_from_slice(&block(4)[..5000]);
    assert!(job.shown(&file) == expected, "the servers show other bytes");
    job.cluster.end();
    job.brings(&file, &expected);
}

/// As they are made on a node that is nearly full.
#[test]
fn files_of_a_container_may_be_striped() {
    let mut job = Job::up();
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    let policy = StripePolicy { stripe: ByteCount::kib(64), width: 3 };
    for name in ["n0-p1-o0.part", "n0-p2-o0.index"] {
        let made = job.cluster.process(1).create_with(
            file.container,
            name,
            FileKind::Regular,
            Some(policy),
        );
        file.copied.insert(name.to_owned(), (made.unwrap().ino, 0));
    }
    for _ in 0..20 {
        file.write();
    }
    file.copy(&job.cluster);
    step(&mut job.cluster.process(1), file.ino, published("")).unwrap();
    job.cluster.end();
    for missing in [0, 1, 2].into_iter().filter(|server| file.ino.home().0 != *server) {
        job.refuses(&file, Some(missing), ENXIO, &format!("node {missing} is not found"));
    }
    job.brings(&file, &file.bytes());
}

/// And whole, as soon as it is back.
#[test]
fn what_is_damaged_or_gone_is_told_and_nothing_is_sent() {
    let index = "n0-p2-o0.index";
    let part = "n0-p1-o0.part";
    type Change = fn(&mut Vec<u8>);
    let damages: [(&str, Change, i32, &str); 6] = [
        (index, |bytes| bytes[100] ^= 1, EIO, index),
        (index, |bytes| bytes.truncate(bytes.len() - 1), ENODATA, "were published"),
        (index, Vec::clear, ENODATA, "were published"),
        (part, |bytes| bytes.truncate(bytes.len() - 1), EIO, "1 bytes before what was published"),
        (part, Vec::clear, EIO, part),
        (MARK, |bytes| bytes[20] ^= 1, EIO, "hayase-container"),
    ];
    let (job, file) = Job::ended_with(3);
    for (name, change, errno, why) in damages {
        let (place, mut before) = (job.stored(&file, name), Vec::new());
        job.change(place, |bytes| {
            before.clone_from(bytes);
            change(bytes);
        });
        job.refuses(&file, None, errno, why);
        job.change(place, |bytes| *bytes = before);
    }
    for name in [index, part, MARK] {
        let ((server, id), mut before) = (job.stored(&file, name), Vec::new());
        job.change((server, id), |bytes| before.clone_from(bytes));
        job.cluster.parts(server).remove(id).unwrap();
        job.refuses(&file, None, EIO, &format!("{name} of its container: it is gone"));
        job.cluster.parts(server).create(id).unwrap();
        job.change((server, id), |bytes| *bytes = before);
    }
    job.brings(&file, &file.bytes());
}

#[test]
fn names_that_are_gone_are_told() {
    let (job, file) = Job::ended_with(2);
    for server in 0..SERVERS {
        let names = job.cluster.area(server).names();
        let aside = names.with_extension("aside");
        std::fs::rename(&names, &aside).unwrap();
        job.refuses(&file, None, EIO, &format!("the names of node {server} can not be read"));
        std::fs::rename(&aside, &names).unwrap();
    }
    job.brings(&file, &file.bytes());
}

/// The names of its files went with the power, and it had been told how far it was published.
#[test]
fn names_of_its_container_that_are_gone_are_told() {
    for (name, errno, why) in [
        ("n0-p2-o0.index", ENODATA, "were published"),
        ("n0-p1-o0.part", EIO, "n0-p1-o0.part is missing"),
        (MARK, EIO, "the mark"),
    ] {
        let mut job = Job::up();
        let mut file = Recorded::make_in(&job.cluster, TOP, "out");
        file.publish(&job.cluster);
        job.cluster.process(0).remove(file.container, name, false).unwrap();
        job.cluster.end();
        job.refuses(&file, None, errno, why);
    }
}

/// What is there under its own number was cut short.
#[test]
fn a_file_that_was_being_made_whole_comes_from_its_container() {
    let (job, file) = Job::ended_with(3);
    let id = PartId { ino: file.ino, epoch: 0, index: 0 };
    let half = job.cluster.parts(file.ino.home().0).create(id).unwrap();
    half.write_at(LocalOffset(0), &block(50)).unwrap();
    job.brings(&file, &file.bytes());
}

/// The ledger heard of it, or did not.
#[test]
fn a_file_that_became_whole_comes_from_its_part() {
    for is_known in [true, false] {
        let mut job = Job::up();
        let mut file = Recorded::make_in(&job.cluster, TOP, "out");
        file.publish(&job.cluster);
        let flatten = RecordedStep::Flatten { keep: None };
        step(&mut job.cluster.process(1), file.ino, flatten).unwrap();
        job.cluster.end();
        let record = job.record(file.ino);
        assert_eq!(record.layout, Layout::Whole);
        if !is_known {
            let layout = Layout::Recorded { container: file.container };
            job.ledger(file.ino.home().0).put(LedgerRecord { layout, ..record }).unwrap();
        }
        job.brings(&file, &file.bytes());
    }
}

#[test]
fn a_file_whose_room_was_given_back_is_left_alone() {
    let mut job = Job::up();
    job.takes.store(true, Ordering::Relaxed);
    let mut file = Recorded::make_in(&job.cluster, TOP, "out");
    file.publish(&job.cluster);
    let flush = NodeRequest::Flush { ino: file.ino };
    eventually("it is durable", || {
        let told = job.cluster.process(1).ask(&flush).unwrap();
        matches!(told, NodeReply::Flushed(Flushed::Durable))
    });
    job.cluster.process(1).ask(&NodeRequest::Evict { ino: file.ino }).unwrap();
    let all = job.cluster.process(0).lookup(InodeId::ROOT, AREA_DIRECTORY).unwrap().attr.ino;
    eventually("the container goes", || job.cluster.process(0).names(all).is_empty());
    job.cluster.end();
    // Killed before the ledger heard of the end.
    let layout = Layout::Recorded { container: file.container };
    let record = LedgerRecord { layout, ..job.record(file.ino) };
    job.ledger(file.ino.home().0).put(record).unwrap();
    assert!(job.resume().is_empty());
    assert!(job.read("out") == Some(file.bytes()));
}

#[test]
fn another_version_stays_and_ours_is_beside_it() {
    let (job, file) = Job::ended_with(2);
    let key = Key::new("out").unwrap();
    job.tier.put(&key, Attributes::default(), b"theirs", Precondition::Any).unwrap();
    let told = job.resume();
    assert!(told[0].what == Resuming::Conflict && told[0].failure.is_none(), "{told:?}");
    assert_eq!(job.read("out").unwrap(), b"theirs");
    let beside = String::from_utf8(told[0].path.clone()).unwrap();
    assert!(job.read(&beside) == Some(file.bytes()));
}

/// What `--salvage` makes of the storage of all nodes, while nothing of their ledgers can be read.
fn salvaged(job: &Job) -> Vec<SalvagedFile> {
    let left = |server| LeftNode::of(ServerId(server), &job.cluster.area(server)).ok();
    let (found, mut told) = (Found((0..SERVERS).map(left).collect()), Vec::new());
    for home in (0..SERVERS).map(ServerId) {
        let home = (home, &BTreeMap::new());
        salvage("job", home, &found, &job.tier, |file| told.push(file)).unwrap();
    }
    told
}

#[test]
fn a_recorded_file_is_salvaged_without_any_ledger() {
    let (job, file) = Job::ended_with(3);
    for expected in [Salvaging::Brought, Salvaging::Same] {
        let told = salvaged(&job);
        assert_eq!((told.len(), &told[0].what), (1, &expected), "{told:?}");
        assert_eq!((told[0].ino, &told[0].path[..]), (file.ino, &b"out"[..]));
        assert!(job.read("out") == Some(file.bytes()));
        assert_eq!(job.names(), ["out"]);
    }
}

#[test]
fn a_recorded_file_of_which_something_is_gone_is_listed_as_not_salvaged() {
    let (job, file) = Job::ended_with(3);
    for name in ["n0-p2-o0.index", "n0-p1-o0.part", MARK] {
        let ((server, id), mut before) = (job.stored(&file, name), Vec::new());
        job.change((server, id), |bytes| before.clone_from(bytes));
        job.cluster.parts(server).remove(id).unwrap();
        let told = salvaged(&job);
        match &told[..] {
            [SalvagedFile { what: Salvaging::Lost(refused), .. }] => {
                assert!(refused.to_string().contains(name), "{refused}");
            }
            other => panic!("{other:?}"),
        }
        assert!(job.names().is_empty(), "{:?}", job.names());
        job.cluster.parts(server).create(id).unwrap();
        job.change((server, id), |bytes| *bytes = before);
    }
}
