//! Files that MPI-IO keeps as one part per writer, as the servers show them: the container is made in a
//! plain directory and put into the area file by file, as its writers would have made it there.

use crate::cluster::recorded_file::{BLOCK, Recorded, WRITERS, block, published, step};
use crate::cluster::{Cluster, R, W, eventually};
use hayase_container::{AREA_DIRECTORY, MARK, area};
use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{
    FileKind, Lock, LockKind, LockRange, MetaChange, NodeRequest, RecordedStep, Refused,
};

const ROOT: InodeId = InodeId::ROOT;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

fn errno<T: std::fmt::Debug>(result: Result<T, Refused>) -> i32 {
    result.expect_err("refused").errno
}

#[test]
fn what_is_published_is_one_file_on_every_node() {
    let cluster = Cluster::up(3);
    let mut file = Recorded::make(&cluster, "file");
    file.check(&cluster);
    for _ in 0..3 {
        file.publish(&cluster);
        file.check(&cluster);
    }
    // Written, and not told: nobody sees it, nor half of it.
    let before = file.rounds;
    file.write();
    file.copy(&cluster);
    file.rounds = before;
    file.check(&cluster);
    // One publication at a time is seen when it is told, by name.
    for writer in 0..WRITERS {
        step(&mut cluster.process(2), file.ino, published(&format!("n0-p{writer}-o0.index")))
            .unwrap();
    }
    file.rounds += 1;
    file.check(&cluster);
    assert_eq!(cluster.process(0).names(ROOT), ["file"], "containers are not listed");
}

#[test]
fn a_file_takes_its_container_along() {
    let cluster = Cluster::up(3);
    let mut file = Recorded::make(&cluster, "file");
    file.publish(&cluster);
    let mut process = cluster.process(1);
    process.rename((ROOT, "file"), (ROOT, "renamed")).unwrap();
    file.check(&cluster);
    process.remove(ROOT, "renamed", false).unwrap();
    let all = process.lookup(ROOT, AREA_DIRECTORY).unwrap().attr.ino;
    eventually("the container goes", || process.names(all).is_empty());
    let part = file.part(0).1;
    eventually("its parts go", || process.attr(part).is_err());
}

#[test]
fn a_home_that_was_started_anew_reads_what_was_published() {
    let mut cluster = Cluster::up_in_memory(3);
    let mut file = Recorded::make(&cluster, "file");
    file.publish(&cluster);
    file.publish(&cluster);
    cluster.restart(0);
    file.check(&cluster);
    file.publish(&cluster);
    file.check(&cluster);
}

#[test]
fn bytes_of_a_part_that_is_gone_are_an_error() {
    let mut cluster = Cluster::up_in_memory(3);
    let mut file = Recorded::make(&cluster, "file");
    file.publish(&cluster);
    let (name, _) = file.part(1);
    cluster.process(0).remove(file.container, &name, false).unwrap();
    let check = |cluster: &Cluster| {
        let mut process = cluster.process(2);
        process.open(file.ino, R).unwrap();
        for number in [0, 2] {
            let read = process.read(file.ino, (number * BLOCK) as u64, BLOCK as u32);
            assert_eq!(read.unwrap(), block(number));
        }
        assert_eq!(errno(process.read(file.ino, BLOCK as u64, 1)), EIO);
        assert_eq!(errno(process.read(file.ino, 0, 3 * BLOCK as u32)), EIO);
    };
    check(&cluster);
    cluster.restart(0);
    check(&cluster);
}

#[test]
fn who_writes_it_otherwise_gets_a_whole_file() {
    let cluster = Cluster::up(3);
    for (name, change) in [("open", None), ("cut", Some(BLOCK as u64 + 5)), ("empty", Some(0))] {
        let mut file = Recorded::make(&cluster, name);
        file.publish(&cluster);
        let mut reader = cluster.process(1);
        reader.open(file.ino, R).unwrap();
        assert_eq!(reader.read(file.ino, 7, 5).unwrap(), block(0)[7..12]);
        let mut process = cluster.process(2);
        match change {
            None => {
                process.open(file.ino, W).unwrap();
                process.write(file.ino, 7, b"other").unwrap();
                assert_eq!(reader.read(file.ino, 7, 5).unwrap(), b"other");
                let rest = reader.read(file.ino, 12, 1 << 20).unwrap();
                assert!(rest == [block(0), block(1), block(2)].concat()[12..]);
            }
            Some(size) => {
                let change = MetaChange { size: Some(size), ..MetaChange::default() };
                process.ask(&NodeRequest::SetAttr { ino: file.ino, change }).unwrap();
                let all = [block(0), block(1), block(2)].concat();
                assert!(reader.read(file.ino, 0, 1 << 20).unwrap() == all[..size as usize]);
            }
        }
        assert_eq!(process.attr(file.ino).unwrap().layout, Layout::Whole);
        let all = process.lookup(ROOT, AREA_DIRECTORY).unwrap().attr.ino;
        eventually("the container goes", || process.names(all).is_empty());
    }
}

#[test]
fn while_mpi_programs_have_it_open_it_is_not_written_otherwise() {
    let cluster = Cluster::up(3);
    let mut file = Recorded::make(&cluster, "file");
    file.publish(&cluster);
    let mark = file.copied[MARK].0;
    let (kind, range) = (LockKind::Shared, LockRange::ALL);
    let lock = Lock { owner: 1, kind, range, pid: 1 };
    let mut program = cluster.process(1);
    program.ask(&NodeRequest::Lock { ino: mark, lock, ticket: None }).unwrap();
    let mut process = cluster.process(2);
    assert_eq!(errno(process.open(file.ino, W)), EBUSY);
    file.publish(&cluster);
    file.check(&cluster);
    program.ask(&NodeRequest::Unlock { ino: mark, owner: 1, range }).unwrap();
    process.open(file.ino, W).unwrap();
}

#[test]
fn only_a_file_and_its_own_container_become_one() {
    let cluster = Cluster::up(3);
    let file = Recorded::make(&cluster, "file");
    let mut process = cluster.process(0);
    let begin = |container| RecordedStep::Begin { container };
    let other = process.create(ROOT, "other", FileKind::Regular).unwrap().ino;
    // Of another file; a directory anywhere; none at all.
    assert_eq!(errno(step(&mut process, other, begin(file.container))), ENOENT);
    let victim = process.create(ROOT, &area::name_of(other.0), FileKind::Directory).unwrap().ino;
    assert_eq!(errno(step(&mut process, other, begin(victim))), ENOENT);
    assert_eq!(errno(step(&mut process, other, begin(other))), ENOENT);
    // Its own, but it is open, or has bytes.
    let all = process.lookup(ROOT, AREA_DIRECTORY).unwrap().attr.ino;
    let name = area::name_of(other.0);
    let own = process.create(all, &name, FileKind::Directory).unwrap().ino;
    let mut writer = cluster.process(1);
    writer.open(other, W).unwrap();
    assert_eq!(errno(step(&mut process, other, begin(own))), EBUSY);
    writer.write(other, 0, b"bytes").unwrap();
    assert_eq!(errno(step(&mut process, other, begin(own))), EINVAL);
    assert_eq!(errno(step(&mut process, other, published(""))), EINVAL);
    // Twice is once.
    step(&mut process, file.ino, begin(file.container)).unwrap();
}
