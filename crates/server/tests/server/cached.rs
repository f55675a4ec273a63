//! Names of the cache area and what the tier shows of them, with a tier that fails when it is told to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Process, R, W, write_again, write_new};
use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Attributes, Flaky, Key, ListRequest, Memory, Precondition, Tier};
use hayase_wire::message::{Access, FileKind, Flushed, NodeReply, NodeRequest, StillOpen};

const TOP: InodeId = InodeId::CACHE_ROOT;
const FOR_EVER: u64 = u64::MAX;
const EIO: i32 = 5;

/// What the tier was asked, and how often calls of a kind are to fail from now on.
#[derive(Default)]
struct Script {
    failing: Mutex<Vec<(Action, u64)>>,
    calls: Mutex<Vec<Call>>,
    failed: AtomicU64,
    /// Calls of this kind wait.
    held: Mutex<Option<Call>>,
    released: Condvar,
}

impl Script {
    fn fail(&self, action: Action, times: u64) {
        *self.failing.lock().expect("no holder panics") = vec![(action, times)];
    }

    /// From here on calls of this kind wait before the tier hears of them, until [`Script::release`].
    fn hold(&self, call: Call) {
        *self.held.lock().expect("no holder panics") = Some(call);
    }

    fn release(&self) {
        *self.held.lock().expect("no holder panics") = None;
        self.released.notify_all();
    }

    fn wait_if_held(&self, call: Call) {
        let held = self.held.lock().expect("no holder panics");
        let is_held = |held: &mut Option<Call>| *held == Some(call);
        drop(self.released.wait_while(held, is_held).expect("no holder panics"));
    }

    fn forget(&self) {
        self.calls.lock().expect("no holder panics").clear();
    }

    fn saw(&self, call: Call) -> bool {
        self.calls.lock().expect("no holder panics").contains(&call)
    }

    /// Calls of this kind since [`Script::forget`].
    fn count(&self, wanted: Call) -> usize {
        let calls = self.calls.lock().expect("no holder panics");
        calls.iter().filter(|call| **call == wanted).count()
    }

    fn fault(&self, call: Call) -> Option<Fault> {
        self.calls.lock().expect("no holder panics").push(call);
        self.wait_if_held(call);
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
        Self::before(|tier| Cluster::up_with_tier(servers, tier))
    }

    /// Servers that flush open files as they stand.
    fn flushing_open(servers: u16) -> Self {
        Self::before(|tier| Cluster::up_flushing_open(servers, tier))
    }

    /// Servers whose fsync promises the tier.
    fn syncing(servers: u16) -> Self {
        Self::before(|tier| Cluster::up_syncing(servers, tier))
    }

    /// Servers with so little room, which can be restarted.
    fn small(servers: u16, room: ByteCount) -> Self {
        Self::before(|tier| Cluster::up_small(servers, room, tier))
    }

    fn before(up: impl FnOnce(Arc<dyn Tier>) -> Cluster) -> Self {
        let script = Arc::<Script>::default();
        let asked = Arc::clone(&script);
        let below = Memory::new();
        let flaky = Flaky::new(below.clone(), move |call| asked.fault(call));
        Self { cluster: up(Arc::new(flaky)), tier: Arc::new(below), script }
    }

    /// Somebody else puts a file there.
    fn put(&self, path: &str, bytes: &[u8]) {
        let key = Key::new(path).expect("a path");
        let put = self.tier.put(&key, Attributes::default(), bytes, Precondition::Any);
        put.expect("there");
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

#[test]
fn a_file_takes_the_place_of_a_removed_one_without_a_second_version() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        write_new(&mut process, TOP, "f", b"removed");
        write_new(&mut process, TOP, "g", b"stays");
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

/// A directory gives a file its new name before the old one goes, and another identity with that.
#[test]
fn what_is_renamed_in_the_tier_is_not_seen_under_its_old_name_meanwhile() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        write_new(&mut process, TOP, "f", b"renamed");
        scene.wait_for("f", b"renamed");
        process.rename((TOP, "f"), (TOP, "g")).expect("renamed");
        let there = scene.tier.stat(&Key::new("g").expect("a name")).expect("there");
        let attributes = Attributes { mode: Some(there.mode), mtime: Some(there.mtime) };
        let key = Key::new("f").expect("a name");
        scene.tier.put(&key, attributes, b"renamed", Precondition::Any).expect("as it is seen");
        assert!(process.lookup(TOP, "f").is_err(), "{servers} servers");
        scene.put("f", b"somebody else's");
        wait_until("what others put there is seen", || {
            scene.cluster.process(0).lookup(TOP, "f").is_ok()
        });
    }
}

