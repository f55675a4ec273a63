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
//!
//! Owner and mode are those of descriptors, of which each was opened from the one above ([`Held`]), links read and walked
//! in the same way: what was looked at is what the caller gets, even if the path leads elsewhere meanwhile.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use hayase_fuse::mount_table::{self, Line};
use rustix::fs::{FileType, Stat};

use super::held::Held;
use super::{Distrust, JobError};

/// Links on the way to a directory; the kernel follows as many.
const LINKS_MAX: usize = 40;

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The map of user numbers where root is root of the machine.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// In a directory with this bit users can replace only what is their own.
const STICKY: u32 = 0o1000;

/// A directory if it is there. Refuses one that another user made, can write to, or can replace.
pub(crate) fn expect_own(dir: &Path) -> Result<Option<Held>, JobError> {
    Ok(find_own(dir)?.map(|(_, held)| held))
}

/// The same, with the path without links of what was looked at.
pub(crate) fn find_own(dir: &Path) -> Result<Option<(PathBuf, Held)>, JobError> {
    let Some(Place { path, held, found }) = walk(dir)? else { return Ok(None) };
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return refuse(&path, Distrust::Owner(found.st_uid));
    }
    if found.st_mode & OTHERS_WRITE != 0 {
        return refuse(&path, Distrust::OthersWrite);
    }
    Ok(Some((path, held)))
}

/// Refuses a path that other users can lead elsewhere, as far as it is there. The directory that it leads to, if it does.
pub(crate) fn expect_safe_way(path: &Path) -> Result<Option<Held>, JobError> {
    Ok(walk(path)?.map(|place| place.held))
}

/// The same; the path without links of what was looked at.
pub(crate) fn whole_safe_way(path: &Path) -> Result<Option<PathBuf>, JobError> {
    Ok(walk(path)?.map(|place| place.path))
}

/// Removes a link that this user made, in a place to which nobody else leads them.
///
/// # Errors
/// Also when something else is there.
pub(crate) fn remove_link(path: &Path) -> io::Result<()> {
    let (above, name) = held_above(path)?;
    above.remove_link(&name)
}

/// The same with an empty directory.
pub(crate) fn remove_empty(path: &Path) -> io::Result<()> {
    let (above, name) = held_above(path)?;
    above.remove_empty(&name)
}

/// The directory above `path`, and its name in that.
fn held_above(path: &Path) -> io::Result<(Held, OsString)> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let found = expect_safe_way(above).map_err(io::Error::other)?;
    let held = found.ok_or(io::ErrorKind::NotFound)?;
    Ok((held, name.to_owned()))
}

fn walk(path: &Path) -> Result<Option<Place>, JobError> {
    let lines = mount_table::read().map_err(JobError::io("read", "/proc/self/mountinfo"))?;
    Way::here().walk(path, &lines)
}

/// Makes the directories that are missing up to `path`, which nobody else can enter.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Whether user 0 is not root of the machine: in containers it is often the user who started them, and directories of the
/// machine's root belong to nobody.
pub(crate) fn is_mapped() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| !map.split_ascii_whitespace().eq(ALL_USERS))
}

/// A directory on the way, as it was when it was opened.
struct Place {
    /// Without links.
    path: PathBuf,
    held: Held,
    found: Stat,
}

impl Place {
    fn of(path: PathBuf, held: Held) -> Result<Self, JobError> {
        let found = held.found().map_err(JobError::io("look at", &path))?;
        Ok(Self { path, held, found })
    }

    /// Whether everybody can make something in it.
    fn is_public(&self) -> bool {
        self.found.st_mode & 0o002 != 0
    }
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

    /// The directory that `path` leads to; none where it is not there, or is something else.
    fn walk(&self, path: &Path, mounts: &[Line]) -> Result<Option<Place>, JobError> {
        let whole = std::path::absolute(path).map_err(JobError::io("find", path))?;
        let top = Held::top().map_err(JobError::io("look at", "/"))?;
        let mut at = vec![Place::of(PathBuf::from("/"), top)?];
        let (mut left, mut links) = (steps(&whole), 0);
        self.check(path, &at[0], left.len() == 1, false)?;
        while let Some(step) = left.pop_front() {
            match step.to_str() {
                Some("/") => at.truncate(1),
                Some("..") if at.len() == 1 => {}
                Some("..") => drop(at.pop()),
                _ => {
                    let above = at.last().expect("the root stays");
                    let Some(next) = self.step(path, above, &step, mounts)? else {
                        return Ok(None);
                    };
                    self.check(path, &next, left.is_empty(), above.is_public())?;
                    match FileType::from_raw_mode(next.found.st_mode) {
                        FileType::Directory => at.push(next),
                        FileType::Symlink if links == LINKS_MAX => {
                            return refuse(path, Distrust::Links);
                        }
                        FileType::Symlink => {
                            links += 1;
                            let target = next.held.target();
                            let target = target.map_err(JobError::io("follow", &next.path))?;
                            left = steps(&target).into_iter().chain(left).collect();
                        }
                        _ => return Ok(None),
                    }
                }
            }
        }
        Ok(at.pop())
    }

