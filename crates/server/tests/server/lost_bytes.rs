//! Bytes of a file of `shared` that the storage has lost: every sync says so, of this and of later lives of the server.

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_tier::Memory;
use hayase_wire::message::{MetaChange, NodeRequest};

use crate::cluster::{Cluster, Process, write_again, write_new};

const ROOT: InodeId = InodeId::ROOT;
const EIO: i32 = 5;

fn is_refused(process: &mut Process, ino: InodeId) {
    assert_eq!(process.fsync(ino).expect_err("bytes are lost").errno, EIO);
}

#[test]
fn what_the_storage_has_lost_of_a_shared_file_outlives_its_server() {
    let mut cluster = Cluster::up_on_crash_devices(1, Arc::new(Memory::new()));
    let mut process = cluster.process(0);
    let lost = write_new(&mut process, ROOT, "lost", b"bytes");
    let other = write_new(&mut process, ROOT, "other", b"bytes");
    cluster.device(0).fail_syncs(1);
    is_refused(&mut process, lost);
    is_refused(&mut process, lost);
    process.fsync(other).expect("nothing of it is lost");
    cluster.restart(0);
    let mut process = cluster.process(0);
    is_refused(&mut process, lost);
    write_again(&mut process, lost, b"other");
    is_refused(&mut process, lost);
    process.fsync(other).expect("nothing of it is lost");

    let change = MetaChange { size: Some(0), ..MetaChange::default() };
    process.ask(&NodeRequest::SetAttr { ino: lost, change }).expect("emptied");
    process.fsync(lost).expect("nothing is left of what was lost");
    write_again(&mut process, lost, b"again");
    process.fsync(lost).expect("synced");
    cluster.restart(0);
    let mut process = cluster.process(0);
    process.fsync(lost).expect("also in the next life");
}
