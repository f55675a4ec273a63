//! Making, opening, deleting, and who may do what.

use std::fs;
use std::sync::Barrier;

use hayase_container::{
    Access, Container, ContainerError, ContainerFile, Creation, Durability, Finished, Replace,
    WriteError, export,
};
use hayase_layout::{ByteCount, Epoch, GlobalOffset, StreamOffset};

use super::{create, cyclic, identity, open, published, read_all};

#[test]
fn what_is_published_is_read_by_others() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let (writer, reader) = (open(&container, 1, 0), open(&container, 2, 1));
    writer.write_at(GlobalOffset(3), b"hello").unwrap();
    let mut buffer = [9; 16];
    assert_eq!(writer.read_at(GlobalOffset(0), &mut buffer).unwrap(), 8);
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(reader.read_at(GlobalOffset(0), &mut buffer).unwrap(), 0);
    writer.sync(Durability::Durable).unwrap();
    assert_eq!(reader.size().unwrap(), ByteCount::ZERO, "not before it refreshes");
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap(), "nothing new");
    assert_eq!(reader.read_at(GlobalOffset(2), &mut buffer).unwrap(), 6);
    assert_eq!(&buffer[..6], b"\0hello");
    // The other one syncs, so its epoch is the later one: its bytes win, whatever its rank.
    reader.sync(Durability::Written).unwrap();
    reader.write_at(GlobalOffset(4), b"EL").unwrap();
    reader.close(Durability::Written).unwrap();
    writer.close(Durability::Written).unwrap();
    assert_eq!(published(&path), b"\0\0\0hELlo");
}

#[test]
fn names_are_taken_once() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    assert!(matches!(
        Container::open(&path, Creation::Never),
        Err(ContainerError::NotFound { .. })
    ));
    let made = Container::open(&path, Creation::IfAbsent).unwrap();
    assert!(matches!(
        Container::open(&path, Creation::Exclusive),
        Err(ContainerError::Exists { .. })
    ));
    assert_eq!(Container::open(&path, Creation::IfAbsent).unwrap().id(), made.id());
    assert!(made.stub().is_file());
    for (name, is_directory) in [("plain", false), ("directory", true)] {
        let other = top.path().join(name);
        match is_directory {
            true => fs::create_dir(&other).unwrap(),
            false => fs::write(&other, "x").unwrap(),
        }
        let of = |creation| Container::open(&other, creation).unwrap_err();
        assert!(matches!(of(Creation::IfAbsent), ContainerError::NotContainer { .. }));
        assert!(matches!(of(Creation::Exclusive), ContainerError::Exists { .. }));
        assert!(!Container::is_at(&other).unwrap());
        assert!(matches!(Container::delete(&other), Err(ContainerError::NotContainer { .. })));
        assert!(other.exists());
    }
    let in_nothing = Container::open(&top.path().join("no/F"), Creation::IfAbsent);
    assert!(in_nothing.is_err());
}

#[test]
fn of_many_who_create_exclusively_one_succeeds() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let barrier = Barrier::new(8);
    let made: usize = std::thread::scope(|scope| {
        let create = || {
            barrier.wait();
            match Container::open(&path, Creation::Exclusive) {
                Ok(_) => 1,
                Err(ContainerError::Exists { .. }) => 0,
                Err(error) => panic!("{error:?}"),
            }
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 1);
    assert_eq!(fs::read_dir(top.path()).unwrap().count(), 1, "nothing hidden is left");
}

#[test]
fn deleting_removes_the_container_and_nothing_else() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let file = open(&container, 1, 0);
    file.write_at(GlobalOffset(0), b"abc").unwrap();
    file.publish(Durability::Written).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    let error = Container::delete(&path).unwrap_err();
    assert!(matches!(&error, ContainerError::Foreign { name, .. } if name == "notes.txt"));
    assert_eq!(published(&path), b"abc", "nothing was touched");
    fs::remove_file(path.join("notes.txt")).unwrap();
    Container::delete(&path).unwrap();
    assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    // Who had it open is told, rather than writing to nowhere.
    file.write_at(GlobalOffset(9), b"d").unwrap();
    let error = file.publish(Durability::Written).unwrap_err();
    assert!(matches!(error, ContainerError::NotFound { .. }), "{error:?}");
    assert!(matches!(file.refresh(), Err(ContainerError::NotFound { .. })));
}

