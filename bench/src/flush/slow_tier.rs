//! A tier on a disk of its own: a file system in an image, mounted over a loop device that a control group
//! limits.
//!
//! Mounted `sync`: in control groups of version 1 only what a process writes itself is limited, not what the
//! kernel writes back for it later.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::bench::Bench;
use crate::command::run;
use crate::disk_limit::device_of_mount;
use crate::guard::Guard;
use crate::journal::Thing;

const PATIENCE: Duration = Duration::from_secs(60);

/// Unmounted and removed when dropped.
#[derive(Debug)]
pub(super) struct SlowTier<'a> {
    path: PathBuf,
    image: PathBuf,
    guard: &'a Guard,
}

impl<'a> SlowTier<'a> {
    /// Of so many bytes.
    pub(super) fn new(bench: &'a Bench, bytes: u64) -> anyhow::Result<Self> {
        let path = bench.scratch().join("tier");
        let image = path.with_extension("img");
        File::create(&image)?.set_len(bytes).context("make the image of the tier")?;
        let mut format = Command::new("mkfs.ext4");
        run(format.args(["-q", "-F", "-E", "lazy_itable_init=0"]).arg(&image), PATIENCE)?
            .success("mkfs.ext4")?;
        std::fs::create_dir_all(&path)?;
        bench.guard().made(Thing::Mount(path.clone()))?;
        let tier = Self { path, image, guard: bench.guard() };
        let mut mount = Command::new("mount");
        run(mount.args(["-o", "loop,sync"]).args([&tier.image, &tier.path]), PATIENCE)?
            .success("mount the tier")?;
        Ok(tier)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its device, as `major:minor`.
    pub(super) fn device(&self) -> anyhow::Result<String> {
        device_of_mount(std::process::id(), &self.path)
    }
}

impl Drop for SlowTier<'_> {
    fn drop(&mut self) {
        crate::guard::unmount(&self.path);
        let _ = std::fs::remove_file(&self.image);
        let _ = self.guard.removed(Thing::Mount(self.path.clone()));
    }
}
