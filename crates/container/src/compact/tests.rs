//! Compactions that are stopped before each of the changes that they make to the directory, as a kill does.

use std::collections::BTreeSet;

use hayase_layout::{ByteCount, GlobalOffset, NodeId, Rank, WriterId};

use super::{Finished, Joining};
use crate::directory::stop;
use crate::limits::INDEX_BYTES_MAX;
use crate::names::{self, Kind};
use crate::{
    Access, Container, ContainerError, ContainerFile, Creation, Durability, Identity, Problem,
    Severity, check, next_opening,
};

/// All parts that are small, however few.
pub(super) const EAGER: Joining =
    Joining { parts_max: 1, bytes_max: ByteCount::mib(1), ..Joining::AT_CLOSE };

/// A container that was compacted before, with new writers, one of them at work; another wrote only what was cut off.
pub(super) struct Used {
    pub(super) top: tempfile::TempDir,
    pub(super) container: Container,
    at_work: ContainerFile,
    pub(super) expected: Vec<u8>,
}

pub(super) fn open(container: &Container, access: Access) -> ContainerFile {
    let opening = next_opening();
    let who = Identity { node: NodeId(7), process: 1, opening, rank: Rank(0) };
    ContainerFile::open(container.clone(), access, who, None).unwrap()
}

pub(super) fn write(container: &Container, at: u64, bytes: &[u8]) -> ContainerFile {
    let file = open(container, Access::Write);
    file.write_at(GlobalOffset(at), bytes).unwrap();
    file
}

pub(super) fn read(container: &Container) -> Vec<u8> {
    let file = open(container, Access::Read);
    let mut bytes = vec![0; file.size().unwrap().get() as usize];
    assert_eq!(file.read_at(GlobalOffset(0), &mut bytes).unwrap(), bytes.len());
    bytes
}

pub(super) fn used() -> Used {
    // In memory: syncs cost nothing there.
    let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let container = Container::open(&top.path().join("F"), Creation::Exclusive).unwrap();
    let close = |at, bytes| write(&container, at, bytes).close(Durability::Durable).unwrap();
    close(0, b"first");
    close(3, b"second");
    container.compact_joining(Finished::Closed, EAGER).unwrap();
    close(100, b"cut off");
    let cut = open(&container, Access::Write);
    cut.set_size(ByteCount(40), cut.proposed_epoch()).unwrap();
    cut.write_at(GlobalOffset(20), b"third").unwrap();
    cut.close(Durability::Durable).unwrap();
    close(22, b"fourth");
    let at_work = write(&container, 30, b"at work");
    at_work.publish(Durability::Durable).unwrap();
    let expected = read(&container);
    Used { top, container, at_work, expected }
}

fn kinds(container: &Container) -> (usize, usize, usize, usize) {
    let names = container.directory().names().unwrap();
    let count = |is: fn(Kind) -> bool| names.iter().filter(|name| is(names::kind(name))).count();
    (
        count(|kind| matches!(kind, Kind::Part(_))),
        count(|kind| matches!(kind, Kind::Index(_))),
        count(|kind| matches!(kind, Kind::Merged(_))),
        count(|kind| matches!(kind, Kind::Begun(_))),
    )
}

/// Every state that a kill leaves is read as before, sound, and compacted by the next one; `finished` says by which.
fn stop_anywhere(finished: Finished) {
    for changes in 0.. {
        let Used { top, container, at_work, expected } = used();
        stop::after(Some(changes));
        let stopped = container.compact_joining(finished, EAGER);
        stop::after(None);
        assert_eq!(read(&container), expected, "{finished:?}, after {changes} changes");
        let path = top.path().join("F");
        let problems = check(&path).unwrap();
        assert!(problems.is_sound(), "after {changes} changes: {:?}", problems.problems);

        // Others write and compact.
        let mut expected = expected;
        expected[..3].copy_from_slice(b"new");
        write(&container, 0, b"new").close(Durability::Written).unwrap();
        if finished == Finished::Closed {
            at_work.write_at(GlobalOffset(37), b"!").unwrap();
            at_work.close(Durability::Written).unwrap();
            expected[37] = b'!';
        }
        assert_eq!(read(&container), expected, "after {changes} changes, written");
        container.compact_joining(Finished::Closed, EAGER).unwrap();
        assert_eq!(read(&container), expected, "after {changes} changes, compacted");
        container.compact_joining(Finished::All, EAGER).unwrap();
        assert_eq!(read(&container), expected, "after {changes} changes, compacted with all");
        // Of a writer whose bytes were cut off, and whose index is gone, the part may stay.
        let problems = check(&path).unwrap().problems;
        let found = kinds(&container);
        assert_eq!(found, (1 + problems.len(), 0, 1, 0), "after {changes}: {problems:?}");
        let is_unpublished = |problem: &Problem| problem.severity == Severity::Unpublished;
        assert!(problems.len() < 2 && problems.iter().all(is_unpublished), "{problems:?}");
        if stopped.is_ok() {
            assert_eq!((problems.len(), changes), (0, changes.max(15)));
            return;
        }
    }
}

#[test]
fn a_compaction_that_is_stopped_before_any_change_loses_nothing() {
    stop_anywhere(Finished::Closed);
    stop_anywhere(Finished::All);
}

