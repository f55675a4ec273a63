//! Who keeps a mount busy: processes of this mount namespace with a file, a directory or a mapping in it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::namespaces::mount_namespace;
use crate::process::{ProcessId, all};

/// Holders that are named; the rest is counted by the reader.
const HOLDERS_MAX: usize = 64;

/// A process that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Which.
    pub(crate) process: ProcessId,
    /// Its command's name.
    pub(crate) command: String,
    /// `cwd`, `root`, `exe`, `fd` or `map`.
    pub(crate) by: &'static str,
}

/// Finds them by what `/proc` says; touches no file below `mount`, which may hang.
pub(crate) fn of(mount: &Path) -> Vec<Holder> {
    let here = mount_namespace(Path::new("/proc/self"));
    holders(mount, |process| mount_namespace(&process.proc()) == here)
}

fn holders(mount: &Path, is_asked: impl Fn(&ProcessId) -> bool) -> Vec<Holder> {
    all()
        .filter(is_asked)
        .filter_map(|process| {
            let by = holds(&process.proc(), mount)?;
            let command = fs::read_to_string(process.proc().join("comm")).unwrap_or_default();
            Some(Holder { process, command: command.trim().to_owned(), by })
        })
        .take(HOLDERS_MAX)
        .collect()
}

/// Them as a message names them: `PID (COMMAND, BY), ...`.
pub(crate) fn named(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "somebody unseen".to_owned();
    }
    let names: Vec<_> = holders
        .iter()
        .map(|holder| format!("{} ({}, {})", holder.process.pid, holder.command, holder.by))
        .collect();
    names.join(", ")
}

fn holds(proc: &Path, mount: &Path) -> Option<&'static str> {
    for by in ["cwd", "root", "exe"] {
        if fs::read_link(proc.join(by)).is_ok_and(|target| target.starts_with(mount)) {
            return Some(by);
        }
    }
    let fds = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    for fd in fds {
        if fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(mount)) {
            return Some("fd");
        }
    }
    let maps = fs::read(proc.join("maps")).unwrap_or_default();
    maps.split(|&b| b == b'\n').any(|line| maps_below(line, mount)).then_some("map")
}

/// `start-end perms offset dev inode   path`
fn maps_below(line: &[u8], mount: &Path) -> bool {
    let Some(at) = line.iter().position(|&b| b == b'/') else { return false };
    Path::new(std::ffi::OsStr::from_bytes(&line[at..])).starts_with(mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_and_working_directories_are_found() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        let file = fs::File::create(top.join("x")).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(&top).spawn().unwrap();
        let found = of(&top);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(file);
        let by = |pid: u32| found.iter().find(|h| h.process.pid == pid as i32).map(|h| h.by);
        assert_eq!(by(std::process::id()), Some("fd"));
        assert_eq!(by(child.id()), Some("cwd"));
        assert!(of(&top.join("elsewhere")).is_empty());
    }

    #[test]
    fn mappings_are_read_from_maps() {
        let line = b"7f00-7f10 r--p 00000000 08:01 77                  /m/shared/a b";
        assert!(maps_below(line, Path::new("/m/shared")));
        assert!(!maps_below(line, Path::new("/m/sha")));
        assert!(!maps_below(b"7f00-7f10 r--p 00000000 00:00 0  [heap]", Path::new("/m")));
    }
}
