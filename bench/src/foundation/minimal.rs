//! The yardstick of metadata on a node of a job: [`crate::minimal_daemon`], beside the parts.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, ensure};

use crate::bench::Bench;
use crate::job::Job;

/// A running one; unmounts and ends when dropped.
#[derive(Debug)]
pub(crate) struct Minimal {
    child: Child,
    mount_point: PathBuf,
}

impl Minimal {
    /// Shows `source`, which must exist on node 0, at an empty directory of that node.
    pub(crate) fn start(bench: &Bench, job: &Job<'_>, source: &Path) -> anyhow::Result<Self> {
        let mount_point = bench.scratch().join(format!("minimal-{}", bench.new_name()));
        std::fs::create_dir(&mount_point)
            .with_context(|| format!("make {}", mount_point.display()))?;
        let mut command = job.on_node(0, bench.program());
        command.arg("minimal-daemon").arg(source).arg(&mount_point);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().context("start the minimal daemon")?;
        let mut minimal = Self { child, mount_point };
        let mut ready = [0; 6];
        let stdout = minimal.child.stdout.as_mut().context("the minimal daemon has no output")?;
        stdout.read_exact(&mut ready).context("the minimal daemon did not start")?;
        ensure!(&ready == b"ready\n", "the minimal daemon said {ready:?}");
        bench.give_precedence(minimal.process())?;
        Ok(minimal)
    }

    /// Where it shows the directory, on node 0.
    pub(crate) fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Its number.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Minimal {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
