//! A directory of Gfarm, shown by FUSE: lanes as processes of this program, one volume, one mount.
//!
//! Not here: what is asked of Gfarm (`hayase_tier::gfarm_lane`), what is shown (`hayase_client::GfarmVolume`).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hayase_client::GfarmVolume;
use hayase_fuse::{KernelProfile, MountSettings};
use hayase_tier::gfarm_lane::Lanes;
use hayase_tier::{Gfarm, Tier};

use super::mount_containers::end_soon;
use super::serve_mount::{Stuck, unmount_on_signal};
use crate::process::child::this_program;

/// Mounts and serves until it is unmounted or a signal ends it; calls `ready` once. `wait`: longest for an
/// answer of Gfarm.
pub(crate) fn mount_gfarm(
    gfarm: &Gfarm,
    mount_point: &Path,
    wait: Duration,
    kernel_profile: KernelProfile,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let lanes = Lanes::new(Box::new(start_lane), wait);
    let volume = GfarmVolume::new(lanes, &gfarm.library_path())
        .map_err(|why| anyhow!("{why}"))
        .with_context(|| format!("look at the {}", gfarm.describe()))?;
    let mut how = MountSettings::new(mount_point.to_owned());
    how.name = "hayase-gfarm".to_owned();
    how.kernel_profile = kernel_profile;
    // What anybody does here is done as the one Gfarm user whose key was used.
    how.allow_other = false;
    how.pages_until_open = true;
    let mounted = hayase_fuse::mount(Arc::new(volume.clone()), &how)?;
    tracing::info!(
        place = gfarm.describe(),
        host = gfarm.own_host().unwrap_or("none of Gfarm's"),
        passthrough = mounted.passthrough().describe(),
        "mounted"
    );
    let last = volume.clone();
    unmount_on_signal(mounted.unmounter(), Stuck::Ends, move || {
        last.drain();
        end_soon();
    })?;
    ready()?;
    let served = mounted.wait().context("serve the mount");
    volume.drain();
    served
}

fn start_lane(socket: UnixStream) -> std::io::Result<Child> {
    let mut command = this_program("gfarm-lane");
    // An interrupt typed at the mount is not meant for it: it ends with its socket.
    command
        .current_dir("/")
        .process_group(0)
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .spawn()
}
