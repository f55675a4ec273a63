//! Moves that meet other programs, and what a kill leaves at each of their steps.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RenameFlags};

use super::*;
use crate::posix::swap::Exchange;
use crate::{Attributes, Owner, Precondition, Tier};

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn names(path: &Path) -> Vec<String> {
    let names = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory of a job, with the object `from` over the version `to`.
struct Scene {
    top: tempfile::TempDir,
    at: OwnedFd,
    ours: u64,
    expected: u64,
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let at = fs::open(top.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut scene = Self { top, at, ours: 0, expected: 0 };
        let tier = scene.tier();
        let put = |name, bytes: &[u8]| {
            tier.put(&key(name), Attributes::default(), bytes, Precondition::Any).unwrap().identity
        };
        (scene.ours, scene.expected) = (put("from", b"ours"), put("to", b"expected"));
        scene
    }

    /// As the next process of the owner attaches it.
    fn tier(&self) -> Posix {
        Posix::attach_owned(self.top.path(), &Owner::new("job-0").unwrap()).unwrap()
    }

    /// Another program renames its version to `name`.
    fn theirs(&self, name: &str) {
        std::fs::write(self.top.path().join("made"), "theirs").unwrap();
        std::fs::rename(self.top.path().join("made"), self.top.path().join(name)).unwrap();
    }

    fn held(&self, name: &str, identity: u64) -> Held {
        swap::look(&self.at, name.as_bytes(), identity).unwrap().unwrap()
    }

    /// The hidden link of a process that is killed: as it is first, and with the name that tells the sweep.
    fn linked(&self, is_told: bool) -> Vec<u8> {
        let plain = b".hayase-partial-job-0.0123456789abcdef.fedcba9876543210".to_vec();
        let ours = self.held("from", self.ours).stat().unwrap().st_ino;
        let name = match is_told {
            true => Exchange::new(ours, &self.held("to", self.expected)).name(&plain),
            false => plain,
        };
        fs::linkat(&self.at, "from", &self.at, name.as_slice(), AtFlags::empty()).unwrap();
        name
    }

    fn exchange(&self, hidden: &[u8]) {
        fs::renameat_with(&self.at, hidden, &self.at, "to", RenameFlags::EXCHANGE).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.top.path().join(name)).ok()
    }

    /// What the next process does with what is there: the sweep, and the same move.
    fn continued(&self) -> Result<ObjectMeta, TierError> {
        let tier = self.tier();
        tier.sweep_own(b"").unwrap();
        let from = tier.stat(&key("from"))?.identity;
        let to = crate::if_there(tier.stat(&key("to")))?.map(|meta| meta.identity);
        tier.rename_version((&key("from"), from), (&key("to"), to))
    }

    /// Names that people see.
    fn seen(&self) -> Vec<String> {
        let mut names = names(self.top.path());
        names.retain(|name| !name.starts_with(".hayase"));
        names
    }

    fn rescued(&self) -> Option<String> {
        self.seen().into_iter().find(|name| name.starts_with("rescued.hayase-conflict-"))
    }
}

/// Does what a process had done before it was killed.
type Kill = fn(&Scene);

#[test]
fn a_move_that_was_killed_at_any_step_is_done_by_the_same_call() {
    let kills: [(&str, Kill); 4] = [
        ("linked", |scene| drop(scene.linked(false))),
        ("told", |scene| drop(scene.linked(true))),
        ("exchanged", |scene| scene.exchange(&scene.linked(true))),
        ("the replaced one removed", |scene| {
            let hidden = scene.linked(true);
            scene.exchange(&hidden);
            fs::unlinkat(&scene.at, hidden.as_slice(), AtFlags::empty()).unwrap();
        }),
    ];
    for (step, kill) in kills {
        let scene = Scene::new();
        kill(&scene);
        let moved = scene.continued().unwrap();
        assert_eq!(scene.read("to").as_deref(), Some("ours"), "{step}");
        assert_eq!(scene.seen(), ["to"], "{step}");
        assert_eq!(moved, scene.tier().stat(&key("to")).unwrap(), "{step}");
    }
}

