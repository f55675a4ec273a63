//! A tier behind a [`crate::distant_daemon`]: the directory itself, and what the job sees of it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};

use crate::bench::Bench;
use crate::distant_daemon::Counted;
use crate::guard::Guard;
use crate::journal::Thing;

/// Unmounted when dropped.
#[derive(Debug)]
pub(super) struct DistantTier<'a> {
    daemon: Child,
    heard: BufReader<ChildStdout>,
    source: PathBuf,
    path: PathBuf,
    guard: &'a Guard,
}

impl<'a> DistantTier<'a> {
    /// An empty one, whose every answer comes so much later.
    pub(super) fn start(bench: &'a Bench, milliseconds: u64) -> anyhow::Result<Self> {
        let name = bench.new_name();
        let source = bench.scratch().join(format!("near-{name}"));
        let path = bench.scratch().join(format!("distant-{name}"));
        for directory in [&source, &path] {
            std::fs::create_dir(directory)
                .with_context(|| format!("make {}", directory.display()))?;
        }
        bench.guard().made(Thing::Mount(path.clone()))?;
        let mut command = Command::new(bench.program());
        command.arg("distant-daemon").args([&source, &path]).arg(milliseconds.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut daemon = command.spawn().context("start the daemon of a distant tier")?;
        let output = daemon.stdout.take().context("the daemon of the tier has no output")?;
        let heard = BufReader::new(output);
        let mut tier = Self { daemon, heard, source, path, guard: bench.guard() };
        let ready = tier.line()?;
        ensure!(ready == "ready\n", "the daemon of the tier said {ready:?}");
        bench.give_precedence(tier.daemon.id())?;
        Ok(tier)
    }

    /// Where the job finds it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that it shows: what is made there waits for nobody.
    pub(super) fn source(&self) -> &Path {
        &self.source
    }

    /// Its daemon.
    pub(super) fn process(&self) -> u32 {
        self.daemon.id()
    }

    /// The writes that have come in so far.
    pub(super) fn counted(&mut self) -> anyhow::Result<Counted> {
        let stdin = self.daemon.stdin.as_mut().context("the daemon of the tier has no input")?;
        stdin.write_all(b"\n").context("ask the daemon of the tier")?;
        serde_json::from_str(&self.line()?).context("read what the daemon of the tier counts")
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.heard.read_line(&mut line).context("listen to the daemon of the tier")?;
        Ok(line)
    }
}

impl Drop for DistantTier<'_> {
    fn drop(&mut self) {
        // It unmounts at the end of its input, as soon as nobody uses the mount.
        drop(self.daemon.stdin.take());
        let _ = self.daemon.wait();
        crate::guard::unmount(&self.path);
        let _ = self.guard.removed(Thing::Mount(self.path.clone()));
    }
}
