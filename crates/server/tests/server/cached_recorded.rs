//! Files of the cache area that MPI-IO keeps as one part per writer: one file in the tier, with a tier that fails, and
//! servers that end.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::cluster::recorded_file::{BLOCK, Recorded, WRITERS, block, published, step};
use crate::cluster::{Cluster, Process, R, W, eventually};
use hayase_container::{AREA_DIRECTORY, MARK, area};
use hayase_layout::{ByteCount, InodeId, Layout};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Flaky, Key, ListRequest, Memory, Tier};
use hayase_wire::message::{
    FileKind, Flushed, Lock, LockKind, LockRange, MetaChange, NodeReply, NodeRequest, RecordedStep,
};

const TOP: InodeId = InodeId::CACHE_ROOT;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

/// What the tier was asked; calls of one kind fail, or wait, while that is wanted.
#[derive(Default)]
struct Script {
    calls: Mutex<Vec<Call>>,
    failing: Mutex<Option<Call>>,
    held: Mutex<Option<Call>>,
    released: Condvar,
}

impl Script {
    fn fault(&self, call: Call) -> Option<Fault> {
        self.calls.lock().unwrap().push(call);
        let is_held = |held: &mut Option<Call>| *held == Some(call);
        drop(self.released.wait_while(self.held.lock().unwrap(), is_held).unwrap());
        (*self.failing.lock().unwrap() == Some(call)).then_some(Fault::Io)
    }

    fn fail(&self, call: Option<Call>) {
        *self.failing.lock().unwrap() = call;
    }

    fn hold(&self, call: Option<Call>) {
        *self.held.lock().unwrap() = call;
        self.released.notify_all();
    }

    fn count(&self, wanted: Call) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == wanted).count()
    }
}

struct Scene {
    cluster: Cluster,
    tier: Arc<dyn Tier>,
    script: Arc<Script>,
}

impl Scene {
    /// Of three servers whose names survive a restart.
    fn new() -> Self {
        Self::before(|tier| Cluster::up_small(3, ByteCount::mib(256), tier))
    }

    fn before(up: impl FnOnce(Arc<dyn Tier>) -> Cluster) -> Self {
        let script = Arc::<Script>::default();
        let (asked, below) = (Arc::clone(&script), Memory::new());
        let flaky = Flaky::new(below.clone(), move |call| asked.fault(call));
        Self { cluster: up(Arc::new(flaky)), tier: Arc::new(below), script }
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let key = Key::new(path).unwrap();
        let size = self.tier.stat(&key).ok()?.size.get();
        let mut bytes = vec![0; size as usize];
        let read = self.tier.open(&key).ok()?.read_at(0, &mut bytes).ok()?;
        (read == bytes.len()).then_some(bytes)
    }

    fn names(&self) -> Vec<String> {
        let page = self.tier.list(&ListRequest::all("")).unwrap();
        page.entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
    }

    fn flush(&self, ino: InodeId) -> Flushed {
        match self.cluster.process(1).ask(&NodeRequest::Flush { ino }).unwrap() {
            NodeReply::Flushed(flushed) => flushed,
            other => panic!("{other:?}"),
        }
    }

    /// The tier has what was written, under the one name.
    fn wait_for(&self, path: &str, file: &Recorded) {
        eventually("it is durable", || self.flush(file.ino) == Flushed::Durable);
        assert!(
            self.read(path) == Some(file.bytes()),
            "the tier has other bytes at {path}: {:?}",
            self.names()
        );
        // Where making it took so long that its maker counted as dead, the name of before went too, and goes again.
        eventually("the tier has no other name", || self.names() == [path]);
    }

    /// As an MPI program that has the file open.
    fn lock(&self, file: &Recorded) -> Process {
        let lock = Lock { owner: 1, kind: LockKind::Shared, range: LockRange::ALL, pid: 1 };
        let mut program = self.cluster.process(1);
        let ino = file.copied[MARK].0;
        program.ask(&NodeRequest::Lock { ino, lock, ticket: None }).unwrap();
        program
    }

    fn unlock(&self, program: &mut Process, file: &Recorded) {
        let (ino, range) = (file.copied[MARK].0, LockRange::ALL);
        program.ask(&NodeRequest::Unlock { ino, owner: 1, range }).unwrap();
    }

    fn containers(&self) -> Vec<String> {
        let mut process = self.cluster.process(0);
        let all = process.lookup(InodeId::ROOT, AREA_DIRECTORY).unwrap().attr.ino;
        process.names(all)
    }
}

