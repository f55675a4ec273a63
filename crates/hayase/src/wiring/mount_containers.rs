//! A directory of containers, shown by FUSE as the plain files that they stand for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hayase_client::{ContainerVolume, Volume};
use hayase_fuse::MountSettings;

use super::serve_mount::{Stuck, unmount_on_signal};

/// For the session to end by itself after the mount is gone.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Mounts and serves until it is unmounted or a signal ends it; calls `ready` once.
pub(crate) fn mount_containers(
    dir: &Path,
    mount_point: &Path,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let volume = ContainerVolume::new(dir)
        .with_context(|| format!("read the directory {}", dir.display()))?;
    show(volume, "hayase-containers", mount_point, ready)
}

/// Shows a volume in which nothing changes, until it is unmounted or a signal ends it.
pub(super) fn show(
    volume: impl Volume,
    name: &str,
    mount_point: &Path,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut how = MountSettings::new(mount_point.to_owned());
    how.name = name.to_owned();
    how.read_only = true;
    let mounted = hayase_fuse::mount(Arc::new(volume), &how)?;
    unmount_on_signal(mounted.unmounter(), Stuck::Ends, end_soon)?;
    ready()?;
    mounted.wait().context("serve the mount")
}

/// Mount namespaces that were made meanwhile have copies of the mount, and their owners do not know; or something is
/// mounted over it. The session would serve those until they end. Nothing is lost: nothing is written, or all of it was reported.
pub(super) fn end_soon() {
    std::thread::sleep(END_PATIENCE);
    tracing::info!("the mount is still shown somewhere: ending in spite of that");
    std::process::exit(0);
}