#[test]
fn what_is_closed_is_closed() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let file = open(&create(&path), 1, 0);
    file.write_at(GlobalOffset(0), b"abc").unwrap();
    file.close(Durability::Written).unwrap();
    file.close(Durability::Durable).unwrap();
    file.publish(Durability::Durable).unwrap();
    assert!(file.write_at(GlobalOffset(3), b"d").is_err());
    assert!(file.set_size(ByteCount(1), file.proposed_epoch()).is_err());
    assert_eq!(read_all(&file), b"abc");
    assert_eq!(published(&path), b"abc");
    let snapshot = Container::open(&path, Creation::Never).unwrap().load().unwrap();
    assert!(snapshot.logs().values().all(|log| log.closed == Some(ByteCount(3))));
}

#[test]
fn a_container_that_is_renamed_while_it_is_open_goes_on() {
    let top = tempfile::tempdir().unwrap();
    let (path, moved) = (top.path().join("F"), top.path().join("G"));
    let file = open(&create(&path), 1, 0);
    file.write_at(GlobalOffset(0), b"abc").unwrap();
    fs::rename(&path, &moved).unwrap();
    file.write_at(GlobalOffset(3), b"def").unwrap();
    file.close(Durability::Durable).unwrap();
    assert_eq!(published(&moved), b"abcdef");
}

#[test]
fn openings_do_what_they_were_opened_for() {
    let top = tempfile::tempdir().unwrap();
    let container = create(&top.path().join("F"));
    let of = |access| ContainerFile::open(container.clone(), access, identity(1, 0), None).unwrap();
    let (reader, writer) = (of(Access::Read), of(Access::Write));
    let WriteError { written, source } = reader.write_at(GlobalOffset(0), b"x").unwrap_err();
    assert_eq!(written, ByteCount::ZERO);
    assert!(matches!(source, ContainerError::Access { wanted: "writing", .. }));
    assert!(reader.set_size(ByteCount(1), Epoch(9)).is_err());
    assert!(matches!(
        writer.read_at(GlobalOffset(0), &mut [0]),
        Err(ContainerError::Access { wanted: "reading", .. })
    ));
    reader.close(Durability::Durable).unwrap();
    writer.close(Durability::Durable).unwrap();
    let nothing = of(Access::Write);
    nothing.reserve(ByteCount(4096)).unwrap();
    nothing.close(Durability::Durable).unwrap();
    let names: Vec<_> =
        fs::read_dir(container.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "who writes nothing makes no files: {names:?}");
}

#[test]
fn writes_that_make_no_sense_are_refused() {
    let top = tempfile::tempdir().unwrap();
    let file = open(&create(&top.path().join("F")), 1, 0);
    assert!(file.write_at(GlobalOffset(u64::MAX), b"x").is_err());
    assert!(file.write_at(GlobalOffset(i64::MAX as u64), b"x").is_err());
    let through = |view| hayase_container::Write::Through { view, window: super::window(0, 4) };
    assert!(file.write(through(hayase_layout::ViewId(3)), b"abcd").is_err(), "not declared");
    let view = file.declare_view(&cyclic(0, 4, 8));
    assert!(file.write(through(view), b"abc").is_err(), "another length");
    let far = cyclic(i64::MAX as u64 - 4, 4, 8);
    let far = file.declare_view(&far);
    let beyond = super::window(2, 4);
    assert!(
        file.write(hayase_container::Write::Through { view: far, window: beyond }, b"abcd")
            .is_err()
    );
    assert!(file.set_size(ByteCount(u64::MAX), Epoch(99)).is_err());
    assert!(file.set_size(ByteCount(1), file.epoch()).is_err(), "no later epoch");
    assert!(file.advance(Epoch(u64::MAX)).is_err());
    assert_eq!(file.size().unwrap(), ByteCount::ZERO);
    let mut buffer = [0; 4];
    assert_eq!(file.read_at(GlobalOffset(u64::MAX), &mut buffer).unwrap(), 0);
    assert_eq!(
        file.read_through(&cyclic(0, 4, 8), StreamOffset(u64::MAX), &mut buffer).unwrap(),
        0
    );
    assert!(file.read_extents([super::extent(0, 5)], &mut buffer).is_err(), "too short a buffer");
}

