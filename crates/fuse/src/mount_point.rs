//! Mounting on a directory, and unmounting what was mounted there, but nothing younger.
//!
//! The library (fuser 0.18) can mount too, but when its session ends it unmounts by path, whatever is mounted there by
//! then: it takes a dead connection for a living one. So we give it a connection, and it never learns the path.
//! Our mount is recognised by its number and its device. The kernel uses both again for a younger mount, but never while
//! our connection lives. Where root has cut the connection (`umount -f` of a busy mount), the mount can no longer be told
//! from a younger one and stays. Between the look at where it is and the unmount of that path others may mount or rename:
//! the kernel unmounts by path only.
//! Source: mount(2); `_FUSE_COMMFD` in util/fusermount.c of libfuse.

use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::mount_table::{self, Line};

/// The set-user-id program that mounts for ordinary users, by its names since libfuse 3 and before.
const FUSERMOUNT: [&str; 2] = ["fusermount3", "fusermount"];

/// Where it is searched after `PATH`, which batch jobs may have emptied.
const MORE_PLACES: [&str; 5] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];

/// What is mounted.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountOptions {
    /// The first column of /proc/mounts.
    pub(crate) name: String,
    pub(crate) read_only: bool,
    pub(crate) dev: bool,
    pub(crate) suid: bool,
    pub(crate) allow_other: bool,
    /// The kernel checks rights by mode and owner.
    pub(crate) checks_rights: bool,
    pub(crate) max_read: Option<u64>,
}

impl MountOptions {
    fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags
    }

    /// Those of FUSE.
    fn own(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.checks_rights {
            options.push("default_permissions".to_owned());
        }
        if self.allow_other {
            options.push("allow_other".to_owned());
        }
        options.extend(self.max_read.map(|bytes| format!("max_read={bytes}")));
        options
    }

    /// As fusermount3 takes them.
    fn of_fusermount(&self) -> String {
        let mut options = vec![format!("fsname={}", self.name), "subtype=hayase".to_owned()];
        options.extend(self.own());
        options.extend(self.read_only.then(|| "ro".to_owned()));
        options.join(",")
    }
}

/// A mount of this process. Everybody who may unmount it has a copy.
#[derive(Clone, Debug)]
pub(crate) struct MountPoint {
    seen: Seen,
    connection: Arc<OwnedFd>,
}

/// What became of a mount. Its path is the one it has now: who renames a directory above it, or moves it, changes that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// What its path leads to.
    OnTop(PathBuf),
    /// Its path leads to something else, which was mounted over it.
    Covered(PathBuf),
    /// Its connection was cut: what has its numbers is what is left of it, or a younger mount.
    Cut(PathBuf),
    /// Nowhere, whoever unmounted it.
    Gone,
}

/// By what a mount is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    number: u64,
    device: (u32, u32),
}

impl Seen {
    fn of(line: &Line) -> Self {
        Self { number: line.number, device: line.device }
    }

    /// The FUSE mount on `path`; `None` where that leads to something else.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let lines = mount_table::read()?;
        let top = mount_table::leads_to(&lines, path);
        Ok(top.filter(|line| line.is_fuse() && line.point == path).map(Self::of))
    }
}

/// Mounts on `path`. Requests wait in the connection until somebody answers them.
pub(crate) fn attach(path: &Path, options: &MountOptions) -> io::Result<(OwnedFd, MountPoint)> {
    let path = path.canonicalize()?;
    let connection = match by_ourselves(&path, options) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => by_fusermount(&path, options),
        connection => connection,
    }?;
    MountPoint::new(&path, connection, Seen::at)
}

fn by_ourselves(path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let connection = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    let mode = std::fs::metadata(path)?.mode();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = vec![format!(
        "fd={},rootmode={mode:o},user_id={},group_id={}",
        connection.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    )];
    data.extend(options.own());
    let data = CString::new(data.join(","))?;
    rustix::mount::mount(&options.name, path, "fuse", options.flags(), data.as_c_str())?;
    Ok(connection)
}

/// Without privilege a set-user-id program mounts, and sends the connection.
fn by_fusermount(path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    // As its standard input, which passes to a program by itself. Our copy of it ends with this statement: as long as we
    // had one, nothing would end our wait for a program that failed.
    let child = fusermount()
        .args(["-o", &options.of_fusermount(), "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let received = receive(&ours);
    let output = child.wait_with_output()?;
    match received {
        Ok(Some(connection)) if output.status.success() => return Ok(connection),
        Ok(None) if !output.status.success() => {}
        // It has mounted, and nobody could answer.
        _ => detach(path),
    }
    received?;
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("fusermount3: {}: {}", output.status, said.trim())))
}