#[test]
fn who_replaces_a_file_that_the_tier_never_had_overtakes_nobody() {
    let scene = Scene::new(1);
    let mut process = scene.cluster.process(0);
    write_new(&mut process, TOP, "pointer.tmp", b"to data");
    scene.wait_for("pointer.tmp", b"to data");
    scene.script.fail(Action::Begin, FOR_EVER);
    write_new(&mut process, TOP, "pointer", b"to nothing");
    write_new(&mut process, TOP, "data", b"data");
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
        let ino = write_new(&mut process, from, "f", b"first");
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

/// The tier gets it, since nobody can stop a commit; then the removal finds it there.
#[test]
fn a_file_that_is_removed_in_the_middle_of_its_commit_does_not_come_back() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        scene.script.hold(Call::Begun(Action::Commit));
        write_new(&mut process, TOP, "f", b"bytes");
        wait_until("the commit began", || scene.script.saw(Call::Begun(Action::Commit)));
        process.remove(TOP, "f", false).expect("removed");
        scene.script.release();
        wait_until("the commit ended", || scene.script.saw(Call::Done(Action::Commit)));
        wait_until("what was committed goes", || scene.names().is_empty());
        // Others come and go; it does not.
        write_new(&mut process, TOP, "g", b"later");
        scene.wait_for("g", b"later");
        assert_eq!(scene.names(), ["g"], "{servers} servers");
        assert!(process.lookup(TOP, "f").is_err());
    }
}

const MIB: u64 = 1 << 20;

fn write_mib(process: &mut Process, ino: InodeId, count: u64) {
    let block = vec![7; MIB as usize];
    process.open(ino, W).expect("opened");
    for index in 0..count {
        process.write(ino, index * MIB, &block).expect("written: there was room to wait for");
    }
    process.close(ino, W).expect("closed");
}

/// What is dirty can come to the tier and give its room up, if somebody waits for that.
#[test]
fn writers_wait_for_room_as_long_as_something_can_be_flushed() {
    let scene = Scene::small(1, ByteCount::mib(32));
    let mut process = scene.cluster.process(0);
    scene.script.hold(Call::Begun(Action::Commit));
    let script = Arc::clone(&scene.script);
    let released = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&released);
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        told.store(1, Ordering::Relaxed);
        script.release();
    });
    for index in 0..6 {
        let name = format!("f{index}");
        let made = process.create(TOP, &name, FileKind::Regular).expect("made");
        write_mib(&mut process, made.ino, 10);
    }
    assert_eq!(
        released.load(Ordering::Relaxed),
        1,
        "more than there is room for was written before"
    );
    later.join().expect("released");
    wait_until("all of it is in the tier", || scene.names().len() == 6);
}

/// Both find the area full of copies at the same time, one of them on another node.
#[test]
fn copies_go_for_two_writers_at_once() {
    let scene = Scene::small(2, ByteCount::mib(48));
    let mut here = scene.cluster.process(0);
    let mut inodes = Vec::new();
    for name in ["one", "other"] {
        inodes.push(write_new(&mut here, TOP, name, b"small"));
    }
    for index in 0..4 {
        let copy = here.create(TOP, &format!("copy{index}"), FileKind::Regular).expect("made");
        write_mib(&mut here, copy.ino, 8);
    }
    wait_until("copies are in the tier", || scene.names().len() == 6);
    let writers: Vec<_> = [0, 1]
        .into_iter()
        .zip(inodes)
        .map(|(node, ino)| {
            let mut process = scene.cluster.process(node);
            std::thread::spawn(move || write_mib(&mut process, ino, 12))
        })
        .collect();
    for writer in writers {
        writer.join().expect("no writer saw ENOSPC");
    }
    let size =
        |name: &str| scene.tier.stat(&Key::new(name).expect("a name")).map(|at| at.size.get());
    for name in ["one", "other"] {
        wait_until(name, || size(name).ok() == Some(12 * MIB));
    }
}

