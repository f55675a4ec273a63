//! Names, attributes and bytes over one and three servers, asked as a process of each node asks.

use std::sync::atomic::Ordering;

use crate::cluster::{Cluster, Process, R, RW, W, eventually};
use hayase_layout::{ByteCount, InodeId, Layout, StripePolicy};
use hayase_wire::message::{
    Access, Close, DirEntry, FileKind, MetaChange, NodeReply, NodeRequest, OpenKind, Opening,
    ParentPolicy, SetTime, StillOpen, TimeSpec,
};

const ROOT: InodeId = InodeId::ROOT;
const EEXIST: i32 = 17;
const ENOENT: i32 = 2;
const ENOTEMPTY: i32 = 39;
const EINVAL: i32 = 22;
const EBADF: i32 = 9;
const ESTALE: i32 = 116;

fn errno<T: std::fmt::Debug>(result: Result<T, hayase_wire::message::Refused>) -> i32 {
    result.expect_err("refused").errno
}

fn on_one_and_three(test: impl Fn(&Cluster, u16)) {
    for servers in [1, 3] {
        test(&Cluster::up(servers), servers);
    }
}

/// As `cp -a` and tar leave it: what was made before is told to the directory's home later.
#[test]
fn a_time_that_is_set_outlives_what_was_made_before_it() {
    on_one_and_three(|cluster, servers| {
        let mut process = cluster.process(0);
        for maker in 0..servers {
            let dir =
                cluster.process(maker).create(ROOT, &format!("d{maker}"), FileKind::Directory);
            let dir = dir.expect("made").ino;
            for i in 0..20 {
                process.create(dir, &format!("f{i}"), FileKind::Regular).expect("made");
            }
            let long_ago = TimeSpec { seconds: 1000, nanos: 5 };
            let change = MetaChange { mtime: Some(SetTime::To(long_ago)), ..MetaChange::default() };
            process.ask(&NodeRequest::SetAttr { ino: dir, change }).expect("set");
            assert_eq!(process.attr(dir).expect("fstat(2)").mtime, long_ago, "at once");
            std::thread::sleep(std::time::Duration::from_millis(100));
            for node in 0..servers {
                let mtime = cluster.process(node).attr(dir).expect("fstat(2)").mtime;
                assert_eq!(mtime, long_ago, "of node {maker}, seen by node {node}");
            }
            process.create(dir, "later", FileKind::Regular).expect("made");
            assert!(process.attr(dir).expect("fstat(2)").mtime > long_ago);
        }
    });
}

#[test]
fn files_made_on_one_node_are_seen_on_all() {
    on_one_and_three(|cluster, servers| {
        let mut made = Vec::new();
        for node in 0..servers {
            let mut process = cluster.process(node);
            for i in 0..20 {
                let name = format!("f{node}-{i}");
                let attr = process.create(ROOT, &name, FileKind::Regular).expect("made");
                assert_eq!(attr.ino.home().0, node, "made on its creator's node");
                made.push((name, attr.ino));
            }
        }
        for node in 0..servers {
            let mut process = cluster.process(node);
            for (name, ino) in &made {
                assert_eq!(process.lookup(ROOT, name).expect("found").attr.ino, *ino);
                assert_eq!(errno(process.create(ROOT, name, FileKind::Regular)), EEXIST);
            }
            assert_eq!(errno(process.lookup(ROOT, "missing")), ENOENT);
            let mut names = process.names(ROOT);
            names.sort();
            let mut expected: Vec<_> = made.iter().map(|(name, _)| name.clone()).collect();
            expected.sort();
            assert_eq!(names, expected);
        }
    });
}