/// `None` when the program ended without sending one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
    })?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(received)
}

fn fusermount() -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Command::new(find_fusermount(&path).unwrap_or_else(|| PathBuf::from(FUSERMOUNT[0])))
}

/// The program by which ordinary users mount and unmount; `path` is that of the environment.
pub fn find_fusermount(path: &OsStr) -> Option<PathBuf> {
    // An empty entry of PATH is the current directory, where anybody's program may lie.
    let entries = || std::env::split_paths(path).filter(|entry| entry.is_absolute());
    let places = || entries().chain(MORE_PLACES.iter().map(PathBuf::from));
    FUSERMOUNT
        .iter()
        .find_map(|name| places().map(|place| place.join(name)).find(|it| it.is_file()))
}

/// Binds that are looked for; more than anybody makes.
const BINDS_MAX: usize = 256;

impl MountPoint {
    /// Of what was just mounted on `path`. Unmounts it where that can not be looked at.
    fn new(
        path: &Path,
        connection: OwnedFd,
        look: impl FnOnce(&Path) -> io::Result<Option<Seen>>,
    ) -> io::Result<(OwnedFd, Self)> {
        let kept = connection.try_clone();
        match look(path).and_then(|seen| Ok((seen, kept?))) {
            Ok((Some(seen), kept)) => Ok((connection, Self { seen, connection: Arc::new(kept) })),
            Ok((None, _)) => Err(io::Error::other("it does not lead to what was mounted there")),
            Err(error) => {
                detach(path);
                Err(error)
            }
        }
    }

    /// As the kernel writes it.
    pub(crate) fn device(&self) -> String {
        let (major, minor) = self.seen.device;
        format!("{major}:{minor}")
    }

    /// Where it is now.
    pub(crate) fn place(&self) -> io::Result<Place> {
        // In this order: what has our numbers while the connection lives is ours.
        let lines = mount_table::read()?;
        let Some(ours) = lines.iter().find(|line| Seen::of(line) == self.seen) else {
            return Ok(Place::Gone);
        };
        let point = ours.point.clone();
        if !is_connected(&self.connection) {
            return Ok(if ours.is_fuse() { Place::Cut(point) } else { Place::Gone });
        }
        let is_on_top = mount_table::leads_to(&lines, &point) == Some(ours);
        Ok(if is_on_top { Place::OnTop(point) } else { Place::Covered(point) })
    }

    /// Detaches the binds of what was mounted: as long as one is there, the kernel keeps the file system, and its daemon
    /// would serve it without end. One that something is mounted over stays.
    pub(crate) fn detach_binds(&self) -> io::Result<()> {
        let mut refused = None;
        // The table is read again each time: detaching one bind may detach or uncover others.
        for _ in 0..BINDS_MAX {
            let lines = mount_table::read()?;
            // After that: what has our device while the connection lives is ours.
            if !is_connected(&self.connection) {
                return Ok(());
            }
            let is_open = |line: &&Line| {
                line.device == self.seen.device
                    && Seen::of(line) != self.seen
                    && refused.as_ref().is_none_or(|(number, _)| line.number != *number)
                    && mount_table::leads_to(&lines, &line.point) == Some(*line)
            };
            let Some(bind) = lines.iter().rev().find(is_open) else { break };
            if let Err(error) = unmount(&bind.point, UnmountFlags::DETACH) {
                refused = Some((bind.number, error));
            }
        }
        refused.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Tries it once, and says where it is then. Success too when it was gone already.
    pub(crate) fn unmount(&self, flags: UnmountFlags) -> io::Result<Place> {
        match self.place()? {
            Place::OnTop(point) => {
                unmount(&point, flags)?;
                Ok(Place::Gone)
            }
            place => Ok(place),
        }
    }
}

/// Whatever `path` leads to. Success too when nothing is mounted there.
fn unmount(path: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::PERM) => {
            let status = fusermount().args(["-u", "-q", "-z", "--"]).arg(path).status()?;
            match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("fusermount3: {status}"))),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// What we have mounted a moment ago and can not use.
fn detach(path: &Path) {
    if let Err(error) = unmount(path, UnmountFlags::DETACH) {
        tracing::warn!(%error, path = %path.display(), "leave a mount behind");
    }
}

