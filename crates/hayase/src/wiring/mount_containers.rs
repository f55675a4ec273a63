//! A directory of containers, shown by FUSE as the plain files that they stand for.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hayase_client::ContainerVolume;
use hayase_fuse::MountSettings;

use super::serve_mount::unmount_on_signal;

/// Mounts and serves until it is unmounted or a signal ends it; calls `ready` once.
pub(crate) fn mount_containers(
    dir: &Path,
    mount_point: &Path,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let volume = ContainerVolume::new(dir)
        .with_context(|| format!("read the directory {}", dir.display()))?;
    let mut how = MountSettings::new(mount_point.to_owned());
    how.name = "hayase-containers".to_owned();
    how.read_only = true;
    let mounted = hayase_fuse::mount(Arc::new(volume), &how)?;
    unmount_on_signal(mounted.unmounter())?;
    ready()?;
    mounted.wait().context("serve the mount")
}
