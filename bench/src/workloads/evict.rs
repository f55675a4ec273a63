//! Making files cold: what is cached of them goes to the disk and out of memory.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context;
use rustix::fs::{Advice, fadvise};

/// Every file below `path`. Only this file system's own pages: not those of a mount above it.
pub(crate) fn evict(path: &Path) -> anyhow::Result<()> {
    let at = || format!("drop the cached pages of {}", path.display());
    let kind = fs::symlink_metadata(path).with_context(at)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path).with_context(at)? {
            evict(&entry.with_context(at)?.path())?;
        }
    } else if kind.is_file() {
        let file = File::open(path).with_context(at)?;
        file.sync_all().with_context(at)?;
        fadvise(&file, 0, None, Advice::DontNeed).with_context(at)?;
    }
    Ok(())
}
