//! Whether nobody but its caller could have written what a command is about to act on.
//!
//! A command signals processes, unmounts and removes what the files of a job name, with its caller's rights. So nothing of a
//! job is read before it is known that its directory is the caller's own and that nobody else may write there. Where root
//! asks, nobody else may replace a directory or a link on the way to it either, as `StrictModes` of sshd(8) has it: other
//! users keep directories in places that colleagues may write, and have to trust those.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::JobError;

/// Links on the way to a directory; the kernel follows as many.
const LINKS_MAX: usize = 40;

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// In a directory with this bit users can replace only what is their own.
const STICKY: u32 = 0o1000;

/// The map of user numbers where root is root of the machine.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// Refuses a directory that another user made, can write or, where root asks, can replace. One that is not there is fine.
pub(crate) fn expect_own(dir: &Path) -> Result<(), JobError> {
    let uid = rustix::process::geteuid();
    let found = match fs::metadata(dir) {
        Err(error) if is_missing(&error) => return Ok(()),
        found => found.map_err(JobError::io("look at", dir))?,
    };
    expect_owner(dir, &found, uid.as_raw())?;
    if found.mode() & OTHERS_WRITE != 0 {
        return refuse(dir, "others may write there");
    }
    if uid.is_root() && is_root_of_the_machine() { check_way(dir) } else { Ok(()) }
}

/// Whether user 0 is not just what a container calls the user who started it.
fn is_root_of_the_machine() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(ALL_USERS))
}

/// Refuses a path on which another user than root can replace a directory or a link.
fn check_way(path: &Path) -> Result<(), JobError> {
    let path = std::path::absolute(path).map_err(JobError::io("find", path))?;
    let mut left = steps(&path);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(step) = left.pop_front() {
        let next = match step.to_str() {
            Some("/") => PathBuf::from("/"),
            Some("..") => at.parent().unwrap_or(&at).to_owned(),
            _ => at.join(&step),
        };
        let found = match fs::symlink_metadata(&next) {
            Err(error) if is_missing(&error) => return Ok(()),
            found => found.map_err(JobError::io("look at", &next))?,
        };
        expect_owner(&next, &found, 0)?;
        if !found.is_symlink() {
            if found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0 {
                return refuse(&next, "others may replace what is in it");
            }
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return refuse(&path, "too many links lead to it");
        }
        let target = fs::read_link(&next).map_err(JobError::io("follow", &next))?;
        for step in steps(&target).into_iter().rev() {
            left.push_front(step);
        }
    }
    Ok(())
}

fn steps(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|step| *step != Component::CurDir);
    named.map(|step| step.as_os_str().to_owned()).collect()
}

fn expect_owner(path: &Path, found: &Metadata, uid: u32) -> Result<(), JobError> {
    if found.uid() == uid {
        return Ok(());
    }
    refuse(path, &format!("it belongs to user {}", found.uid()))
}

fn refuse(path: &Path, why: &str) -> Result<(), JobError> {
    Err(JobError::Foreign { path: path.to_owned(), why: why.to_owned() })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(path: &Path) -> String {
        match expect_own(path) {
            Ok(()) => String::new(),
            Err(JobError::Foreign { path, why }) => format!("{}: {why}", path.display()),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("job");
        assert_eq!(why(&dir), "", "it is not there");
        fs::create_dir(&dir).unwrap();
        mode(&dir, 0o755);
        assert_eq!(why(&dir), "");
        for others in [0o720, 0o702, 0o1777] {
            mode(&dir, others);
            assert!(why(&dir).ends_with("job: others may write there"), "{others:o}");
        }
    }

    /// Only root can make directories of others.
    #[test]
    fn root_takes_nothing_that_another_user_made_or_can_replace() {
        if !rustix::process::geteuid().is_root() || !is_root_of_the_machine() {
            return println!("SKIP: only root can give a directory to another user");
        }
        let top = tempfile::tempdir().unwrap();
        let (owned, dir) = (top.path().join("owned"), top.path().join("owned/job"));
        fs::create_dir_all(&dir).unwrap();
        mode(&dir, 0o700);
        chown(&dir, Some(4711), None).unwrap();
        assert!(why(&dir).ends_with("owned/job: it belongs to user 4711"));
        chown(&dir, Some(0), None).unwrap();
        assert_eq!(why(&dir), "");
        chown(&owned, Some(4711), None).unwrap();
        assert!(why(&dir).ends_with("owned: it belongs to user 4711"));
        chown(&owned, Some(0), None).unwrap();
        mode(&owned, 0o777);
        assert!(why(&dir).ends_with("owned: others may replace what is in it"));
        mode(&owned, 0o1777);
        assert_eq!(why(&dir), "", "others can not replace what is not theirs");

        // A link on the way counts, and so does where it leads.
        let link = top.path().join("link");
        symlink("./owned/../owned", &link).unwrap();
        assert_eq!(why(&link.join("job")), "");
        std::os::unix::fs::lchown(&link, Some(4711), None).unwrap();
        assert!(why(&link.join("job")).ends_with("link: it belongs to user 4711"));
        std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
        mode(&owned, 0o777);
        assert!(why(&link.join("job")).ends_with("owned: others may replace what is in it"));
    }
}