/// A server that was started anew numbers what is completed from the beginning: what was renamed before
/// still comes behind what was written before that.
#[test]
fn a_rename_does_not_overtake_after_a_restart() {
    let mut scene = Scene::small(1, ByteCount::mib(64));
    let mut process = scene.cluster.process(0);
    for name in ["pointer", "pointer.tmp"] {
        write_new(&mut process, TOP, name, b"to old");
        scene.wait_for(name, b"to old");
    }
    scene.script.fail(Action::Begin, FOR_EVER);
    write_new(&mut process, TOP, "data", b"data");
    let tmp = process.lookup(TOP, "pointer.tmp").expect("there").attr.ino;
    write_again(&mut process, tmp, b"to data");
    process.rename((TOP, "pointer.tmp"), (TOP, "pointer")).expect("renamed");
    drop(process);
    scene.cluster.restart(0);
    let mut process = scene.cluster.process(0);
    write_new(&mut process, TOP, "later", b"later");
    assert_eq!(scene.read("pointer").as_deref(), Some(&b"to old"[..]));
    scene.script.fail(Action::Begin, 0);
    wait_until("the pointer points to the data", || {
        let is_new = scene.read("pointer").as_deref() == Some(b"to data");
        assert!(!is_new || scene.read("data").is_some(), "the pointer came first");
        is_new
    });
    scene.wait_for("later", b"later");
}

/// Its reader needs no server then, and waits for one round trip less; of a large file nothing is read that nobody
/// asked for.
#[test]
fn a_small_file_is_here_when_its_open_returns() {
    const MIB: usize = 1 << 20;
    let scene = Scene::new(1);
    let mut process = scene.cluster.process(0);
    let files = [("tiny", 9, true), ("small", MIB, true), ("large", MIB + 1, false)];
    for (name, bytes, is_read) in files {
        scene.put(name, &vec![7; bytes]);
        let ino = process.lookup(TOP, name).expect("there").attr.ino;
        scene.script.forget();
        process.open(ino, R).expect("opened");
        assert_eq!(scene.script.saw(Call::Done(Action::Read)), is_read, "{name}");
    }
}

/// What stands against its bytes is told to who reads them, if it still stands then.
#[test]
fn a_small_file_that_can_not_be_read_at_its_open_is_read_later() {
    let scene = Scene::new(1);
    let mut process = scene.cluster.process(0);
    scene.put("f", b"bytes");
    let ino = process.lookup(TOP, "f").expect("there").attr.ino;
    scene.script.fail(Action::Read, FOR_EVER);
    process.open(ino, R).expect("opened");
    assert_eq!(process.read(ino, 0, 5).expect_err("the tier said no").errno, EIO);
    scene.script.fail(Action::Read, 0);
    assert_eq!(process.read(ino, 0, 5).expect("read"), b"bytes");
}

/// Whoever looked a name up, or listed it, need not be told the same twice; what somebody else has put there is
/// seen a second later.
#[test]
fn the_tier_is_asked_once_a_second_for_a_name() {
    let scene = Scene::new(2);
    let mut process = scene.cluster.process(0);
    scene.put("looked-up", b"1");
    scene.put("listed", b"1");
    process.lookup(TOP, "looked-up").expect("there");
    assert_eq!(scene.script.count(Call::Begun(Action::Stat)), 1);
    process.names(TOP);
    let begin = Instant::now();
    process.lookup(TOP, "listed").expect("there");
    let asked = scene.script.count(Call::Begun(Action::Stat));
    assert!(asked == 1 || begin.elapsed() > Duration::from_millis(800), "asked {asked} times");
    for name in ["looked-up", "listed"] {
        scene.put(name, b"12");
    }
    std::thread::sleep(Duration::from_millis(1100));
    for name in ["looked-up", "listed"] {
        assert_eq!(process.lookup(TOP, name).expect("there").attr.size, 2, "{name}");
    }
}

/// A program that has a file open needs no open to write on: what it writes, and closes, during a commit
/// comes to the tier too.
#[test]
fn what_is_written_and_closed_during_a_commit_comes_to_the_tier() {
    let scene = Scene::flushing_open(1);
    let mut process = scene.cluster.process(0);
    let ino = process.create(TOP, "f", FileKind::Regular).expect("made").ino;
    process.open(ino, W).expect("opened");
    process.write(ino, 0, b"first").expect("written");
    scene.wait_for("f", b"first");
    scene.script.forget();
    scene.script.hold(Call::Begun(Action::Commit));
    process.write(ino, 0, b"second").expect("written");
    wait_until("it goes as it stands", || scene.script.saw(Call::Begun(Action::Commit)));
    process.write(ino, 0, b"latest").expect("written");
    process.close(ino, W).expect("closed");
    scene.script.release();
    scene.wait_for("f", b"latest");
}

