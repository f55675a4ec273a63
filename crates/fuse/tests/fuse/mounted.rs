//! Real mounts over a server in memory: what the kernel gets, and what it costs in messages.
//!
//! Needs /dev/fuse (and root, or fusermount3); says so when it is missing. The server plays one
//! node; tests of several nodes are in `tests/e2e`.

mod async_direct;
pub(crate) mod fixture;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fixture::{Fixture, asleep, eventually};
use hayase_client::testing::server::Parts;
use hayase_fuse::{KernelProfile, Mounted, PassthroughState};
use hayase_wire::message::{Access, Callback, Grants};
use rustix::mount::{MountFlags, UnmountFlags};

const PROFILES: [KernelProfile; 5] = [
    KernelProfile::Native,
    KernelProfile::V6_9,
    KernelProfile::V6_6,
    KernelProfile::V6_1,
    KernelProfile::V4_18,
];

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("should be refused").raw_os_error().expect("an errno")
}

#[test]
fn files_behave_as_files_in_every_profile_and_place() {
    for parts in [Parts::Here, Parts::Elsewhere] {
        for profile in PROFILES {
            let Some(mounted) = Fixture::new("files_behave", parts, profile) else { return };
            println!("{parts:?} {profile}");
            use_files(&mounted);
        }
    }
}

fn use_files(mounted: &Fixture) {
    let path = mounted.path("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_000);
    assert!(fs::read(&path).unwrap() == bytes, "reads what was written");

    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"hayase", 1_000_000).unwrap();
    let mut middle = [0; 8];
    file.read_exact_at(&mut middle, 999_999).unwrap();
    assert_eq!(&middle[1..7], b"hayase");
    file.set_len(10).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10);
    file.set_len(20).unwrap();
    assert_eq!(fs::read(&path).unwrap()[10..], [0; 10]);
    drop(file);

    let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
    appender.write_all(b"at the end").unwrap();
    drop(appender);
    assert_eq!(&fs::read(&path).unwrap()[20..], b"at the end");

    fs::write(&path, b"short").unwrap(); // O_TRUNC
    assert_eq!(fs::read(&path).unwrap(), b"short");
    assert_eq!(fs::copy(&path, mounted.path("copy")).unwrap(), 5);
    assert_eq!(fs::read(mounted.path("copy")).unwrap(), b"short");
    fs::remove_file(mounted.path("copy")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn names_behave_as_names() {
    let Some(mounted) = Fixture::native("names_behave", Parts::Here) else { return };
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("dir")).unwrap();
    fs::create_dir(path("dir/sub")).unwrap();
    fs::write(path("dir/a"), b"a").unwrap();
    assert_eq!(errno(fs::create_dir(path("dir"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(path("dir"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(path("dir/a"))), libc::ENOTDIR);
    assert_eq!(errno(File::create_new(path("dir/a"))), libc::EEXIST);

    fs::hard_link(path("dir/a"), path("b")).unwrap();
    assert_eq!(fs::metadata(path("dir/a")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(path("b")).unwrap().ino(), fs::metadata(path("dir/a")).unwrap().ino());
    fs::remove_file(path("b")).unwrap();
    assert_eq!(fs::metadata(path("dir/a")).unwrap().nlink(), 1, "not the remembered 2");

    std::os::unix::fs::symlink("dir/a", path("link")).unwrap();
    assert_eq!(fs::read_link(path("link")).unwrap().to_str(), Some("dir/a"));
    assert_eq!(fs::read(path("link")).unwrap(), b"a");

    fs::write(path("c"), b"c").unwrap();
    fs::rename(path("c"), path("dir/a")).unwrap();
    assert_eq!(fs::read(path("dir/a")).unwrap(), b"c");
    let no_replace = rustix::fs::RenameFlags::NOREPLACE;
    let cwd = rustix::fs::CWD;
    let renamed = rustix::fs::renameat_with(cwd, path("link"), cwd, path("dir/a"), no_replace);
    assert_eq!(renamed, Err(rustix::io::Errno::EXIST));
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let renamed = rustix::fs::renameat_with(cwd, path("link"), cwd, path("dir/a"), exchange);
    assert_eq!(renamed, Err(rustix::io::Errno::INVAL));

    let long = "n".repeat(256);
    assert_eq!(errno(File::create(path(&long))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::metadata(path(&long))), libc::ENAMETOOLONG);
    File::create(path(&long[1..])).unwrap();

    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(cwd, path("fifo"), kind, 0o640.into(), 0).unwrap();
    assert!(fs::metadata(path("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn directories_list_every_name_once() {
    let Some(mounted) = Fixture::native("directories_list", Parts::Here) else { return };
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let mut names: Vec<String> = (0..3000).map(|i| format!("name-{i:05}-of-some-length")).collect();
    for name in &names {
        File::create(dir.join(name)).unwrap();
    }
    for round in 0..2 {
        let mut listed: Vec<String> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                assert!(entry.metadata().unwrap().is_file());
                entry.file_name().into_string().unwrap()
            })
            .collect();
        listed.sort();
        names.sort();
        assert_eq!(listed, names, "round {round}");
    }
    let mut count = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        count += 1;
    }
    assert_eq!(count, 3000, "removal during the listing skips none");
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn what_a_slow_listing_told_is_not_asked_for_again() {
    let Some(mounted) = Fixture::native("slow_listing", Parts::Here) else { return };
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..20 {
        File::create(dir.join(format!("name-{number}"))).unwrap();
    }
    eventually("a listing that took 0.2 s is kept", || {
        thread::sleep(Duration::from_millis(1100)); // The kernel's TTL.
        mounted.server.hold_up(Some("ReadDir"));
        let listed = thread::spawn({
            let dir = dir.clone();
            move || fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
        });
        thread::sleep(Duration::from_millis(200));
        mounted.server.hold_up(None);
        let listed: Vec<_> = listed.join().unwrap();
        let asked = mounted.count("Lookup");
        for path in &listed {
            assert!(fs::metadata(path).unwrap().is_file());
        }
        mounted.count("Lookup") == asked
    });
}

#[test]
fn rights_owners_and_times() {
    let Some(mounted) = Fixture::native("rights_owners", Parts::Here) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
    let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mtime(), 0);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7000), (12, 34, 0));
        let dir = mounted.path("shared");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, None, Some(77)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o2775)).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        let meta = fs::metadata(dir.join("sub")).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o2000), (77, 0o2000));
    }
}

