//! The temporary tree of one job: storage, mount points, job directory, the actor.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where temporary trees go: `HAYASE_E2E_DIR`, else the temporary directory.
pub(crate) fn temporary_dir() -> PathBuf {
    std::env::var_os("HAYASE_E2E_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A directory that everybody may pass through; removed on drop when no mount is left in it.
pub struct Tree {
    path: PathBuf,
}

impl Tree {
    /// Makes it in the directory for temporary trees.
    ///
    /// # Errors
    /// When it can not be made.
    pub fn new() -> Result<Self> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Of one length: no tree's name is the beginning of another's, and processes are found by these names.
        let name = format!("hayase-e2e-{}-{count:04}", std::process::id());
        let path = temporary_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        let tree = Self { path };
        // Other users run the actor too, and a target directory may be closed to them.
        std::fs::copy(super::built("hayase-actor")?, tree.actor()).context("copy the actor")?;
        Ok(tree)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its job has its directory.
    pub fn job_dir(&self) -> PathBuf {
        self.path.join("job")
    }

    /// The program to start on the nodes.
    pub fn actor(&self) -> PathBuf {
        self.path.join("hayase-actor")
    }

    /// Removes it, unless it is gone already.
    ///
    /// # Errors
    /// When a mount is left below it, or a file can not be removed.
    pub fn remove(&self) -> Result<()> {
        let left = mounts_below(&self.path)?;
        ensure!(left.is_empty(), "mounts are left: {}", left.join(", "));
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            crate::suite::print(&format!("{error:#}"));
        }
    }
}

/// Mount points below `path` that this process sees.
///
/// # Errors
/// When the table of mounts can not be read.
pub fn mounts_below(path: &Path) -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/mounts").context("read the table of mounts")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    Ok(points.filter(|point| Path::new(point).starts_with(path)).map(str::to_owned).collect())
}
