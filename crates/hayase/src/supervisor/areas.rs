//! The areas of a node as mounts: showing `local`, hiding both again.
//!
//! Not here: the images below them (`wiring::areas`), the FUSE mount itself (`serve-mount`).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};

use crate::job::{Settings, remove_link};
use crate::system::mounts::{is_mount_point, is_ours, top_at};
use crate::system::{holders, program};

/// An unmount that fails without a holder to be seen is tried again this often.
const QUIET_RETRIES: u32 = 5;
const QUIET_WAIT: Duration = Duration::from_millis(5);

/// How a mount went away.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// It was not there, or it is gone.
    Gone,
    /// It is out of sight; the kernel keeps it until those who hold it let go.
    Detached(String),
    /// It is still there.
    Failed(String),
}

/// Shows the node's `local`: bound where we may mount, else a symbolic link.
pub(crate) fn show_local(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let (root, mount) = (settings.local_root(node), settings.local_mount(node));
    let failed = || format!("show the local area at {}", mount.display());
    if settings.is_privileged {
        return rustix::mount::mount_bind(&root, &mount).with_context(failed);
    }
    fs::remove_dir(&mount)
        .and_then(|()| std::os::unix::fs::symlink(&root, &mount))
        .with_context(failed)
}

/// Takes `local` out of sight.
pub(crate) fn hide_local(settings: &Settings, node: u16) -> Hidden {
    let mount = settings.local_mount(node);
    if mount.is_symlink() {
        return match remove_link(&mount) {
            Ok(()) => Hidden::Gone,
            Err(error) => Hidden::Failed(format!("remove {}: {error}", mount.display())),
        };
    }
    hide(&mount, settings.is_privileged)
}

/// Shows the cache area, a directory of the mount of `shared`: bound where we may mount, else a
/// symbolic link.
pub(crate) fn show_cache(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let Some(mount) = settings.cache_mount(node) else { return Ok(()) };
    let name = std::ffi::OsStr::from_bytes(hayase_server::CACHE_NAME);
    let root = settings.shared_mount(node).join(name);
    let failed = || format!("show the cache area at {}", mount.display());
    if settings.is_privileged {
        return rustix::mount::mount_bind(&root, &mount).with_context(failed);
    }
    fs::remove_dir(&mount)
        .and_then(|()| std::os::unix::fs::symlink(&root, &mount))
        .with_context(failed)
}

/// Takes the cache area out of sight; `shared` can not go before it.
pub(crate) fn hide_cache(settings: &Settings, node: u16) -> Hidden {
    let Some(mount) = settings.cache_mount(node) else { return Hidden::Gone };
    if !mount.is_symlink() {
        return hide(&mount, settings.is_privileged);
    }
    match remove_link(&mount).and_then(|()| fs::create_dir(&mount)) {
        Ok(()) => Hidden::Gone,
        Err(error) => Hidden::Failed(format!("remove {}: {error}", mount.display())),
    }
}

/// What is mounted over the areas that the node's mount shows, and is not that mount; said for a person.
pub(crate) fn covered(settings: &Settings, node: u16) -> Option<String> {
    let local = (!settings.has_storage(node)).then(|| settings.local_mount(node));
    let areas = [settings.cache_mount(node), Some(settings.shared_mount(node)), local];
    areas.into_iter().flatten().find_map(|area| {
        let (top, area) = (top_at(&area), area.display());
        let kind = match top {
            Ok(top) => top.filter(|top| !is_ours(top))?.kind,
            Err(error) => {
                return Some(format!("what is mounted at {area} can not be read: {error}"));
            }
        };
        Some(format!("a file system ({kind}) is mounted over {area}: unmount it (`umount {area}`)"))
    })
}

/// Unmounts; what is busy is detached, and named together with who holds it.
pub(crate) fn hide(mount: &Path, is_privileged: bool) -> Hidden {
    for _ in 0..QUIET_RETRIES {
        match is_mount_point(mount) {
            Ok(true) => {}
            Ok(false) => return Hidden::Gone,
            Err(error) => {
                let mount = mount.display();
                return Hidden::Failed(format!("look whether {mount} is mounted: {error}"));
            }
        }
        match unmount_now(mount, is_privileged, false) {
            Ok(()) => return Hidden::Gone,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Hidden::Failed(format!("unmount {}: {error}", mount.display())),
        }
        // A process that has just ended may still be letting go.
        let holders = holders::of(mount);
        if !holders.is_empty() {
            return detach(mount, is_privileged, &holders);
        }
        std::thread::sleep(QUIET_WAIT);
    }
    detach(mount, is_privileged, &[])
}

fn detach(mount: &Path, is_privileged: bool, holders: &[holders::Holder]) -> Hidden {
    let who = holders::named(holders);
    match unmount_now(mount, is_privileged, true) {
        Ok(()) => Hidden::Detached(format!(
            "{} was held by {who}: detached, it ends when they let go",
            mount.display()
        )),
        Err(error) => Hidden::Failed(format!(
            "{} is held by {who} and can not be detached: {error}",
            mount.display()
        )),
    }
}

fn unmount_now(mount: &Path, is_privileged: bool, lazily: bool) -> io::Result<()> {
    if is_privileged {
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(unmount(mount, flags | UnmountFlags::NOFOLLOW)?);
    }
    let option = if lazily { "-uz" } else { "-u" };
    let ended = program::fusermount().arg(option).arg(mount).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    let busy = text.contains("busy");
    let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, text))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::os::fd::AsRawFd;

    use rustix::mount::{MountFlags, mount};

    use super::*;
    use crate::job::{Kind, sample_settings};

    #[test]
    fn what_is_mounted_over_a_mount_of_ours_covers_it() {
        let device = fs::File::options().read(true).write(true).open("/dev/fuse");
        let Some(device) = device.ok().filter(|_| rustix::process::geteuid().is_root()) else {
            return println!("SKIP what_is_mounted_over_a_mount_of_ours: needs root and /dev/fuse");
        };
        let top = tempfile::tempdir().unwrap();
        let mut settings = sample_settings(Kind::ThisMachine, 1);
        settings.mount = top.path().canonicalize().unwrap();
        let shared = settings.shared_mount(0);
        fs::create_dir_all(&shared).unwrap();
        assert_eq!(covered(&settings, 0), None);
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        mount("hayase", &shared, "fuse", MountFlags::empty(), data.as_c_str()).unwrap();
        assert_eq!(covered(&settings, 0), None);
        mount("hayase", &shared, "tmpfs", MountFlags::empty(), None::<&CStr>).unwrap();
        let said = covered(&settings, 0).unwrap();
        for _ in 0..2 {
            unmount(&shared, UnmountFlags::DETACH).unwrap();
        }
        assert!(said.starts_with("a file system (tmpfs) is mounted over "), "{said}");
        assert_eq!(covered(&settings, 0), None);
    }
}
