//! A server that takes long to start: requests to it wait, and its node is not declared lost.

use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_wire::message::{FileKind, NodeReply, NodeRequest};

use crate::cluster::{Cluster, Process, RW};

/// Longer than a server that is not there is waited for before its node is declared lost (2.2 s), with the look for
/// it (1 s).
const LONG: Duration = Duration::from_secs(5);

pub(crate) fn lost(process: &mut Process) -> Vec<u16> {
    match process.ask(&NodeRequest::Status).expect("a status") {
        NodeReply::Status(status) => status.lost.iter().map(|server| server.0).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_starts_slowly_is_waited_for_and_not_lost() {
    let mut cluster = Cluster::up_in_memory(2);
    let (mut on_0, mut on_1) = (cluster.process(0), cluster.process(1));
    let made = on_1.create(InodeId::ROOT, "of-1", FileKind::Regular).expect("made");
    on_1.open(made.ino, RW).expect("opened");
    on_1.write(made.ino, 0, b"bytes").expect("written");
    on_1.close(made.ino, RW).expect("closed");
    assert_eq!(on_0.attr(made.ino).expect("it is reached").size, 5);

    cluster.gate.close();
    let ready = cluster.begin_restart(1);
    cluster.gate.until_somebody_waits();
    let mut asking = cluster.process(0);
    let asked = std::thread::spawn(move || asking.attr(made.ino).map(|attr| attr.size));
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        assert_eq!(lost(&mut on_0), [] as [u16; 0]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!asked.is_finished(), "the request waits: {:?}", asked.join());

    cluster.gate.open();
    cluster.tell_nothing(1);
    ready.recv_timeout(Duration::from_secs(20)).expect("ready");
    assert_eq!(asked.join().expect("no panic").expect("it was waited for"), 5);
    assert_eq!(lost(&mut on_0), [] as [u16; 0]);
    let mut on_1 = cluster.process(1);
    assert_eq!(on_1.read(made.ino, 0, 5).expect("read"), b"bytes");
}