/// Unmounts at its end, whatever happened in between.
pub(crate) struct Leaves(pub(crate) MountPoint);

impl Drop for Leaves {
    fn drop(&mut self) {
        match self.0.unmount(UnmountFlags::DETACH) {
            Ok(Place::Gone) => {}
            Ok(place) => tracing::warn!(?place, "leave a mount behind"),
            Err(error) => tracing::warn!(%error, "leave a mount behind"),
        }
    }
}

/// Whether the kernel has the file system of a connection still, mounted or not.
fn is_connected(connection: &OwnedFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once)));
    ready.is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory, unless nothing can be mounted here.
    fn mount_point(test: &str) -> Option<tempfile::TempDir> {
        if rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() {
            return Some(tempfile::tempdir().unwrap());
        }
        let line = format!("SKIP {test}: needs root and /dev/fuse\n");
        let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        None
    }

    fn options() -> MountOptions {
        MountOptions { name: "test".to_owned(), ..MountOptions::default() }
    }

    fn is_mounted(path: &Path) -> bool {
        mount_table::read().unwrap().iter().any(|line| line.point == path)
    }

    fn cover(path: &Path) {
        let flags = MountFlags::empty();
        rustix::mount::mount("over", path, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    }

    #[test]
    fn a_younger_mount_is_not_ours_though_it_has_our_numbers() {
        let Some(directory) = mount_point("a_younger_mount_is_not_ours") else { return };
        let path = directory.path().canonicalize().unwrap();
        let mount = || attach(directory.path(), &options()).unwrap();
        let (connection, ours) = mount();
        assert_eq!(ours.place().unwrap(), Place::OnTop(path.clone()));
        unmount(directory.path(), UnmountFlags::empty()).unwrap();
        let is_over = |place: Place| matches!(place, Place::Gone | Place::Cut(_));
        // Another process may have mounted meanwhile, with the numbers that became free.
        assert!(is_over(ours.place().unwrap()));

        let (_younger, younger) = mount();
        // The kernel takes the lowest numbers that are free, which other processes may have taken meanwhile.
        let ours = MountPoint { seen: younger.seen, ..ours };
        assert_eq!(ours.unmount(UnmountFlags::DETACH).unwrap(), Place::Cut(path.clone()));
        assert_eq!(younger.place().unwrap(), Place::OnTop(path), "it stays");
        assert_eq!(younger.unmount(UnmountFlags::empty()).unwrap(), Place::Gone);
        assert!(is_over(younger.place().unwrap()));
        drop(connection);
    }

    #[test]
    fn ours_is_left_where_something_is_mounted_over_it() {
        let Some(directory) = mount_point("ours_is_left") else { return };
        let path = directory.path().canonicalize().unwrap();
        let (_ours, ours) = attach(&path, &options()).unwrap();
        cover(&path);
        fs::write(path.join("file"), "over").unwrap();
        assert_eq!(ours.unmount(UnmountFlags::DETACH).unwrap(), Place::Covered(path.clone()));
        assert_eq!(fs::read(path.join("file")).unwrap(), b"over");
        unmount(&path, UnmountFlags::empty()).unwrap();
        assert_eq!(ours.place().unwrap(), Place::OnTop(path.clone()));
        assert_eq!(ours.unmount(UnmountFlags::DETACH).unwrap(), Place::Gone);
        assert!(!is_mounted(&path));
    }

    #[test]
    fn binds_of_ours_go_and_others_stay() {
        let Some(directory) = mount_point("binds_of_ours_go") else { return };
        let top = directory.path().canonicalize().unwrap();
        let [path, bind, covered, other] = ["ours", "bind", "covered", "other"].map(|name| {
            fs::create_dir(top.join(name)).unwrap();
            top.join(name)
        });
        let (_ours, ours) = attach(&path, &options()).unwrap();
        let (_other, others) = attach(&other, &options()).unwrap();
        for target in [&bind, &covered] {
            rustix::mount::mount_bind(&path, target).unwrap();
        }
        cover(&covered);
        ours.detach_binds().unwrap();
        assert_eq!(ours.place().unwrap(), Place::OnTop(path));
        assert!(!is_mounted(&bind) && is_mounted(&other), "only binds of ours go");
        assert!(is_mounted(&covered), "what is mounted over one stays");
        unmount(&covered, UnmountFlags::empty()).unwrap();
        ours.detach_binds().unwrap();
        assert!(!is_mounted(&covered));
        assert_eq!(ours.unmount(UnmountFlags::empty()).unwrap(), Place::Gone);
        ours.detach_binds().unwrap();
        assert_eq!(others.unmount(UnmountFlags::empty()).unwrap(), Place::Gone);
    }

    #[test]
    fn ours_is_left_where_something_is_mounted_above_it() {
        let Some(directory) = mount_point("ours_is_left_above") else { return };
        let above = directory.path().canonicalize().unwrap();
        let path = above.join("ours");
        fs::create_dir(&path).unwrap();
        let (_ours, ours) = attach(&path, &options()).unwrap();
        cover(&above);
        fs::create_dir(&path).unwrap();
        cover(&path);
        assert_eq!(ours.unmount(UnmountFlags::DETACH).unwrap(), Place::Covered(path.clone()));
        unmount(&path, UnmountFlags::empty()).unwrap();
        unmount(&above, UnmountFlags::empty()).unwrap();
        assert_eq!(ours.unmount(UnmountFlags::DETACH).unwrap(), Place::Gone);
        assert!(!is_mounted(&path));
    }

    #[test]
    fn a_mount_is_unmounted_where_it_is_now() {
        let Some(directory) = mount_point("unmounted_where_it_is_now") else { return };
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("before/ours")).unwrap();
        let (_ours, ours) = attach(&top.join("before/ours"), &options()).unwrap();
        fs::rename(top.join("before"), top.join("af ter")).unwrap();
        let now = top.join("af ter/ours");
        assert_eq!(ours.place().unwrap(), Place::OnTop(now.clone()));
        assert_eq!(ours.unmount(UnmountFlags::empty()).unwrap(), Place::Gone);
        assert!(!is_mounted(&now));
    }

    #[test]
    fn what_can_not_be_looked_at_is_not_left_mounted() {
        let Some(directory) = mount_point("what_can_not_be_looked_at") else { return };
        let path = directory.path().canonicalize().unwrap();
        let connection = by_ourselves(&path, &options()).unwrap();
        assert!(is_mounted(&path));
        let look = |_: &Path| Err(io::Error::other("no /proc"));
        MountPoint::new(&path, connection, look).unwrap_err();
        assert!(!is_mounted(&path));
    }

    #[test]
    fn fusermount_mounts_and_its_connection_arrives() {
        let Some(directory) = mount_point("fusermount_mounts") else { return };
        let path = directory.path().canonicalize().unwrap();
        if find_fusermount(OsStr::new("")).is_none() {
            let _ = io::Write::write_all(
                &mut io::stderr(),
                b"SKIP fusermount_mounts: no fusermount3\n",
            );
            return;
        }
        let connection = by_fusermount(&path, &options()).unwrap();
        let (_connection, ours) = MountPoint::new(&path, connection, Seen::at).unwrap();
        assert_eq!(ours.place().unwrap(), Place::OnTop(path.clone()));
        assert_eq!(ours.unmount(UnmountFlags::empty()).unwrap(), Place::Gone);

        let missing = by_fusermount(&path.join("missing"), &options()).unwrap_err();
        assert!(missing.to_string().contains("missing"), "{missing}");
        assert!(!is_mounted(&path));
    }

    #[test]
    fn fusermount_is_searched_in_path_first_and_then_where_systems_have_it() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        fs::write(second.path().join("fusermount"), "").unwrap();
        let installed = find_fusermount(OsStr::new(""));
        let older = installed.clone().filter(|it| it.ends_with("fusermount3"));
        let found = older.unwrap_or_else(|| second.path().join("fusermount"));
        assert_eq!(find_fusermount(&path), Some(found), "the newer name anywhere goes first");
        symlink("/dev/null", first.path().join("fusermount3")).unwrap();
        assert_ne!(find_fusermount(&path), Some(first.path().join("fusermount3")), "no program");
        fs::write(second.path().join("fusermount3"), "").unwrap();
        assert_eq!(find_fusermount(&path), Some(second.path().join("fusermount3")));
        // Where we are is a directory of anybody's.
        let here = std::env::current_dir().unwrap();
        let up = "../".repeat(here.components().count() - 1);
        let relative = Path::new(&up).join(second.path().strip_prefix("/").unwrap());
        assert!(relative.join("fusermount3").is_file());
        assert_eq!(find_fusermount(relative.as_os_str()), installed);
    }
}
