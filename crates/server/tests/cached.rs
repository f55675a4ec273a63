//! Names of the cache area and what the tier shows of them, with a tier that fails when it is told to.

#[expect(dead_code, reason = "other suites use the rest")]
mod cluster;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{Cluster, Process, W};
use hayase_layout::InodeId;
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Flaky, Key, ListRequest, Memory, Tier};
use hayase_wire::message::FileKind;

const TOP: InodeId = InodeId::CACHE_ROOT;
const FOR_EVER: u64 = u64::MAX;

/// What the tier was asked, and how often calls of a kind are to fail from now on.
#[derive(Default)]
struct Script {
    failing: Mutex<Vec<(Action, u64)>>,
    calls: Mutex<Vec<Call>>,
    failed: AtomicU64,
}

impl Script {
    fn fail(&self, action: Action, times: u64) {
        *self.failing.lock().expect("no holder panics") = vec![(action, times)];
    }

    fn fault(&self, call: Call) -> Option<Fault> {
        self.calls.lock().expect("no holder panics").push(call);
        let mut failing = self.failing.lock().expect("no holder panics");
        let (_, left) = failing.iter_mut().find(|(action, _)| call == Call::Begun(*action))?;
        *left = left.checked_sub(1)?;
        self.failed.fetch_add(1, Ordering::Relaxed);
        Some(Fault::Io)
    }
}

struct Scene {
    cluster: Cluster,
    tier: Arc<dyn Tier>,
    script: Arc<Script>,
}

impl Scene {
    fn new(servers: u16) -> Self {
        let script = Arc::<Script>::default();
        let asked = Arc::clone(&script);
        let below = Memory::new();
        let flaky = Flaky::new(below.clone(), move |call| asked.fault(call));
        let cluster = Cluster::up_with_tier(servers, Arc::new(flaky));
        Self { cluster, tier: Arc::new(below), script }
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let reader = self.tier.open(&Key::new(path).expect("a name")).ok()?;
        let mut bytes = vec![0; 64];
        let read = reader.read_at(0, &mut bytes).expect("read");
        bytes.truncate(read);
        Some(bytes)
    }

    fn wait_for(&self, path: &str, bytes: &[u8]) {
        wait_until(path, || self.read(path).as_deref() == Some(bytes));
    }

    fn names(&self) -> Vec<String> {
        let page = self.tier.list(&ListRequest::all("")).expect("listed");
        page.entries.into_iter().map(|entry| String::from_utf8(entry.name).expect("text")).collect()
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn write(process: &mut Process, dir: InodeId, name: &str, bytes: &[u8]) -> InodeId {
    let ino = process.create(dir, name, FileKind::Regular).expect("made").ino;
    write_again(process, ino, bytes);
    ino
}

fn write_again(process: &mut Process, ino: InodeId, bytes: &[u8]) {
    process.open(ino, W).expect("opened");
    process.write(ino, 0, bytes).expect("written");
    process.close(ino, W).expect("closed");
}

#[test]
fn a_file_takes_the_place_of_a_removed_one_without_a_second_version() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        write(&mut process, TOP, "f", b"removed");
        write(&mut process, TOP, "g", b"stays");
        scene.wait_for("f", b"removed");
        scene.wait_for("g", b"stays");
        // The removal is still to come when the name has its next file.
        scene.script.fail(Action::Delete, FOR_EVER);
        process.remove(TOP, "f", false).expect("removed");
        process.rename((TOP, "g"), (TOP, "f")).expect("renamed");
        scene.script.fail(Action::Delete, 0);
        scene.wait_for("f", b"stays");
        wait_until("the old name goes", || scene.read("g").is_none());
        assert_eq!(scene.names(), ["f"], "{servers} servers");
    }
}

#[test]
fn who_replaces_a_file_that_the_tier_never_had_overtakes_nobody() {
    let scene = Scene::new(1);
    let mut process = scene.cluster.process(0);
    write(&mut process, TOP, "pointer.tmp", b"to data");
    scene.wait_for("pointer.tmp", b"to data");
    scene.script.fail(Action::Begin, FOR_EVER);
    write(&mut process, TOP, "pointer", b"to nothing");
    write(&mut process, TOP, "data", b"data");
    process.rename((TOP, "pointer.tmp"), (TOP, "pointer")).expect("renamed");
    assert_eq!(scene.read("pointer"), None, "before the data");
    scene.script.fail(Action::Begin, 0);
    scene.wait_for("pointer", b"to data");
    assert_eq!(scene.read("data").as_deref(), Some(&b"data"[..]));
    wait_until("the old name goes", || scene.read("pointer.tmp").is_none());
    assert_eq!(scene.names(), ["data", "pointer"]);
}

/// What the tier has in the directory may be the last version of a file that was moved out of it.
#[test]
fn a_directory_that_goes_does_not_take_the_last_version_of_a_file_along() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        let made = |process: &mut Process, name| {
            process.create(TOP, name, FileKind::Directory).expect("made").ino
        };
        let (from, to) = (made(&mut process, "from"), made(&mut process, "to"));
        let ino = write(&mut process, from, "f", b"first");
        scene.wait_for("from/f", b"first");
        scene.script.fail(Action::Begin, 2);
        write_again(&mut process, ino, b"second");
        process.rename((from, "f"), (to, "f")).expect("renamed");
        process.remove(TOP, "from", true).expect("removed");
        let calls = scene.script.calls.lock().expect("no holder panics").clone();
        let at = |wanted| calls.iter().position(|call| *call == wanted);
        let removed = at(Call::Begun(Action::Delete)).expect("from/f is gone");
        let is_commit = |call: &&Call| **call == Call::Done(Action::Commit);
        assert_eq!(calls[..removed].iter().filter(is_commit).count(), 2, "{servers} servers");
        assert_eq!(scene.script.failed.load(Ordering::Relaxed), 2);
        assert_eq!(scene.read("to/f").as_deref(), Some(&b"second"[..]));
        assert_eq!(scene.names(), ["to/f"]);
    }
}
