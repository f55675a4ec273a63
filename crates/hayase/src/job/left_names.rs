//! The names of a node whose server has ended: they are only read here.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hayase_layout::ServerId;
use hayase_store::area::NAMES_DIRECTORY;
use hayase_store::{FjallStore, Namespace, Time};

use super::Settings;

/// Locked by the process that has the names open.
const NAMES_LOCK: &str = "lock";

/// The names of a node whose server has ended; `None` when it never served.
pub(crate) fn names(settings: &Settings, node: u16) -> anyhow::Result<Option<Namespace>> {
    let place = place(settings, node);
    if !place.is_dir() {
        return Ok(None);
    }
    let failed = || format!("read the names {}", place.display());
    // Opening them cuts off what looks torn, which may be what a server is writing.
    if is_in_use(&place) {
        bail!("read the names {}: a server has them open", place.display());
    }
    let store = Arc::new(FjallStore::open_left(&place).with_context(failed)?);
    if !Namespace::is_in(&*store).with_context(failed)? {
        return Ok(None); // it was killed before it served
    }
    let names = Namespace::open(store, ServerId(node), Time::default());
    names.map(Some).with_context(failed)
}

/// Whether a process on this host has the names of a node open.
pub(crate) fn is_served(settings: &Settings, node: u16) -> bool {
    is_in_use(&place(settings, node))
}

fn place(settings: &Settings, node: u16) -> PathBuf {
    let root = settings.shared_root(node);
    match settings.image {
        true => root.with_extension(NAMES_DIRECTORY),
        false => root.join(NAMES_DIRECTORY),
    }
}

fn is_in_use(names: &Path) -> bool {
    // To write: NFS locks a file exclusively only so.
    let lock = File::options().read(true).write(true).open(names.join(NAMES_LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}