#[test]
fn bytes_are_written_and_read_from_every_node() {
    on_one_and_three(|cluster, servers| {
        for policy in [None, Some(StripePolicy { stripe: ByteCount::kib(4), width: 0 })] {
            let name = if policy.is_some() { "striped" } else { "whole" };
            let mut maker = cluster.process(0);
            let attr = maker.create_with(ROOT, name, FileKind::Regular, policy);
            let ino = attr.expect("made").ino;
            let block: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
            for node in 0..servers {
                let mut process = cluster.process(node);
                process.open(ino, RW).expect("opened");
                let offset = u64::from(node) * 50_000;
                process.write(ino, offset, &block).expect("written");
            }
            for node in 0..servers {
                let mut process = cluster.process(node);
                process.open(ino, R).expect("opened");
                for other in 0..servers {
                    let offset = u64::from(other) * 50_000;
                    assert_eq!(process.read(ino, offset, 50_000).expect("read"), block, "{name}");
                }
                let end = u64::from(servers) * 50_000;
                assert_eq!(process.attr(ino).expect("attributes").size, end);
                assert_eq!(process.read(ino, end - 10, 100).expect("read"), &block[49_990..]);
                assert_eq!(process.read(ino, end + 10, 100).expect("read"), &[] as &[u8]);
            }
        }
    });
}

/// A program may keep no attributes: it does not know how files of a directory are laid out.
#[test]
fn who_does_not_know_the_policy_gets_that_of_the_directory() {
    on_one_and_three(|cluster, servers| {
        let striped = StripePolicy { stripe: ByteCount::kib(4), width: 0 };
        let mut owner = cluster.process(0);
        let dir = owner.create(ROOT, "d", FileKind::Directory).expect("made").ino;
        for policy in [Some(striped), None, Some(striped)] {
            let change = MetaChange { policy: Some(policy), ..MetaChange::default() };
            owner.ask(&NodeRequest::SetAttr { ino: dir, change }).expect("set");
            for node in 0..servers {
                let mut process = cluster.process(node);
                let mut make = |name: &str, kind| {
                    let made = process.create_in(dir, name, kind, ParentPolicy::Unknown);
                    process.remove(dir, name, kind == FileKind::Directory).expect("removed");
                    made.expect("made")
                };
                let file = make("file", FileKind::Regular);
                let is_striped = matches!(file.layout, Layout::Striped { .. });
                assert_eq!(is_striped, policy.is_some(), "node {node}: {:?}", file.layout);
                assert_eq!(make("directory", FileKind::Directory).policy, policy);
            }
        }
        let missing = owner.create(ROOT, "gone", FileKind::Directory).expect("made").ino;
        owner.remove(ROOT, "gone", true).expect("removed");
        let refused = owner.create_in(missing, "file", FileKind::Regular, ParentPolicy::Unknown);
        assert_eq!(errno(refused), ENOENT);
    });
}

#[test]
fn appends_of_all_nodes_are_whole() {
    on_one_and_three(|cluster, servers| {
        for policy in [None, Some(StripePolicy { stripe: ByteCount::kib(4), width: 0 })] {
            let name = if policy.is_some() { "striped" } else { "whole" };
            let mut maker = cluster.process(0);
            let attr = maker.create_with(ROOT, name, FileKind::Regular, policy);
            let ino = attr.expect("made").ino;
            std::thread::scope(|scope| {
                for node in 0..servers {
                    let mut process = cluster.process(node);
                    scope.spawn(move || {
                        process.open(ino, W).expect("opened");
                        for _ in 0..50 {
                            process.append(ino, &[b'a' + node as u8; 100]).expect("appended");
                        }
                    });
                }
            });
            let size = maker.attr(ino).expect("attributes").size;
            assert_eq!(size, u64::from(servers) * 50 * 100, "{name}");
            let bytes = maker.read(ino, 0, size as u32).expect("read");
            for record in bytes.chunks(100) {
                assert!(record.iter().all(|byte| *byte == record[0]), "a torn record in {name}");
            }
        }
    });
}

