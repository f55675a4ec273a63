//! Names of a directory: at its home first, and at their shards once others are busy in it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Process, eventually, new_node};
use hayase_layout::shard::name_shard;
use hayase_layout::{InodeId, ServerId};
use hayase_server::KeptUntil;
use hayase_store::MetaStore;
use hayase_wire::message::{FileKind, NodeReply, NodeRequest};

const ROOT: InodeId = InodeId::ROOT;
const SERVERS: u16 = 3;

/// The home of the directory.
const HOME: u16 = 1;

/// The first change from elsewhere spreads the names.
const AT_ONCE: KeptUntil = KeptUntil { names: 1 << 20, changes: 1, lookups: 1 << 20 };

/// No server commits more often while names are spread.
const COMMITS_MAX: u64 = 8;

/// Names of the directory at each server.
fn names_at(cluster: &Cluster, dir: InodeId) -> Vec<usize> {
    let prefix = [&b"e"[..], &dir.0.to_be_bytes()].concat();
    let count =
        |server| cluster.store(server).scan(&prefix, &[], usize::MAX).expect("a scan").len();
    (0..SERVERS).map(count).collect()
}

/// Where the hash says that they are.
fn by_hash(dir: InodeId, names: &BTreeSet<String>) -> Vec<usize> {
    let mut counts = vec![0; usize::from(SERVERS)];
    for name in names {
        let cookie = hayase_store::ops::cookie(name.as_bytes());
        let ServerId(shard) = name_shard(dir, cookie, SERVERS);
        counts[usize::from(shard)] += 1;
    }
    counts
}

fn at_home(count: usize) -> Vec<usize> {
    (0..SERVERS).map(|server| if server == HOME { count } else { 0 }).collect()
}

/// A directory of node [`HOME`] with that many files.
fn directory_of(process: &mut Process, files: usize) -> (InodeId, BTreeSet<String>) {
    let dir = process.create(ROOT, "d", FileKind::Directory).expect("made").ino;
    let names: BTreeSet<String> = (0..files).map(|file| format!("file-{file}")).collect();
    for name in &names {
        process.create(dir, name, FileKind::Regular).expect("made");
    }
    (dir, names)
}

fn listed(process: &mut Process, dir: InodeId) -> BTreeSet<String> {
    let names = process.names(dir);
    let set: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "a name is listed twice: {names:?}");
    set
}

/// Each node lists these and finds each of them.
fn all_see(cluster: &Cluster, dir: InodeId, names: &BTreeSet<String>, story: &str) {
    for node in 0..SERVERS {
        let mut process = cluster.process(node);
        assert_eq!(&listed(&mut process, dir), names, "{story}: listed at node {node}");
        for name in names {
            let found = process.lookup(dir, name);
            assert!(found.is_ok(), "{story}: {name} at node {node}: {found:?}");
        }
    }
}

#[test]
fn names_are_at_the_home_until_other_nodes_are_busy_with_them() {
    let until = KeptUntil { names: 1 << 20, changes: 8, lookups: 100 };
    let cluster = Cluster::up_keeping_names(SERVERS, until);
    let mut process = cluster.process(HOME);
    let (dir, mut names) = directory_of(&mut process, 20);
    all_see(&cluster, dir, &names, "made");
    assert_eq!(names_at(&cluster, dir), at_home(20), "others have looked at them");
    let mut other = cluster.process(0);
    for file in 0..4 {
        let name = format!("other-{file}");
        other.create(dir, &name, FileKind::Regular).expect("made");
        names.insert(name);
    }
    other.remove(dir, "file-7", false).expect("removed");
    names.remove("file-7");
    assert_eq!(names_at(&cluster, dir), at_home(23), "some were changed by another node");
    for file in 4..12 {
        let name = format!("other-{file}");
        other.create(dir, &name, FileKind::Regular).expect("made");
        names.insert(name);
    }
    eventually("they are spread", || names_at(&cluster, dir) == by_hash(dir, &names));
    all_see(&cluster, dir, &names, "spread");
    // What each node does from here on others see, in both directions.
    for (node, name) in (0..).zip(["a", "b", "c"]) {
        cluster.process(node).create(dir, name, FileKind::Regular).expect("made");
        names.insert(name.to_owned());
    }
    process.rename((dir, "a"), (dir, "file-0")).expect("renamed");
    other.rename((dir, "b"), (ROOT, "b")).expect("renamed");
    names.remove("a");
    names.remove("b");
    all_see(&cluster, dir, &names, "changed");
    assert_eq!(process.remove(ROOT, "d", true).unwrap_err().errno, 39, "ENOTEMPTY");
    for (node, name) in (0..).zip(&names) {
        cluster.process(node % SERVERS).remove(dir, name, false).expect("removed");
    }
    assert_eq!(listed(&mut other, dir), BTreeSet::new());
    other.remove(ROOT, "d", true).expect("it is empty");
}