#[test]
fn a_recorded_file_comes_to_the_tier_as_one_in_large_requests() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    assert!(file.ino.is_cached());
    // 12 MB in blocks of 10 kB, of each writer in turn.
    for _ in 0..400 {
        file.write();
    }
    file.copy(&scene.cluster);
    step(&mut scene.cluster.process(2), file.ino, published("")).unwrap();
    file.check(&scene.cluster);
    scene.wait_for("out", &file);
    // 8 MiB, and the rest. On a busy machine it may be sent again; 400 blocks of three writers would be 1,200.
    let writes = scene.script.count(Call::Begun(Action::Write));
    assert!(writes.is_multiple_of(2) && (2..=6).contains(&writes), "{writes} writes of the tier");
    let attr = scene.cluster.process(2).attr(file.ino).unwrap();
    assert!(matches!(attr.layout, Layout::Recorded { .. }), "it stays what it is here");
    // Published in again, by a program that opens it again.
    file.publish(&scene.cluster);
    file.check(&scene.cluster);
    scene.wait_for("out", &file);
}

/// Where their home is on another host, nothing else tells that the tier needs them.
#[test]
fn the_files_of_its_container_have_numbers_that_say_so() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    file.publish(&scene.cluster);
    let of_container = |(ino, _): &(InodeId, u64)| ino.is_in_cached_container();
    assert!(file.container.is_in_cached_container());
    assert!(file.copied.values().all(of_container), "{:?}", file.copied);
    let mut file = Recorded::make_in(&scene.cluster, InodeId::ROOT, "out");
    file.publish(&scene.cluster);
    assert!(!file.container.is_in_cached_container(), "of a file of `shared`");
    assert!(!file.copied.values().any(of_container));
}

#[test]
fn while_mpi_programs_have_it_open_no_flush_is_the_last() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    let mut program = scene.lock(&file);
    file.publish(&scene.cluster);
    for _ in 0..25 {
        assert_eq!(scene.flush(file.ino), Flushed::Open);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(scene.names().is_empty());
    scene.unlock(&mut program, &file);
    scene.wait_for("out", &file);
}

/// Where open files go as they stand: what each publication brought, and all of it in the end.
#[test]
fn an_open_file_goes_as_it_was_published() {
    let scene = Scene::before(|tier| Cluster::up_flushing_open(3, tier));
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    let mut program = scene.lock(&file);
    file.publish(&scene.cluster);
    eventually("it goes as it stands", || scene.read("out") == Some(file.bytes()));
    assert_eq!(scene.flush(file.ino), Flushed::Open);
    file.publish(&scene.cluster);
    scene.unlock(&mut program, &file);
    scene.wait_for("out", &file);
}

#[test]
fn what_is_published_during_a_commit_comes_to_the_tier() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    scene.script.hold(Some(Call::Begun(Action::Commit)));
    file.publish(&scene.cluster);
    eventually("the commit began", || scene.script.count(Call::Begun(Action::Commit)) > 0);
    file.publish(&scene.cluster);
    scene.script.hold(None);
    scene.wait_for("out", &file);
}

#[test]
fn a_home_that_ends_at_any_point_of_a_flush_brings_it_later() {
    for action in [Action::Begin, Action::Write, Action::Commit] {
        for fails in [Call::Begun(action), Call::Done(action)] {
            let mut scene = Scene::new();
            let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
            let home = file.ino.home().0;
            scene.script.fail(Some(fails));
            file.publish(&scene.cluster);
            eventually("it was tried", || scene.script.count(fails) > 0);
            scene.cluster.restart(home);
            scene.script.fail(None);
            file.check(&scene.cluster);
            scene.wait_for("out", &file);
        }
    }
}

#[test]
fn an_answered_publication_survives_a_kill_right_after_it() {
    let mut scene = Scene::new();
    let mut file = durable(&scene);
    let home = file.ino.home().0;
    file.publish(&scene.cluster);
    scene.cluster.restart(home);
    file.check(&scene.cluster);
    scene.wait_for("out", &file);
}

/// Its writer was killed between its index and its word: whoever sees it, the tier gets it.
#[test]
fn what_was_never_told_comes_to_the_tier_where_it_is_seen() {
    let mut scene = Scene::new();
    let mut file = durable(&scene);
    file.write();
    file.copy(&scene.cluster);
    scene.cluster.restart(file.ino.home().0);
    let mut process = scene.cluster.process(2);
    process.open(file.ino, R).unwrap();
    let bytes = process.read(file.ino, 0, 1 << 20).unwrap();
    assert!(bytes == file.bytes(), "a home that was started anew reads all there is");
    scene.wait_for("out", &file);
}

