//! Each operation over several servers, stopped at each commit of each server: from there on nothing
//! of that server becomes durable, then it is started anew. Repeated under its name the operation
//! succeeds; then it has happened once, on all servers, and no intent, orphan or inode is left over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cluster::{self, Cluster, Process, RW};
use hayase_layout::shard::name_shard;
use hayase_layout::{InodeId, ServerId};
use hayase_store::MetaStore;
use hayase_wire::message::{FileKind, Name, NewNode, NodeReply, NodeRequest, OpenKind, Opening};

const ROOT: InodeId = InodeId::ROOT;
const SERVERS: u16 = 2;

/// No operation has more commits at one server than this.
const COMMITS_MAX: u64 = 12;

/// Two names: of shard 0 and shard 1, and the other way round. Node 1 asks and is the home, so each
/// server has each role once.
fn pairs() -> [(String, String); 2] {
    let of = |shard: u16| {
        let all = ('a'..='z').map(String::from);
        let is_there = |name: &String| {
            name_shard(ROOT, hayase_store::ops::cookie(name.as_bytes()), SERVERS) == ServerId(shard)
        };
        all.filter(is_there).take(2).collect::<Vec<_>>()
    };
    let (zero, one) = (of(0), of(1));
    [(zero[0].clone(), one[0].clone()), (one[1].clone(), zero[1].clone())]
}

fn name(name: &str) -> Name {
    name.as_bytes().to_vec()
}

fn new_node(at: &str, kind: FileKind) -> NodeRequest {
    new_node_open(at, kind, None)
}

/// As open(2) asks for it: made and opened in one step.
fn new_open_file(at: &str) -> NodeRequest {
    let open = Opening { access: RW, kind: OpenKind::Remote, number: 1 };
    new_node_open(at, FileKind::Regular, Some(open))
}

fn new_node_open(at: &str, kind: FileKind, open: Option<Opening>) -> NodeRequest {
    NodeRequest::Create(NewNode { open, ..cluster::new_node(ROOT, at, kind) })
}

/// Names in the root, each with the number of links of what it stands for, in classes of one inode.
type Tree = BTreeMap<String, (u32, usize)>;

fn tree(process: &mut Process) -> Tree {
    let mut names = process.names(ROOT);
    names.sort();
    let mut inodes = Vec::new();
    let mut tree = Tree::new();
    for name in names {
        let attr = process.lookup(ROOT, &name).expect("a listed name is found").attr;
        let class = inodes.iter().position(|ino| *ino == attr.ino).unwrap_or_else(|| {
            inodes.push(attr.ino);
            inodes.len() - 1
        });
        tree.insert(name, (attr.nlink, class));
    }
    tree
}

/// Records of intents and orphans, and of inodes, over all servers.
fn left(cluster: &Cluster) -> (usize, usize) {
    let count = |prefix: &[u8]| -> usize {
        let scan = |server| cluster.store(server).scan(prefix, &[], usize::MAX).expect("a scan");
        (0..SERVERS).map(|server| scan(server).len()).sum()
    };
    (count(b"t") + count(b"o"), count(b"i"))
}