#[test]
fn many_names_are_spread_though_one_node_makes_them_all() {
    let until = KeptUntil { names: 50, changes: 1 << 20, lookups: 1 << 20 };
    let cluster = Cluster::up_keeping_names(SERVERS, until);
    let mut process = cluster.process(HOME);
    let dir = process.create(ROOT, "d", FileKind::Directory).expect("made").ino;
    for round in 0..100 {
        let name = format!("temporary-{round}");
        process.create(dir, &name, FileKind::Regular).expect("made");
        process.remove(dir, &name, false).expect("removed");
    }
    process.create(dir, "one", FileKind::Regular).expect("made");
    assert_eq!(names_at(&cluster, dir), at_home(1), "there were never many");
    let (dir, names) = {
        process.remove(dir, "one", false).expect("removed");
        process.remove(ROOT, "d", true).expect("removed");
        directory_of(&mut process, 120)
    };
    eventually("they are spread", || names_at(&cluster, dir) == by_hash(dir, &names));
    all_see(&cluster, dir, &names, "spread");
}

#[test]
fn looking_up_many_names_spreads_them() {
    let until = KeptUntil { names: 1 << 20, changes: 1 << 20, lookups: 30 };
    let cluster = Cluster::up_keeping_names(SERVERS, until);
    let (dir, names) = directory_of(&mut cluster.process(HOME), 20);
    all_see(&cluster, dir, &names, "each by each node");
    eventually("they are spread", || names_at(&cluster, dir) == by_hash(dir, &names));
    all_see(&cluster, dir, &names, "spread");
}

/// A directory that is being listed, page by page.
#[test]
fn a_listing_misses_nothing_while_names_are_spread() {
    let cluster = Cluster::up_keeping_names(SERVERS, AT_ONCE);
    let (dir, names) = directory_of(&mut cluster.process(HOME), 200);
    for node in [HOME, 2] {
        let (mut process, mut seen, mut cookie, mut pages) =
            (cluster.process(node), Vec::new(), 0, 0);
        loop {
            let request = NodeRequest::ReadDir { dir, cookie, bytes: 512, plus: false };
            let NodeReply::Entries(entries) = process.ask(&request).expect("a listing") else {
                panic!("not a listing");
            };
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            seen.extend(entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
            pages += 1;
            if pages == 3 && node == HOME {
                assert_eq!(names_at(&cluster, dir), at_home(200));
                let mut other = cluster.process(0);
                other.create(dir, "new", FileKind::Regular).expect("made");
                other.remove(dir, "new", false).expect("removed");
                eventually("they are spread", || names_at(&cluster, dir) == by_hash(dir, &names));
            }
        }
        assert!(pages > 5, "one page is no test");
        assert_eq!(seen.len(), names.len(), "each once");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), names);
    }
}

/// A request that happened at the home gets its answer though its name is at the shard when it is repeated, whichever
/// server was started anew meanwhile.
#[test]
fn what_happened_before_names_were_spread_does_not_happen_again() {
    for (node, restarted) in [(HOME, HOME), (2, HOME), (2, 2), (2, 0)] {
        let story = format!("node {node} asks, server {restarted} is started anew");
        let mut cluster = Cluster::up_keeping_names(SERVERS, AT_ONCE);
        let (dir, mut names) = directory_of(&mut cluster.process(HOME), 10);
        let mut process = cluster.process(node);
        let asked: Vec<NodeRequest> = ["file-3", "file-4"]
            .map(|name| NodeRequest::Remove {
                parent: dir,
                name: name.as_bytes().to_vec(),
                directory: false,
            })
            .into();
        process.ask_once(1, &asked[0]).unwrap_or_else(|error| panic!("{story}: {error}"));
        names.remove("file-3");
        cluster.process(0).create(dir, "new", FileKind::Regular).expect("made");
        names.insert("new".to_owned());
        eventually(&story, || names_at(&cluster, dir) == by_hash(dir, &names));
        cluster.restart(restarted);
        if restarted == node {
            process = process.reconnect(&cluster, node);
        }
        // That server knows by now where the names are.
        cluster.process(node).lookup(dir, "file-5").expect("found");
        let again = process.ask_once(1, &asked[0]);
        assert!(matches!(again, Ok(NodeReply::Removed { .. })), "{story}: {again:?}");
        process.ask_once(2, &asked[1]).unwrap_or_else(|error| panic!("{story}: {error}"));
        names.remove("file-4");
        all_see(&cluster, dir, &names, &story);
    }
}

