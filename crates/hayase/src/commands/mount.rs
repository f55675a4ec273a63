//! `hayase mount`.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use hayase_container::Container;
use serde::Serialize;

use super::serve::report;
use crate::config::Environment;
use crate::exit::Status;
use crate::output::{Human, Output, Page};
use crate::supervisor::daemon::{DaemonFailed, raise_open_files};
use crate::supervisor::said::{DaemonSaid, Failure};
use crate::wiring::mount_containers::mount_containers;

/// Show a directory with its containers as the plain files that they stand for, read-only
///
/// Returns when the mount is there. `umount MNT` ends it (without root: `fusermount3 -u MNT`).
/// What MPI-IO programs publish (sync, close) while it is mounted is seen within two seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct MountArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// An empty directory, outside of DIR
    #[arg(value_name = "MNT")]
    mount_point: PathBuf,
    /// Stay, and log to standard error; an interrupt unmounts
    #[arg(long)]
    foreground: bool,
    /// Write the log of the mount to this file
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,
    /// Tell on standard output when it is ready
    #[arg(long, hide = true, requires = "foreground")]
    tell: bool,
}

/// A path that can not be mounted, or not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountPathError {
    /// The daemon would wait for itself.
    #[error("{} and {} lie in each other", .dir.display(), .mount_point.display())]
    Nested {
        /// What is to be shown.
        dir: PathBuf,
        /// Where.
        mount_point: PathBuf,
    },
    /// One container, no directory of them.
    #[error("{} is a container itself", .0.display())]
    Container(PathBuf),
}

impl MountPathError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        Some(match self {
            Self::Nested { .. } => "mount it somewhere else".to_owned(),
            Self::Container(path) => match path.parent() {
                Some(parent) => format!("mount the directory that it is in: {}", parent.display()),
                None => "mount the directory that it is in".to_owned(),
            },
        })
    }
}

#[derive(Debug, Serialize)]
struct MountTold {
    directory: PathBuf,
    mount_point: PathBuf,
    /// The daemon behind it.
    process: u32,
}

/// Serves the mount, or starts a process that does.
pub(crate) fn run(
    args: &MountArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let canonical = |path: &Path| {
        path.canonicalize().with_context(|| format!("find the directory {}", path.display()))
    };
    let (dir, mount_point) = (canonical(&args.dir)?, canonical(&args.mount_point)?);
    if dir.starts_with(&mount_point) || mount_point.starts_with(&dir) {
        return Err(MountPathError::Nested { dir, mount_point }.into());
    }
    if Container::is_at(&dir)? {
        return Err(MountPathError::Container(dir).into());
    }
    if !args.foreground {
        let process = start(&dir, &mount_point, args.log.as_deref())?;
        output.show(&MountTold { directory: dir, mount_point, process })?;
        return Ok(Status::Done);
    }
    crate::logging::start(&environment.log);
    raise_open_files();
    let ready = || match args.tell {
        true => output.line(&DaemonSaid::Ready(None)),
        false => Ok(()),
    };
    report(mount_containers(&dir, &mount_point, ready), args.tell, output)
}

/// Starts a daemon of its own, and waits until it is ready; its process id.
fn start(dir: &Path, mount_point: &Path, log: Option<&Path>) -> anyhow::Result<u32> {
    let stderr = match log {
        None => Stdio::null(),
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.with_context(|| format!("open {}", path.display()))?.into()
        }
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hayase").args(["mount", "--foreground", "--tell", "--"]);
    command.arg(dir).arg(mount_point).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    // An interrupt typed at us is not meant for it.
    let mut child = command.process_group(0).spawn().context("start `hayase mount`")?;
    let stdout = child.stdout.take().expect("stdout is a pipe");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("listen to `hayase mount`")?;
    match serde_json::from_str(&line) {
        Ok(DaemonSaid::Ready(_)) => Ok(child.id()),
        Ok(DaemonSaid::Failed(failure)) => {
            child.wait().context("wait for `hayase mount`")?;
            Err(DaemonFailed(failure).into())
        }
        Err(_) => {
            let status = child.wait().context("wait for `hayase mount`")?;
            let what = format!("`hayase mount` ended before it was ready: {status}");
            Err(anyhow!(DaemonFailed(Failure { what, help: None, tail: Vec::new() })))
        }
    }
}

impl Human for MountTold {
    fn write(&self, page: &mut Page) {
        let (dir, mount_point) = (self.directory.display(), self.mount_point.display());
        page.line(&format!("{dir} is shown at {mount_point}, read-only"));
        page.line(&format!("`umount {mount_point}` ends it"));
    }
}