/// An open for writing that others have to give something back for is not booked yet: a flush meanwhile is not the
/// last.
#[test]
fn what_is_written_after_a_long_open_comes_to_the_tier() {
    let scene = Scene::new(3);
    let ino = write_new(&mut scene.cluster.process(0), TOP, "f", b"first");
    scene.wait_for("f", b"first");
    let (recalled, was_recalled) = std::sync::mpsc::channel();
    let (reply, may_reply) = std::sync::mpsc::channel::<()>();
    let mut reader = scene.cluster.mount_answering(1, move || {
        let _again = recalled.send(());
        let _dropped_is_go = may_reply.recv();
        StillOpen { access: R, as_of: u64::MAX }
    });
    reader.open(ino, R).expect("opened");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_again(&mut scene.cluster.process(2), ino, b"second"));
        was_recalled.recv().expect("the reader is recalled");
        // Long enough for the flusher to look, and to send what is there.
        std::thread::sleep(Duration::from_millis(500));
        drop(reply);
        writer.join().expect("written");
    });
    scene.wait_for("f", b"second");
}

/// A node may open a file just when an eviction asks it to close what it keeps for its next open. What it is granted
/// then, the home still knows: the next writer recalls it.
#[test]
fn what_is_granted_during_an_eviction_is_recalled_by_the_next_writer() {
    let scene = Scene::new(3);
    let ino = write_new(&mut scene.cluster.process(0), TOP, "f", b"first");
    wait_until("it can be evicted", || {
        let told = scene.cluster.process(0).ask(&NodeRequest::Flush { ino });
        matches!(told, Ok(NodeReply::Flushed(Flushed::Durable)))
    });
    let (recalled, was_recalled) = std::sync::mpsc::channel();
    let (reply, may_reply) = std::sync::mpsc::channel::<()>();
    let mut reader = scene.cluster.mount_answering(1, move || {
        let _over = recalled.send(());
        let _dropped_is_go = may_reply.recv();
        StillOpen { access: Access::default(), as_of: 1 }
    });
    reader.open(ino, R).expect("opened");
    std::thread::scope(|scope| {
        let eviction =
            scope.spawn(|| scene.cluster.process(0).ask(&NodeRequest::Evict { ino }).is_ok());
        was_recalled.recv().expect("the reader is asked");
        let opened = reader.open(ino, R).expect("opened again");
        assert!(opened.grants.cache, "nobody writes");
        drop(reply);
        eviction.join().expect("no panic");
    });
    // Whether it was evicted is a matter of time; in any case the reader may keep pages.
    while was_recalled.try_recv().is_ok() {}
    write_again(&mut scene.cluster.process(2), ino, b"second");
    was_recalled.try_recv().expect("the writer has waited for the reader to give back");
}

/// A program has a file open and syncs it: each time the tier has what was written by then, at once.
#[test]
fn every_fsync_of_an_open_file_brings_what_was_written() {
    let scene = Scene::syncing(2);
    let mut process = scene.cluster.process(1);
    let ino = process.create(TOP, "log", FileKind::Regular).expect("made").ino;
    process.open(ino, W).expect("opened");
    let begin = Instant::now();
    for line in 0..10 {
        let bytes = format!("line {line}");
        process.write(ino, 0, bytes.as_bytes()).expect("written");
        process.fsync(ino).expect("synced");
        assert_eq!(scene.read("log").as_deref(), Some(bytes.as_bytes()));
    }
    // Files that stay open rest for five seconds when nobody asks.
    assert!(begin.elapsed() < Duration::from_secs(30), "each waited for the one before");
    process.close(ino, W).expect("closed");
}

