//! Finding and asking the programs of the system that we start: `ip`, `mkfs.xfs`, `fusermount3` and the like.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Looked into after `PATH`, since batch jobs often start without the administrator's directories.
const MORE_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The first executable file called `name`.
pub(crate) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .map(|place| place.join(name))
        .find(|file| is_executable(file))
}

/// What a program writes to its standard output; `None` when it does not end well in time. It is killed then.
pub(crate) fn told_within(program: &mut Command, patience: Duration) -> Option<String> {
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn().ok()?;
    let mut output = child.stdout.take()?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = tell.send(output.read_to_string(&mut text).map(|_| text));
    });
    let text = told.recv_timeout(patience);
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    text.ok()?.ok().filter(|_| status.success())
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
        assert_eq!(told("exec sleep 1000", 1), None, "and it does not live on");
    }
}
