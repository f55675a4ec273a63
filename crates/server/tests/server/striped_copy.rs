//! Files of the tier that come into stripes when they are to be changed: whole, or not at all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Process, R, W};
use hayase_layout::{ByteCount, InodeId, Layout, StripePolicy};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Attributes, Flaky, Key, Memory, Precondition, Tier};
use hayase_wire::message::{FileKind, Flushed, NodeReply, NodeRequest};

const TOP: InodeId = InodeId::CACHE_ROOT;
const EIO: i32 = 5;
const READ: Call = Call::Begun(Action::Read);

/// Reads of the tier that fail or wait.
#[derive(Default)]
struct Script {
    /// The how manyeth from now on fails; 0 for none.
    failing: AtomicU64,
    /// So do all behind it.
    stays_broken: AtomicBool,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Script {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().expect("no holder panics") = is_held;
        self.released.notify_all();
    }

    fn fault(&self, call: Call) -> Option<Fault> {
        if call != READ {
            return None;
        }
        let held = self.is_held.lock().expect("no holder panics");
        drop(self.released.wait_while(held, |held| *held).expect("no holder panics"));
        // Several read at once: each of them counts.
        let last = u64::from(self.stays_broken.load(Ordering::Relaxed));
        let counted = |left: u64| (left > last).then(|| left - 1);
        let left = self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
        matches!(left, Ok(1) | Err(1)).then_some(Fault::Io)
    }
}

struct Scene {
    cluster: Cluster,
    tier: Arc<dyn Tier>,
    script: Arc<Script>,
    /// `d/f` in the tier.
    ino: InodeId,
    bytes: Vec<u8>,
}

impl Scene {
    /// Its directory is striped.
    fn new(len: usize) -> Self {
        Self::with_policy(len, Some(StripePolicy { stripe: ByteCount(4096), width: 0 }))
    }

    fn with_policy(len: usize, policy: Option<StripePolicy>) -> Self {
        let (script, below) = (Arc::<Script>::default(), Memory::new());
        let asked = Arc::clone(&script);
        let flaky = Flaky::new(below.clone(), move |call| asked.fault(call));
        let cluster = Cluster::up_small(3, ByteCount::mib(64), Arc::new(flaky));
        let mut process = cluster.process(0);
        let made = process.create_with(TOP, "d", FileKind::Directory, policy);
        let dir = made.expect("made").ino;
        let bytes: Vec<u8> = (0..len).map(|at| (at / 253 + at) as u8).collect();
        let key = Key::new("d/f").expect("a path");
        below.put(&key, Attributes::default(), &bytes, Precondition::Any).expect("there");
        let ino = process.lookup(dir, "f").expect("it is in the tier").attr.ino;
        drop(process);
        Self { cluster, tier: Arc::new(below), script, ino, bytes }
    }