#[test]
fn the_kernel_reads_and_writes_local_parts_by_itself() {
    let Some(mounted) = Fixture::native("passthrough", Parts::Here) else { return };
    if mounted.without_passthrough("the_kernel_reads_and_writes_local_parts_by_itself") {
        return;
    }
    let path = mounted.path("file");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
    let mut file = OpenOptions::new().append(true).read(true).open(&path).unwrap();
    file.write_all(b"end").unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 3, "no remembered size");
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), (1 << 20) + 3);
    assert_eq!(mounted.count("Write") + mounted.count("Read") + mounted.count("Append"), 0);
}

#[test]
fn a_create_costs_two_messages_and_a_close_none() {
    let Some(mounted) = Fixture::native("costs", Parts::Here) else { return };
    File::create(mounted.path("warm")).unwrap();
    mounted.server.hold_up(Some("Close"));
    let before = mounted.server.count_all();
    for i in 0..10 {
        File::create_new(mounted.path(&format!("file-{i}"))).unwrap();
    }
    let closes = mounted.count("Close");
    assert_eq!(mounted.server.count_all() - before - closes, 20, "LOOKUP and CREATE each");
    assert!(closes <= 1, "closes wait and travel together");
    mounted.server.hold_up(None);
    let ino = mounted.inode("file-9");
    eventually("the home is told of the close", || !mounted.server.opens(ino).write);
    let before = mounted.server.count_all();
    File::open(mounted.path("file-9")).unwrap();
    assert_eq!(mounted.server.count_all(), before, "what is made here is held for reading");
}

#[test]
fn opening_again_costs_nothing() {
    for parts in [Parts::Here, Parts::Elsewhere] {
        let Some(mounted) = Fixture::native("opening_again", parts) else { return };
        let path = mounted.path("file");
        fs::write(&path, b"bytes").unwrap();
        fs::read(&path).unwrap();
        let (opens, reads) = (mounted.count("Open"), mounted.count("Read"));
        for _ in 0..20 {
            assert_eq!(fs::read(&path).unwrap(), b"bytes");
        }
        assert_eq!(mounted.count("Open"), opens);
        if parts == Parts::Elsewhere {
            eventually("the write open is closed", || {
                !mounted.server.opens(mounted.inode("file")).write
            });
            mounted.server.recall(mounted.inode("file"), Grants::ALL);
            fs::read(&path).unwrap();
            fs::read(&path).unwrap();
            let reads = mounted.count("Read");
            fs::read(&path).unwrap();
            assert_eq!(mounted.count("Read"), reads, "pages are kept while CACHE is held");
        } else if mounted.mounted().passthrough() == PassthroughState::Used {
            assert_eq!(mounted.count("Read"), reads);
        }
    }
}

