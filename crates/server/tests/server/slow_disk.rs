//! A disk that takes very long to make anything durable: its server answers what needs no disk, and its node is not lost.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use hayase_layout::InodeId;

use crate::cluster::{Cluster, eventually, write_again, write_new};
use crate::starting::lost;

const ROOT: InodeId = InodeId::ROOT;
const NOBODY: [u16; 0] = [];

/// A server that waits for its disk answers nothing, and the test would wait with it.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// What `ask` returns, which must not take long.
fn answered<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let asked = std::thread::spawn(move || {
        // Somebody may not wait any more.
        let _ = tell.send(ask());
    });
    match told.recv_timeout(ANSWER_MAX) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server waits for its disk"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{:?}", asked.join().err()),
    }
}

/// Server 0 answers meanwhile.
#[test]
fn a_loss_is_told_when_it_is_durable_and_not_before() {
    let mut cluster = Cluster::up_on_slow_disks(3, None);
    let (mut on_0, mut on_2) = (cluster.process(0), cluster.process(2));
    let ino = write_new(&mut on_0, ROOT, "of-0", b"bytes");
    cluster.disk(0).gate.close();
    cluster.kill(1);
    cluster.disk(0).gate.until_somebody_waits();
    let (mut on_0, mut on_2) = answered(move || {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            assert_eq!((lost(&mut on_0), lost(&mut on_2)), (NOBODY.into(), NOBODY.into()));
            write_again(&mut on_0, ino, b"other bytes");
        }
        (on_0, on_2)
    });
    cluster.disk(0).gate.open();
    for process in [&mut on_0, &mut on_2] {
        eventually("the loss is told", || lost(process) == [1]);
    }
}