#[test]
fn renames_move_names_and_replace() {
    on_one_and_three(|cluster, servers| {
        let mut process = cluster.process(servers - 1);
        let dir = process.create(ROOT, "dir", FileKind::Directory).expect("made").ino;
        for i in 0..20 {
            let (old, new) = (format!("old{i}"), format!("new{i}"));
            let ino = process.create(ROOT, &old, FileKind::Regular).expect("made").ino;
            let victim = process.create(dir, &new, FileKind::Regular).expect("made").ino;
            process.rename((ROOT, &old), (dir, &new)).expect("renamed");
            assert_eq!(errno(process.lookup(ROOT, &old)), ENOENT);
            assert_eq!(process.lookup(dir, &new).expect("found").attr.ino, ino);
            // Who looked the name up just before may still open the old version, for a moment.
            let ended = (0..400).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                process.attr(victim).is_err_and(|refused| refused.errno == ESTALE)
            });
            assert!(ended, "a replaced file never ended");
        }
        let sub = process.create(dir, "sub", FileKind::Directory).expect("made").ino;
        assert_eq!(errno(process.rename((ROOT, "dir"), (sub, "loop"))), EINVAL);
        assert_eq!(errno(process.remove(ROOT, "dir", true)), ENOTEMPTY);
        process.rename((dir, "sub"), (ROOT, "sub")).expect("moved up");
        for i in 0..20 {
            process.remove(dir, &format!("new{i}"), false).expect("removed");
        }
        process.remove(ROOT, "dir", true).expect("removed");
        assert_eq!(errno(process.create(dir, "late", FileKind::Regular)), ENOENT);
        assert_eq!(process.names(ROOT), ["sub"]);
    });
}

#[test]
fn crossing_renames_end_and_lose_nothing() {
    let cluster = Cluster::up(3);
    let mut process = cluster.process(0);
    process.create(ROOT, "a", FileKind::Regular).expect("made");
    std::thread::scope(|scope| {
        for (node, from, to) in [(0, "a", "b"), (1, "b", "a"), (2, "b", "c"), (0, "c", "a")] {
            let mut process = cluster.process(node);
            scope.spawn(move || {
                for _ in 0..200 {
                    match process.rename((ROOT, from), (ROOT, to)) {
                        Ok(()) => {}
                        Err(refused) => assert_eq!(refused.errno, ENOENT, "{refused}"),
                    }
                }
            });
        }
    });
    assert_eq!(process.names(ROOT).len(), 1);
}

#[test]
fn hard_links_and_orphans() {
    on_one_and_three(|cluster, servers| {
        let mut first = cluster.process(0);
        let mut last = cluster.process(servers - 1);
        let ino = first.create(ROOT, "one", FileKind::Regular).expect("made").ino;
        for i in 0..5 {
            let name = format!("link{i}").into_bytes();
            last.ask(&NodeRequest::Link { ino, parent: ROOT, name }).expect("linked");
        }
        assert_eq!(first.attr(ino).expect("attributes").nlink, 6);
        last.open(ino, RW).expect("opened");
        last.write(ino, 0, b"alive").expect("written");
        for name in ["one", "link0", "link1", "link2", "link3", "link4"] {
            first.remove(ROOT, name, false).expect("removed");
        }
        assert_eq!(last.attr(ino).expect("open here").nlink, 0);
        assert_eq!(last.read(ino, 0, 10).expect("read"), b"alive");
        if servers > 1 {
            assert_eq!(errno(first.attr(ino)), ESTALE);
        }
        drop(last);
        // The connection's end is its last close.
        let gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            first.attr(ino).is_err()
        });
        assert!(gone, "an orphan outlived its last close");
    });
}