#[test]
fn a_lingering_open_is_given_back() {
    let Some(mounted) = Fixture::native("lingering", Parts::Here) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"bytes").unwrap();
    fs::read(&path).unwrap();
    let ino = mounted.inode("file");
    assert!(mounted.server.opens(ino).read, "it lingers");
    eventually("released", || mounted.server.recall(ino, Grants::ALL) == Access::default());
    let file = File::open(&path).unwrap();
    assert_eq!(mounted.server.recall(ino, Grants::ALL), Access { read: true, write: false });
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0, "known by its inode");
    let mut bytes = Vec::new();
    (&file).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"bytes");
    drop(file);
    eventually("nothing lingers of a file without names", || {
        mounted.server.opens(ino) == Access::default()
    });
}

#[test]
fn a_reader_sees_what_another_node_wrote() {
    for profile in PROFILES {
        let Some(mounted) = Fixture::new("another_node", Parts::Elsewhere, profile) else { return };
        let path = mounted.path("file");
        fs::write(&path, b"old bytes").unwrap();
        let ino = mounted.inode("file");
        eventually("closed", || !mounted.server.opens(ino).write);
        let reader = File::open(&path).unwrap();
        let mut bytes = [0; 9];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"old bytes");
        mounted.server.open_elsewhere(ino);
        for round in 0..50_u8 {
            mounted.server.write_elsewhere(ino, 0, &[round; 12]);
            thread::sleep(Duration::from_millis(5)); // A tick of the part's clock.
            let mut bytes = [0; 12];
            reader.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [round; 12], "{profile}");
            assert_eq!(reader.metadata().unwrap().len(), 12);
        }
        mounted.server.close_elsewhere(ino);
    }
}

