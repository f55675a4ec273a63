//! Cleaning up after a bench that was killed.
//!
//! A child process with a pipe from the bench. What the bench makes it announces there, what it has
//! removed it takes back; when the pipe ends, however the bench ended, the child removes the rest,
//! last made first. In the ordinary case nothing is left to do.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::disk_limit;

/// How long `hayase down` may take here.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);

/// What a job has just let go of is busy a moment longer.
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// How long a process may take to end.
const END_TRIES: u32 = 400;
const END_PAUSE: Duration = Duration::from_millis(50);

/// Something that must not stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Thing {
    /// A job, by its directory.
    Job(PathBuf),
    /// A control group.
    ControlGroup(PathBuf),
    /// A directory with everything below it.
    Tree(PathBuf),
    /// Something that is mounted there.
    Mount(PathBuf),
    /// A process that sees the end of the bench, and ends: it is waited for.
    Ending(u32),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Made(Thing),
    Removed(Thing),
}

/// The bench's end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Mutex<Child>,
}

impl Guard {
    /// `hayase` is what ends jobs.
    pub(crate) fn start(hayase: &Path) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe().context("find this program")?)
            .arg("guard")
            .arg(hayase)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C is for the bench; the guard then has work.
            .process_group(0)
            .spawn()
            .context("start the guard")?;
        Ok(Self { child: Mutex::new(child) })
    }

    /// To be called before `thing` is made.
    pub(crate) fn made(&self, thing: Thing) -> anyhow::Result<()> {
        self.tell(&Line::Made(thing))
    }

    /// To be called when it is gone.
    pub(crate) fn removed(&self, thing: Thing) -> anyhow::Result<()> {
        self.tell(&Line::Removed(thing))
    }

    fn tell(&self, line: &Line) -> anyhow::Result<()> {
        let mut child = self.child.lock().expect("nobody panics with the guard in hand");
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let stdin = child.stdin.as_mut().context("the guard has no standard input")?;
        stdin.write_all(&text).context("tell the guard")
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
pub(crate) fn stand(hayase: &Path) -> anyhow::Result<()> {
    let mut things: Vec<Thing> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            Line::Made(thing) => things.push(thing),
            Line::Removed(thing) => things.retain(|known| *known != thing),
        }
    }
    for thing in things.iter().rev() {
        remove(thing, hayase);
    }
    Ok(())
}

fn remove(thing: &Thing, hayase: &Path) {
    match thing {
        Thing::Job(directory) if directory.exists() => {
            let mut command = Command::new(hayase);
            command.arg("down").arg("--job").arg(directory);
            let _ = run(&mut command, DOWN_PATIENCE);
        }
        Thing::Job(_) => {}
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

/// Removes a directory, unless something is still mounted in it.
pub(crate) fn remove_tree(path: &Path) -> anyhow::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    if let Some(point) = points.find(|point| Path::new(point).starts_with(path)) {
        anyhow::bail!("{point} is still mounted, so {} stays", path.display());
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