/// Records of intents and orphans, over all servers.
fn left(cluster: &Cluster) -> usize {
    let count = |prefix: &[u8]| -> usize {
        let scan = |server| cluster.store(server).scan(prefix, &[], usize::MAX).expect("a scan");
        (0..SERVERS).map(|server| scan(server).len()).sum()
    };
    count(b"t") + count(b"o")
}

/// Each server, killed or without power at each of its commits while names are spread: no name is lost, none comes
/// back, and no server takes a name for free that another has.
#[test]
fn names_are_spread_once_or_not_at_all_whoever_ends_meanwhile() {
    for power in [false, true] {
        for victim in 0..SERVERS {
            let reached = (0..COMMITS_MAX).take_while(|commits| ends_at(victim, *commits, power));
            assert!(reached.count() < COMMITS_MAX as usize, "more commits than are tried");
        }
    }
}

/// False when the commit was not reached.
fn ends_at(victim: u16, commits: u64, power: bool) -> bool {
    let story = format!("server {victim} ends after {commits} commits, power {power}");
    let mut cluster = Cluster::up_keeping_names(SERVERS, AT_ONCE);
    let mut process = cluster.process(HOME);
    let (dir, mut names) = directory_of(&mut process, 12);
    for name in &names {
        let ino = process.lookup(dir, name).expect("found").attr.ino;
        process.fsync(ino).expect("synced");
    }
    process.fsync(dir).expect("synced");
    process.remove(dir, "file-11", false).expect("removed");
    process.fsync(dir).expect("synced");
    names.remove("file-11");
    std::thread::sleep(Duration::from_millis(60)); // intents go together
    cluster.store(victim).stop_after(commits);
    let create = NodeRequest::Create(new_node(dir, "new", FileKind::Regular));
    let mut other = cluster.process(0);
    let first = other.ask_once(1, &create);
    std::thread::sleep(Duration::from_millis(300));
    let reached = first.is_err() || cluster.store(victim).sync().is_err();
    match power {
        true => cluster.lose_names(victim),
        false => cluster.restart(victim),
    }
    if victim == 0 {
        other = other.reconnect(&cluster, 0);
    }
    let again = other.ask_once(1, &create);
    // With the power an answer that was not synced may go, or come back.
    let is_told = again.is_ok() || power && again.as_ref().is_err_and(|error| error.errno == 17);
    assert!(is_told, "{story}: {again:?}, first {first:?}");
    // Its name may be durable, and the file itself not: nobody has synced it.
    let is_doubtful = power && other.lookup(dir, "new").is_err();
    if !is_doubtful {
        names.insert("new".to_owned());
    }
    let until = Instant::now() + Duration::from_secs(20);
    while !power && left(&cluster) != 0 {
        assert!(Instant::now() < until, "{story}: {} left half done", left(&cluster));
        std::thread::sleep(Duration::from_millis(20));
    }
    if is_doubtful {
        // It can be replaced all the same.
        other.create(dir, "other", FileKind::Regular).expect("made");
        other.rename((dir, "other"), (dir, "new")).expect("renamed");
        names.insert("new".to_owned());
    }
    all_see(&cluster, dir, &names, &story);
    for (node, name) in (0..).zip(&names) {
        let removed = cluster.process(node % SERVERS).remove(dir, name, false);
        assert!(removed.is_ok(), "{story}: {name}: {removed:?}");
    }
    for node in 0..SERVERS {
        assert_eq!(listed(&mut cluster.process(node), dir), BTreeSet::new(), "{story}");
    }
    let removed = cluster.process(2).remove(ROOT, "d", true);
    assert!(removed.is_ok(), "{story}: {removed:?}");
    reached
}
