//! An area as an XFS image: a file of fixed size, a loop device, a mount.
//!
//! Here: [`ImageArea`] makes, mounts and unmounts it (the node's supervisor does that);
//! [`MountedArea`] is the same directory seen by others (the server).
//! Not here: where it is mounted and why; limits where we may not mount ([`super::counted`]).
//! Source: measurements with xfsprogs 6.1 and kernel 6.18: file system overhead 81 MiB at 300 MiB,
//! 103 MiB at 1 GiB, 125 MiB at 4 GiB, 211 MiB at 16 GiB.
//!
//! Invariants: all blocks of the image are allocated before it is used, so the disk below can not
//! become full under the mounted file system; the loop device is set to detach itself at unmount,
//! so when the mount goes (with its namespace, too) nothing is left.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::{Area, AreaError, AreaMoved, AreaUsage, NAMES_DIRECTORY, PARTS_DIRECTORY};
use crate::device::{Device, PreadDevice};
use crate::part::PartError;

/// The least that XFS can be made of, with some room to be useful.
pub const SIZE_MIN: ByteCount = ByteCount::mib(16);

/// The log of the image: the least that mkfs.xfs allows, and a known part of the overhead.
const LOG_SIZE: &str = "size=64m";
/// The least image that mkfs.xfs accepts is 300 MB.
const IMAGE_MIN: ByteCount = ByteCount::mib(320);
/// What XFS needs of every image: the log, its reserve of 8192 blocks, headers.
const OVERHEAD: ByteCount = ByteCount::mib(104);
/// And one part in so many of the size.
const OVERHEAD_FRACTION: u64 = 100;
/// So often an image that came out too small is made again, larger.
const ATTEMPTS: u32 = 3;
/// Left on the disk below beside the image.
const STORAGE_SLACK: ByteCount = ByteCount::mib(8);
/// So long an unmount waits for files that are being closed.
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(2);
const CLOSING_WAIT_STEP: Duration = Duration::from_millis(1);

/// An area in an image that is mounted by us, and unmounted when this is dropped.
#[derive(Debug)]
pub struct ImageArea {
    image: PathBuf,
    mounted: MountedArea,
    /// Unmounted already.
    ended: bool,
}

impl ImageArea {
    /// Makes the image file `image` with at least `size` usable bytes and mounts it at
    /// `mount_point`, which is made if missing. Needs root, loop devices and mkfs.xfs.
    ///
    /// On an error nothing is left behind.
    pub fn create(image: &Path, mount_point: &Path, size: ByteCount) -> Result<Self, AreaError> {
        if size < SIZE_MIN {
            return Err(AreaError::TooSmall { path: image.to_owned(), size, least: SIZE_MIN });
        }
        let mut bytes = image_bytes(size);
        for _ in 0..ATTEMPTS {
            let area = match make_image(image, size, bytes) {
                Ok(()) => Self::open(image, mount_point),
                Err(error) => Err(error),
            };
            let area = match area {
                Ok(area) => area,
                Err(AreaError::Exists { path }) => return Err(AreaError::Exists { path }),
                Err(error) => {
                    let _ = std::fs::remove_file(image);
                    return Err(error);
                }
            };
            let free = area.usage()?.free;
            if free >= size.get() {
                return Ok(area);
            }
            // Another version of XFS takes more than measured.
            bytes = ByteCount(bytes.get() + (size.get() - free) * 5 / 4 + IMAGE_MIN.get() / 16);
            area.unmount()?;
            remove(image)?;
        }
        let detail = "the file system takes far more room than expected".to_owned();
        Err(AreaError::Program { path: image.to_owned(), program: "mkfs.xfs", stderr: detail })
    }

    /// Mounts an image that is there.
    pub fn open(image: &Path, mount_point: &Path) -> Result<Self, AreaError> {
        std::fs::create_dir_all(mount_point)
            .map_err(|source| fail("make the mount point", mount_point, source))?;
        let device = attach(image)?;
        let mounted = rustix::mount::mount(
            &device,
            mount_point,
            "xfs",
            MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID,
            None,
        );
        // While mounted this only marks the device to detach itself later.
        let marked = run("losetup", "mount", image, &["--detach".as_ref(), device.as_ref()]);
        mounted.map_err(|errno| fail("mount", image, errno.into()))?;
        let area = Self {
            image: image.to_owned(),
            mounted: MountedArea {
                root: mount_point.to_owned(),
                counters: counters_of(mount_point),
            },
            ended: false,
        };
        marked?;
        Ok(area)
    }

