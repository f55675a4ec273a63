//! Whether nobody but its caller could have written what a command is about to act on.
//!
//! A command signals processes, unmounts and removes what the files of a job name, with its caller's rights. So nothing of
//! a job is read before it is known that its directory is the caller's own and that nobody else can write to it; then
//! nobody else can replace it in `/tmp` either. On the way to it
//! - for root nothing may belong to another user, and others must not be able to replace what is in it, as `StrictModes` of
//!   sshd(8) has it;
//! - for other users, who keep directories below those of colleagues and have to trust these, nothing that somebody else
//!   has made in a directory where everybody can, such as `/tmp`, unless it is shared with a group of theirs.
//!
//! A file system that another user has mounted there by FUSE says whatever that user likes, and is refused.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use hayase_fuse::mount_table::{self, Line};

use super::{Distrust, JobError};

/// Links on the way to a directory; the kernel follows as many.
const LINKS_MAX: usize = 40;

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The map of user numbers where root is root of the machine.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// In a directory with this bit users can replace only what is their own.
const STICKY: u32 = 0o1000;

/// Whether `dir` is there. Refuses one that another user made, can write to, or can replace.
pub(crate) fn expect_own(dir: &Path) -> Result<bool, JobError> {
    expect_safe_way(dir)?;
    let found = match fs::metadata(dir) {
        Err(error) if is_missing(&error) => return Ok(false),
        found => found.map_err(JobError::io("look at", dir))?,
    };
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid {
        return refuse(dir, Distrust::Owner(found.uid()));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        return refuse(dir, Distrust::OthersWrite);
    }
    Ok(true)
}

/// Refuses a path that other users can lead elsewhere, as far as it is there.
pub(crate) fn expect_safe_way(path: &Path) -> Result<(), JobError> {
    let lines = mount_table::read().map_err(JobError::io("read", "/proc/self/mountinfo"))?;
    Way::here().check(path, &lines)
}

/// Makes the directories that are missing up to `path`, which nobody else can enter.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Whether user 0 is not root of the machine: in containers it is often the user who started them, and directories of the
/// machine's root belong to nobody.
fn is_mapped() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| !map.split_ascii_whitespace().eq(ALL_USERS))
}

/// How a path is looked at.
struct Way {
    uid: u32,
    /// Nothing of any other user is trusted.
    is_root: bool,
    groups: Vec<u32>,
}

impl Way {
    fn here() -> Self {
        let uid = rustix::process::geteuid();
        let own = std::iter::once(rustix::process::getegid());
        let groups = own.chain(rustix::process::getgroups().unwrap_or_default());
        Self {
            uid: uid.as_raw(),
            is_root: uid.is_root() && !is_mapped(),
            groups: groups.map(rustix::process::Gid::as_raw).collect(),
        }
    }

