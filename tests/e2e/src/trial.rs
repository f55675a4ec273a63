//! A place where a test starts and breaks jobs of its own, and can tell whether anything is left.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::expect::eventually;
use crate::job::{Cluster, Guard, JobOptions, Tree, binary, mounts_below};

/// A temporary tree with a guard. Nothing of a job may be left in it in the end.
pub struct Trial {
    guard: Guard,
    tree: Tree,
}

impl Trial {
    /// An empty tree.
    ///
    /// # Errors
    /// When it can not be made.
    pub fn new() -> Result<Self> {
        let tree = Tree::new()?;
        Ok(Self { guard: Guard::start(&tree)?, tree })
    }

    /// The tree.
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// `hayase up` with the usual directories in the tree.
    ///
    /// # Errors
    /// When the binary is not there.
    pub fn up(&self, options: &JobOptions) -> Result<Process> {
        Cluster::up_command(&self.tree, options)
    }

    /// `hayase run OPTIONS -- sh -c SCRIPT`.
    ///
    /// # Errors
    /// When the binary is not there.
    pub fn run(&self, options: &JobOptions, script: &str) -> Result<Process> {
        let mut run = Process::new(binary()?);
        run.arg("run");
        Cluster::add_options(&mut run, &self.tree, options)?;
        run.args(["--", "sh", "-c", script]);
        Ok(run)
    }

    /// Starts a program that writes to [`Trial::said`].
    ///
    /// # Errors
    /// When it can not be started.
    pub fn spawn(&self, process: &mut Process) -> Result<Child> {
        let path = self.tree.path().join("said");
        let said = std::fs::File::options().create(true).append(true).open(path)?;
        process
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .with_context(|| format!("start {process:?}"))
    }

    /// What spawned programs have printed so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.tree.path().join("said")).unwrap_or_default()
    }

    /// Waits until no process, mount, loop device or file of a job in this tree is left.
    ///
    /// # Errors
    /// What is left when `bound` is over.
    pub fn expect_nothing_left(&self, bound: Duration) -> Result<()> {
        let check = || {
            self.is_nothing_running()?;
            ensure!(!self.tree.job_dir().exists(), "the job directory is left");
            let left = [self.stored(), entries(&self.tree.path().join("mount"))].concat();
            ensure!(left.is_empty(), "files are left: {}", left.join(", "));
            Ok(())
        };
        eventually(bound, check).map(drop)
    }

    /// The same without files, which the next `up` may remove.
    ///
    /// # Errors
    /// What is left when `bound` is over.
    pub fn expect_nothing_running(&self, bound: Duration) -> Result<()> {
        eventually(bound, || self.is_nothing_running()).map(drop)
    }

    fn is_nothing_running(&self) -> Result<()> {
        let processes = self.processes();
        ensure!(processes.is_empty(), "processes are left: {}", processes.join("; "));
        let mounts = mounts_below(self.tree.path())?;
        ensure!(mounts.is_empty(), "mounts are left: {}", mounts.join(", "));
        let devices = loop_devices_below(self.tree.path());
        ensure!(devices.is_empty(), "loop devices are left: {}", devices.join(", "));
        Ok(())
    }

    /// What jobs have left in the storage.
    pub fn stored(&self) -> Vec<String> {
        entries(&self.tree.path().join("storage"))
    }

    /// Ends the trial: the tree goes.
    ///
    /// # Errors
    /// When a mount is left in it.
    pub fn end(mut self) -> Result<()> {
        self.tree.remove()?;
        self.guard.dismiss()
    }

    /// Processes that name this tree in their command line or environment.
    pub fn processes(&self) -> Vec<String> {
        let needle = self.tree.path().as_os_str().as_bytes();
        let spared = [std::process::id(), self.guard.pid()];
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| !spared.contains(pid) && crate::job::is_alive(*pid))
            .filter_map(|pid| {
                let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let (line, environment) = (read("cmdline"), read("environ"));
                let names = |bytes: &[u8]| bytes.windows(needle.len()).any(|part| part == needle);
                let words = String::from_utf8_lossy(&line).replace('\0', " ");
                (names(&line) || names(&environment)).then(|| format!("{pid}: {}", words.trim()))
            })
            .collect()
    }
}

/// Loop devices whose image lies below `path`, also when the image is deleted.
fn loop_devices_below(path: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let backing = device.path().join("loop/backing_file");
            let backing = std::fs::read_to_string(backing).ok()?;
            let name = device.file_name().to_string_lossy().into_owned();
            Path::new(backing.trim())
                .starts_with(path)
                .then(|| format!("{name} ({})", backing.trim()))
        })
        .collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}