    /// The image file.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Unmounts; the loop device detaches itself. `EBUSY` when something in it stays open: a thread
    /// that ends closes its files a moment after all have seen it end, so the first `EBUSY` says little.
    pub fn unmount(mut self) -> Result<(), AreaError> {
        let root = &self.mounted.root;
        let start = Instant::now();
        loop {
            match rustix::mount::unmount(root, UnmountFlags::empty()) {
                Ok(()) => break,
                Err(Errno::BUSY) if start.elapsed() < CLOSING_WAIT_MAX => {
                    std::thread::sleep(CLOSING_WAIT_STEP);
                }
                Err(errno) => return Err(fail("unmount", root, errno.into())),
            }
        }
        self.ended = true;
        Ok(())
    }
}

impl Drop for ImageArea {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Lazily: what is still open keeps the file system, and its end ends the loop device.
        let root = &self.mounted.root;
        if let Err(errno) = rustix::mount::unmount(root, UnmountFlags::DETACH) {
            tracing::warn!(root = %root.display(), %errno, "an area could not be unmounted");
        }
    }
}

impl Area for ImageArea {
    fn root(&self) -> &Path {
        self.mounted.root()
    }

    fn kind(&self) -> &'static str {
        self.mounted.kind()
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        self.mounted.usage()
    }

    fn moved(&self) -> Option<AreaMoved> {
        self.mounted.moved()
    }

    fn names(&self) -> PathBuf {
        self.mounted.names()
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        self.mounted.parts()
    }
}

/// An area that is a file system of its own, mounted by somebody else: the kernel keeps its size.
#[derive(Clone, Debug)]
pub struct MountedArea {
    root: PathBuf,
    /// Where the kernel counts what its XFS moves.
    counters: Option<PathBuf>,
}

impl MountedArea {
    /// The area mounted at `root`.
    pub fn open(root: &Path) -> Result<Self, AreaError> {
        let area = Self { root: root.to_owned(), counters: counters_of(root) };
        area.usage()?;
        Ok(area)
    }
}

impl Area for MountedArea {
    fn root(&self) -> &Path {
        &self.root
    }

    fn kind(&self) -> &'static str {
        "image"
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|errno| fail("ask for the free space of", &self.root, errno.into()))?;
        Ok(AreaUsage {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: stat.f_files,
            inodes_free: stat.f_favail,
        })
    }

    fn moved(&self) -> Option<AreaMoved> {
        moved(&std::fs::read_to_string(self.counters.as_ref()?).ok()?)
    }

    fn names(&self) -> PathBuf {
        self.root.with_extension(NAMES_DIRECTORY)
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        Ok(Arc::new(PreadDevice::open(&self.root.join(PARTS_DIRECTORY))?))
    }
}

/// The file with the counters of the XFS that is mounted at `root`: `fs/xfs/xfs_sysfs.c` of Linux.
fn counters_of(root: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(root).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let counters = Path::new("/sys/fs/xfs").join(device.file_name()?).join("stats/stats");
    counters.exists().then_some(counters)
}

/// The line `xpc`: bytes of delayed allocations, written, read.
fn moved(counters: &str) -> Option<AreaMoved> {
    let line = counters.lines().find_map(|line| line.strip_prefix("xpc "))?;
    let mut numbers = line.split_ascii_whitespace().skip(1).map(|number| number.parse().ok());
    let (written, read) = (numbers.next()??, numbers.next()??);
    Some(AreaMoved { read, written })
}

/// Bytes of an image that has `size` usable ones, as measured.
fn image_bytes(size: ByteCount) -> ByteCount {
    let bytes = size.get() + size.get() / OVERHEAD_FRACTION + OVERHEAD.get();
    // A loop device wants whole sectors, and whole MiB are easier to look at.
    ByteCount(bytes.max(IMAGE_MIN.get()).next_multiple_of(ByteCount::mib(1).get()))
}

