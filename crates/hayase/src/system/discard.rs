//! Ending a file system whose content nobody wants any more, without writing it down first.
//!
//! An unmount writes all dirty pages to the disk: seconds for an area that is removed right after.
//! Source: `XFS_IOC_GOINGDOWN` of `xfs_fs.h`.

#![expect(unsafe_code, reason = "the request has no safe wrapper")]

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const XFS_IOC_GOINGDOWN: Opcode = opcode::read::<u32>(b'X', 125);

/// Forget what is not on the disk yet, the log included.
const XFS_FSOP_GOING_FLAGS_NOLOGFLUSH: u32 = 2;

/// Shuts the XFS file system down that is mounted at `root`: from now on everything in it fails with
/// `EIO`, and its unmount has nothing to write. Needs root.
pub(crate) fn discard(root: &Path) -> io::Result<()> {
    let directory = File::open(root)?;
    // SAFETY: the kernel reads one u32 through the pointer that Setter passes, and writes nothing.
    let request = unsafe { Setter::<XFS_IOC_GOINGDOWN, u32>::new(XFS_FSOP_GOING_FLAGS_NOLOGFLUSH) };
    // SAFETY: as above; on another file system the request is refused with ENOTTY.
    Ok(unsafe { ioctl(&directory, request) }?)
}