    fn in_tier(&self) -> Vec<u8> {
        let reader = self.tier.open(&Key::new("d/f").expect("a name")).expect("there");
        let (mut bytes, mut done) = (vec![0; self.bytes.len() + 64], 0);
        loop {
            match reader.read_at(done as u64, &mut bytes[done..]).expect("read") {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        bytes
    }

    /// All nodes read just that.
    fn assert_reads(&self, bytes: &[u8], story: &str) {
        for node in 0..3 {
            assert!(read_all(&mut self.cluster.process(node), self.ino) == bytes, "{story} {node}");
        }
    }

    fn evict(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.cluster.process(0).ask(&NodeRequest::Evict { ino: self.ino }).is_err() {
            assert!(Instant::now() < until, "nobody has it open");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// No server keeps bytes of it, and none come late.
    fn assert_no_parts(&self) {
        std::thread::sleep(Duration::from_millis(200));
        let until = Instant::now() + Duration::from_secs(30);
        for server in 0..3 {
            let parts = self.cluster.parts(server);
            while parts.list().expect("listed").iter().any(|part| part.ino == self.ino) {
                assert!(Instant::now() < until, "server {server} keeps a part");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn flush(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        let mut process = self.cluster.process(0);
        loop {
            let told = process.ask(&NodeRequest::Flush { ino: self.ino });
            if matches!(told, Ok(NodeReply::Flushed(Flushed::Durable))) {
                return;
            }
            assert!(Instant::now() < until, "{told:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read_all(process: &mut Process, ino: InodeId) -> Vec<u8> {
    process.open(ino, R).expect("opened");
    let mut bytes = Vec::new();
    loop {
        let read = process.read(ino, bytes.len() as u64, 256 << 10).expect("read");
        if read.is_empty() {
            break;
        }
        bytes.extend(read);
    }
    process.close(ino, R).expect("closed");
    bytes
}

fn is_striped(layout: &Layout) -> bool {
    matches!(layout, Layout::Striped { servers, .. } if servers.len() == 3)
}

#[test]
fn a_file_of_the_tier_is_changed_in_part_in_stripes() {
    for len in [1, 12_289, (9 << 20) + 5] {
        let scene = Scene::new(len);
        let mut expected = scene.bytes.clone();
        for round in 0..3 {
            let mut process = scene.cluster.process(round);
            let opened = process.open(scene.ino, W).expect("opened");
            assert!(is_striped(&opened.attr.layout), "{:?}", opened.attr.layout);
            assert_eq!(opened.attr.size, expected.len() as u64);
            let at = (len / 2).saturating_sub(usize::from(round));
            process.write(scene.ino, at as u64, b"changed").expect("written");
            process.close(scene.ino, W).expect("closed");
            expected.resize(expected.len().max(at + 7), 0);
            expected[at..at + 7].copy_from_slice(b"changed");
            scene.assert_reads(&expected, "changed");
            scene.flush();
            assert!(scene.in_tier() == expected, "{len} bytes, round {round}");
            // Its room goes back, and it comes into stripes again, under other parts; read before, it would come
            // whole.
            scene.evict();
            if round == 1 {
                scene.assert_reads(&expected, "given back");
                scene.evict();
            }
        }
    }
}

/// What failed in the middle is begun anew.
#[test]
fn a_copy_that_fails_in_the_middle_is_none() {
    for failing in 1..=3 {
        let scene = Scene::new((9 << 20) + 5);
        // An open that waits for long asks again, and that begins another copy: it fails as well.
        scene.script.stays_broken.store(true, Ordering::Relaxed);
        scene.script.failing.store(failing, Ordering::Relaxed);
        let mut process = scene.cluster.process(1);
        let refused = process.open(scene.ino, W).expect_err("the tier failed");
        assert_eq!(refused.errno, EIO);
        scene.assert_no_parts();
        scene.script.failing.store(0, Ordering::Relaxed);
        scene.assert_reads(&scene.bytes, "after a failure");
        process.open(scene.ino, W).expect("opened");
        process.write(scene.ino, 7, b"changed").expect("written");
        process.close(scene.ino, W).expect("closed");
        let mut expected = scene.bytes.clone();
        expected[7..14].copy_from_slice(b"changed");
        scene.flush();
        assert!(scene.in_tier() == expected);
    }
}

#[test]
fn a_copy_that_is_cut_by_a_kill_is_none() {
    for commits in 0..10 {
        let mut scene = Scene::new(40_000);
        let home = scene.ino.home().0;
        scene.cluster.store(home).stop_after(commits);
        // It may have come to its end, or not.
        let told = scene.cluster.process((home + 1) % 3).open(scene.ino, W).map(drop);
        scene.cluster.restart(home);
        let story = format!("{commits} commits, {told:?}");
        scene.assert_reads(&scene.bytes, &story);
        let mut process = scene.cluster.process(0);
        process.open(scene.ino, W).expect(&story);
        process.write(scene.ino, 20_000, b"changed").expect("written");
        process.close(scene.ino, W).expect("closed");
        let mut expected = scene.bytes.clone();
        expected[20_000..20_007].copy_from_slice(b"changed");
        scene.assert_reads(&expected, &story);
        scene.flush();
        assert!(scene.in_tier() == expected, "{story}");
    }
}

#[test]
fn a_copy_in_stripes_survives_a_power_cut_of_the_names() {
    let mut scene = Scene::new(40_000);
    let mut process = scene.cluster.process(0);
    process.open(scene.ino, W).expect("opened");
    process.close(scene.ino, W).expect("closed");
    drop(process);
    // Not flushed: that would sync the names.
    scene.cluster.lose_names(scene.ino.home().0);
    scene.assert_reads(&scene.bytes, "after the power came back");
    scene.flush();
    assert!(scene.in_tier() == scene.bytes);
}

#[test]
fn who_opens_a_file_that_comes_into_stripes_waits_for_all_of_it() {
    let scene = Scene::new((5 << 20) + 3);
    scene.script.hold(true);
    let (mut writer, mut reader) = (scene.cluster.process(1), scene.cluster.process(2));
    let (ino, bytes) = (scene.ino, &scene.bytes);
    std::thread::scope(|scope| {
        let written = scope.spawn(move || {
            writer.open(ino, W).expect("opened");
            writer.close(ino, W).expect("closed");
        });
        std::thread::sleep(Duration::from_millis(300));
        let read = scope.spawn(move || read_all(&mut reader, ino));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!written.is_finished() && !read.is_finished(), "the tier has not answered");
        scene.script.hold(false);
        written.join().expect("opened");
        assert!(read.join().expect("read") == *bytes);
    });
}

/// There is room for all of it, most of which its own bytes have taken by then.
#[test]
fn a_whole_copy_that_was_begun_goes_on() {
    let scene = Scene::with_policy(40 << 20, None);
    let mut process = scene.cluster.process(1);
    scene.script.failing.store(3, Ordering::Relaxed);
    let refused = process.open(scene.ino, W).expect_err("the tier failed");
    assert_eq!(refused.errno, EIO);
    std::thread::sleep(Duration::from_millis(300)); // The others come.
    let opened = process.open(scene.ino, W).expect("opened");
    assert_eq!(opened.attr.layout, Layout::Whole);
    process.close(scene.ino, W).expect("closed");
    scene.assert_reads(&scene.bytes, "all of it came");
}

/// Whoever reads it goes on, and the file is fetched as any other.
#[test]
fn a_file_that_somebody_reads_stays_whole() {
    let scene = Scene::new(600_000);
    let (mut reader, mut writer) = (scene.cluster.process(1), scene.cluster.process(2));
    reader.open(scene.ino, R).expect("opened");
    let opened = writer.open(scene.ino, W).expect("opened");
    assert_eq!(opened.attr.layout, Layout::Whole);
    let read = reader.read(scene.ino, 1000, 500).expect("read");
    assert_eq!(read, scene.bytes[1000..1500]);
    writer.close(scene.ino, W).expect("closed");
    reader.close(scene.ino, R).expect("closed");
}
