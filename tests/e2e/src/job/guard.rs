//! A process that stops a job when the test run that started it has died.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, Stdio};

use anyhow::{Context, Result};

/// Runs a command unless it is dismissed before this process ends.
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// `command` is the program and its arguments.
    pub(super) fn start(command: &[String]) -> Result<Self> {
        let child = Process::new(super::built("hayase-actor")?)
            .arg("--guard")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A Ctrl-C for the test run is not meant for it.
            .process_group(0)
            .spawn()
            .context("start the guard")?;
        Ok(Self { child })
    }

    /// The job is down.
    pub(super) fn dismiss(&mut self) -> Result<()> {
        if let Some(mut stdin) = self.child.stdin.take() {
            stdin.write_all(b"done\n").context("dismiss the guard")?;
        }
        self.child.wait().context("wait for the guard")?;
        Ok(())
    }
}
