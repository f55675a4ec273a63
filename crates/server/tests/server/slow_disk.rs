//! A disk that takes very long to make anything durable: its server answers what needs no disk, and its node is not lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_store::namespace::INODE_BLOCK;
use hayase_store::{Area, Device, FileState, Ledger};
use hayase_tier::Memory;
use hayase_wire::message::{FileKind, Lock, LockKind, LockRange, NodeRequest};

use crate::cluster::{Cluster, Process, eventually, write_again, write_new};
use crate::starting::lost;

const ROOT: InodeId = InodeId::ROOT;
const TOP: InodeId = InodeId::CACHE_ROOT;
const NOBODY: [u16; 0] = [];

/// A server that waits for its disk answers nothing, and the test would wait with it.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Of what is asked meanwhile, where it does not matter how long that is.
const WHILE: Duration = Duration::from_secs(1);

/// A server that is connected is declared lost 20 s after its last heartbeat, which come each 5 s; and the look for it.
const LOSS: Duration = Duration::from_secs(27);

/// Asks again and again, for so long and until that is said to be enough; none of it may take long.
fn asking<T: Send + 'static>(
    long: Duration,
    mut on: T,
    mut ask: impl FnMut(&mut T) -> bool + Send + 'static,
) -> T {
    let until = Instant::now() + long;
    let (tell, told) = mpsc::channel();
    let asks = std::thread::spawn(move || {
        while !ask(&mut on) || Instant::now() < until {
            // Somebody may not wait any more.
            let _ = tell.send(());
            std::thread::sleep(Duration::from_millis(10));
        }
        on
    });
    loop {
        match told.recv_timeout(ANSWER_MAX) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server waits for its disk"),
            Err(mpsc::RecvTimeoutError::Disconnected) => return asks.join().expect("no panic"),
        }
    }
}

/// A process of server 1 that asks for something that needs the disk.
fn in_vain<T: Send + 'static>(
    cluster: &Cluster,
    ask: impl FnOnce(&mut Process) -> T + Send + 'static,
) -> JoinHandle<T> {
    let mut process = cluster.process(1);
    std::thread::spawn(move || ask(&mut process))
}

/// Server 0 answers meanwhile.
#[test]
fn a_loss_is_told_when_it_is_durable_and_not_before() {
    let mut cluster = Cluster::up_on_slow_disks(3, None);
    let (mut on_0, on_2) = (cluster.process(0), cluster.process(2));
    let ino = write_new(&mut on_0, ROOT, "of-0", b"bytes");
    cluster.disk(0).gate.close();
    cluster.kill(1);
    cluster.disk(0).gate.until_somebody_waits();
    let (mut on_0, mut on_2) = asking(WHILE, (on_0, on_2), move |(on_0, on_2)| {
        assert_eq!((lost(on_0), lost(on_2)), (NOBODY.into(), NOBODY.into()));
        write_again(on_0, ino, b"other bytes");
        true
    });
    cluster.disk(0).gate.open();
    for process in [&mut on_0, &mut on_2] {
        eventually("the loss is announced", || lost(process) == [1]);
    }
}

/// The same of a node that comes back: a server 0 that forgot it would refuse what that node says.
#[test]
fn a_return_is_announced_when_it_is_durable_and_not_before() {
    let mut cluster = Cluster::up_on_slow_disks(3, None);
    let (mut on_0, mut on_2) = (cluster.process(0), cluster.process(2));
    let ino = write_new(&mut on_0, ROOT, "of-0", b"bytes");
    cluster.kill(1);
    for process in [&mut on_0, &mut on_2] {
        eventually("the loss is announced", || lost(process) == [1]);
    }
    cluster.disk(0).gate.close();
    let _ready = cluster.begin_restart(1);
    let cluster = &cluster;
    std::thread::scope(|scope| {
        scope.spawn(|| cluster.tell_nothing(1));
        cluster.disk(0).gate.until_somebody_waits();
        let (mut on_0, mut on_2) = asking(WHILE, (on_0, on_2), move |(on_0, on_2)| {
            assert_eq!((lost(on_0), lost(on_2)), ([1].into(), [1].into()));
            write_again(on_0, ino, b"other bytes");
            true
        });
        cluster.disk(0).gate.open();
        for process in [&mut on_0, &mut on_2] {
            eventually("the return is announced", || lost(process) == NOBODY);
        }
    });
}

