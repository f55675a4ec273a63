//! How much room the file system under the names has, when it was last looked at.
//!
//! Here: whose room counts. A file system keeps some for root (ext4: 5 %); a server of root grows into it no more than
//! others do, and uses it to remove names and to start again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::StatVfs;

/// In bytes.
#[derive(Debug, Default)]
pub(super) struct Free {
    to_grow: AtomicU64,
    to_change: AtomicU64,
    is_root: OnceLock<bool>,
}

impl Free {
    pub(super) fn look(&self, directory: &Path) -> io::Result<()> {
        let stat = rustix::fs::statvfs(directory)?;
        let own = if self.is_root() { stat.f_bfree } else { stat.f_bavail };
        self.to_grow.store(for_anybody(&stat), Ordering::Relaxed);
        self.to_change.store(own.saturating_mul(stat.f_frsize), Ordering::Relaxed);
        Ok(())
    }

    /// Not the root of a user namespace.
    fn is_root(&self) -> bool {
        let all_users = || std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        *self.is_root.get_or_init(|| {
            rustix::process::geteuid().is_root()
                && all_users().split_ascii_whitespace().eq(["0", "0", "4294967295"])
        })
    }

    /// For anybody.
    pub(super) fn to_grow(&self) -> u64 {
        self.to_grow.load(Ordering::Relaxed)
    }

    /// For this process.
    pub(super) fn to_change(&self) -> u64 {
        self.to_change.load(Ordering::Relaxed)
    }
}

/// Of the file system of `file`, for anybody.
pub(super) fn to_grow(file: &File) -> io::Result<u64> {
    Ok(for_anybody(&rustix::fs::fstatvfs(file)?))
}

fn for_anybody(stat: &StatVfs) -> u64 {
    stat.f_bavail.saturating_mul(stat.f_frsize)
}