fn make_image(image: &Path, size: ByteCount, bytes: ByteCount) -> Result<(), AreaError> {
    let storage = image.parent().unwrap_or(Path::new("/"));
    if !storage.is_dir() {
        return Err(AreaError::NoStorage { path: storage.to_owned() });
    }
    let file = OpenOptions::new().write(true).create_new(true).open(image);
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => AreaError::Exists { path: image.to_owned() },
        _ => fail("make the image", image, source),
    })?;
    reserve(&file, image, size, bytes)?;
    let sector = format!("size={}", sector_bytes(&file));
    // -K: discarding would give the reserved blocks back.
    let options = ["-q", "-K", "-l", LOG_SIZE, "-m", "reflink=1", "-s", &sector];
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.push(image.as_os_str());
    run("mkfs.xfs", "xfsprogs", image, &arguments).map(drop)
}

/// The unit of direct I/O below, which will be the sector of the loop device. A file system with
/// smaller ones could not be mounted.
fn sector_bytes(file: &File) -> u32 {
    const SECTORS: std::ops::RangeInclusive<u32> = 512..=4096;
    let (flags, mask) = (rustix::fs::AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::DIOALIGN);
    match rustix::fs::statx(file, "", flags, mask) {
        Ok(stat) => stat.stx_dio_offset_align.clamp(*SECTORS.start(), *SECTORS.end()),
        Err(_) => *SECTORS.start(), // a kernel that does not tell
    }
}

/// Allocates all blocks of the image.
fn reserve(file: &File, image: &Path, size: ByteCount, bytes: ByteCount) -> Result<(), AreaError> {
    let storage = image.parent().unwrap_or(Path::new("/"));
    let stat = rustix::fs::fstatvfs(file)
        .map_err(|errno| fail("ask for the free space of", storage, errno.into()))?;
    let free = ByteCount(stat.f_bavail.saturating_mul(stat.f_frsize));
    let needed = ByteCount(bytes.get() + STORAGE_SLACK.get());
    let no_room = || AreaError::NoRoom { path: storage.to_owned(), size, needed, free };
    if free < needed {
        return Err(no_room());
    }
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(file, flags, 0, bytes.get()).map_err(|errno| match errno {
        rustix::io::Errno::NOSPC => no_room(),
        errno => fail("reserve the blocks of", image, errno.into()),
    })
}

/// The loop device that the image has while it is mounted elsewhere: two devices of one image would be two file systems
/// that know nothing of each other.
fn attached(image: &Path) -> Option<PathBuf> {
    let image = std::fs::canonicalize(image).ok()?;
    let blocks = std::fs::read_dir("/sys/block").ok()?.flatten();
    let is_ours = |block: &std::fs::DirEntry| {
        let file = std::fs::read(block.path().join("loop/backing_file")).unwrap_or_default();
        file.trim_ascii_end() == image.as_os_str().as_bytes()
    };
    let block = blocks.into_iter().find(is_ours)?;
    Some(Path::new("/dev").join(block.file_name()))
}

/// A loop device for the image, with direct I/O so that nothing is cached twice.
fn attach(image: &Path) -> Result<PathBuf, AreaError> {
    if !image.is_file() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        return Err(fail("open the image", image, source));
    }
    if let Some(device) = attached(image) {
        return Ok(device);
    }
    let arguments =
        ["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), image.as_os_str()];
    let device = run("losetup", "mount", image, &arguments)?;
    Ok(PathBuf::from(device.trim()))
}

fn remove(image: &Path) -> Result<(), AreaError> {
    std::fs::remove_file(image).map_err(|source| fail("remove the image", image, source))
}

/// Runs a program and returns what it printed.
fn run(
    program: &'static str,
    package: &'static str,
    path: &Path,
    arguments: &[&OsStr],
) -> Result<String, AreaError> {
    let path = path.to_owned();
    // They live in sbin, which is not in everybody's path.
    let search = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).args(arguments).env("PATH", search).output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(AreaError::NoProgram { path, program, package });
        }
        Err(source) => return Err(AreaError::Io { action: "run a program for", path, source }),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The first lines say why, the rest is usage.
    let stderr = stderr.lines().take(2).collect::<Vec<_>>().join(" ");
    Err(AreaError::Program { path, program, stderr })
}

fn fail(action: &'static str, path: &Path, source: io::Error) -> AreaError {
    AreaError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_are_read() {
        let text = "extent_alloc 1 2 3 4\nxpc 11 22 33\ndefer_relog 0\n";
        assert_eq!(moved(text), Some(AreaMoved { read: 33, written: 22 }));
        assert_eq!(moved("xpc 11 22\n"), None);
        assert_eq!(moved("xpcx 1 2 3\n"), None);
    }
}