#[test]
fn who_writes_it_otherwise_gets_a_whole_file_that_comes_to_the_tier() {
    for (name, change) in [("open", None), ("cut", Some(BLOCK as u64 + 5)), ("empty", Some(0))] {
        let scene = Scene::new();
        let mut file = Recorded::make_in(&scene.cluster, TOP, name);
        file.publish(&scene.cluster);
        if change.is_some() {
            scene.wait_for(name, &file);
        }
        let mut process = scene.cluster.process(2);
        let mut expected = file.bytes();
        match change {
            None => {
                process.open(file.ino, W).unwrap();
                process.write(file.ino, 7, b"other").unwrap();
                expected[7..12].copy_from_slice(b"other");
                process.close(file.ino, W).unwrap();
            }
            Some(size) => {
                let change = MetaChange { size: Some(size), ..MetaChange::default() };
                process.ask(&NodeRequest::SetAttr { ino: file.ino, change }).unwrap();
                expected.truncate(size as usize);
            }
        }
        assert_eq!(process.attr(file.ino).unwrap().layout, Layout::Whole);
        process.open(file.ino, R).unwrap();
        assert!(process.read(file.ino, 0, 1 << 20).unwrap() == expected, "{name}");
        eventually("it is durable", || scene.flush(file.ino) == Flushed::Durable);
        assert!(scene.read(name) == Some(expected), "{name}");
        eventually("the container goes", || scene.containers().is_empty());
    }
}

#[test]
fn while_it_is_sent_it_may_become_whole() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    scene.script.hold(Some(Call::Begun(Action::Begin)));
    file.publish(&scene.cluster);
    eventually("it is on its way", || scene.script.count(Call::Begun(Action::Begin)) > 0);
    step(&mut scene.cluster.process(1), file.ino, RecordedStep::Flatten { keep: None }).unwrap();
    eventually("the container goes", || scene.containers().is_empty());
    scene.script.hold(None);
    scene.wait_for("out", &file);
    file.check(&scene.cluster);
}

#[test]
fn names_take_it_along() {
    let scene = Scene::new();
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out.tmp");
    file.publish(&scene.cluster);
    let mut process = scene.cluster.process(1);
    process.rename((TOP, "out.tmp"), (TOP, "out")).unwrap();
    scene.wait_for("out", &file);
    process.rename((TOP, "out"), (TOP, "moved")).unwrap();
    file.check(&scene.cluster);
    eventually("it is moved in the tier", || scene.names() == ["moved"]);
    process.remove(TOP, "moved", false).unwrap();
    eventually("the tier has nothing", || scene.names().is_empty());
    eventually("the container goes", || scene.containers().is_empty());
    assert!(process.names(TOP).is_empty());
}

fn durable(scene: &Scene) -> Recorded {
    let mut file = Recorded::make_in(&scene.cluster, TOP, "out");
    file.publish(&scene.cluster);
    scene.wait_for("out", &file);
    file
}

#[test]
fn a_copy_that_is_given_up_is_fetched_again_as_a_whole_file() {
    let scene = Scene::new();
    let file = durable(&scene);
    let mut process = scene.cluster.process(2);
    process.ask(&NodeRequest::Evict { ino: file.ino }).unwrap();
    eventually("the container goes", || scene.containers().is_empty());
    file.check(&scene.cluster);
    assert_eq!(process.attr(file.ino).unwrap().layout, Layout::Whole);
    // And changed in part.
    process.open(file.ino, W).unwrap();
    process.write(file.ino, 3, b"new").unwrap();
    process.close(file.ino, W).unwrap();
    eventually("it is durable", || scene.flush(file.ino) == Flushed::Durable);
    let mut expected = file.bytes();
    expected[3..6].copy_from_slice(b"new");
    assert!(scene.read("out") == Some(expected));
}

#[test]
fn what_is_open_or_not_in_the_tier_is_not_given_up() {
    let scene = Scene::new();
    let file = durable(&scene);
    // MPI-IO keeps the file open to read, and writes its parts.
    let mut program = scene.cluster.mount(1);
    program.open(file.ino, R).unwrap();
    let evict = NodeRequest::Evict { ino: file.ino };
    let refused = scene.cluster.process(2).ask(&evict).unwrap_err();
    assert_eq!(refused.errno, EBUSY);
    file.check(&scene.cluster);
    assert!(!scene.containers().is_empty());
    // What only the nodes have.
    scene.script.fail(Some(Call::Begun(Action::Begin)));
    let mut file = Recorded::make_in(&scene.cluster, TOP, "new");
    file.publish(&scene.cluster);
    let evict = NodeRequest::Evict { ino: file.ino };
    let refused = scene.cluster.process(2).ask(&evict).unwrap_err();
    assert_eq!(refused.errno, EAGAIN);
    file.check(&scene.cluster);
    scene.script.fail(None);
    eventually("it is durable", || scene.flush(file.ino) == Flushed::Durable);
    assert!(scene.read("new") == Some(file.bytes()));
}