    /// What a name is in a directory on the way; none where it is not there.
    fn step(
        &self,
        path: &Path,
        above: &Place,
        name: &OsStr,
        mounts: &[Line],
    ) -> Result<Option<Place>, JobError> {
        let next = above.path.join(name);
        // Before it is looked at, which a file system may not answer.
        self.check_mount(path, &next, above.is_public(), mounts)?;
        let held = match above.held.look(name) {
            Err(error) if is_missing(&error) => return Ok(None),
            looked => looked.map_err(JobError::io("look at", &next))?,
        };
        if self.is_root || above.is_public() {
            self.check_mounted(path, &next, &above.held, &held, mounts)?;
        }
        Place::of(next, held).map(Some)
    }

    /// Refuses what others have made, or can replace; `is_last`: nothing of the way follows, unless this is a link.
    fn check(
        &self,
        path: &Path,
        place: &Place,
        is_last: bool,
        is_public: bool,
    ) -> Result<(), JobError> {
        let Place { path: at, found, .. } = place;
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        let is_end = is_last && !is_link;
        if !self.trusts(found, is_public) {
            if is_end {
                return refuse(at, Distrust::Owner(found.st_uid));
            }
            let (at, user) = (at.clone(), found.st_uid);
            if !is_link {
                return refuse(path, Distrust::Above { at, user });
            }
            let target = place.held.target().map_err(JobError::io("follow", &at))?;
            let target = at.parent().map_or_else(|| target.clone(), |above| above.join(&target));
            return refuse(path, Distrust::LinkAbove { at, user, target });
        }
        let (is_open, is_sticky) = modes(found);
        if self.is_root && is_open && !is_sticky && !is_link {
            if is_end {
                return refuse(at, Distrust::OthersWrite);
            }
            return refuse(path, Distrust::Replaceable(at.clone()));
        }
        Ok(())
    }

    /// Whether what was found may be on the way; `is_public`: everybody could have made it there. A directory that its
    /// owner shares with a group of this user is a project's.
    fn trusts(&self, found: &Stat, is_public: bool) -> bool {
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let is_shared = || found.st_mode & 0o020 != 0 && self.groups.contains(&found.st_gid);
        found.st_uid == 0
            || found.st_uid == self.uid
            || !(self.is_root || is_public)
            || (!self.is_root && is_dir && is_shared())
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
        self.refuse_mounted(path, at, here)
    }

    /// The same of what was opened: it may have been mounted since the list was read.
    fn check_mounted(
        &self,
        path: &Path,
        at: &Path,
        above: &Held,
        held: &Held,
        mounts: &[Line],
    ) -> Result<(), JobError> {
        let changed = || refuse(path, Distrust::MountsChanged(at.to_owned()));
        let Some(number) = held.mount() else { return changed() };
        if above.mount() == Some(number) {
            return Ok(());
        }
        let is_this = |line: &&Line| line.number == number;
        if let Some(line) = mounts.iter().find(is_this) {
            return self.refuse_mounted(path, at, std::iter::once(line));
        }
        let lines = mount_table::read().map_err(JobError::io("read", "/proc/self/mountinfo"))?;
        match lines.iter().find(is_this) {
            Some(line) => self.refuse_mounted(path, at, std::iter::once(line)),
            // It was detached after it was opened, and its daemon still answers.
            None => changed(),
        }
    }

    fn refuse_mounted<'a>(
        &self,
        path: &Path,
        at: &Path,
        mut lines: impl Iterator<Item = &'a Line>,
    ) -> Result<(), JobError> {
        let user = lines.find_map(|line| line.user.filter(|user| *user != 0 && *user != self.uid));
        match user {
            Some(user) => refuse(path, Distrust::Mounted { at: at.to_owned(), user }),
            None => Ok(()),
        }
    }
}

