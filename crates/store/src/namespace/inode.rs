//! Inodes: what is known about a file apart from its names and bytes.
//!
//! Here: the record as it is kept at the inode's home.
//! Not here: size and times of a `Whole` file (its part knows them, [`crate::part`]); attributes
//! as they travel (`hayase_wire`).

use hayase_layout::{Acls, InodeId, Layout, StripePolicy};
use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970; seconds may be negative.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// The longest tick of the clocks that times come from (`CONFIG_HZ=100`).
const CLOCK_TICK_NANOS: u32 = 10_000_000;

impl Time {
    /// So many nanoseconds, below 10^9, later.
    fn after(self, nanos: u32) -> Self {
        let nanos = self.nanos + nanos;
        let is_next = nanos >= 1_000_000_000;
        Self {
            seconds: self.seconds.saturating_add(i64::from(is_next)),
            nanos: if is_next { nanos - 1_000_000_000 } else { nanos },
        }
    }
}

/// The seven kinds of `st_mode & S_IFMT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// One inode, as its home keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Its number.
    pub ino: InodeId,
    /// What it is; never changes.
    pub kind: FileKind,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: which.
    pub rdev: u32,
    /// Names of a file; 1 for a directory.
    pub nlink: u32,
    /// Bytes, where no part knows better: `Striped` files and symbolic links.
    pub size: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of the bytes or names in it.
    pub mtime: Time,
    /// Last change of this record.
    pub ctime: Time,
    /// When it was made.
    pub crtime: Time,
    /// Where its bytes lie.
    pub layout: Layout,
    /// Counts changes of `layout` and of its parts.
    pub layout_epoch: u32,
    /// Counts truncations of a file in several parts.
    pub trunc_epoch: u32,
    /// Of a symbolic link: where it points.
    pub target: Option<Vec<u8>>,
    /// One of its names, and the directory that holds it. The root has none, nor has what was
    /// unlinked; further names of a file are back pointers (`super::keys::back_pointers`).
    pub name: Option<(InodeId, Vec<u8>)>,
    /// Of a directory: how its new files are laid out.
    pub policy: Option<StripePolicy>,
    /// A directory that was removed: nothing may be made in it.
    pub removed: bool,
    /// It has extended attributes, or had some.
    pub has_xattrs: bool,
    /// Its access control lists. They are extended attributes to programs only: here they go with every change of the
    /// mode and to every node with the attributes.
    pub acls: Option<Box<Acls>>,
    /// The rename that changed its name last; 0 before the first.
    pub renamed_by: u64,
}

impl Inode {
    /// An empty inode of nobody's, made at `now`: one link, no name yet, no permissions.
    pub fn new(ino: InodeId, kind: FileKind, now: Time) -> Self {
        Self {
            ino,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            nlink: 1,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            layout: Layout::None,
            layout_epoch: 0,
            trunc_epoch: 0,
            target: None,
            name: None,
            policy: None,
            removed: false,
            has_xattrs: false,
            acls: None,
            renamed_by: 0,
        }
    }

    /// Its bytes changed. No two changes get the same time, also within one tick of the clock: nodes that keep
    /// pages of it find out by its mtime that they are old.
    pub fn bytes_changed(&mut self, now: Time) {
        let is_recent = self.mtime >= now && self.mtime < now.after(CLOCK_TICK_NANOS);
        let at = if is_recent { self.mtime.after(1) } else { now };
        (self.mtime, self.ctime) = (at, at);
    }

    /// Whether its own record has this name; back pointers may have others.
    pub(super) fn is_named(&self, parent: InodeId, name: &[u8]) -> bool {
        self.name.as_ref().is_some_and(|(dir, own)| *dir == parent && own == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: i64, nanos: u32) -> Time {
        Time { seconds, nanos }
    }

    #[test]
    fn no_two_changes_have_the_same_time() {
        let mut inode = Inode::new(InodeId(1), FileKind::Regular, at(6, 999_999_999));
        let mut change = |now, expected| {
            inode.bytes_changed(now);
            assert_eq!((inode.mtime, inode.ctime), (expected, expected));
        };
        // The clock stands still, then goes on, to before what was told and behind it.
        change(at(6, 999_999_999), at(7, 0));
        change(at(6, 999_999_999), at(7, 1));
        change(at(7, 1), at(7, 2));
        change(at(7, 4_000_000), at(7, 4_000_000));
        // It was set back, or the file's time was set to some day to come.
        change(at(6, 0), at(6, 0));
    }
}