/// Of three at once: two read the container at a time, each at any step of the one before.
#[test]
fn compactions_of_what_was_read_before_another_one_lose_nothing() {
    for (first, second) in (0..20).flat_map(|first| (0..20).map(move |second| (first, second))) {
        let Used { container, expected, top, .. } = used();
        let mut catalogue = crate::catalogue::Catalogue::default();
        catalogue.refresh(&container).unwrap();
        let snapshot = catalogue.snapshot(&container).unwrap();
        stop::after(Some(first));
        let _ = container.compact_joining(Finished::Closed, EAGER);
        stop::after(None);
        let mut later = crate::catalogue::Catalogue::default();
        later.refresh(&container).unwrap();
        let seen = later.snapshot(&container).unwrap();
        // It has read before the first, and joins nothing.
        stop::after(Some(second));
        let _ = container.compact_known(&catalogue, &snapshot, Finished::Closed, Joining::NONE);
        stop::after(None);
        assert_eq!(read(&container), expected, "{first}, {second}");
        // It has read behind the first.
        container.compact_known(&later, &seen, Finished::Closed, EAGER).unwrap();
        assert_eq!(read(&container), expected, "{first}, {second}: three");
        container.compact_joining(Finished::Closed, Joining::NONE).unwrap();
        assert_eq!(read(&container), expected, "{first}, {second}: four");
        assert!(check(&top.path().join("F")).unwrap().is_sound(), "{first}, {second}");
    }
}

/// A build before wrote a merged index in place, also of writers that have no records, which are not merged now.
#[test]
fn a_killed_compaction_of_version_1_may_tell_of_writers_without_records() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = Container::open(&path, Creation::Exclusive).unwrap();
    write(&container, 0, b"first").close(Durability::Written).unwrap();
    let resizing = open(&container, Access::Write);
    resizing.set_size(ByteCount(9), resizing.proposed_epoch()).unwrap();
    resizing.close(Durability::Written).unwrap();
    let singles = container.directory().names().unwrap();
    let mut snapshot = container.load().unwrap();
    assert_eq!(snapshot.logs().len(), 2);
    container.write_merged(&mut snapshot, &BTreeSet::new(), INDEX_BYTES_MAX).unwrap();
    let names = container.directory().names().unwrap();
    let merged = path.join(names.iter().find(|name| !singles.contains(name)).unwrap());
    let whole = std::fs::read(&merged).unwrap();
    let last_block = whole.windows(4).rposition(|bytes| bytes == b"HYBK").unwrap();
    std::fs::remove_file(&merged).unwrap();
    std::fs::write(path.join(names::merged(1)), &whole[..last_block]).unwrap();
    assert_eq!(read(&container), b"first\0\0\0\0");
    container.compact(Finished::Closed).unwrap();
    assert_eq!(read(&container), b"first\0\0\0\0");
    assert!(check(&path).unwrap().is_sound());
}

#[test]
fn nothing_is_removed_for_good_by_what_a_damaged_index_tells() {
    let Used { container, top, .. } = used();
    container.compact_joining(Finished::Closed, EAGER).unwrap();
    let path = top.path().join("F");
    let names = container.directory().names().unwrap();
    let is_merged = |name: &&String| matches!(names::kind(name), Kind::Merged(_));
    let merged = path.join(names.iter().find(is_merged).unwrap());
    let whole = std::fs::read(&merged).unwrap();
    std::fs::write(&merged, &whole[..64]).unwrap();
    let error = container.remove_begun().unwrap_err();
    assert!(matches!(error, ContainerError::Corrupt { .. }), "{error}");
    assert_eq!(container.directory().names().unwrap(), names);
    std::fs::write(&merged, &whole).unwrap();
    container.remove_begun().unwrap();
    assert_eq!(container.directory().names().unwrap(), names);
}

#[test]
fn what_would_be_too_large_to_be_read_is_not_merged() {
    let Used { container, expected, top: _top, .. } = used();
    let names = container.directory().names().unwrap();
    let mut snapshot = container.load().unwrap();
    let parts: BTreeSet<_> = snapshot.logs().values().map(|published| published.log.part).collect();
    let error = container.write_merged(&mut snapshot, &parts, ByteCount(200)).unwrap_err();
    assert!(matches!(error, ContainerError::Limit { .. }), "{error}");
    assert_eq!(container.directory().names().unwrap(), names, "nothing is left of it");
    assert_eq!(read(&container), expected);
}

#[test]
fn a_joined_part_of_which_no_index_tells_does_not_stay() {
    let Used { container, top: _top, .. } = used();
    let names = container.directory().names().unwrap();
    let mut snapshot = container.load().unwrap();
    let parts = snapshot.logs().values().map(|published| published.log.part);
    let parts: BTreeSet<WriterId> = parts.collect();
    let mut joined = container.join(&mut snapshot, &parts).unwrap();
    assert!(!joined.sources.is_empty());
    assert_eq!(container.directory().names().unwrap().len(), names.len() + 1);
    joined.forget(&container).unwrap();
    assert_eq!(container.directory().names().unwrap(), names);

    // Nor an empty one, where none of the parts is there.
    let mut snapshot = container.load().unwrap();
    for part in &parts {
        container.directory().remove(&names::part(*part)).unwrap();
    }
    let names = container.directory().names().unwrap();
    assert!(container.join(&mut snapshot, &parts).unwrap().sources.is_empty());
    assert_eq!(container.directory().names().unwrap(), names);
}
