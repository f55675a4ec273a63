//! Finding and asking the programs of the system that we start: `ip`, `mkfs.xfs`, `fusermount3` and the like.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, kill_process_group};

/// Looked into after `PATH`, since batch jobs often start without the administrator's directories.
const MORE_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Between two looks whether a program has ended.
const LOOK_STEP: Duration = Duration::from_millis(5);

/// The first executable file called `name`.
pub(crate) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(name))
        .find(|file| is_executable(file))
}

/// The program by which ordinary users unmount.
pub(crate) fn fusermount() -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = hayase_fuse::find_fusermount(&path);
    Command::new(found.unwrap_or_else(|| PathBuf::from("fusermount3")))
}

/// What a program writes to its standard output; `None` when it does not end well in time. It is killed then,
/// with those that it has started.
pub(crate) fn told_within(program: &mut Command, patience: Duration) -> Option<String> {
    // A file in memory: whoever has it open, or has closed it, does not decide how long is waited.
    let output = rustix::fs::memfd_create("hayase-told", MemfdFlags::CLOEXEC).ok()?;
    let mut output = File::from(output);
    program.stdin(Stdio::null()).stdout(output.try_clone().ok()?).stderr(Stdio::null());
    let child = program.process_group(0).spawn().ok()?;
    let status = ended_within(child, patience)?;
    let mut text = String::new();
    output.rewind().ok()?;
    output.read_to_string(&mut text).ok()?;
    Some(text).filter(|_| status.success())
}

/// The leader of a process group, which is killed when it does not end in time.
fn ended_within(mut child: Child, patience: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(LOOK_STEP);
    }
    // It was not waited for: the number is still its own.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _already_over = kill_process_group(group, Signal::KILL);
    }
    // Apart: one that a hanging file system holds does not even end when it is killed.
    std::thread::spawn(move || child.wait());
    None
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_and_nowhere_else() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("hayase-test-program");
        std::fs::write(&file, "").unwrap();
        assert_eq!(find("hayase-test-program", top.path().as_os_str()), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("hayase-test-program", top.path().as_os_str()), Some(file));
    }

    #[test]
    fn what_a_program_says_in_time_is_told() {
        let told = |script: &str, seconds| {
            let mut shell = Command::new("sh");
            told_within(shell.args(["-c", script]), Duration::from_secs(seconds))
        };
        assert_eq!(told("echo 10:00", 60).as_deref(), Some("10:00\n"));
        assert_eq!(told("echo 10:00; exit 1", 60), None);
        assert_eq!(told("exec sleep 1000", 1), None);
        assert_eq!(told("exec >&-; exec sleep 1000", 1), None, "nor what says nothing any more");
        let said =
            told("sleep 100 & echo $!", 60).expect("what it has left running is not waited for");
        let left = Pid::from_raw(said.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(left, Signal::KILL).unwrap();
    }

    #[test]
    fn what_takes_too_long_does_not_live_on() {
        let top = tempfile::tempdir().unwrap();
        let pids = top.path().join("pids");
        let script = "exec >&-; sleep 1000 & echo $$ $! > \"$0.tmp\" && mv \"$0.tmp\" \"$0\"; wait";
        let mut shell = Command::new("sh");
        // As long as it needs to tell who it is.
        assert_eq!(
            told_within(shell.args(["-c", script]).arg(&pids), Duration::from_secs(5)),
            None
        );
        let until = Instant::now() + Duration::from_secs(60);
        for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
            while is_alive(pid) {
                assert!(Instant::now() < until, "{pid} lives on");
                std::thread::sleep(LOOK_STEP);
            }
        }
    }

    /// Neither gone nor waiting for somebody to hear of its end.
    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}