#[test]
fn an_open_file_that_nobody_has_changed_is_not_sent_again() {
    let scene = Scene::syncing(1);
    let mut process = scene.cluster.process(0);
    let ino = process.create(TOP, "f", FileKind::Regular).expect("made").ino;
    process.open(ino, W).expect("opened");
    process.write(ino, 0, b"first").expect("written");
    // Its times tell from here on whether it was changed since.
    std::thread::sleep(Duration::from_millis(1500));
    process.fsync(ino).expect("synced");
    scene.script.forget();
    process.fsync(ino).expect("synced");
    assert_eq!(scene.script.count(Call::Begun(Action::Begin)), 0, "it was sent again");
    process.write(ino, 0, b"other").expect("written");
    process.fsync(ino).expect("synced");
    assert_eq!(scene.read("f").as_deref(), Some(&b"other"[..]));
    process.write(ino, 0, b"third").expect("written");
    process.fsync(ino).expect("synced");
    assert_eq!(scene.read("f").as_deref(), Some(&b"third"[..]));
    process.close(ino, W).expect("closed");
    wait_until("what is closed needs no look at times", || {
        scene.script.count(Call::Done(Action::Commit)) == 3
    });
}

/// One flush that began after fsync was asked is enough, also if it takes longer than a message may wait, and
/// while somebody writes on.
#[test]
fn an_fsync_waits_for_one_flush() {
    let scene = Scene::syncing(1);
    let (mut syncing, mut writing) = (scene.cluster.process(0), scene.cluster.process(0));
    let ino = writing.create(TOP, "f", FileKind::Regular).expect("made").ino;
    writing.open(ino, W).expect("opened");
    writing.write(ino, 0, b"first").expect("written");
    scene.script.hold(Call::Begun(Action::Commit));
    let synced = std::thread::spawn(move || syncing.fsync(ino));
    wait_until("the commit began", || scene.script.saw(Call::Begun(Action::Commit)));
    writing.write(ino, 0, b"other").expect("written");
    // The home answers at least every two seconds.
    std::thread::sleep(Duration::from_millis(2500));
    scene.script.release();
    synced.join().expect("no panic").expect("synced");
    assert_eq!(scene.script.count(Call::Begun(Action::Begin)), 1, "it was sent again");
    assert_eq!(scene.read("f").as_deref(), Some(&b"first"[..]));
    writing.close(ino, W).expect("closed");
    scene.wait_for("f", b"other");
}

/// Three stripes on two servers, in the tier.
fn striped_in_tier(scene: &Scene) -> (InodeId, Vec<u8>) {
    let mut process = scene.cluster.process(0);
    let policy = StripePolicy { stripe: ByteCount(4096), width: 0 };
    let made = process.create_with(TOP, "f", FileKind::Regular, Some(policy)).expect("made");
    let bytes = [[1_u8; 4096], [2; 4096], [3; 4096]].concat();
    write_again(&mut process, made.ino, &bytes);
    wait_until("it is in the tier", || {
        let told = scene.cluster.process(0).ask(&NodeRequest::Flush { ino: made.ino });
        matches!(told, Ok(NodeReply::Flushed(Flushed::Durable)))
    });
    (made.ino, bytes)
}

/// Whoever reads it then gets what the tier has: not holes where parts were.
fn assert_fetched(scene: &Scene, ino: InodeId, bytes: &[u8], story: &str) {
    let mut process = scene.cluster.process(1);
    process.open(ino, R).expect("opened");
    let is_same = process.read(ino, 0, bytes.len() as u32).expect("read") == bytes;
    assert!(is_same, "{story}");
    process.close(ino, R).expect("closed");
}

#[test]
fn an_eviction_of_a_striped_file_is_finished_after_a_kill() {
    for commits in 0..4 {
        let mut scene = Scene::small(2, ByteCount::mib(64));
        let (ino, bytes) = striped_in_tier(&scene);
        let home = ino.home().0;
        scene.cluster.store(home).stop_after(commits);
        let mut process = scene.cluster.process(0);
        // It may have come to its end, or not.
        let told = process.ask(&NodeRequest::Evict { ino });
        let story = format!("{commits} commits, {told:?}");
        drop(process);
        scene.cluster.restart(home);
        assert_fetched(&scene, ino, &bytes, &story);
    }
}

#[test]
fn an_eviction_of_a_striped_file_survives_a_power_cut() {
    let mut scene = Scene::small(2, ByteCount::mib(64));
    let (ino, bytes) = striped_in_tier(&scene);
    scene.cluster.process(0).ask(&NodeRequest::Evict { ino }).expect("nobody has it open");
    scene.cluster.lose_names(ino.home().0);
    assert_fetched(&scene, ino, &bytes, "after the power came back");
}