    fn check(&self, path: &Path, mounts: &[Line]) -> Result<(), JobError> {
        let whole = std::path::absolute(path).map_err(JobError::io("find", path))?;
        let mut left = steps(&whole);
        let (mut at, mut links, mut is_public) = (PathBuf::from("/"), 0, false);
        while let Some(step) = left.pop_front() {
            let (next, is_down) = match step.to_str() {
                Some("/") => (PathBuf::from("/"), false),
                Some("..") => (at.parent().unwrap_or(&at).to_owned(), false),
                _ => (at.join(&step), true),
            };
            is_public &= is_down;
            // Before it is looked at, which a file system may not answer.
            self.check_mount(path, &next, is_public, mounts)?;
            let found = match fs::symlink_metadata(&next) {
                Err(error) if is_missing(&error) => return Ok(()),
                found => found.map_err(JobError::io("look at", &next))?,
            };
            if !self.trusts(&found, is_public) {
                let why = match next == whole {
                    true => Distrust::Owner(found.uid()),
                    false => Distrust::Above { at: next, user: found.uid() },
                };
                return refuse(path, why);
            }
            if found.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return refuse(path, Distrust::Links);
                }
                let target = fs::read_link(&next).map_err(JobError::io("follow", &next))?;
                for step in steps(&target).into_iter().rev() {
                    left.push_front(step);
                }
                continue;
            }
            let (is_open, is_sticky) = modes(&found);
            if self.is_root && is_open && !is_sticky {
                let is_last = next == whole;
                return refuse(
                    path,
                    if is_last { Distrust::OthersWrite } else { Distrust::Replaceable(next) },
                );
            }
            (at, is_public) = (next, found.mode() & 0o002 != 0);
        }
        Ok(())
    }

    /// Whether what was found may be on the way; `is_public`: everybody could have made it there. A directory that its
    /// owner shares with a group of this user is a project's.
    fn trusts(&self, found: &Metadata, is_public: bool) -> bool {
        let is_shared = || found.mode() & 0o020 != 0 && self.groups.contains(&found.gid());
        found.uid() == 0
            || found.uid() == self.uid
            || !(self.is_root || is_public)
            || (!self.is_root && found.is_dir() && is_shared())
    }

    /// Whoever has mounted a file system by FUSE answers for the owners that it shows. What is mounted at places that
    /// nobody else can make is the system's, whatever user its daemon runs as.
    fn check_mount(
        &self,
        path: &Path,
        at: &Path,
        is_public: bool,
        mounts: &[Line],
    ) -> Result<(), JobError> {
        if !(self.is_root || is_public) {
            return Ok(());
        }
        let here = mounts.iter().filter(|line| line.point == at && at != Path::new("/"));
        match here.filter_map(|line| line.user).find(|user| *user != 0 && *user != self.uid) {
            Some(user) => refuse(path, Distrust::Mounted { at: at.to_owned(), user }),
            None => Ok(()),
        }
    }
}

/// Whether others can write to a directory, and whether they can replace only what is theirs.
fn modes(found: &Metadata) -> (bool, bool) {
    (found.mode() & OTHERS_WRITE != 0, found.mode() & STICKY != 0)
}

fn steps(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|step| *step != Component::CurDir);
    named.map(|step| step.as_os_str().to_owned()).collect()
}

