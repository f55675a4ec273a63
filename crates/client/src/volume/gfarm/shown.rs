//! Attributes of Gfarm as the kernel is shown them.

use hayase_layout::{InodeId, Layout};
use hayase_tier::gfarm_lane::{Kind, Stat, Time};
use hayase_wire::message::{Attr, FileKind, TimeSpec};

use super::nodes::State;
use super::open_file::Plain;

fn kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Link => FileKind::Symlink,
    }
}

fn time((seconds, nanos): Time) -> TimeSpec {
    TimeSpec { seconds, nanos }
}

/// Attributes of what is in a directory, without what this host knows better.
pub(super) fn attr(ino: InodeId, stat: &Stat) -> Attr {
    Attr {
        ino,
        kind: kind(stat.kind),
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        size: stat.size,
        blocks: stat.size.div_ceil(512),
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        crtime: time(stat.ctime),
        layout: if stat.kind == Kind::File { Layout::Whole } else { Layout::None },
        layout_epoch: 0,
        trunc_epoch: 0,
        policy: None,
        acls: None,
    }
}

/// While it is written from this host, size and time are here before they are with the metadata server. While it is
/// read through pages, the size is theirs.
pub(super) fn shown(ino: InodeId, state: &State) -> Attr {
    let mut attr = attr(ino, &state.seen);
    if state.file.unlinked {
        attr.nlink = 0;
    }
    let plain = state.file.writes.as_ref().and_then(|writes| Plain::of(writes).ok());
    if let Some(plain) = plain {
        let is_set = state.file.times.is_some_and(|times| times.plain == Some(plain));
        let is_told = state.file.told.is_some_and(|(told, _)| told == plain);
        (attr.size, attr.blocks) = (plain.size, plain.blocks);
        if !is_set && !is_told {
            attr.mtime = time(plain.mtime);
        }
    } else if let Some(size) = state.file.size.or(state.file.end_of_pages()) {
        (attr.size, attr.blocks) = (size, size.div_ceil(512));
    }
    attr
}
