//! The yardstick of metadata: the least FUSE daemon that gives a directory with passthrough.
//!
//! It shows one directory of a local file system. Per inode it has one `O_PATH` descriptor and, while
//! the inode is open, one registration with the kernel ([`inodes`]); it has no other state, talks to
//! nobody and writes nothing down. Same library, same options as the product's mount: two threads
//! with a cloned device each, passthrough, `KILLPRIV_V2`, a second of TTL for names and attributes.
//! What benches do not call is not there.

pub(crate) mod inodes;
pub(crate) mod requests;

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::Context;
use fuser::{Config, MountOption, Session, SessionACL};

use requests::Requests;

/// Threads that take requests; with two, one can sleep in the kernel while the other works.
const THREADS: usize = 2;

/// Shows `source` at `mount_point` until standard input ends; says `ready` when it does.
pub(crate) fn serve(source: &Path, mount_point: &Path) -> anyhow::Result<()> {
    let requests = Requests::new(source)
        .with_context(|| format!("open the directory {}", source.display()))?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("hayase-bench".to_owned()),
        MountOption::Subtype("minimal".to_owned()),
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
    }
    session.umount_and_join().context("unmount")
}
