//! The tier of a job with a cache area: a directory of its own, or a small file system that fails as
//! real ones do when it is full or read-only.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::JobOptions;
use crate::job::temporary_dir;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// See the module header. Goes with its value.
pub struct TierDir {
    path: PathBuf,
    is_mounted: bool,
    image: Option<PathBuf>,
}

impl TierDir {
    /// A plain directory.
    ///
    /// # Errors
    /// When it can not be made.
    pub fn new() -> Result<Self> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = temporary_dir().join(format!("hayase-e2e-tier-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { path, is_mounted: false, image: None })
    }

    /// A file system of so many bytes.
    ///
    /// # Errors
    /// When it can not be mounted.
    pub fn small(bytes: u64) -> Result<Self> {
        let mut tier = Self::new()?;
        let options = std::ffi::CString::new(format!("size={bytes}"))?;
        mount("hayase-e2e-tier", &tier.path, "tmpfs", MountFlags::empty(), Some(&*options))
            .context("mount a small file system")?;
        tier.is_mounted = true;
        Ok(tier)
    }

    /// A file system that keeps no access control lists, nor any other extended attributes.
    ///
    /// # Errors
    /// When it can not be mounted.
    pub fn without_lists() -> Result<Self> {
        let mut tier = Self::new()?;
        mount("hayase-e2e-tier", &tier.path, "ramfs", MountFlags::empty(), None)
            .context("mount a file system without lists")?;
        tier.is_mounted = true;
        Ok(tier)
    }

    /// A file system of so many bytes that can be made to [hang](Self::hang).
    ///
    /// # Errors
    /// When it can not be mounted.
    pub fn hanging(bytes: u64) -> Result<Self> {
        let mut tier = Self::new()?;
        let image = tier.path.with_extension("img");
        std::fs::File::create(&image)?.set_len(bytes)?;
        tier.image = Some(image.clone());
        tool("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_os_str()])?;
        tool("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), tier.path.as_os_str()])?;
        tier.is_mounted = true;
        std::fs::remove_dir(tier.file("lost+found"))?;
        Ok(tier)
    }

    /// From here on every change waits, until that is over.
    ///
    /// # Errors
    /// When the file system can not be frozen or thawed.
    pub fn hang(&self, is_so: bool) -> Result<()> {
        let how = if is_so { "-f" } else { "-u" };
        tool("fsfreeze", &[how.as_ref(), self.path.as_os_str()])
    }

    /// Nothing can be written any more, or again.
    ///
    /// # Errors
    /// When the file system can not be mounted so.
    pub fn read_only(&self, is_so: bool) -> Result<()> {
        let flags = if is_so { MountFlags::RDONLY } else { MountFlags::empty() };
        mount_remount(&self.path, flags, "").context("remount the tier")
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What a file holds.
    ///
    /// # Errors
    /// When it can not be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        std::fs::read(self.file(name)).with_context(|| format!("read {name} in the tier"))
    }

    /// Writes a file as somebody outside of the job does: at once, in place.
    ///
    /// # Errors
    /// When it can not be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        std::fs::write(self.file(name), bytes).with_context(|| format!("write {name} in the tier"))
    }

    /// All files below it, as paths from here.
    ///
    /// # Errors
    /// When a directory can not be read.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        walk(&self.path, &self.path, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// Options of a job in front of it.
    pub fn job(&self, nodes: u16) -> JobOptions {
        let mut options = JobOptions::nodes(nodes).shared("300MiB");
        options.extra = vec!["--tier".into(), self.path.display().to_string()];
        options
    }
}

fn tool(name: &str, arguments: &[&std::ffi::OsStr]) -> Result<()> {
    let status = std::process::Command::new(name).args(arguments).status();
    let status = status.with_context(|| format!("run {name}"))?;
    ensure!(status.success(), "{name} {arguments:?}: {status}");
    Ok(())
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(root, &entry.path(), found)?;
        } else {
            let path = entry.path();
            found.push(path.strip_prefix(root)?.display().to_string());
        }
    }
    Ok(())
}

impl Drop for TierDir {
    fn drop(&mut self) {
        if self.image.is_some() {
            // Also when a test failed in between: what hangs would hang for ever.
            let thaw = std::process::Command::new("fsfreeze")
                .arg("-u")
                .arg(&self.path)
                .stderr(std::process::Stdio::null())
                .status();
            drop(thaw);
        }
        if self.is_mounted {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(image) = &self.image {
            let _ = std::fs::remove_file(image);
        }
    }
}