#[test]
fn a_program_takes_back_what_the_mount_of_its_node_keeps() {
    let cluster = Cluster::up(2);
    let (mut program, mut mount) = (cluster.process(1), cluster.mount(1));
    let ino = cluster.process(0).create(ROOT, "file", FileKind::Regular).expect("made").ino;
    let recalls = |mount: &Process| mount.recalls.load(Ordering::Relaxed);
    let keeps_attributes = |process: &mut Process| match process
        .ask(&NodeRequest::GetAttr { ino })
        .expect("attributes")
    {
        NodeReply::Attr { grants, .. } => grants.attr,
        other => panic!("{other:?}"),
    };
    assert!(mount.open(ino, R).expect("opened").grants.cache, "nobody writes");
    assert!(keeps_attributes(&mut mount));
    assert!(!keeps_attributes(&mut program), "nobody could ask it to give back");
    assert!(!program.open(ino, R).expect("opened").grants.cache);
    assert_eq!(recalls(&mount), 0, "readers do not disturb each other");

    let opened = program.open(ino, RW).expect("opened");
    assert_eq!((recalls(&mount), opened.grants.attr), (1, false));
    program.write(ino, 0, b"bytes").expect("written");
    assert!(!keeps_attributes(&mut mount), "its server knows of no later write");
    assert_eq!(mount.attr(ino).expect("attributes").size, 5);
    let opened = mount.open(ino, R).expect("opened");
    assert!(!opened.grants.cache && opened.writing);
    program.close(ino, RW).expect("closed");
    assert!(!keeps_attributes(&mut mount), "what it asked for before may still be answered");

    let before = recalls(&mount);
    let change = MetaChange { mode: Some(0o600), ..MetaChange::default() };
    program.ask(&NodeRequest::SetAttr { ino, change }).expect("changed");
    assert_eq!(recalls(&mount), before + 1);
    program.remove(ROOT, "file", false).expect("removed");
    assert_eq!(recalls(&mount), before + 2);
}

#[test]
fn a_writer_recalls_the_caches_of_other_nodes() {
    let cluster = Cluster::up(3);
    let mut maker = cluster.process(0);
    let ino = maker.create(ROOT, "f", FileKind::Regular).expect("made").ino;
    let mut reader = cluster.mount(1);
    let opened = reader.open(ino, R).expect("opened");
    assert!(opened.grants.cache && opened.grants.attr && !opened.writing, "{opened:?}");
    let mut writer = cluster.mount(2);
    let opened = writer.open(ino, W).expect("opened");
    assert!(!opened.grants.cache && opened.writing, "{opened:?}");
    assert_eq!(reader.recalls.load(Ordering::Relaxed), 1);
    let mut late = cluster.mount(0);
    let opened = late.open(ino, R).expect("opened");
    assert!(!opened.grants.cache && !opened.grants.attr && opened.writing, "{opened:?}");
}

/// Names of a node's listing, and whether their attributes may be kept there.
fn listed(mut process: Process) -> std::collections::BTreeMap<String, bool> {
    let list = NodeRequest::ReadDir { dir: ROOT, cookie: 0, bytes: 4096, plus: true };
    let NodeReply::Entries(entries) = process.ask(&list).expect("listed") else {
        panic!("not a listing");
    };
    let granted = |DirEntry { name, entry, .. }: DirEntry| {
        (String::from_utf8(name).expect("text"), entry.expect("attributes").grants.attr)
    };
    entries.into_iter().map(granted).collect()
}

/// A new file that the mount's node opens past its server.
fn open_locally(mount: &mut Process, name: &str, access: Access) -> InodeId {
    let ino = mount.create(ROOT, name, FileKind::Regular).expect("made").ino;
    let open = Opening { access, kind: OpenKind::Local, number: 1 };
    let opened = mount.ask(&NodeRequest::Open { ino, open, truncate: false });
    assert!(matches!(opened, Ok(NodeReply::Opened(_))), "{opened:?}");
    ino
}

