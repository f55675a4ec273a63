//! What a killed supervisor leaves running on this host: programs of the job, and the mount that serves them.
//!
//! The kernel sends SIGTERM to its daemons. A mount ends only when no program has a file open in it, and programs do not
//! notice anything.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::programs;
use crate::job::Job;
use crate::process::{Handle, ProcessId, all, wait_ended};

/// How long a mount may take to end when nobody uses it any more, and again after SIGTERM.
const MOUNT_PATIENCE: Duration = Duration::from_millis(500);

/// How long its end may take after SIGKILL.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// What was ended.
    pub(crate) notes: Vec<String>,
    /// What does not end, and writes to the storage for as long.
    pub(crate) lives: Option<String>,
}

/// Ends the programs and then the mount of a node whose supervisor has ended.
pub(crate) fn end(job: &Job, node: u16) -> Ended {
    let notes = programs::end(&job.settings, node, None);
    let mut ended = Ended { notes, lives: None };
    let mounts: Vec<Handle> =
        all().filter(|process| serves(*process, job, node)).filter_map(ProcessId::open).collect();
    if !mounts.is_empty() && !wait_ended(&mounts, MOUNT_PATIENCE) {
        for (signal, patience) in [(Signal::TERM, MOUNT_PATIENCE), (Signal::KILL, KILL_PATIENCE)] {
            mounts.iter().for_each(|mount| mount.signal(signal));
            if wait_ended(&mounts, patience) {
                break;
            }
        }
        ended.notes.push("ended its mount".to_owned());
    }
    let mut left = programs::found(&job.settings, node, None);
    left.extend(mounts.into_iter().filter(|mount| !mount.has_ended()));
    if !left.is_empty() {
        let pids: Vec<_> = left.iter().map(|handle| handle.id.pid.to_string()).collect();
        ended.lives = Some(format!(
            "processes of node {node} do not end ({}): end them, then call `hayase down` again",
            pids.join(", ")
        ));
    }
    ended
}

/// Whether it is `hayase serve-mount --job-dir DIR --node NODE ...` of this very job, by whichever path.
fn serves(process: ProcessId, job: &Job, node: u16) -> bool {
    let line = fs::read(process.proc().join("cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
    let after = |option: &[u8]| {
        let pair = words.windows(2).find(|pair| pair[0] == option)?;
        Some(OsStr::from_bytes(pair[1]))
    };
    let is_same = |dir: &OsStr| {
        let whole = |path: &Path| fs::canonicalize(path).ok();
        dir == job.dir.path()
            || whole(Path::new(dir)).is_some_and(|dir| Some(dir) == whole(job.dir.path()))
    };
    words.get(1) == Some(&&b"serve-mount"[..])
        && after(b"--node") == Some(OsStr::new(&node.to_string()))
        && after(b"--job-dir").is_some_and(is_same)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::job::{JobDir, Kind, sample_settings};

    /// A process with the words of a mount that does not heed SIGTERM.
    fn mount(directory: &Path, job_dir: &Path, node: &str) -> Child {
        let mut command = Command::new("sh");
        command.current_dir(directory).args(["serve-mount", "--job-dir"]).arg(job_dir);
        command.args(["--node", node]).spawn().unwrap()
    }

    #[test]
    fn the_mount_of_a_dead_node_is_ended_and_no_other() {
        let top = tempfile::tempdir().unwrap();
        let (ours, other) = (top.path().join("job"), top.path().join("job2"));
        let mut settings = sample_settings(Kind::ThisMachine, 2);
        settings.mark = format!("orphans-{}", std::process::id());
        let job = Job { dir: JobDir::new(&ours), settings };
        // The shell reads it line by line.
        let script = "trap '' TERM\nwhile :; do sleep 0.1; done\n";
        fs::write(top.path().join("serve-mount"), script).unwrap();
        fs::create_dir(&ours).unwrap();
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        // By the path that `up` was given.
        let mut own = mount(top.path(), &link, "0");
        let mut others = [mount(top.path(), &ours, "1"), mount(top.path(), &other, "0")];
        // Until it ignores SIGTERM.
        std::thread::sleep(Duration::from_millis(100));
        let ended = end(&job, 0);
        assert_eq!(ended.notes, ["ended its mount"]);
        assert!(ended.lives.is_none());
        assert!(own.try_wait().unwrap().is_some());
        for child in &mut others {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(end(&job, 0).notes.is_empty());
    }
}