fn refuse<T>(path: &Path, why: Distrust) -> Result<T, JobError> {
    Err(JobError::Foreign { path: path.to_owned(), why, entry: None })
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const STRANGER: u32 = 4711;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why<T>(found: Result<T, JobError>) -> Option<Distrust> {
        match found {
            Ok(_) => None,
            Err(JobError::Foreign { why, .. }) => Some(why),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("job");
        assert!(!expect_own(&dir).unwrap(), "it is not there");
        fs::create_dir(&dir).unwrap();
        mode(&dir, 0o755);
        assert!(expect_own(&dir).unwrap());
        for others in [0o720, 0o702, 0o1777] {
            mode(&dir, others);
            assert_eq!(why(expect_own(&dir)), Some(Distrust::OthersWrite), "{others:o}");
        }
    }

    /// Only root can make directories of others; below /tmp, since the temporary directory may be in one of another user.
    fn directories() -> Option<(tempfile::TempDir, PathBuf, PathBuf)> {
        if !rustix::process::geteuid().is_root() || is_mapped() {
            println!("SKIP: only root can give a directory to another user");
            return None;
        }
        let top = tempfile::tempdir_in("/tmp").unwrap();
        let (above, dir) = (top.path().join("above"), top.path().join("above/job"));
        fs::create_dir_all(&dir).unwrap();
        mode(&dir, 0o700);
        mode(&above, 0o755);
        Some((top, above, dir))
    }

    #[test]
    fn root_takes_nothing_that_another_user_made_or_can_replace() {
        let Some((top, above, dir)) = directories() else { return };
        chown(&dir, Some(STRANGER), None).unwrap();
        assert_eq!(why(expect_own(&dir)), Some(Distrust::Owner(STRANGER)));
        assert_eq!(why(expect_safe_way(&dir)), Some(Distrust::Owner(STRANGER)));
        chown(&dir, Some(0), None).unwrap();
        assert!(expect_own(&dir).unwrap());
        chown(&above, Some(STRANGER), None).unwrap();
        assert_eq!(
            why(expect_own(&dir)),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        let missing = above.join("missing/job");
        assert_eq!(
            why(expect_safe_way(&missing)),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        chown(&above, Some(0), None).unwrap();
        mode(&above, 0o777);
        assert_eq!(why(expect_own(&dir)), Some(Distrust::Replaceable(above.clone())));
        mode(&above, 0o1777);
        assert!(expect_own(&dir).unwrap(), "others can not replace what is not theirs");

        // A link on the way counts, and so does where it leads.
        let link = top.path().join("link");
        symlink("./above/../above", &link).unwrap();
        let through = link.join("job");
        assert!(expect_own(&through).unwrap());
        lchown(&link, Some(STRANGER), None).unwrap();
        assert_eq!(
            why(expect_own(&through)),
            Some(Distrust::Above { at: link.clone(), user: STRANGER })
        );
        lchown(&link, Some(0), None).unwrap();
        mode(&above, 0o777);
        assert_eq!(why(expect_own(&through)), Some(Distrust::Replaceable(above)));
    }

    #[test]
    fn other_users_trust_colleagues_and_not_what_was_made_in_tmp() {
        let Some((top, above, dir)) = directories() else { return };
        let user = Way { uid: 4712, is_root: false, groups: vec![700] };
        chown(&dir, Some(user.uid), None).unwrap();
        user.check(&dir, &[]).unwrap();
        // A project's directory, of its leader and for the group.
        chown(&above, Some(STRANGER), None).unwrap();
        mode(&above, 0o2770);
        user.check(&dir, &[]).unwrap();
        // The same, made where everybody can.
        mode(top.path(), 0o1777);
        assert_eq!(
            why(user.check(&dir, &[])),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        assert_eq!(why(user.check(&above, &[])), Some(Distrust::Owner(STRANGER)));
        // Whose group the user is in: a project below a public scratch directory.
        chown(&above, None, Some(700)).unwrap();
        user.check(&dir, &[]).unwrap();
        mode(&above, 0o755);
        assert_eq!(
            why(user.check(&dir, &[])),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        chown(&above, Some(user.uid), None).unwrap();
        user.check(&dir, &[]).unwrap();
    }

    #[test]
    fn a_file_system_of_another_user_is_not_believed() {
        let Some((top, above, dir)) = directories() else { return };
        let mounted = |point: &Path, user| {
            let mut line = proc();
            (line.point, line.user) = (point.to_owned(), user);
            line
        };
        let root = Way { uid: 0, is_root: true, groups: Vec::new() };
        let lines = [mounted(&dir, Some(STRANGER)), mounted(Path::new("/"), Some(STRANGER))];
        let refused = Some(Distrust::Mounted { at: dir.clone(), user: STRANGER });
        assert_eq!(why(root.check(&dir.join("job"), &lines)), refused);
        root.check(&above, &lines).unwrap();
        for own in [None, Some(0)] {
            root.check(&dir, &[mounted(&dir, own)]).unwrap();
        }
        // The system's own, served by some daemon's user; and one in a place where everybody can make it.
        let user = Way { uid: 4712, is_root: false, groups: Vec::new() };
        user.check(&dir, &lines).unwrap();
        mode(&above, 0o1777);
        assert_eq!(why(user.check(&dir, &lines)), refused);
        Way { uid: STRANGER, ..user }.check(&dir, &lines).unwrap();
        drop(top);
    }

    fn proc() -> Line {
        let lines = mount_table::read().unwrap();
        lines.into_iter().find(|line| line.point == Path::new("/proc")).unwrap()
    }
}
