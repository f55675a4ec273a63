//! An open file of a program.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{Access, Attr, MetaChange, Refused};

use super::ProgramError;
use crate::AreaVolume;
use crate::volume::Volume;

/// An open file; closed when dropped. Reads and writes at places, from any number of threads.
pub struct File {
    volume: Arc<AreaVolume>,
    ino: InodeId,
    access: Access,
    /// When its part is on this node.
    part: Option<Arc<OwnedFd>>,
}

impl File {
    pub(super) fn new(
        volume: Arc<AreaVolume>,
        ino: InodeId,
        access: Access,
        part: Option<Arc<OwnedFd>>,
    ) -> Self {
        Self { volume, ino, access, part }
    }

    /// Its number, as stat(2) shows it.
    pub fn inode(&self) -> InodeId {
        self.ino
    }

    /// The part itself, when it is on this node: plain calls on it are as good as ours.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.part.as_deref()
    }

    /// As pread(2): short only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` when it is not open for reading; what the part's file system says.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, ProgramError> {
        self.check(self.access.read, "read")?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let count = self.read_some(&mut bytes[done..], at).map_err(self.failed("read"))?;
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    fn read_some(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Refused> {
        if let Some(part) = &self.part {
            return rustix::io::pread(part, bytes, offset).map_err(refused);
        }
        let len = bytes.len().min(self.volume.transfer_bytes());
        let mut count = 0;
        self.volume.read(self.ino, offset, len as u32, &mut |read| {
            bytes[..read.len()].copy_from_slice(read);
            count = read.len();
        })?;
        Ok(count)
    }

    /// As pwrite(2): the bytes written, all unless an error came after some.
    ///
    /// # Errors
    /// `EBADF` when it is not open for writing; what the part's file system says.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, ProgramError> {
        self.check(self.access.write, "write")?;
        let written = match &self.part {
            Some(part) => rustix::io::pwrite(part, bytes, offset).map_err(refused),
            None => self.volume.write(self.ino, offset, bytes).map(|count| count as usize),
        };
        written.map_err(self.failed("write"))
    }

    /// To the end of the file, wherever that is; whole up to 1 MiB.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, bytes: &[u8]) -> Result<usize, ProgramError> {
        self.check(self.access.write, "append to")?;
        let written = self.volume.append(self.ino, bytes).map_err(self.failed("append to"))?;
        Ok(written as usize)
    }

    /// As they are now.
    ///
    /// # Errors
    /// When the home can not be asked.
    pub fn attributes(&self) -> Result<Attr, ProgramError> {
        Ok(self.volume.attributes(self.ino).map_err(self.failed("stat"))?.attr)
    }

    /// Cuts or stretches it.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> Result<(), ProgramError> {
        self.check(self.access.write, "truncate")?;
        let change = MetaChange { size: Some(size), ..MetaChange::default() };
        let set = self.volume.set_attributes(self.ino, &change).map(drop);
        set.map_err(self.failed("truncate"))
    }

    /// It survives a power cut afterwards.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self) -> Result<(), ProgramError> {
        self.volume.sync(self.ino, false).map_err(self.failed("sync"))
    }

    fn check(&self, allowed: bool, action: &'static str) -> Result<(), ProgramError> {
        if allowed { Ok(()) } else { Err(self.failed(action)(Refused::new(libc::EBADF))) }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(Refused) -> ProgramError {
        let path = format!("inode {}", self.ino);
        move |source| ProgramError::Refused { action, path, source }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_local = self.part.is_some();
        f.debug_struct("File").field("ino", &self.ino).field("local", &is_local).finish()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.volume.release(self.ino, self.access);
    }
}

fn refused(error: rustix::io::Errno) -> Refused {
    Refused::new(error.raw_os_error())
}