/// Whether others can write to a directory, and whether they can replace only what is theirs.
fn modes(found: &Stat) -> (bool, bool) {
    (found.st_mode & OTHERS_WRITE != 0, found.st_mode & STICKY != 0)
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
    use std::os::fd::AsRawFd;
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
        assert!(expect_own(&dir).unwrap().is_none(), "it is not there");
        fs::create_dir(&dir).unwrap();
        mode(&dir, 0o755);
        assert!(expect_own(&dir).unwrap().is_some());
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
        assert!(expect_own(&dir).unwrap().is_some());
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
        assert!(expect_own(&dir).unwrap().is_some(), "others can not replace what is not theirs");

        // A link on the way counts, and so does where it leads.
        let link = top.path().join("link");
        symlink("./above/../above", &link).unwrap();
        let through = link.join("job");
        assert!(expect_own(&through).unwrap().is_some());
        lchown(&link, Some(STRANGER), None).unwrap();
        let target = top.path().join("./above/../above");
        let refused = why(expect_own(&through));
        assert_eq!(
            refused,
            Some(Distrust::LinkAbove { at: link.clone(), user: STRANGER, target: target.clone() })
        );
        let help = refused.map(|why| why.help()).unwrap_or_default();
        assert!(help.ends_with(&format!("{target:?}")), "{help}");
        lchown(&link, Some(0), None).unwrap();
        mode(&above, 0o777);
        assert_eq!(why(expect_own(&through)), Some(Distrust::Replaceable(above)));
    }

    #[test]
    fn other_users_trust_colleagues_and_not_what_was_made_in_tmp() {
        let Some((top, above, dir)) = directories() else { return };
        let user = Way { uid: 4712, is_root: false, groups: vec![700] };
        chown(&dir, Some(user.uid), None).unwrap();
        user.walk(&dir, &[]).unwrap();
        // A project's directory, of its leader and for the group.
        chown(&above, Some(STRANGER), None).unwrap();
        mode(&above, 0o2770);
        user.walk(&dir, &[]).unwrap();
        // The same, made where everybody can.
        mode(top.path(), 0o1777);
        assert_eq!(
            why(user.walk(&dir, &[])),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        assert_eq!(why(user.walk(&above, &[])), Some(Distrust::Owner(STRANGER)));
        // Whose group the user is in: a project below a public scratch directory.
        chown(&above, None, Some(700)).unwrap();
        user.walk(&dir, &[]).unwrap();
        mode(&above, 0o755);
        assert_eq!(
            why(user.walk(&dir, &[])),
            Some(Distrust::Above { at: above.clone(), user: STRANGER })
        );
        chown(&above, Some(user.uid), None).unwrap();
        user.walk(&dir, &[]).unwrap();
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
        assert_eq!(why(root.walk(&dir.join("job"), &lines)), refused);
        root.walk(&above, &lines).unwrap();
        for own in [None, Some(0)] {
            root.walk(&dir, &[mounted(&dir, own)]).unwrap();
        }
        // The system's own, served by some daemon's user; and one in a place where everybody can make it.
        let user = Way { uid: 4712, is_root: false, groups: Vec::new() };
        user.walk(&dir, &lines).unwrap();
        mode(&above, 0o1777);
        assert_eq!(why(user.walk(&dir, &lines)), refused);
        Way { uid: STRANGER, ..user }.walk(&dir, &lines).unwrap();
        drop(top);
    }

    /// Its server has ended, so that it answers nothing, and would show any owner before.
    #[test]
    fn what_was_mounted_after_the_look_is_not_believed() {
        let Some((_top, _, dir)) = directories() else { return };
        let Ok(device) = fs::File::options().read(true).write(true).open("/dev/fuse") else {
            return println!("SKIP what_was_mounted_after_the_look: there is no /dev/fuse");
        };
        let options =
            format!("fd={},rootmode=40000,user_id={STRANGER},group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("strange", &dir, "fuse", flags, Some(options.as_c_str())).unwrap();
        drop(device);
        let root = Way { uid: 0, is_root: true, groups: Vec::new() };
        let found = root.walk(&dir.join("job"), &[]).map(|found| found.is_some());
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert_eq!(why(found), Some(Distrust::Mounted { at: dir, user: STRANGER }));
    }

    fn proc() -> Line {
        let lines = mount_table::read().unwrap();
        lines.into_iter().find(|line| line.point == Path::new("/proc")).unwrap()
    }
}
