//! Parts that a crash left without a file are removed after the next start; all others stay.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, RW};
use hayase_layout::{ByteCount, InodeId, ServerId, StripePolicy};
use hayase_store::PartId;
use hayase_wire::message::FileKind;

fn part(home: u16, counter: u64, index: u16) -> PartId {
    let ino = InodeId::new(ServerId(home), counter).expect("a small number");
    PartId { ino, epoch: 0, index }
}

fn wait_for(cluster: &Cluster, server: u16, expected: &BTreeSet<PartId>) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found: BTreeSet<_> =
            cluster.parts(server).list().expect("parts are listed").into_iter().collect();
        if found == *expected {
            return;
        }
        assert!(Instant::now() < until, "server {server} has {found:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn parts_without_a_file_are_collected() {
    let mut cluster = Cluster::up_in_memory(2);
    let mut process = cluster.process(0);
    let root = InodeId::ROOT;
    for name in ["a", "b", "c"] {
        process.create(root, name, FileKind::Regular).expect("made");
    }
    let policy = StripePolicy { stripe: ByteCount::kib(4), width: 2 };
    let striped =
        process.create_with(root, "s", FileKind::Regular, Some(policy)).expect("made").ino;
    process.open(striped, RW).expect("opened");
    process.write(striped, 0, &[7; 20_000]).expect("written");
    let kept: Vec<BTreeSet<PartId>> = (0..2)
        .map(|server| cluster.parts(server).list().expect("listed").into_iter().collect())
        .collect();
    assert!(kept[0].len() >= 4 && !kept[1].is_empty(), "{kept:?}");

    // As a server leaves them that dies between part and record, or whose last word to another was lost.
    for (server, strays) in [
        (0, vec![part(0, 9000, 0), part(1, 9001, 1), part(0, striped.counter() + 7000, 3)]),
        (1, vec![part(1, 9002, 0), part(0, 9003, 1)]),
    ] {
        for stray in strays {
            cluster.parts(server).create(stray).expect("a part of nobody's");
        }
    }
    for server in 0..2 {
        cluster.restart(server);
        wait_for(&cluster, server, &kept[usize::from(server)]);
    }
    let mut process = cluster.process(1);
    assert_eq!(process.names(root).len(), 4);
    assert_eq!(process.lookup(root, "s").expect("found").attr.size, 20_000);
}
