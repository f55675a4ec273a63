//! What makes a simulated node: namespaces of its own for network, mounts and host name.
//!
//! Here: leaving the machine's namespaces, entering those of a node. Not here: links and addresses
//! ([`super::network`]), who keeps the node alive ([`crate::supervisor`]).
//!
//! The process that calls [`leave`] *is* the node as far as the kernel is concerned: namespaces,
//! with the mounts in them, end with the last process inside. Nothing is left in `/run/netns`.

#![expect(unsafe_code, reason = "unshare(2) has no safe wrapper")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hayase_fuse::mount_table;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change};
use rustix::thread::{UnshareFlags, move_into_link_name_space};

use crate::process::Handle;

/// Those of a node, as `/proc/PID/ns` calls them.
const NAMESPACES: [&str; 3] = ["net", "mnt", "uts"];

/// Gives this process a network, mounts and a host name of its own.
///
/// Call it while the process has one thread. Mounts made by the machine later still appear here (and,
/// more important, disappear here, so that nothing is kept busy); mounts made here stay here.
pub(crate) fn leave(host: &str) -> io::Result<()> {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWUTS;
    // SAFETY: the flags do not include FILES, the only one that can make descriptors of another
    // thread disappear.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    make_private()?;
    rustix::system::sethostname(host.as_bytes())?;
    Ok(())
}

/// Shows the interfaces of this process's network in `/sys`, which otherwise keeps showing those of the
/// machine: MPI libraries look for networks there. `scratch` is an empty directory.
pub(crate) fn show_interfaces(scratch: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("sysfs", scratch, "sysfs", flags, None)?;
    let bound = ["class/net", "devices/virtual/net"].iter().try_for_each(|part| {
        Ok(rustix::mount::mount_bind(scratch.join(part), Path::new("/sys").join(part))?)
    });
    rustix::mount::unmount(scratch, UnmountFlags::DETACH)?;
    bound
}

/// Gives only this thread mounts of its own, which go with it.
pub(crate) fn new_mounts() -> io::Result<()> {
    // SAFETY: as above; NEWNS does not touch the table of descriptors.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    make_private()
}

/// Gives only this thread a new, empty network; returns a handle on it.
pub(crate) fn new_network() -> io::Result<File> {
    // SAFETY: as above; NEWNET does not touch the table of descriptors.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    File::open("/proc/thread-self/ns/net")
}

/// Stops mounts from spreading from here to the machine.
fn make_private() -> io::Result<()> {
    let flags = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    match mount_change("/", flags) {
        // In a chroot `/` is no mount point: do it for each mount that can be seen.
        Err(rustix::io::Errno::INVAL) => {
            for mounted in mount_table::read()? {
                match mount_change(&mounted.point, MountPropagationFlags::DOWNSTREAM) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(error) => {
                        tracing::warn!("make {} private: {error}", mounted.point.display());
                    }
                }
            }
            Ok(())
        }
        other => Ok(other?),
    }
}

/// The root directory of a process, also when it is in a chroot: opened before [`enter`], which
/// would otherwise end in the root of the mount namespace.
fn root_of(node: &Handle) -> io::Result<OwnedFd> {
    let path = node.id.proc().join("root");
    Ok(rustix::fs::open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Moves this process (of one thread) into network, mounts and host name of `node`.
/// The working directory is the node's root afterwards.
pub(crate) fn enter(node: &Handle) -> io::Result<()> {
    let root = root_of(node)?;
    // One by one, since only Linux 5.8 takes a pidfd for all of them.
    let spaces = NAMESPACES.map(|which| File::open(node.id.proc().join("ns").join(which)));
    if !node.id.is_alive() {
        return Err(io::Error::other(format!("process {} has ended", node.id.pid)));
    }
    for space in spaces {
        move_into_link_name_space(space?.as_fd(), None)?;
    }
    rustix::process::fchdir(&root)?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// What the kernel calls the namespaces of this process, for people.
pub(crate) fn names() -> Vec<String> {
    NAMESPACES
        .iter()
        .filter_map(|which| fs::read_link(Path::new("/proc/self/ns").join(which)).ok())
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// What the kernel calls the mount namespace of a process; `None` when it may not be seen.
pub(crate) fn mount_namespace(proc: &Path) -> Option<std::path::PathBuf> {
    fs::read_link(proc.join("ns/mnt")).ok()
}