#[test]
fn no_mix_of_opens_fails() {
    let modes = [
        (libc::O_RDONLY, "r"),
        (libc::O_WRONLY, "w"),
        (libc::O_RDWR, "rw"),
        (libc::O_WRONLY | libc::O_APPEND, "append"),
        (libc::O_RDWR | libc::O_TRUNC, "trunc"),
        (libc::O_RDWR | libc::O_DIRECT, "direct"),
    ];
    for parts in [Parts::Here, Parts::Elsewhere] {
        for profile in PROFILES {
            let Some(mounted) = Fixture::new("no_mix", parts, profile) else { return };
            let path = mounted.path("file");
            fs::write(&path, b"bytes").unwrap();
            let open = |flags: i32| {
                let access = flags & libc::O_ACCMODE;
                let mut options = OpenOptions::new();
                options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
                options.custom_flags(flags & !libc::O_ACCMODE).open(&path)
            };
            for (first, one) in modes {
                for (second, two) in modes {
                    for (third, three) in modes {
                        let held: Vec<_> = [first, second, third].map(open).into();
                        for result in held {
                            result.unwrap_or_else(|error| {
                                panic!("{parts:?} {profile} {one} {two} {three}: {error}")
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_running_program_is_not_emptied() {
    for parts in [Parts::Here, Parts::Elsewhere] {
        for profile in PROFILES {
            let Some(mounted) = Fixture::new("a_running_program", parts, profile) else { return };
            let path = mounted.path("program");
            fs::copy("/bin/sleep", &path).unwrap();
            let len = fs::metadata(&path).unwrap().len();
            let empty = |access: i32| {
                let mut options = OpenOptions::new();
                options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
                options.custom_flags(libc::O_TRUNC).open(&path)
            };
            let mut running = asleep(&path);
            for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
                assert_eq!(errno(empty(access)), libc::ETXTBSY, "{parts:?} {profile} {access}");
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), len, "{parts:?} {profile}");
            assert!(running.try_wait().unwrap().is_none(), "it still runs");
            running.kill().unwrap();
            running.wait().unwrap();
            eventually("its end", || empty(libc::O_RDONLY).is_ok());
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
    }
}

#[test]
fn appends_land_at_the_end_wherever_it_is() {
    for parts in [Parts::Here, Parts::Elsewhere] {
        let Some(mounted) = Fixture::native("appends", parts) else { return };
        let path = Arc::new(mounted.path("log"));
        File::create(&*path).unwrap();
        let writers: Vec<_> = (0..4_u8)
            .map(|writer| {
                let path = Arc::clone(&path);
                thread::spawn(move || {
                    let mut log = OpenOptions::new().append(true).open(&*path).unwrap();
                    for _ in 0..200 {
                        log.write_all(&[writer; 100]).unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let log = fs::read(&*path).unwrap();
        assert_eq!(log.len(), 4 * 200 * 100);
        assert!(log.chunks(100).all(|record| record.iter().all(|byte| *byte == record[0])));
    }
}

/// The kernel asks for no sync of a file that it does not cache: the mount does.
#[test]
fn writes_with_o_dsync_are_durable_when_they_return() {
    let Some(mounted) = Fixture::native("durable", Parts::Elsewhere) else { return };
    let path = mounted.path("file");
    File::create(&path).unwrap();
    for (flags, appends) in [(libc::O_DSYNC, false), (libc::O_SYNC, true)] {
        let before = mounted.server.count("Fsync");
        let mut options = OpenOptions::new();
        options.write(true).append(appends).custom_flags(flags);
        let mut file = options.open(&path).unwrap();
        for number in 1..=20 {
            file.write_all(&[7; 100]).unwrap();
            assert!(
                mounted.server.count("Fsync") >= before + number,
                "write {number} is not synced"
            );
        }
    }
}

#[test]
fn closing_and_opening_at_once_stays_local() {
    let Some(mounted) = Fixture::native("close_reopen", Parts::Here) else { return };
    if mounted.without_passthrough("closing_and_opening_at_once_stays_local") {
        return;
    }
    let path = Arc::new(mounted.path("file"));
    fs::write(&*path, b"bytes").unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let path = Arc::clone(&path);
            thread::spawn(move || {
                for round in 0..2500_u64 {
                    let write = (round + thread) % 3 == 0;
                    let file = OpenOptions::new().read(true).write(write).open(&*path).unwrap();
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, 0).unwrap();
                    if write {
                        file.write_all_at(&byte, 0).unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(mounted.count("Read") + mounted.count("Write"), 0, "always passthrough");
}

#[test]
fn waiting_opens_leave_threads_for_reads_and_recalls() {
    let Some(mounted) = Fixture::native("waiting_opens", Parts::Elsewhere) else { return };
    let reader_path = mounted.path("read-me");
    fs::write(&reader_path, vec![1; 100_000]).unwrap();
    for i in 0..40 {
        fs::write(mounted.path(&format!("file-{i}")), b"x").unwrap();
    }
    let ino = mounted.inode("read-me");
    eventually("all are closed", || !mounted.server.opens(ino).write);
    mounted.server.recall(ino, Grants::ALL);
    let reader = File::open(&reader_path).unwrap();
    thread::sleep(Duration::from_millis(60)); // The writes of the other files are closed too.
    mounted.server.hold_up(Some("Open"));
    let openers: Vec<_> = (0..40)
        .map(|i| {
            let path = mounted.path(&format!("file-{i}"));
            thread::spawn(move || OpenOptions::new().write(true).open(path).unwrap())
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 50_000).unwrap();
    let still_open = mounted.server.recall(ino, Grants::ALL);
    reader.read_exact_at(&mut byte, 0).unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(still_open.read);
    mounted.server.hold_up(None);
    for opener in openers {
        opener.join().unwrap();
    }
}

#[test]
fn a_name_is_forgotten_or_at_least_answered() {
    let Some(mounted) = Fixture::native("forget_name", Parts::Here) else { return };
    fs::write(mounted.path("name"), b"x").unwrap();
    let lookups = mounted.count("Lookup");
    fs::metadata(mounted.path("name")).unwrap();
    assert_eq!(mounted.count("Lookup"), lookups, "the kernel knows it");
    let root = hayase_layout::InodeId::ROOT;
    let name = b"name".to_vec();
    mounted.server.ask(Callback::InvalName { parent: root, name, busy: false }).unwrap();
    // On a busy machine the kernel may take longer than the answer waits for it.
    eventually("the kernel has to ask", || {
        fs::metadata(mounted.path("name")).unwrap();
        mounted.count("Lookup") > lookups
    });

    // A create in progress holds the directory's lock: the answer comes all the same.
    mounted.server.hold_up(Some("Create"));
    let path = mounted.path("new");
    let creator = thread::spawn(move || File::create(path).unwrap());
    eventually("the create is under way", || mounted.count("Create") > 1);
    let start = Instant::now();
    mounted
        .server
        .ask(Callback::InvalName { parent: root, name: b"name".to_vec(), busy: false })
        .unwrap();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    mounted.server.hold_up(None);
    creator.join().unwrap();
}

#[test]
fn attributes_are_answered_here_until_they_are_recalled() {
    let Some(mounted) = Fixture::native("attributes", Parts::Here) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    let ino = mounted.inode("file");
    eventually("closed", || !mounted.server.opens(ino).write);
    thread::sleep(Duration::from_millis(1100)); // The root's times are no estimate any more.
    fs::metadata(&path).unwrap();
    let asked = mounted.count("GetAttr");
    thread::sleep(Duration::from_millis(1100)); // The kernel's TTL.
    fs::metadata(&path).unwrap();
    fs::metadata(&path).unwrap();
    assert_eq!(mounted.count("GetAttr"), asked, "by the grant");
    mounted.server.open_elsewhere(ino);
    mounted.server.write_elsewhere(ino, 0, b"longer");
    assert_eq!(fs::metadata(&path).unwrap().len(), 6);
    mounted.server.write_elsewhere(ino, 0, b"much longer");
    assert_eq!(fs::metadata(&path).unwrap().len(), 11, "no TTL while another node writes");
}

#[test]
fn locks_end_with_closes() {
    let Some(mounted) = Fixture::native("locks", Parts::Here) else { return };
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let create = |name: &str| File::create(mounted.path(name)).unwrap();

    // Opened before anybody has locked anything: its close is not told, its release is.
    let first = create("first");
    let ino = mounted.inode("first");
    rustix::fs::fcntl_lock(&first, exclusive).unwrap();
    assert_eq!(mounted.server.locks(ino), 1);
    drop(first);
    eventually("released", || mounted.server.locks(ino) == 0);

    // From now on a close is told before it returns, and ends the locks of the process.
    let file = create("second");
    let ino = mounted.inode("second");
    let other = file.try_clone().unwrap();
    rustix::fs::fcntl_lock(&file, exclusive).unwrap();
    assert_eq!(mounted.server.locks(ino), 1);
    drop(file);
    assert_eq!(mounted.server.locks(ino), 0);

    // A lock of the open file lives as long as that.
    let file = other.try_clone().unwrap();
    rustix::fs::flock(&file, exclusive).unwrap();
    drop(file);
    assert_eq!(mounted.server.locks(ino), 1);
    let rival = File::options().write(true).open(mounted.path("second")).unwrap();
    assert_eq!(rustix::fs::flock(&rival, exclusive), Err(rustix::io::Errno::AGAIN));
    drop(other);
    eventually("released", || mounted.server.locks(ino) == 0);
}

/// Locks the whole file with `F_OFD_SETLK`, through a descriptor that it closes before the last one of the open file.
pub(crate) const OFD_LOCKER: &str = "open F, q(+<), $ARGV[0] or die $!; open G, q(+<&), F or die $!; \
    my $whole = pack(q(s s x4 q q i x4), 1, 0, 0, 0, 0); \
    fcntl(F, 37, $whole) or die $!; close F or die $!;";

#[test]
fn a_lock_of_an_open_file_ends_with_it_whatever_was_locked_before() {
    let Some(mounted) = Fixture::native("ofd_locks", Parts::Here) else { return };
    let path = mounted.path("file");
    File::create(&path).unwrap();
    let ino = mounted.inode("file");
    for round in 0..3 {
        let asked = mounted.count("Lock");
        let status = Command::new("perl").args(["-e", OFD_LOCKER]).arg(&path).status().unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(mounted.count("Lock"), asked + 1, "round {round}");
        eventually("released", || mounted.server.locks(ino) == 0);
    }
}

#[test]
fn xattrs_and_explanations() {
    let Some(mounted) = Fixture::native("xattrs", Parts::Here) else { return };
    let path = mounted.path("file");
    let file = File::create(&path).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.note", b"hello", flags).unwrap();
    let get = |name: &str| {
        let mut value = vec![0; 65_536];
        let len = rustix::fs::getxattr(&path, name, value.as_mut_slice())?;
        value.truncate(len);
        Ok::<_, rustix::io::Errno>(value)
    };
    assert_eq!(get("user.note").unwrap(), b"hello");
    let create = rustix::fs::XattrFlags::CREATE;
    let again = rustix::fs::setxattr(&path, "user.note", b"x", create);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    assert_eq!(get("user.none"), Err(rustix::io::Errno::NODATA));
    let mut names = vec![0; 1024];
    let len = rustix::fs::listxattr(&path, names.as_mut_slice()).unwrap();
    assert_eq!(&names[..len], b"user.note\0");
    rustix::fs::removexattr(&path, "user.note").unwrap();
    assert_eq!(get("user.note"), Err(rustix::io::Errno::NODATA));

    let explained: serde_json::Value =
        serde_json::from_slice(&get("user.hayase.explain").unwrap()).unwrap();
    assert_eq!(explained["here"]["writers"], 1, "{explained}");
    assert_eq!(get("user.hayase.layout").unwrap(), b"whole");
    // Layouts are those of a directory's new files.
    let refused = Err(rustix::io::Errno::NOTDIR);
    assert_eq!(rustix::fs::setxattr(&path, "user.hayase.layout", b"whole", flags), refused);
    assert_eq!(rustix::fs::removexattr(&path, "user.hayase.layout"), refused);
    drop(file);

    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let layout = b"striped:1048576:8";
    rustix::fs::setxattr(&dir, "user.hayase.layout", layout, flags).unwrap();
    let mut value = [0; 64];
    let len = rustix::fs::getxattr(&dir, "user.hayase.layout", &mut value).unwrap();
    assert_eq!(&value[..len], layout);
    let wrong = rustix::fs::setxattr(&dir, "user.hayase.layout", b"zigzag", flags);
    assert_eq!(wrong, Err(rustix::io::Errno::INVAL));
}

#[test]
fn a_mount_leaves_when_it_is_told_to() {
    let Some(mut mounted) = Fixture::native("leaves", Parts::Here) else { return };
    let busy = File::create(mounted.path("busy")).unwrap();
    let path = mounted.path("busy");
    let mount = mounted.take();
    mount.unmount(Duration::from_millis(50)).unwrap();
    assert!(!path.exists(), "hidden though busy");
    drop(busy);
}

/// As `umount D; mount .. D` in a script: the daemon of the first hears of its end when the second is there.
#[test]
fn the_end_of_a_mount_takes_no_younger_one() {
    if !rustix::process::geteuid().is_root() {
        return fixture::skip("younger_mount", "needs root to mount");
    }
    let unmount = |path: &Path| rustix::mount::unmount(path, UnmountFlags::empty()).unwrap();
    let ends: [fn(Mounted); 3] = [
        drop,
        |mounted| mounted.wait().unwrap(),
        |mounted| mounted.unmount(Duration::from_secs(1)).unwrap(),
    ];
    for end in ends {
        let Some(mut mounted) = Fixture::native("younger_mount", Parts::Here) else { return };
        let path = mounted.path("");
        unmount(&path);
        let flags = MountFlags::empty();
        rustix::mount::mount("younger", &path, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
        fs::write(path.join("file"), b"younger").unwrap();
        end(mounted.take());
        assert_eq!(fs::read(path.join("file")).unwrap(), b"younger");
        unmount(&path);
    }
}

#[test]
fn what_is_mounted_over_a_mount_stays_and_so_does_the_mount() {
    if !rustix::process::geteuid().is_root() {
        return fixture::skip("mounted_over", "needs root to mount");
    }
    let Some(fixture) = Fixture::native("mounted_over", Parts::Here) else { return };
    let path = fixture.path("");
    fs::write(path.join("file"), b"ours").unwrap();
    let flags = MountFlags::empty();
    rustix::mount::mount("over", &path, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    fs::write(path.join("file"), b"over").unwrap();
    let error = fixture.mounted().unmounter().unmount(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("something else is mounted over it"), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap().trim_end_matches('/')), "{error}");
    assert_eq!(fs::read(path.join("file")).unwrap(), b"over");
    rustix::mount::unmount(&path, UnmountFlags::empty()).unwrap();
    assert_eq!(fs::read(path.join("file")).unwrap(), b"ours");
    fixture.mounted().unmounter().unmount(Duration::from_secs(1)).unwrap();
    assert!(!path.join("file").exists());
}
