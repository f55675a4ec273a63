//! Mounts of several nodes over real servers: what one kernel is told of what another did.
//!
//! Servers and mounts live in this process, on loopback and plain directories. Needs /dev/fuse.
//! The promises themselves are tested by `tests/e2e` on simulated nodes; this is the short way.

pub(crate) mod fixture;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fixture::Nodes;
use hayase_client::Program;
use hayase_client::program::OpenOptions as ProgramOptions;
use hayase_fuse::KernelProfile;

use crate::mounted::OFD_LOCKER;

/// Two changes of a part within one are one to its modification time: longer than a kernel of 100 Hz counts.
const CLOCK_TICK: Duration = Duration::from_millis(25);

#[test]
fn files_are_the_same_on_every_node() {
    let Some(nodes) = Nodes::up("files_are_the_same", 3, KernelProfile::Native) else { return };
    for writer in 0..3 {
        let bytes: Vec<u8> = (0..2_500_000_u32).map(|i| (i % 249) as u8 + writer as u8).collect();
        fs::write(nodes.path(writer, &format!("file-{writer}")), &bytes).unwrap();
        for reader in 0..3 {
            let path = nodes.path(reader, &format!("file-{writer}"));
            assert!(fs::read(&path).unwrap() == bytes, "{writer} wrote, {reader} read");
            assert_eq!(fs::metadata(&path).unwrap().len(), 2_500_000);
        }
    }
    for reader in 0..3 {
        let mut names: Vec<_> = fs::read_dir(nodes.path(reader, "."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["file-0", "file-1", "file-2"]);
    }
    for victim in 0..3 {
        fs::remove_file(nodes.path((victim + 1) % 3, &format!("file-{victim}"))).unwrap();
    }
    assert_eq!(fs::read_dir(nodes.path(0, ".")).unwrap().count(), 0);
}

#[test]
fn a_stat_elsewhere_is_exact_after_each_write() {
    let Some(nodes) = Nodes::up("stat_elsewhere", 2, KernelProfile::Native) else { return };
    let mut file = File::create(nodes.path(0, "log")).unwrap();
    let mut last = 0;
    for round in 1..=50_u64 {
        file.write_all(&[1; 100]).unwrap();
        let meta = fs::metadata(nodes.path(1, "log")).unwrap();
        assert_eq!(meta.len(), round * 100);
        assert!(meta.mtime_nsec() + meta.mtime() * 1_000_000_000 >= last);
        last = meta.mtime_nsec() + meta.mtime() * 1_000_000_000;
    }
}

#[test]
fn a_reader_elsewhere_sees_every_acknowledged_byte() {
    for profile in [KernelProfile::Native, KernelProfile::V6_1, KernelProfile::V4_18] {
        let Some(nodes) = Nodes::up("reader_elsewhere", 3, profile) else { return };
        fs::write(nodes.path(0, "file"), [0; 8192]).unwrap();
        let readers: Vec<_> =
            (0..3).map(|node| File::open(nodes.path(node, "file")).unwrap()).collect();
        let mut byte = [9];
        for reader in &readers {
            reader.read_exact_at(&mut byte, 5000).unwrap();
            assert_eq!(byte, [0]);
        }
        for writer in 0..3 {
            let file = OpenOptions::new().write(true).open(nodes.path(writer, "file")).unwrap();
            for round in 1..20_u8 {
                file.write_all_at(&[round], 5000).unwrap();
                thread::sleep(CLOCK_TICK);
                for (node, reader) in readers.iter().enumerate() {
                    reader.read_exact_at(&mut byte, 5000).unwrap();
                    assert_eq!(byte, [round], "{profile}: {writer} wrote, {node} read");
                }
            }
        }
    }
}

#[test]
fn appends_of_two_nodes_are_whole() {
    let Some(nodes) = Nodes::up("appends", 2, KernelProfile::Native) else { return };
    let nodes = Arc::new(nodes);
    File::create(nodes.path(0, "log")).unwrap();
    let writers: Vec<_> = (0..2)
        .map(|node| {
            let nodes = Arc::clone(&nodes);
            thread::spawn(move || {
                let path = nodes.path(node, "log");
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                for _ in 0..1000 {
                    log.write_all(&[b'a' + node as u8; 100]).unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    for node in 0..2 {
        let log = fs::read(nodes.path(node, "log")).unwrap();
        assert_eq!(log.len(), 2 * 1000 * 100);
        assert!(log.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    }
}

#[test]
fn names_follow_at_once() {
    let Some(nodes) = Nodes::up("names_follow", 3, KernelProfile::Native) else { return };
    for round in 0..50 {
        let (maker, other) = (round % 3, (round + 1) % 3);
        let name = format!("name-{round}");
        assert!(!nodes.path(other, &name).exists());
        fs::write(nodes.path(maker, &name), b"x").unwrap();
        assert!(nodes.path(other, &name).exists(), "a miss is never remembered");
        fs::rename(nodes.path(other, &name), nodes.path(other, "renamed")).unwrap();
        assert!(!nodes.path(maker, &name).exists(), "{round}: the old name is forgotten");
        assert!(nodes.path(maker, "renamed").exists());
        fs::remove_file(nodes.path(maker, "renamed")).unwrap();
        assert!(!nodes.path(other, "renamed").exists(), "{round}: the removed name is forgotten");
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let Some(nodes) = Nodes::up("outlives", 3, KernelProfile::Native) else { return };
    fs::write(nodes.path(0, "file"), b"before").unwrap();
    let open =
        |node| OpenOptions::new().read(true).write(true).open(nodes.path(node, "file")).unwrap();
    let files = [open(0), open(2)];
    fs::remove_file(nodes.path(1, "file")).unwrap();
    assert!(!nodes.path(0, "file").exists());
    for (index, file) in files.iter().enumerate() {
        file.write_all_at(&[index as u8; 3], 3 * index as u64).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
    for file in &files {
        let mut bytes = [9; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [0, 0, 0, 1, 1, 1]);
    }
}

#[test]
fn all_mixes_of_opens_on_two_nodes() {
    let modes = [
        (libc::O_RDONLY, "r"),
        (libc::O_WRONLY, "w"),
        (libc::O_RDWR, "rw"),
        (libc::O_WRONLY | libc::O_APPEND, "append"),
        (libc::O_RDWR | libc::O_TRUNC, "trunc"),
        (libc::O_RDWR | libc::O_DIRECT, "direct"),
    ];
    for profile in [KernelProfile::Native, KernelProfile::V6_1] {
        let Some(nodes) = Nodes::up("mixes", 2, profile) else { return };
        fs::write(nodes.path(0, "file"), b"bytes").unwrap();
        let open = |node, flags: i32| {
            let access = flags & libc::O_ACCMODE;
            let mut options = OpenOptions::new();
            options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
            let flags = flags & !libc::O_ACCMODE;
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags)
                .open(nodes.path(node, "file"))
        };
        for (first, one) in modes {
            for (second, two) in modes {
                for (at, then) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
                    let opened = (open(at, first), open(then, second), open(at, second));
                    for result in [opened.0, opened.1, opened.2] {
                        result.unwrap_or_else(|error| {
                            panic!("{profile}: {one} on {at}, {two} on {then}: {error}")
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn crosswise_creates_and_removes_do_not_stall() {
    let Some(nodes) = Nodes::up("crosswise", 2, KernelProfile::Native) else { return };
    let nodes = Arc::new(nodes);
    fs::create_dir(nodes.path(0, "dir")).unwrap();
    let workers: Vec<_> = (0..2)
        .map(|node| {
            let nodes = Arc::clone(&nodes);
            thread::spawn(move || {
                let mut longest = Duration::ZERO;
                for round in 0..150 {
                    let start = Instant::now();
                    let path = nodes.path(node, &format!("dir/{node}-{round}"));
                    fs::write(&path, b"x").unwrap();
                    // The other's names, seen and removed here while it makes more.
                    let other = nodes.path(node, &format!("dir/{}-{}", 1 - node, round / 2));
                    let _ = fs::metadata(&other);
                    if round % 3 == 0 {
                        let _ = fs::remove_file(&other);
                    }
                    longest = longest.max(start.elapsed());
                }
                longest
            })
        })
        .collect();
    for worker in workers {
        let longest = worker.join().unwrap();
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
}

#[test]
fn a_lock_of_an_open_file_ends_on_all_nodes_with_it() {
    let Some(nodes) = Nodes::up("ofd_locks", 2, KernelProfile::Native) else { return };
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let lock = |node| {
        let file = File::create(nodes.path(node, "file")).unwrap();
        rustix::fs::flock(file, exclusive)
    };
    lock(0).unwrap();
    for locker in [0, 1, 0] {
        let path = nodes.path(locker, "file");
        let status = Command::new("perl").args(["-e", OFD_LOCKER]).arg(path).status().unwrap();
        assert!(status.success(), "{status}");
        let until = Instant::now() + Duration::from_secs(10);
        while lock(1 - locker).is_err() {
            assert!(Instant::now() < until, "{locker} has ended and holds its lock");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_program_and_a_mount_see_each_other() {
    let Some(nodes) = Nodes::up("program", 2, KernelProfile::Native) else { return };
    for node in 0..2 {
        let program = Program::connect(&nodes.socket(node)).unwrap();
        let name = format!("from-{node}");
        let file = program.root().create(&name, 0o644).unwrap();
        assert_eq!(file.write_at(b"by a program", 0).unwrap(), 12);
        assert!(file.descriptor().is_some(), "made on its own node");
        for other in 0..2 {
            assert_eq!(fs::read(nodes.path(other, &name)).unwrap(), b"by a program");
            fs::write(nodes.path(other, &name), b"by a mount").unwrap();
            let options = ProgramOptions { read: true, ..ProgramOptions::default() };
            let mut bytes = [0; 32];
            let count = program.open(&name, options).unwrap().read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes[..count], b"by a mount");
            fs::write(nodes.path(other, &name), b"by a program").unwrap();
        }
        drop(file);
        program.remove(&name).unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        while nodes.path(0, &name).exists() {
            assert!(Instant::now() < until, "a name lives a second longer at worst");
        }
    }
}

#[test]
fn a_mount_reads_what_a_program_of_its_node_writes() {
    for profile in [KernelProfile::Native, KernelProfile::V6_1, KernelProfile::V4_18] {
        let Some(nodes) = Nodes::up("program_writes", 2, profile) else { return };
        for node in 0..2 {
            let name = format!("file-{node}");
            let path = nodes.path(node, &name);
            // On node 0: its own part, or (node 1) pages of its kernel.
            fs::write(nodes.path(0, &name), [0; 8192]).unwrap();
            let reader = File::open(&path).unwrap();
            let mut byte = [9];
            reader.read_exact_at(&mut byte, 5000).unwrap();
            assert_eq!((byte, fs::metadata(&path).unwrap().len()), ([0], 8192));
            let program = Program::connect(&nodes.socket(node)).unwrap();
            let options = ProgramOptions { write: true, ..ProgramOptions::default() };
            let file = program.open(&name, options).unwrap();
            for round in 1..20_u8 {
                file.write_at(&[round], 5000).unwrap();
                thread::sleep(CLOCK_TICK);
                reader.read_exact_at(&mut byte, 5000).unwrap();
                assert_eq!(byte, [round], "{profile}: a program of node {node} wrote");
                file.append(&[round]).unwrap();
                let len = 8192 + u64::from(round);
                assert_eq!(fs::metadata(&path).unwrap().len(), len, "{profile}, node {node}");
                assert_eq!(reader.metadata().unwrap().len(), len, "{profile}, node {node}");
            }
            file.set_len(10).unwrap();
            assert_eq!(reader.metadata().unwrap().len(), 10);
            assert_eq!(reader.read_at(&mut byte, 5000).unwrap(), 0);
            drop(file);
            program.rename(&name, "moved").unwrap();
            assert!(!path.exists() && nodes.path(node, "moved").exists());
            program.remove("moved").unwrap();
            assert!(!nodes.path(node, "moved").exists());
            assert_eq!(reader.metadata().unwrap().nlink(), 0);
        }
    }
}

#[test]
fn a_program_reads_what_the_mount_of_its_node_writes() {
    for profile in [KernelProfile::Native, KernelProfile::V6_1, KernelProfile::V4_18] {
        let Some(nodes) = Nodes::up("program_reads", 2, profile) else { return };
        for node in 0..2 {
            let name = format!("file-{node}");
            fs::write(nodes.path(0, &name), [0; 8192]).unwrap();
            let program = Program::connect(&nodes.socket(node)).unwrap();
            let options = ProgramOptions { read: true, ..ProgramOptions::default() };
            let file = program.open(&name, options).unwrap();
            let writer = OpenOptions::new().write(true).open(nodes.path(node, &name)).unwrap();
            for round in 1..20_u8 {
                let mut byte = [9];
                assert_eq!(program.stat(&name).unwrap().size, 8192 + u64::from(round) - 1);
                writer.write_all_at(&[round], 5000).unwrap();
                file.read_at(&mut byte, 5000).unwrap();
                assert_eq!(byte, [round], "{profile}: the mount of node {node} wrote");
                writer.write_all_at(&[round], 8191 + u64::from(round)).unwrap();
                let len = 8192 + u64::from(round);
                assert_eq!(file.attributes().unwrap().size, len, "{profile}, node {node}");
                assert_eq!(program.stat(&name).unwrap().size, len, "{profile}, node {node}");
            }
        }
    }
}
