//! Extended attributes in the cache area, on the nodes and in the tier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Process, R, write_again, write_new};
use hayase_layout::{ByteCount, InodeId};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Attributes, Flaky, Key, Memory, Precondition, Tier, XattrChanges};
use hayase_wire::message::{
    FileKind, Flushed, MetaChange, NodeReply, NodeRequest, Refused, XattrMode,
};

const TOP: InodeId = InodeId::CACHE_ROOT;
const EOPNOTSUPP: i32 = 95;
const ENODATA: i32 = 61;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;

/// A job in front of a tier of which nothing new and no removal is taken while it is closed.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) tier: Memory,
    is_closed: Arc<AtomicBool>,
}

impl Scene {
    pub(crate) fn new(servers: u16) -> Self {
        Self::before(servers, Memory::new())
    }

    pub(crate) fn before(servers: u16, tier: Memory) -> Self {
        let is_closed = Arc::<AtomicBool>::default();
        let asked = Arc::clone(&is_closed);
        let flaky = Flaky::new(tier.clone(), move |call| {
            let is_new = matches!(call, Call::Begun(Action::Begin | Action::Delete));
            (is_new && asked.load(Ordering::SeqCst)).then_some(Fault::Io)
        });
        let cluster = Cluster::up_small(servers, ByteCount::mib(256), Arc::new(flaky));
        Self { cluster, tier, is_closed }
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn reopen(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    /// Somebody else puts a file there, with attributes.
    fn put(&self, path: &str, bytes: &[u8], xattrs: &[(&str, &str)]) {
        let key = key(path);
        self.tier.put(&key, Attributes::default(), bytes, Precondition::Any).expect("there");
        self.tier.change_user_xattrs(&key, &changes(xattrs)).expect("set");
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let reader = self.tier.open(&key(path)).ok()?;
        let mut bytes = vec![0; 64];
        let read = reader.read_at(0, &mut bytes).expect("read");
        bytes.truncate(read);
        Some(bytes)
    }

    fn in_tier(&self, path: &str) -> BTreeMap<String, String> {
        let xattrs = self.tier.user_xattrs(&key(path)).unwrap_or_default();
        xattrs.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    /// The tier has these bytes, with all that the file has.
    fn wait_for(&self, path: &str, bytes: &[u8], xattrs: &[(&str, &str)]) {
        wait_until(path, || self.read(path).as_deref() == Some(bytes));
        assert_eq!(self.in_tier(path), texts(xattrs), "{path}");
    }
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn key(path: &str) -> Key {
    Key::new(path).expect("a name")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (format!("user.{name}"), value.to_string())).collect()
}

fn changes(pairs: &[(&str, &str)]) -> XattrChanges {
    let pairs = texts(pairs).into_iter();
    pairs.map(|(name, value)| (name.into_bytes(), Some(value.into_bytes()))).collect()
}

fn try_set(
    process: &mut Process,
    ino: InodeId,
    (name, value): (&str, &[u8]),
    mode: XattrMode,
) -> Result<(), Refused> {
    let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
    process.ask(&NodeRequest::SetXattr { ino, name, value, mode }).map(drop)
}

fn set(process: &mut Process, ino: InodeId, name: &str, value: &str) {
    let name = format!("user.{name}");
    try_set(process, ino, (&name, value.as_bytes()), XattrMode::Set).expect("set");
}

fn try_remove(process: &mut Process, ino: InodeId, name: &str) -> Result<(), Refused> {
    process.ask(&NodeRequest::RemoveXattr { ino, name: name.into() }).map(drop)
}

fn try_get(process: &mut Process, ino: InodeId, name: &str) -> Result<Vec<u8>, Refused> {
    match process.ask(&NodeRequest::GetXattr { ino, name: name.into() })? {
        NodeReply::Value(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

/// All that a node sees, name by name.
fn seen(process: &mut Process, ino: InodeId) -> BTreeMap<String, String> {
    let names = match process.ask(&NodeRequest::ListXattr { ino }).expect("listed") {
        NodeReply::Names(names) => names,
        other => panic!("{other:?}"),
    };
    let value = |name: String| {
        let value = try_get(process, ino, &name).expect("there");
        (name, text(value))
    };
    names.into_iter().map(text).map(value).collect()
}

fn errno<T>(result: Result<T, Refused>) -> i32 {
    result.err().map_or(0, |refused| refused.errno)
}

#[test]
fn what_a_new_file_has_is_seen_by_all_and_comes_to_the_tier_with_it() {
    for servers in [1, 3] {
        let scene = Scene::new(servers);
        let mut process = scene.cluster.process(0);
        let mut other = scene.cluster.process(servers - 1);
        scene.close();
        let ino = write_new(&mut process, TOP, "f", b"new");
        set(&mut process, ino, "a", "1");
        set(&mut process, ino, "b", "2");
        set(&mut other, ino, "a", "3");
        try_remove(&mut other, ino, "user.b").expect("removed");
        assert_eq!(errno(try_remove(&mut process, ino, "user.b")), ENODATA);
        assert_eq!(seen(&mut process, ino), texts(&[("a", "3")]));
        assert_eq!(seen(&mut other, ino), texts(&[("a", "3")]));
        scene.reopen();
        scene.wait_for("f", b"new", &[("a", "3")]);
        assert_eq!(seen(&mut other, ino), texts(&[("a", "3")]), "{servers} servers");
    }
}

/// Then they change there at once, and the file goes on to be the one that the ledger knows.
#[test]
fn of_a_file_that_the_tier_has_they_change_there() {
    let scene = Scene::new(3);
    let mut process = scene.cluster.process(0);
    let ino = write_new(&mut process, TOP, "f", b"first");
    scene.wait_for("f", b"first", &[]);
    wait_until("the ledger knows", || {
        let flush = scene.cluster.process(0).ask(&NodeRequest::Flush { ino });
        matches!(flush, Ok(NodeReply::Flushed(Flushed::Durable)))
    });
    set(&mut process, ino, "a", "1");
    set(&mut process, ino, "b", "2");
    try_remove(&mut process, ino, "user.a").expect("removed");
    assert_eq!(scene.in_tier("f"), texts(&[("b", "2")]));
    assert!(process.lookup(TOP, "f").expect("there").attr.ino == ino, "taken for somebody else's");
    write_again(&mut process, ino, b"again");
    scene.wait_for("f", b"again", &[("b", "2")]);
    assert_eq!(process.names(TOP), ["f"], "a second version");
}

#[test]
fn a_file_of_the_tier_that_is_changed_keeps_those_that_nobody_touched() {
    let scene = Scene::new(3);
    scene.put("f", b"theirs", &[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut process = scene.cluster.process(0);
    let ino = process.lookup(TOP, "f").expect("there").attr.ino;
    assert_eq!(seen(&mut process, ino), texts(&[("a", "1"), ("b", "2"), ("c", "3")]));
    scene.close();
    process.ask(&NodeRequest::SetAttr { ino, change: truncated() }).expect("emptied");
    write_again(&mut process, ino, b"ours");
    try_remove(&mut process, ino, "user.a").expect("removed");
    set(&mut process, ino, "b", "4");
    let expected = [("b", "4"), ("c", "3")];
    assert_eq!(seen(&mut process, ino), texts(&expected));
    assert_eq!(scene.in_tier("f").len(), 3, "not yet");
    scene.reopen();
    scene.wait_for("f", b"ours", &expected);
    assert_eq!(process.names(TOP), ["f"], "a second version");
}

fn truncated() -> MetaChange {
    MetaChange { size: Some(0), ..MetaChange::default() }
}

/// Whether the tier has the file as it is or not; what it replaces gives it nothing.
#[test]
fn they_go_along_when_a_file_is_renamed() {
    for is_dirty in [false, true] {
        let scene = Scene::new(3);
        scene.put("f", b"moved", &[("a", "1"), ("b", "2")]);
        scene.put("g", b"victim", &[("v", "9")]);
        let mut process = scene.cluster.process(0);
        let ino = process.lookup(TOP, "f").expect("there").attr.ino;
        process.lookup(TOP, "g").expect("there");
        if is_dirty {
            scene.close();
            process.ask(&NodeRequest::SetAttr { ino, change: truncated() }).expect("emptied");
            write_again(&mut process, ino, b"moved");
            try_remove(&mut process, ino, "user.b").expect("removed");
            set(&mut process, ino, "c", "3");
        }
        process.rename((TOP, "f"), (TOP, "g")).expect("renamed");
        let expected: &[_] = match is_dirty {
            true => &[("a", "1"), ("c", "3")],
            false => &[("a", "1"), ("b", "2")],
        };
        assert_eq!(seen(&mut process, ino), texts(expected), "dirty: {is_dirty}");
        scene.reopen();
        scene.wait_for("g", b"moved", expected);
        wait_until("the old name goes", || scene.read("f").is_none());
        assert_eq!(process.names(TOP), ["g"]);
    }
}

#[test]
fn a_file_does_not_have_those_of_one_that_had_its_name() {
    let scene = Scene::new(3);
    scene.put("f", b"removed", &[("a", "1")]);
    let mut process = scene.cluster.process(0);
    process.lookup(TOP, "f").expect("there");
    scene.close();
    process.remove(TOP, "f", false).expect("removed");
    let ino = write_new(&mut process, TOP, "f", b"new");
    assert_eq!(seen(&mut process, ino), texts(&[]));
    set(&mut process, ino, "b", "2");
    scene.reopen();
    scene.wait_for("f", b"new", &[("b", "2")]);
    assert_eq!(process.names(TOP), ["f"], "a second version");
}

#[test]
fn what_others_set_in_the_tier_is_seen() {
    let scene = Scene::new(3);
    scene.put("f", b"theirs", &[("a", "1")]);
    let mut process = scene.cluster.process(0);
    let ino = process.lookup(TOP, "f").expect("there").attr.ino;
    process.open(ino, R).expect("opened");
    assert_eq!(seen(&mut process, ino), texts(&[("a", "1")]));
    process.close(ino, R).expect("closed");
    scene.tier.change_user_xattrs(&key("f"), &changes(&[("b", "2")])).unwrap();
    let ino = process.lookup(TOP, "f").expect("there").attr.ino;
    process.open(ino, R).expect("opened");
    assert_eq!(seen(&mut process, ino), texts(&[("a", "1"), ("b", "2")]));
}

#[test]
fn those_of_a_file_outlive_its_home_before_the_tier_has_it() {
    let mut scene = Scene::new(2);
    scene.put("theirs", b"theirs", &[("a", "1"), ("b", "2")]);
    scene.close();
    let mut process = scene.cluster.process(0);
    let theirs = process.lookup(TOP, "theirs").expect("there").attr.ino;
    process.ask(&NodeRequest::SetAttr { ino: theirs, change: truncated() }).expect("emptied");
    write_again(&mut process, theirs, b"changed");
    try_remove(&mut process, theirs, "user.a").expect("removed");
    set(&mut process, theirs, "c", "3");
    let new = write_new(&mut process, TOP, "new", b"new");
    set(&mut process, new, "n", "1");
    process.fsync(new).expect("synced");
    for server in [0, 1] {
        scene.cluster.restart(server);
    }
    let mut process = scene.cluster.process(1);
    assert_eq!(seen(&mut process, theirs), texts(&[("b", "2"), ("c", "3")]));
    assert_eq!(seen(&mut process, new), texts(&[("n", "1")]));
    scene.reopen();
    scene.wait_for("theirs", b"changed", &[("b", "2"), ("c", "3")]);
    scene.wait_for("new", b"new", &[("n", "1")]);
}

#[test]
fn those_of_a_directory_are_the_tiers() {
    let scene = Scene::new(3);
    let mut process = scene.cluster.process(0);
    let dir = process.create(TOP, "d", FileKind::Directory).expect("made").ino;
    set(&mut process, dir, "a", "1");
    set(&mut process, dir, "b", "2");
    try_remove(&mut process, dir, "user.a").expect("removed");
    assert_eq!(scene.in_tier("d"), texts(&[("b", "2")]));
    assert_eq!(seen(&mut scene.cluster.process(1), dir), texts(&[("b", "2")]));
    assert_eq!(errno(try_get(&mut process, dir, "user.a")), ENODATA);
    // The tier's own root is not the job's to change.
    assert_eq!(errno(try_set(&mut process, TOP, ("user.a", b"1"), XattrMode::Set)), EOPNOTSUPP);
    assert_eq!(seen(&mut process, TOP), texts(&[]));
}

#[test]
fn what_can_not_be_kept_is_refused() {
    let scene = Scene::before(1, Memory::flat());
    let mut process = scene.cluster.process(0);
    let ino = write_new(&mut process, TOP, "f", b"f");
    assert_eq!(errno(try_set(&mut process, ino, ("user.a", b"1"), XattrMode::Set)), EOPNOTSUPP);
    assert_eq!(errno(try_remove(&mut process, ino, "user.a")), EOPNOTSUPP);
    assert_eq!(errno(try_get(&mut process, ino, "user.a")), EOPNOTSUPP);
    assert_eq!(seen(&mut process, ino), texts(&[]));

    let scene = Scene::new(1);
    let mut process = scene.cluster.process(0);
    scene.close();
    let ino = write_new(&mut process, TOP, "f", b"f");
    for name in ["security.x", "trusted.x", "system.x", "x"] {
        assert_eq!(errno(try_set(&mut process, ino, (name, b"1"), XattrMode::Set)), EOPNOTSUPP);
        assert_eq!(errno(try_remove(&mut process, ino, name)), EOPNOTSUPP, "{name}");
        assert_eq!(errno(try_get(&mut process, ino, name)), ENODATA, "{name}");
    }
    let mut check = |mode, expected| {
        assert_eq!(errno(try_set(&mut process, ino, ("user.a", b"1"), mode)), expected);
    };
    check(XattrMode::Replace, ENODATA);
    check(XattrMode::Create, 0);
    check(XattrMode::Create, EEXIST);
    check(XattrMode::Replace, 0);
    let large = vec![7; 40 << 10];
    try_set(&mut process, ino, ("user.large", &large), XattrMode::Set).expect("fits");
    let too_much = try_set(&mut process, ino, ("user.more", &large), XattrMode::Set);
    assert_eq!(errno(too_much), ENOSPC);
    assert_eq!(try_get(&mut process, ino, "user.large").expect("there"), large);
}

/// It would look like somebody else's version, and never go.
#[test]
fn a_removed_file_that_is_changed_while_it_is_open_goes_from_the_tier() {
    let scene = Scene::new(3);
    let mut process = scene.cluster.process(0);
    scene.put("f", b"theirs", &[]);
    let ino = process.lookup(TOP, "f").expect("there").attr.ino;
    process.open(ino, R).expect("opened");
    scene.close();
    process.remove(TOP, "f", false).expect("removed");
    set(&mut process, ino, "a", "1");
    assert_eq!(seen(&mut process, ino), texts(&[("a", "1")]));
    let change = MetaChange { mode: Some(0o600), ..MetaChange::default() };
    process.ask(&NodeRequest::SetAttr { ino, change }).expect("changed");
    scene.reopen();
    wait_until("it goes", || scene.read("f").is_none());
}