#[test]
fn what_came_out_of_a_move_that_was_killed_is_kept() {
    let scene = Scene::new();
    let hidden = scene.linked(true);
    scene.theirs("to");
    scene.exchange(&hidden);
    // Killed here: theirs is under the hidden name, ours under both others.
    scene.continued().unwrap();
    assert_eq!(scene.read("to").as_deref(), Some("ours"));
    let rescued = scene.rescued().expect("a name that people see");
    assert_eq!(scene.read(&rescued).as_deref(), Some("theirs"));
    assert_eq!(scene.seen(), [rescued.as_str(), "to"]);

    // The same after it was put back: then ours has its old name, and the next look finds theirs.
    let scene = Scene::new();
    let hidden = scene.linked(true);
    scene.theirs("to");
    scene.exchange(&hidden);
    scene.exchange(&hidden);
    let tier = scene.tier();
    tier.sweep_own(b"").unwrap();
    let ours = tier.stat(&key("from")).unwrap().identity;
    let refused = tier.rename_version((&key("from"), ours), (&key("to"), Some(scene.expected)));
    assert!(matches!(refused, Err(TierError::Changed { .. })), "{refused:?}");
    assert_eq!(
        (scene.read("from"), scene.read("to")),
        (Some("ours".into()), Some("theirs".into()))
    );

    // Theirs came to the old name, and was taken out to be looked at.
    let scene = Scene::new();
    let out = {
        let ours = scene.held("from", scene.ours);
        Exchange::new(0, &ours).name(b".hayase-partial-job-0.0123456789abcdef.fedcba9876543210")
    };
    fs::renameat(&scene.at, "from", &scene.at, "to").unwrap();
    scene.theirs("from");
    fs::renameat(&scene.at, "from", &scene.at, out.as_slice()).unwrap();
    scene.tier().sweep_own(b"").unwrap();
    let rescued = scene.rescued().expect("a name that people see");
    assert_eq!(scene.read(&rescued).as_deref(), Some("theirs"));
    assert_eq!(scene.seen(), [rescued.as_str(), "to"]);
}

/// What is under a name, and its identity; `None` when it changed between both looks.
fn look(tier: &Posix, name: &Key) -> Option<(String, u64)> {
    let reader = tier.open(name).ok()?;
    let mut bytes = vec![0; 64];
    let count = reader.read_at(0, &mut bytes).unwrap();
    bytes.truncate(count);
    Some((String::from_utf8(bytes).unwrap(), reader.meta().identity))
}

/// Renames of each program that knows nothing of us, unless `HAYASE_SWAP_VERSIONS` names four times as many.
const USUAL: u64 = 10_000;

/// One program renames versions to the old name, one to the new one. After each rename its version is there, or was
/// moved or replaced by somebody that had seen it.
#[test]
fn a_program_that_renames_loses_nothing_to_a_move() {
    let asked = std::env::var("HAYASE_SWAP_VERSIONS").ok();
    let versions = asked.map_or(USUAL, |text| text.parse::<u64>().unwrap() / 4);
    // Memory: this many renames take long on a disk.
    let top = tempfile::tempdir_in("/dev/shm").unwrap();
    let tier = Posix::attach_passing(top.path()).unwrap();
    let (done, answers) = (AtomicBool::new(false), Mutex::new([0, 0]));
    // What was moved, or replaced, by a call that named it.
    let seen = Mutex::new(HashSet::new());
    let ours = || {
        while !done.load(Ordering::Relaxed) {
            let Some((moved, from)) = look(&tier, &key("from")) else { continue };
            let there = look(&tier, &key("to"));
            let expected = there.as_ref().map(|(_, identity)| *identity);
            let answer = tier.rename_version((&key("from"), from), (&key("to"), expected));
            match answer {
                Ok(_) => seen.lock().unwrap().extend([Some(moved), there.map(|it| it.0)]),
                Err(
                    TierError::Changed { .. }
                    | TierError::Exists { .. }
                    | TierError::Missing { .. },
                ) => answers.lock().unwrap()[1] += 1,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let theirs = |name: &str| {
        let (made, name) = (top.path().join(format!("made-{name}")), top.path().join(name));
        for version in 1..=versions {
            let bytes = format!("{version} at {}", name.display());
            std::fs::write(&made, &bytes).unwrap();
            std::fs::rename(&made, &name).unwrap();
            let start = Instant::now();
            while std::fs::read_to_string(&name).ok().as_ref() != Some(&bytes) {
                if seen.lock().unwrap().contains(&Some(bytes.clone())) {
                    answers.lock().unwrap()[0] += 1;
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "version {bytes} is lost");
            }
        }
    };
    std::thread::scope(|scope| {
        let ours = scope.spawn(ours);
        let programs = ["from", "to"].map(|name| scope.spawn(move || theirs(name)));
        let ended = programs.map(std::thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        ours.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let [moved, refused] = answers.into_inner().unwrap();
    assert!(moved > 0 && refused > 0, "no race: {moved} moved, {refused} refused");
    let mut left = names(top.path());
    // What was taken out of the old name to be looked at while the next one came there is kept.
    left.retain(|name| !name.starts_with("rescued.hayase-conflict-"));
    assert!(left.iter().all(|name| ["from", "to"].contains(&name.as_str())), "{left:?}");
}
