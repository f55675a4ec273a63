//! The mount of a node.

use crate::job::{JobDir, Settings};
use crate::launch::signals::{ENDING, Signals};
use crate::supervisor::said::MountTold;

/// Mounts and serves until it is unmounted or a signal ends it; calls `ready` once.
pub(crate) fn serve_mount(
    _dir: &JobDir,
    settings: &Settings,
    node: u16,
    ready: impl FnOnce(MountTold) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    use std::os::fd::AsFd;
    let signals = Signals::block(&ENDING)?;
    std::fs::create_dir_all(settings.local_root(node))?;
    if settings.is_privileged {
        rustix::mount::mount_bind(settings.local_root(node), settings.shared_mount(node))?;
    }
    ready(MountTold { path: "none".to_owned(), why: String::new() })?;
    let forever = std::time::Instant::now() + std::time::Duration::from_secs(86_400);
    crate::process::wait_readable(signals.as_fd(), forever);
    Ok(())
}