/// A sync of a file, and then the reservation of inode numbers, of which the last are used up meanwhile.
#[test]
fn a_slow_disk_is_not_a_lost_node() {
    let cluster = Cluster::up_on_slow_disks(2, None);
    let (on_0, mut on_1) = (cluster.process(0), cluster.process(1));
    let ino = write_new(&mut on_1, ROOT, "of-1", b"bytes");
    let dir = on_1.create(ROOT, "dir", FileKind::Directory).expect("made").ino;
    let disk = cluster.disk(1);
    disk.gate.close();
    let syncs = in_vain(&cluster, move |process| process.fsync(ino));
    disk.gate.until_somebody_waits();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let makes = in_vain(&cluster, move |process| {
        for i in 0..INODE_BLOCK {
            process.create(dir, &format!("{i}"), FileKind::Fifo).expect("made");
            count.fetch_add(1, Ordering::AcqRel);
        }
    });
    let (mut on_0, mut on_1) = asking(LOSS, (on_0, on_1), move |(on_0, on_1)| {
        assert_eq!(lost(on_0), NOBODY);
        assert_eq!(on_0.attr(ino).expect("it is reached").size, 5);
        write_again(on_1, ino, b"other");
        // Who finds a number left waits for none: the next ones are asked for when a quarter is.
        counted.load(Ordering::Acquire) > INODE_BLOCK * 7 / 8
    });
    assert!(!syncs.is_finished() && !makes.is_finished(), "the disk is slow");
    disk.gate.open();
    syncs.join().expect("no panic").expect("synced");
    makes.join().expect("no panic");
    assert_eq!(lost(&mut on_0), NOBODY);
    on_1.create(dir, "one more", FileKind::Regular).expect("made");
}

#[test]
fn a_backlog_of_names_holds_up_only_who_adds_to_it() {
    let cluster = Cluster::up_on_slow_disks(2, None);
    let mut on_1 = cluster.process(1);
    let ino = write_new(&mut on_1, ROOT, "of-1", b"bytes");
    let disk = cluster.disk(1);
    disk.gate.close();
    disk.is_behind.store(true, Ordering::Release);
    let adds: Vec<_> = (0..40)
        .map(|i| {
            in_vain(&cluster, move |process| {
                process.create(ROOT, &format!("more{i}"), FileKind::Regular).expect("made")
            })
        })
        .collect();
    disk.gate.until_somebody_waits();
    asking(WHILE, on_1, move |on_1| {
        assert_eq!(on_1.attr(ino).expect("its attributes").size, 5);
        assert_eq!(on_1.read(ino, 0, 5).expect("its bytes"), b"bytes");
        // Nor does what ends a lock: its home would keep the lock of a process that has ended.
        let (range, kind) = (LockRange::ALL, LockKind::Exclusive);
        let lock = Lock { owner: 1, kind, range, pid: 1 };
        on_1.ask(&NodeRequest::Lock { ino, lock, ticket: None }).expect("a lock");
        on_1.ask(&NodeRequest::Unlock { ino, owner: 1, range }).expect("it ends");
        true
    });
    assert!(!adds.iter().any(JoinHandle::is_finished), "they wait for the disk");
    disk.gate.open();
    adds.into_iter().for_each(|add| drop(add.join().expect("no panic")));
}

/// Its log becomes long, and its rewrite waits for the disk.
#[test]
fn a_ledger_is_rewritten_while_it_is_written() {
    let cluster = Cluster::up_on_slow_disks(1, Some(Arc::new(Memory::new())));
    let mut process = cluster.process(0);
    let ino = write_new(&mut process, ROOT, "shared", b"bytes");
    process.create(TOP, "first", FileKind::Regular).expect("made");
    let ledger = cluster.area(0).ledger_device().expect("its ledger");
    let (watched, disk) = (Arc::clone(&ledger), cluster.disk(0));
    let logs = |ledger: &dyn Device| -> Vec<u32> {
        let logs: BTreeSet<_> = ledger.list().expect("listed").iter().map(|id| id.epoch).collect();
        logs.into_iter().collect()
    };
    assert_eq!(logs(&*ledger), [1]);
    disk.gate.close();
    let mut made = 0;
    let mut process = asking(WHILE, process, move |process| {
        for _ in 0..50 {
            made += 1;
            process.create(TOP, &format!("f{made}"), FileKind::Regular).expect("made");
            process.remove(TOP, &format!("f{made}"), false).expect("removed");
        }
        assert_eq!(process.attr(ino).expect("its attributes").size, 5);
        logs(&*watched) == [1, 2]
    });
    process.create(TOP, "last", FileKind::Regular).expect("made");
    let records = |ledger: &dyn Device| {
        let records = Ledger::look(ledger).expect("it can be read").into_iter();
        let files = records.filter(|record| record.state != FileState::Removed);
        files.map(|record| String::from_utf8(record.path).expect("a name")).collect::<BTreeSet<_>>()
    };
    let expected = BTreeSet::from(["first".to_owned(), "last".to_owned()]);
    eventually("the removals are written down", || records(&*ledger) == expected);
    assert_eq!(logs(&*ledger), [1, 2], "the new log is not durable");
    disk.gate.open();
    eventually("the first log is gone", || logs(&*ledger) == [2]);
    assert_eq!(records(&*ledger), expected);
}