/// What is left becomes this, soon.
fn settles(cluster: &Cluster, inodes: usize, story: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while left(cluster) != (0, inodes) {
        assert!(Instant::now() < until, "{story}: {:?}, not (0, {inodes})", left(cluster));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `operation` after `prepare`, with `victim` stopped after `commits` commits of it. False when
/// it was not reached.
fn crash(
    prepare: &dyn Fn(&mut Process) -> NodeRequest,
    victim: u16,
    commits: u64,
    (expected, inodes): (&Tree, usize),
) -> bool {
    let mut cluster = Cluster::up_in_memory(SERVERS);
    // Of node 1, and the operation is asked there, so that the victim is coordinator, home or both.
    let mut process = cluster.process(1);
    let operation = prepare(&mut process);
    std::thread::sleep(Duration::from_millis(60)); // intents of the preparation go together
    let story = format!("{operation:?}, server {victim} stopped after {commits} commits");
    cluster.store(victim).stop_after(commits);
    let first = process.ask_once(1, &operation);
    let reached = first.is_err() || {
        std::thread::sleep(Duration::from_millis(60));
        cluster.store(victim).sync().is_err()
    };
    cluster.restart(victim);
    if victim == 1 {
        process = process.reconnect(&cluster, 1);
    }
    let again = process.ask_once(1, &operation);
    assert!(again.is_ok(), "{story}: repeated: {again:?}, first {first:?}");
    settles(&cluster, inodes, &story);
    for node in 0..SERVERS {
        assert_eq!(&tree(&mut cluster.process(node)), expected, "{story}: seen by node {node}");
    }
    reached
}

/// All crash points of one operation.
fn walk(prepare: impl Fn(&mut Process) -> NodeRequest) {
    let (expected, inodes) = {
        let cluster = Cluster::up_in_memory(SERVERS);
        let mut process = cluster.process(1);
        let operation = prepare(&mut process);
        process.ask_once(1, &operation).expect("without a crash it succeeds");
        let inodes = {
            std::thread::sleep(Duration::from_millis(300));
            left(&cluster).1
        };
        settles(&cluster, inodes, "without a crash");
        (tree(&mut process), inodes)
    };
    for victim in 0..SERVERS {
        let reached = (0..COMMITS_MAX)
            .take_while(|commits| crash(&prepare, victim, *commits, (&expected, inodes)));
        assert!(reached.count() < COMMITS_MAX as usize, "more commits than are tried");
    }
}

fn make(process: &mut Process, at: &str, kind: FileKind) -> InodeId {
    match process.ask(&new_node(at, kind)).expect("made") {
        NodeReply::Created(created) => created.entry.attr.ino,
        other => panic!("{other:?}"),
    }
}

fn rename(from: &str, to: &str) -> NodeRequest {
    let (from, to) = ((ROOT, name(from)), (ROOT, name(to)));
    NodeRequest::Rename { from, to, no_replace: false, exchange: false }
}

#[test]
fn create() {
    for (at, _) in &pairs() {
        walk(|_| new_node(at, FileKind::Regular));
    }
}

#[test]
fn create_with_open() {
    for (at, _) in &pairs() {
        walk(|_| new_open_file(at));
    }
}

/// A server is killed before it answers a create with O_EXCL that has happened. Repeated it answers with the open,
/// also when others have removed the file meanwhile, or have made another of that name.
#[test]
fn a_create_that_happened_is_open_when_it_is_repeated() {
    for (at, _) in &pairs() {
        for others in [&[][..], &["remove"], &["remove", "make"]] {
            let mut cluster = Cluster::up_in_memory(SERVERS);
            let mut process = cluster.process(1);
            let create = new_open_file(at);
            process.ask_once(1, &create).expect("it happens");
            cluster.restart(1);
            process = process.reconnect(&cluster, 1);
            let mut other = cluster.process(0);
            for deed in others {
                match *deed {
                    "remove" => other.remove(ROOT, at, false).expect("removed"),
                    _ => drop(other.create(ROOT, at, FileKind::Regular).expect("made")),
                }
            }
            let story = format!("{at}: {others:?}");
            let again = process.ask_once(1, &create);
            let Ok(NodeReply::Created(created)) = again else { panic!("{story}: {again:?}") };
            let opened = created.opened.unwrap_or_else(|| panic!("{story}: not open"));
            let (ino, links) = (opened.attr.ino, u32::from(others.is_empty()));
            assert_eq!((created.new, opened.attr.nlink), (true, links), "{story}");
            process.write(ino, 0, b"mine").unwrap_or_else(|error| panic!("{story}: {error}"));
            assert_eq!(process.read(ino, 0, 10).expect("read"), b"mine", "{story}");
            assert_eq!(process.attr(ino).expect("fstat(2)").nlink, links, "{story}");
            match other.lookup(ROOT, at) {
                Ok(entry) => assert_eq!(entry.attr.ino == ino, others.is_empty(), "{story}"),
                Err(_) => assert_eq!(others, ["remove"], "{story}"),
            }
            process.opens_asked = 1;
            process.close(ino, RW).expect("closed");
            // The root, and what has a name.
            settles(&cluster, 1 + usize::from(others != ["remove"]), &story);
        }
    }
}

#[test]
fn link() {
    for (one, other) in &pairs() {
        walk(|process| {
            let ino = make(process, one, FileKind::Regular);
            NodeRequest::Link { ino, parent: ROOT, name: name(other) }
        });
    }
}

#[test]
fn remove() {
    for (at, _) in &pairs() {
        for kind in [FileKind::Regular, FileKind::Directory] {
            walk(|process| {
                make(process, at, kind);
                let directory = kind == FileKind::Directory;
                NodeRequest::Remove { parent: ROOT, name: name(at), directory }
            });
        }
    }
}

#[test]
fn rename_to_a_free_name() {
    for (from, to) in &pairs() {
        walk(|process| {
            make(process, from, FileKind::Regular);
            rename(from, to)
        });
    }
}

#[test]
fn rename_over_another() {
    for (from, to) in &pairs() {
        walk(|process| {
            make(process, from, FileKind::Regular);
            make(process, to, FileKind::Regular);
            rename(from, to)
        });
    }
}

/// A home is killed after its program was told of a removal and before it takes the link. Its next incarnation takes
/// it before it tells another node, which has the file open, how many names it has.
#[test]
fn a_home_that_was_killed_takes_the_links_it_left() {
    // Its shard is not its home.
    let [(at, _), _] = &pairs();
    let mut cluster = Cluster::up_in_memory(SERVERS);
    let (mut process, mut other) = (cluster.process(1), cluster.process(0));
    let ino = make(&mut process, at, FileKind::Regular);
    other.open(ino, RW).expect("opened");
    std::thread::sleep(Duration::from_millis(60)); // intents of the preparation go together
    cluster.store(1).stop_after(0);
    process.remove(ROOT, at, false).expect("the shard has removed it");
    cluster.restart(1);
    assert_eq!(other.attr(ino).expect("fstat(2)").nlink, 0);
    other.write(ino, 0, b"mine").expect("it is open");
    other.close(ino, RW).expect("closed");
    settles(&cluster, 1, "the root is left");
}
