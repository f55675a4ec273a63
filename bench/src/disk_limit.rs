//! Disks of known speed: a control group whose processes read and write given devices no faster.
//!
//! Version 1 of control groups, controller `blkio`. The limit holds for what processes of the group
//! submit themselves: direct I/O, reads, and writes that fsync(2) pushes out; so a node's server and
//! programs must be in the group, and measurements of writes must end with fsync(2).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::guard::Guard;
use crate::journal::Thing;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

const CONTROLLER: &str = "/sys/fs/cgroup/blkio";

/// A limit is one when a direct write comes so near to it; what the disk does beside it may slow one of them.
const HOLDS: std::ops::RangeInclusive<f64> = 0.8..=1.15;
const TRIES: u32 = 5;

/// Ended processes leave their group a little later.
const REMOVE_RETRIES: u32 = 100;
const REMOVE_PAUSE: Duration = Duration::from_millis(20);

/// A group, removed when dropped.
#[derive(Debug)]
pub(crate) struct DiskLimit<'a> {
    path: PathBuf,
    guard: &'a Guard,
}

impl<'a> DiskLimit<'a> {
    /// A group without limits and processes.
    pub(crate) fn new(guard: &'a Guard) -> anyhow::Result<Self> {
        ensure!(
            Path::new(CONTROLLER).join("blkio.throttle.write_bps_device").exists(),
            "{CONTROLLER} has no throttle: disks of equal speed need control groups, version 1"
        );
        let path = Path::new(CONTROLLER).join(format!("hayase-bench-{}", std::process::id()));
        guard.made(Thing::ControlGroup(path.clone()))?;
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { path, guard })
    }

    /// Limits reads and writes of a device, given as `major:minor`.
    pub(crate) fn limit(&self, device: &str, bytes_per_second: u64) -> anyhow::Result<()> {
        for file in ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"] {
            self.write(file, &format!("{device} {bytes_per_second}"))?;
        }
        Ok(())
    }

    /// Puts a process in, with all its threads.
    pub(crate) fn add(&self, process: u32) -> anyhow::Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(file);
        std::fs::write(&path, text).with_context(|| format!("write `{text}` to {}", path.display()))
    }
}

impl Drop for DiskLimit<'_> {
    fn drop(&mut self) {
        // What is still in it goes back to where it came from.
        let processes = std::fs::read_to_string(self.path.join("cgroup.procs"));
        for process in processes.unwrap_or_default().lines() {
            let _ = std::fs::write(Path::new(CONTROLLER).join("cgroup.procs"), process);
        }
        remove(&self.path);
        if !self.path.exists() {
            let _ = self.guard.removed(Thing::ControlGroup(self.path.clone()));
        }
    }
}

/// Removes a group when its processes have ended.
pub(crate) fn remove(path: &Path) {
    for _ in 0..REMOVE_RETRIES {
        if std::fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(REMOVE_PAUSE);
    }
}

/// What a direct write of `blocks` MiB below `directory` reaches, in MiB/s, by a worker in a group with that limit.
///
/// # Errors
/// When no such write of a few comes near the limit.
pub(crate) fn prove(
    worker: &mut Worker,
    directory: &Path,
    blocks: u64,
    limit_mib: u64,
) -> anyhow::Result<f64> {
    let mut made = Vec::new();
    for _ in 0..TRIES {
        let work = Sequential::new(Operation::New, directory.join("bench-direct"), blocks);
        let task = Task::Sequential(Sequential { direct: true, sync: true, ..work });
        let found = worker.measure(&task)?;
        let rate = found.amount / found.seconds / 1_048_576.0;
        if HOLDS.contains(&(rate / limit_mib as f64)) {
            return Ok(rate);
        }
        made.push(format!("{rate:.0}"));
    }
    bail!(
        "the disk of {} was limited to {limit_mib} MiB/s, but direct writes made {}",
        directory.display(),
        made.join(", ")
    )
}

/// The device (`major:minor`) of what `process` sees mounted at `mount`.
pub(crate) fn device_of_mount(process: u32, mount: &Path) -> anyhow::Result<String> {
    let table = format!("/proc/{process}/mountinfo");
    let text = std::fs::read_to_string(&table).with_context(|| format!("read {table}"))?;
    match find_device(&text, mount) {
        Some(device) => Ok(device),
        None => bail!("process {process} sees nothing mounted at {}", mount.display()),
    }
}

/// The last line counts: it hides those before it.
fn find_device(mountinfo: &str, mount: &Path) -> Option<String> {
    mountinfo.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let point = fields.nth(1)?;
        (Path::new(point) == mount).then(|| device.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_in_mountinfo() {
        let table = "36 35 98:0 /mnt1 /a rw,noatime - ext3 /dev/root rw\n\
                     37 35 7:1 / /s/shared rw - xfs /dev/loop1 rw\n\
                     38 35 7:2 / /s/shared rw - xfs /dev/loop2 rw\n";
        let check = |mount: &str, expected: Option<&str>| {
            assert_eq!(find_device(table, Path::new(mount)).as_deref(), expected);
        };
        check("/a", Some("98:0"));
        check("/s/shared", Some("7:2"));
        check("/s", None);
    }
}
