//! A process that stops a job and removes its tree when the test run that started it has died.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};

use anyhow::{Context, Result};

use super::Tree;

/// Clears a tree away unless it is dismissed before this process ends.
pub struct Guard {
    child: Child,
}

impl Guard {
    /// Watches over `tree` and the job whose directory is in it.
    ///
    /// # Errors
    /// When it can not be started.
    pub fn start(tree: &Tree) -> Result<Self> {
        // $1 the binary, $2 the job directory, $3 the tree. What is still mounted is not entered.
        const CLEAR: &str =
            "[ -d \"$2\" ] && \"$1\" down --job \"$2\"; rm -rf --one-file-system \"$3\"";
        let binary = super::binary().unwrap_or_default();
        Self::run_in_the_end(&[
            "sh".as_ref(),
            "-c".as_ref(),
            CLEAR.as_ref(),
            "sh".as_ref(),
            binary.as_ref(),
            tree.job_dir().as_ref(),
            tree.path().as_ref(),
        ])
    }

    /// Removes a directory in the end.
    pub(crate) fn of_directory(path: &Path) -> Result<Self> {
        Self::run_in_the_end(&["rm".as_ref(), "-rf".as_ref(), path.as_ref()])
    }

    /// Runs a command when this process has ended, or this value has.
    fn run_in_the_end(command: &[&OsStr]) -> Result<Self> {
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

    /// Its process: it names the tree in its command line, but does not belong to the job.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The tree is cleared.
    ///
    /// # Errors
    /// When the guard is gone.
    pub fn dismiss(&mut self) -> Result<()> {
        if let Some(mut stdin) = self.child.stdin.take() {
            stdin.write_all(b"done\n").context("dismiss the guard")?;
        }
        self.child.wait().context("wait for the guard")?;
        Ok(())
    }
}