#[test]
fn a_listing_may_be_kept_of_files_that_their_node_has_just_written() {
    let cluster = Cluster::up(2);
    let mut writer = cluster.mount(0);
    // What a mount reads it keeps open for a while, until it is asked for it.
    for (name, opened, closed) in [("closed", W, Some(W)), ("kept", RW, Some(W)), ("open", W, None)]
    {
        let ino = open_locally(&mut writer, name, opened);
        if let Some(access) = closed {
            let close = Close { ino, access, as_of: 1 };
            writer.ask(&NodeRequest::Close(vec![close])).expect("closed");
        }
    }
    let granted = [("closed", true), ("kept", true), ("open", false)];
    let granted = granted.map(|(name, granted)| (name.to_owned(), granted));
    assert_eq!(listed(cluster.mount(1)), granted.into());
}

#[test]
fn listings_of_two_nodes_at_once_may_both_be_kept() {
    let cluster = Cluster::up(3);
    let mut writer = cluster.mount(0);
    eventually("both are granted all", || {
        let files: Vec<_> = (0..20)
            .map(|number| open_locally(&mut writer, &format!("file-{number}"), RW))
            .collect();
        let closes = files.iter().map(|ino| Close { ino: *ino, access: W, as_of: 1 });
        writer.ask(&NodeRequest::Close(closes.collect())).expect("closed");
        let others = [1, 2].map(|node| cluster.mount(node));
        let granted = std::thread::scope(|scope| {
            let both = others.map(|mount| scope.spawn(|| listed(mount)));
            both.map(|listing| listing.join().expect("listed").into_values().all(|granted| granted))
        });
        for number in 0..20 {
            writer.remove(ROOT, &format!("file-{number}"), false).expect("removed");
        }
        granted == [true, true] // Not where the machine took longer than a listing waits.
    });
}

#[test]
fn an_open_that_crosses_a_recall_stays_open() {
    let cluster = Cluster::up(3);
    let (recalled, was_recalled) = std::sync::mpsc::channel();
    let (reply, may_reply) = std::sync::mpsc::channel();
    // Its only open was closed and is kept for the next one: given up when the recall comes.
    let mut mount = cluster.mount_answering(1, move || {
        recalled.send(()).expect("the test waits");
        may_reply.recv().expect("the test goes on");
        StillOpen { access: Access::default(), as_of: 1 }
    });
    for home in [0, 1] {
        let mut maker = cluster.process(home);
        let ino = maker.create(ROOT, &format!("f{home}"), FileKind::Regular).expect("made").ino;
        mount.opens_asked = 0;
        mount.open(ino, W).expect("opened");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| cluster.mount(2).open(ino, W).map(drop));
            was_recalled.recv().expect("the mount is recalled");
            mount.open(ino, W).expect("opened again");
            reply.send(()).expect("the mount waits");
            writer.join().expect("no panic").expect("opened elsewhere");
        });
        mount.write(ino, 0, b"x").expect("what is open can be written");
    }
}

#[test]
fn truncates_cut_and_stretch() {
    on_one_and_three(|cluster, servers| {
        for policy in [None, Some(StripePolicy { stripe: ByteCount::kib(4), width: 0 })] {
            let name = if policy.is_some() { "striped" } else { "whole" };
            let mut maker = cluster.process(0);
            let attr = maker.create_with(ROOT, name, FileKind::Regular, policy);
            let ino = attr.expect("made").ino;
            let mut other = cluster.process(servers - 1);
            assert_eq!(errno(maker.write(ino, 0, b"x")), EBADF, "written without an open");
            maker.open(ino, RW).expect("opened");
            maker.write(ino, 0, &[7; 30_000]).expect("written");
            for size in [10_000, 40_000, 0, 5] {
                let change = MetaChange { size: Some(size), ..MetaChange::default() };
                let reply = other.ask(&NodeRequest::SetAttr { ino, change }).expect("truncated");
                let NodeReply::Attr { attr, .. } = reply else { panic!("{reply:?}") };
                assert_eq!(attr.size, size);
            }
            assert_eq!(maker.read(ino, 0, 100).expect("read"), [0; 5], "old bytes came back");
            maker.write(ino, 5, &[1; 10_000]).expect("written");
            assert_eq!(other.attr(ino).expect("attributes").size, 10_005);
        }
    });
}
