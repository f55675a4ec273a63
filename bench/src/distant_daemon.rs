//! A tier that is far away: a FUSE daemon that shows a directory, answers every request of the kernel late,
//! and counts the writes that reach it.
//!
//! Nothing of the product is slowed down or asked: what it sends to its tier is seen from outside, as the
//! kernel cuts it (a write(2) comes in requests of at most [`WRITE_BYTES_MAX`]). Names and attributes are kept
//! for a second, pages until the next open, as distant file systems do it. What benches do not call is not there.

mod open_files;
mod requests;
mod writes;

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fuser::{Config, MountOption, Session, SessionACL};

use requests::Requests;
pub(crate) use writes::{Counted, Writes};

/// Requests that wait at the same time: more than any program sends here.
const THREADS: usize = 128;

/// The most that the kernel puts into one request.
pub(crate) const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Shows `source` at `mount_point` until standard input ends; says `ready` when it does, and for each line what
/// it has counted so far.
pub(crate) fn serve(source: &Path, mount_point: &Path, delay: Duration) -> anyhow::Result<()> {
    let writes = Arc::new(Writes::default());
    let requests = Requests::new(source, delay, Arc::clone(&writes))
        .with_context(|| format!("open the directory {}", source.display()))?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("hayase-bench".to_owned()),
        MountOption::Subtype("distant".to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = Session::new(requests, mount_point, &config)
        .and_then(Session::spawn)
        .with_context(|| format!("mount at {}", mount_point.display()))?;
    let mut output = std::io::stdout();
    output.write_all(b"ready\n").and_then(|()| output.flush()).context("say ready")?;
    for line in std::io::stdin().lock().lines() {
        line.context("wait for the end")?;
        let mut counted = serde_json::to_vec(&writes.counted())?;
        counted.push(b'\n');
        output.write_all(&counted).and_then(|()| output.flush()).context("say what is counted")?;
    }
    session.umount_and_join().context("unmount")
}