#[test]
fn an_eviction_is_finished_after_a_kill() {
    const MOST: u64 = 4;
    for commits in 0..=MOST {
        let mut scene = Scene::new();
        let file = durable(&scene);
        let home = file.ino.home().0;
        scene.cluster.store(home).stop_after(commits);
        let mut process = scene.cluster.process(1);
        // It may have come to its end, or not.
        let told = process.ask(&NodeRequest::Evict { ino: file.ino });
        assert!(told.is_ok() || commits < MOST, "{told:?}");
        scene.cluster.restart(home);
        file.check(&scene.cluster);
        let layout = scene.cluster.process(2).attr(file.ino).unwrap().layout;
        assert_eq!(layout, Layout::Whole, "after {commits} commits");
    }
}

/// Whoever opens it is refused as long as half a copy can not be given up, and then does it.
#[test]
fn an_eviction_that_fails_is_finished_by_an_open() {
    let scene = Scene::new();
    let file = durable(&scene);
    let store = scene.cluster.store(file.ino.home().0);
    let mut process = scene.cluster.process(2);
    store.stop_after(0);
    process.ask(&NodeRequest::Evict { ino: file.ino }).unwrap_err();
    for access in [R, W] {
        process.open(file.ino, access).unwrap_err();
    }
    store.stop_after(u64::MAX);
    file.check(&scene.cluster);
    assert_eq!(process.attr(file.ino).unwrap().layout, Layout::Whole);
}

#[test]
fn an_eviction_survives_a_power_cut() {
    let mut scene = Scene::new();
    let file = durable(&scene);
    scene.cluster.process(0).ask(&NodeRequest::Evict { ino: file.ino }).unwrap();
    scene.cluster.lose_names(file.ino.home().0);
    file.check(&scene.cluster);
}

/// Else an empty file would come to the tier as if it was what the program wrote.
#[test]
fn a_power_cut_makes_no_empty_file_of_it() {
    let mut scene = Scene::new();
    let file = Recorded::make_written(&scene.cluster, TOP, "out", 1);
    // Nothing is flushed or synced meanwhile: that would make the names durable.
    let program = scene.lock(&file);
    step(&mut scene.cluster.process(1), file.ino, published("")).unwrap();
    scene.cluster.lose_names(file.ino.home().0);
    // What was not synced of the publication is found by who reads.
    let mut process = scene.cluster.process(2);
    process.open(file.ino, R).unwrap();
    assert!(process.read(file.ino, 0, 1 << 20).unwrap() == file.bytes());
    file.check(&scene.cluster);
    drop(program);
    scene.wait_for("out", &file);
}

/// The file that is made before it gets its name is nothing for the tier; one whose maker died is.
#[test]
fn a_file_that_is_being_made_is_not_flushed_at_once() {
    let scene = Scene::new();
    let mut process = scene.cluster.process(0);
    let hidden = ".out.hayase-0123456789abcdef";
    let ino = process.create(TOP, hidden, FileKind::Regular).unwrap().ino;
    std::thread::sleep(Duration::from_millis(1500));
    assert!(scene.names().is_empty());
    eventually("its maker died", || scene.names() == [hidden]);
    assert_eq!(scene.flush(ino), Flushed::Durable);
}

#[test]
fn only_an_empty_file_and_its_own_container_become_one() {
    let scene = Scene::new();
    let file = durable(&scene);
    let mut process = scene.cluster.process(0);
    let begin = |container| RecordedStep::Begin { container };
    let other = process.create(TOP, "other", FileKind::Regular).unwrap().ino;
    assert!(step(&mut process, other, begin(file.container)).is_err(), "another's");
    // A directory of its name that is in the area itself, where the tier would see it.
    let inside = process.create(TOP, &area::name_of(other.0), FileKind::Directory).unwrap().ino;
    assert!(step(&mut process, other, begin(inside)).is_err(), "not in the place of containers");
    process.open(other, W).unwrap();
    process.write(other, 0, &block(WRITERS)).unwrap();
    process.close(other, W).unwrap();
    eventually("it is durable", || scene.flush(other) == Flushed::Durable);
    assert_eq!(scene.read("other"), Some(block(WRITERS)));
}
