//! Cleaning up after a bench that was killed.
//!
//! A child process with a pipe from the bench. What the bench makes stands in its [`Journal`], what it has removed is
//! crossed out there; when the pipe ends, however the bench ended, the child removes the rest, last made first. In the
//! ordinary case nothing is left to do. Where the guard was killed as well, the next bench does it
//! ([`crate::leftovers`]).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;

use crate::command::run;
use crate::disk_limit;
use crate::journal::{self, Journal, Thing};

/// How long `hayase down` may take here.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);

/// What a job has just let go of is busy a moment longer.
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// How long a process may take to end.
const END_TRIES: u32 = 400;
const END_PAUSE: Duration = Duration::from_millis(50);

/// The bench's end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Mutex<Child>,
    journal: Journal,
}

impl Guard {
    /// For a bench that owns `tree`.
    pub(crate) fn start(tree: &Path) -> anyhow::Result<Self> {
        let journal = Journal::create(tree)?;
        let child = Command::new(std::env::current_exe().context("find this program")?)
            .arg("guard")
            .arg(tree)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the bench; the guard then has work.
            .process_group(0)
            .spawn()
            .context("start the guard")?;
        Ok(Self { child: Mutex::new(child), journal })
    }

    /// To be called before `thing` is made.
    pub(crate) fn made(&self, thing: Thing) -> anyhow::Result<()> {
        self.journal.made(thing)
    }

    /// To be called when it is gone.
    pub(crate) fn removed(&self, thing: Thing) -> anyhow::Result<()> {
        self.journal.removed(thing)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// The child's whole life.
pub(crate) fn stand(tree: &Path) -> anyhow::Result<()> {
    let journal = Journal::share(tree)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).context("await the bench")?;
    for thing in journal.remains()?.iter().rev() {
        remove(thing, None);
    }
    Ok(())
}

/// Removes a thing that may be there; a job by the program that started it, or by `other` where that is gone.
pub(crate) fn remove(thing: &Thing, other: Option<&Path>) {
    match thing {
        Thing::Job { directory, .. } if !directory.exists() => {}
        Thing::Job { directory, hayase } => {
            let other = other.filter(|_| !hayase.exists());
            let mut command = Command::new(other.unwrap_or(hayase));
            command.arg("down").arg("--job").arg(directory);
            let _ = run(&mut command, DOWN_PATIENCE);
        }
        Thing::ControlGroup(path) => disk_limit::remove(path),
        Thing::Mount(path) => unmount(path),
        Thing::Ending(process) => await_end(*process),
        Thing::Tree(path) => {
            let _ = remove_tree(path);
        }
    }
}

/// Its number may be another one's by now, so nothing is done to it; nor is it waited for ever.
fn await_end(process: u32) {
    let place = Path::new("/proc").join(process.to_string());
    for _ in 0..END_TRIES {
        if !place.exists() {
            return;
        }
        std::thread::sleep(END_PAUSE);
    }
}

/// Takes away what is mounted at `path`; waits while somebody still uses it, not for ever.
pub(crate) fn unmount(path: &Path) {
    let busy = || {
        run(Command::new("umount").arg(path), DOWN_PATIENCE)
            .is_ok_and(|ended| !ended.status.success())
    };
    let is_mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == path))
    };
    for _ in 0..UNMOUNT_TRIES {
        if !is_mounted() || !busy() {
            return;
        }
        std::thread::sleep(UNMOUNT_PAUSE);
    }
}

/// Removes a directory, unless something is still mounted in it. A journal goes last: a tree that is removed in part
/// still says whose it is.
pub(crate) fn remove_tree(path: &Path) -> anyhow::Result<()> {
    if let Some(point) = mounts_below(path)?.first() {
        anyhow::bail!("{} is still mounted, so {} stays", point.display(), path.display());
    }
    match remove_all_but_journal(path).and_then(|()| std::fs::remove_dir_all(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn remove_all_but_journal(tree: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(tree)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == journal::NAME => {}
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Where something is mounted at `tree` or below, as this process sees it; the last mounted first.
pub(crate) fn mounts_below(tree: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(tree)).collect();
    points.reverse();
    Ok(points)
}
