//! A control group of our own below the one that we are in, with a limit of processor time.
//!
//! Below it, so that every limit of the batch system goes on to hold. Version 2 where it has the processor controller
//! (`cpu.max`), else version 1 (`cpu.cfs_quota_us`). In version 2 a group that has processes gives controllers
//! only to threaded groups, which the processor controller allows.
//! Source: Documentation/admin-guide/cgroup-v2.rst ("Threads", "CPU"), cgroup-v1 and scheduler/sched-bwc.rst of Linux.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::advice::{Advice, Advise};

/// Within each of these the daemons may take their share; short, so that they never stand still for long.
const PERIOD_US: f64 = 50_000.0;

/// Processes that were ended a moment ago still hold their group.
const EMPTY_PATIENCE: Duration = Duration::from_millis(500);
const EMPTY_STEP: Duration = Duration::from_millis(5);

/// The limit can not be kept here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BudgetError {
    /// No hierarchy of control groups has it.
    #[error(
        "cannot enforce --cpu-budget: this machine has no control groups with the cpu controller"
    )]
    NoController,
    /// We may not make one, or not give it a limit.
    #[error("cannot enforce --cpu-budget: create the control group {}", .path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A daemon does not enter it.
    #[error("cannot enforce --cpu-budget: process {process} did not enter {}", .path.display())]
    Enter {
        /// Who.
        process: u32,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Advise for BudgetError {
    fn advice(&self) -> Option<Advice> {
        let help = "give it up, or start the job as root, or in a control group that was delegated to you \
                    (systemd-run --user --scope -p Delegate=yes)";
        Some(Advice::failure(Some(help.to_owned())))
    }
}

/// Removed by [`Group::remove`].
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
}

/// Of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    /// A group `name` for `cores` processors.
    pub(crate) fn make(name: &str, cores: f64) -> Result<Self, BudgetError> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
        let (parent, version) = parent(&mounts, &own).ok_or(BudgetError::NoController)?;
        let group = Self { path: parent.join(name), version };
        match group.set_up(&parent, cores) {
            Ok(()) => Ok(group),
            Err(source) => {
                let path = group.path.clone();
                let _ = fs::remove_dir(&group.path);
                Err(BudgetError::Make { path, source })
            }
        }
    }

    fn set_up(&self, parent: &Path, cores: f64) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let quota = (cores * PERIOD_US).round() as u64;
        let set = |file: &str, value: String| fs::write(self.path.join(file), value);
        match self.version {
            Version::One => {
                set("cpu.cfs_period_us", PERIOD_US.to_string())?;
                set("cpu.cfs_quota_us", quota.to_string())
            }
            Version::Two => {
                let give = || fs::write(parent.join("cgroup.subtree_control"), "+cpu");
                give()
                    .or_else(|_| set("cgroup.type", "threaded".to_owned()).and_then(|()| give()))?;
                set("cpu.max", format!("{quota} {PERIOD_US}"))
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All threads of `process`, and what it starts from now on.
    pub(crate) fn enter(&self, process: u32) -> Result<(), BudgetError> {
        fs::write(self.path.join("cgroup.procs"), process.to_string())
            .map_err(|source| BudgetError::Enter { process, path: self.path.clone(), source })
    }

    /// When all in it have ended; why not, else.
    pub(crate) fn remove(self) -> Result<(), String> {
        remove(&self.path)
    }
}

/// Also of a job that was killed: the group of that name below the one that we are in.
pub(crate) fn remove(path: &Path) -> Result<(), String> {
    let until = Instant::now() + EMPTY_PATIENCE;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(EMPTY_STEP);
            }
            Err(error) => return Err(format!("remove {}: {error}", path.display())),
            Ok(()) => return Ok(()),
        }
    }
}

/// The group that a process with these `mounts` (`mountinfo`) and groups (`cgroup`) is in, where its processor time
/// is dealt out.
fn parent(mounts: &str, own: &str) -> Option<(PathBuf, Version)> {
    let of_version = |kind: &str, controller: Option<&str>| {
        let (root, place) = mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let options = (after.next()? == kind).then(|| after.nth(1))??;
            let has = controller.is_none_or(|name| options.split(',').any(|word| word == name));
            let mut before = before.split(' ').skip(3);
            has.then_some((before.next()?, before.next()?))
        })?;
        let group = own.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let is_it = match controller {
                Some(name) => controllers.split(',').any(|word| word == name),
                None => controllers.is_empty(),
            };
            is_it.then_some(group)
        })?;
        // The mount may show only what lies below a group (containers).
        let below = if root == "/" { group } else { group.strip_prefix(root)? };
        Some(Path::new(place).join(below.trim_start_matches('/')))
    };
    // Version 1 has it where it is mounted for it; then version 2 has not.
    if let Some(path) = of_version("cgroup", Some("cpu")) {
        return Some((path, Version::One));
    }
    let path = of_version("cgroup2", None)?;
    let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
    let has = controllers.split_whitespace().any(|word| word == "cpu");
    has.then_some((path, Version::Two))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_is_found() {
        let own = "3:cpuset:/a\n2:cpu,cpuacct:/slurm/job_7\n0::/\n";
        let expected = PathBuf::from("/sys/fs/cgroup/cpu/slurm/job_7");
        assert_eq!(parent(V1, own), Some((expected, Version::One)));
        // A container sees its own part of the tree.
        let inside = V1.replace("0:27 / ", "0:27 /slurm ");
        let expected = PathBuf::from("/sys/fs/cgroup/cpu/job_7");
        assert_eq!(parent(&inside, own), Some((expected, Version::One)));
        assert_eq!(parent("", own), None);
        assert_eq!(parent(V1, ""), None);
    }

    #[test]
    fn version_two_needs_the_controller() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("user/scope");
        fs::create_dir_all(&group).unwrap();
        let mounts = format!("33 30 0:29 / {} rw - cgroup2 cgroup2 rw\n", top.path().display());
        let own = "0::/user/scope\n";
        assert_eq!(parent(&mounts, own), None);
        fs::write(group.join("cgroup.controllers"), "memory pids\n").unwrap();
        assert_eq!(parent(&mounts, own), None);
        fs::write(group.join("cgroup.controllers"), "cpuset cpu memory\n").unwrap();
        assert_eq!(parent(&mounts, own), Some((group, Version::Two)));
    }

    #[test]
    fn a_group_that_is_not_there_is_removed_already() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(remove(&top.path().join("none")), Ok(()));
        fs::create_dir_all(top.path().join("full/one")).unwrap();
        assert!(remove(&top.path().join("full")).is_err());
    }
}
