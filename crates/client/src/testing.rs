//! For tests: attributes out of nothing, and a server in memory.

use std::time::{SystemTime, UNIX_EPOCH};

use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{Attr, FileKind, NewNode, ParentPolicy, TimeSpec};

pub mod server;

pub use server::FakeServer;

/// To be made in the root: a regular file of mode 644.
pub fn new_file(name: &str) -> NewNode {
    NewNode {
        parent: InodeId::ROOT,
        name: name.into(),
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: None,
        policy: ParentPolicy::Known(None),
        acls: None,
        exclusive: true,
        open: None,
    }
}

/// A regular file of mode 644 with one name.
pub fn attr(ino: u64) -> Attr {
    let now = now();
    Attr {
        ino: InodeId(ino),
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        nlink: 1,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        layout: Layout::Whole,
        layout_epoch: 1,
        trunc_epoch: 0,
        policy: None,
        acls: None,
    }
}

/// The wall clock.
pub fn now() -> TimeSpec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeSpec { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}
