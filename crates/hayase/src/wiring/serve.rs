//! The server of a node.

use crate::job::{JobDir, Settings};
use crate::launch::signals::{ENDING, Signals};

/// Serves until a signal ends it; calls `ready` once.
pub(crate) fn serve(
    _dir: &JobDir,
    _settings: &Settings,
    _node: u16,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    use std::os::fd::AsFd;
    let signals = Signals::block(&ENDING)?;
    ready()?;
    let forever = std::time::Instant::now() + std::time::Duration::from_secs(86_400);
    crate::process::wait_readable(signals.as_fd(), forever);
    Ok(())
}