/// Two jobs whose processes have the same numbers, and two handles of one process.
#[test]
fn equal_identities_get_parts_of_their_own() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let files = [0, 1, 2].map(|_| open(&container, 1, 0));
    for (file, at) in files.iter().zip(0..) {
        file.write_at(GlobalOffset(at), &[b'a' + at as u8]).unwrap();
    }
    let ids: Vec<_> = files.iter().map(|file| file.writer_id().opening).collect();
    assert_eq!(ids, [0, 1, 2]);
    files.iter().for_each(|file| file.close(Durability::Written).unwrap());
    assert_eq!(published(&path), b"abc");
    container.compact(Finished::Closed).unwrap();
    let later = open(&container, 1, 0);
    later.write_at(GlobalOffset(1), b"X").unwrap();
    assert_eq!(later.writer_id().opening, 3, "also when the indexes are merged");
    assert_eq!(read_all(&later), b"aXc");
}

/// A group of three: rank 0 looks at the indexes, the others are told.
#[test]
fn a_group_agrees_on_epochs_and_sizes() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let old = open(&container, 50, 0);
    old.write_at(GlobalOffset(0), b"old old old").unwrap();
    old.close(Durability::Written).unwrap();

    let first = open(&container, 1, 0);
    let epoch = first.epoch();
    let of = |rank: u32| {
        let who = identity(rank + 1, rank);
        ContainerFile::open(container.clone(), Access::ReadWrite, who, Some(epoch)).unwrap()
    };
    let group = [first, of(1), of(2)];
    for (file, at) in group.iter().zip(0..) {
        file.write_at(GlobalOffset(at), b"ABC").unwrap();
    }
    // In one epoch the lowest rank wins, and each sees its own before.
    let next = group.iter().map(ContainerFile::proposed_epoch).max().unwrap();
    group[1].set_size(ByteCount(4), next).unwrap();
    for at in [0, 2] {
        group[at].learn_size(ByteCount(4), next).unwrap();
        assert_eq!(group[at].size().unwrap(), ByteCount(4));
    }
    group[2].write_at(GlobalOffset(1), b"z").unwrap();
    group[0].preallocate(ByteCount(6)).unwrap();
    group[1].learn_preallocated(ByteCount(6)).unwrap();
    group[1].preallocate(ByteCount(5)).unwrap(); // it is so long already
    group.iter().for_each(|file| file.publish(Durability::Written).unwrap());
    group[0].refresh().unwrap();
    let told = group[0].snapshot().unwrap();
    group[1].adopt(told);
    for file in &group[..2] {
        assert_eq!(read_all(file), b"AzCC\0\0");
    }
    group.iter().for_each(|file| file.close(Durability::Written).unwrap());
    assert_eq!(published(&path), b"AzCC\0\0");
}

#[test]
fn space_of_what_was_cut_off_comes_back() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    for round in 0..3 {
        let file = open(&container, round, 0);
        file.set_size(ByteCount::ZERO, file.proposed_epoch()).unwrap();
        file.write_at(GlobalOffset(0), &[b'0' + round as u8; 1000]).unwrap();
        file.close(Durability::Written).unwrap();
    }
    let parts = || {
        let names = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
    };
    assert_eq!(parts(), 3);
    let told = container.compact(Finished::Closed).unwrap();
    assert_eq!((told.parts_removed, told.bytes_removed), (2, ByteCount(2000)));
    assert_eq!((parts(), told.writers), (1, 1));
    assert_eq!(published(&path), [b'2'; 1000]);
}

#[test]
fn writers_that_are_at_work_are_not_merged() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let (done, at_work) = (open(&container, 1, 0), open(&container, 2, 1));
    done.write_at(GlobalOffset(0), b"done").unwrap();
    done.close(Durability::Written).unwrap();
    at_work.write_at(GlobalOffset(4), b"more").unwrap();
    at_work.sync(Durability::Written).unwrap();
    let told = container.compact(Finished::Closed).unwrap();
    assert_eq!((told.writers, told.open_writers), (1, 1));
    at_work.write_at(GlobalOffset(8), b"!").unwrap();
    at_work.sync(Durability::Written).unwrap();
    assert_eq!(read_all(&at_work), b"donemore!", "it finds the merged index");
    // Taken for dead against its will, it is told.
    container.compact(Finished::All).unwrap();
    assert_eq!(published(&path), b"donemore!");
    at_work.write_at(GlobalOffset(9), b"?").unwrap();
    let error = at_work.sync(Durability::Written).unwrap_err();
    assert!(matches!(error, ContainerError::NotFound { .. }), "{error:?}");
}

