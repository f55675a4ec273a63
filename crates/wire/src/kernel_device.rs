//! The descriptor by which the kernel asks a mount, in the hands of another process.
//!
//! Who holds it can answer the kernel in the mount's place. While anybody holds it the mount's
//! connection lives, so it is given up when the mount's process ends.
//! Source: fuse(4), `struct fuse_out_header`.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;

/// `/dev/fuse`: character device 10:229.
const FUSE_DEVICE: (u32, u32) = (10, 229);

const HEADER_BYTES: u32 = 16;

/// A mount's `/dev/fuse`, opened and mounted by that mount.
#[derive(Debug)]
pub struct KernelDevice(OwnedFd);

impl KernelDevice {
    /// `None` when it is another kind of file: writing to one could wait for whoever sent it.
    pub fn new(descriptor: OwnedFd) -> Option<Self> {
        let stat = rustix::fs::fstat(&descriptor).ok()?;
        let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && number == FUSE_DEVICE;
        is_it.then_some(Self(descriptor))
    }

    /// Tells the kernel that its request `unique`, one whose answer has no body, succeeded. One system
    /// call that does not wait.
    ///
    /// # Errors
    /// `ENOENT` when nobody waits for it any more; `ENODEV` or `EPERM` when the mount is gone.
    pub fn succeed(&self, unique: u64) -> std::io::Result<()> {
        let written = rustix::io::write(&self.0, &success(unique))?;
        debug_assert_eq!(written, HEADER_BYTES as usize, "the kernel takes answers whole");
        Ok(())
    }
}

/// `len`, `error` and `unique` in the machine's byte order.
fn success(unique: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..4].copy_from_slice(&HEADER_BYTES.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn a_success_is_a_header_without_an_error() {
        let bytes = success(0x0102_0304_0506_0708);
        assert_eq!(bytes, [16, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn other_files_are_refused() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        assert!(KernelDevice::new(read).is_none() && KernelDevice::new(write).is_none());
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(KernelDevice::new(null.into()).is_none());
    }
}
