//! What this machine shows where the areas of simulated nodes are mounted on the nodes: a file that says so, and nothing
//! that can be written. A program that runs here instead of on a node would otherwise fill an ordinary directory.
//!
//! A read-only tmpfs, since root writes past any mode. It comes when all nodes are up, under the mounts that they have there,
//! and is detached as a mount of the job, or goes with the directory.

use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use super::{Kind, Settings};
use crate::system::mounts;

/// What the directories hold.
pub(crate) const NOTICE: &str = "NOT-MOUNTED-HERE";

/// Of the file systems, in the table of mounts.
const SOURCE: &str = "hayase-elsewhere";

/// Covers the directories that the job has made for areas of simulated nodes. Where the kernel does not allow it they stay
/// ordinary directories.
pub(crate) fn cover(settings: &Settings) {
    if !matches!(settings.kind, Kind::Namespaces { .. }) || settings.no_mounts {
        return;
    }
    for place in settings.area_mounts(0).iter().filter(|place| settings.made.contains(place)) {
        if let Err(error) = cover_one(place, settings) {
            tracing::warn!("keep {} from being written: {error}", place.display());
        }
    }
}

/// Whether what is mounted here covers a directory, and is no area.
pub(crate) fn is_covered(place: &Path) -> bool {
    mounts::top_at(place).is_ok_and(|top| top.is_some_and(|top| top.source == SOURCE))
}

fn cover_one(place: &Path, settings: &Settings) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(SOURCE, place, "tmpfs", flags, c"size=64k,mode=755")?;
    let job = &settings.job;
    let text = format!(
        "The areas of job {job} are mounted on its nodes, which are simulated, and not here.\n\
         Run programs on a node: hayase exec --job {job} -- COMMAND\n"
    );
    let furnished = std::fs::write(place.join(NOTICE), text)
        .and_then(|()| Ok(mount_remount(place, flags | MountFlags::RDONLY, c"")?));
    if furnished.is_err() {
        let _ = unmount(place, UnmountFlags::DETACH);
    }
    furnished
}