#[test]
fn exports_replace_only_when_told_and_keep_holes() {
    let top = tempfile::tempdir().unwrap();
    let container = create(&top.path().join("F"));
    let file = open(&container, 1, 0);
    let block = vec![7; 1 << 20];
    file.write_at(GlobalOffset(64 << 20), &block).unwrap();
    file.write_at(GlobalOffset(5), b"five").unwrap();
    let reader = file.reader().unwrap();
    let hole = |at| reader.next_hole(GlobalOffset(at)).map(|at| at.0);
    let data = |at| reader.next_data(GlobalOffset(at)).map(|at| at.0);
    assert_eq!([data(0), data(6), data(9)], [Some(5), Some(6), Some(64 << 20)]);
    assert_eq!([hole(0), hole(5), hole(64 << 20)], [Some(0), Some(9), Some(65 << 20)]);
    assert_eq!([data(65 << 20), hole(65 << 20)], [None, None]);
    let target = top.path().join("flat");
    fs::write(&target, "mine").unwrap();
    let mut told = Vec::new();
    let error = export(&reader, &target, Replace::Never, &mut |at| told.push(at)).unwrap_err();
    assert!(matches!(error, ContainerError::Exists { .. }));
    assert_eq!((fs::read(&target).unwrap(), told.len()), (b"mine".to_vec(), 0));
    let done = export(&reader, &target, Replace::Yes, &mut |at| told.push(at)).unwrap();
    assert_eq!(done.bytes, ByteCount((1 << 20) + 4));
    assert_eq!(told.last(), Some(&done.size));
    let bytes = fs::read(&target).unwrap();
    assert_eq!(bytes.len(), 65 << 20);
    assert_eq!((&bytes[5..9], &bytes[64 << 20..]), (&b"five"[..], &block[..]));
    assert!(bytes[9..64 << 20].iter().all(|byte| *byte == 0));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&target).unwrap());
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks of 512 bytes");
}

/// More of it than one buffer holds, in pieces that no multiple of anything ends.
#[test]
fn exports_gather_small_pieces_of_several_writers() {
    const PIECE: usize = 47_008;
    let top = tempfile::tempdir().unwrap();
    let container = create(&top.path().join("F"));
    let writers = [0, 1, 2].map(|rank| open(&container, 1, rank));
    let mut expected = Vec::new();
    for nth in 0..250_usize {
        let piece: Vec<u8> = (0..PIECE).map(|at| (nth * 31 + at * 7 + at / 256) as u8).collect();
        // Each tenth is a hole.
        if nth % 10 == 9 {
            expected.resize(expected.len() + PIECE, 0);
            continue;
        }
        writers[nth % 3].write_at(GlobalOffset(expected.len() as u64), &piece).unwrap();
        expected.extend(piece);
    }
    for writer in writers {
        writer.close(Durability::Written).unwrap();
    }
    let target = top.path().join("flat");
    let reader = open(&container, 1, 0).reader().unwrap();
    let done = export(&reader, &target, Replace::Never, &mut |_| ()).unwrap();
    assert_eq!((done.bytes.get() as usize, done.kernel_bytes), (225 * PIECE, ByteCount::ZERO));
    // The last piece is a hole that nobody wrote.
    expected.truncate(249 * PIECE);
    assert!(fs::read(&target).unwrap() == expected);
}

/// Threads of one process write through one opening.
#[test]
fn threads_share_an_opening() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let file = open(&create(&path), 1, 0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let file = &file;
            scope.spawn(move || {
                for nth in 0..200 {
                    let at = (nth * 4 + thread) * 3;
                    file.write_at(GlobalOffset(at), &[b'a' + thread as u8; 3]).unwrap();
                    let mut back = [0; 3];
                    assert_eq!(file.read_at(GlobalOffset(at), &mut back).unwrap(), 3);
                    assert_eq!(back, [b'a' + thread as u8; 3]);
                }
            });
        }
    });
    file.close(Durability::Written).unwrap();
    assert_eq!(published(&path), b"aaabbbcccddd".repeat(200));
}
