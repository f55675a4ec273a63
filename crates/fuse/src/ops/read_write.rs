//! Bytes of files that the kernel does not read and write by itself.

use fuser::{OpenFlags, ReplyData, ReplyWrite, WriteFlags};
use hayase_layout::InodeId;
use hayase_wire::message::Refused;

use super::Shared;
use crate::errno::errno;

impl Shared {
    /// From the slot to the kernel, without another copy.
    pub(crate) fn read(&self, ino: InodeId, offset: u64, len: u32, reply: ReplyData) {
        let mut reply = Some(reply);
        let result = self.volume.read(ino, offset, len, &mut |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        });
        match (result, reply) {
            (_, None) => {}
            (Err(refused), Some(reply)) => reply.error(errno(&refused)),
            (Ok(()), Some(reply)) => reply.error(fuser::Errno::EIO),
        }
    }

    pub(crate) fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.volume.write(ino, offset, data)
    }

    /// The kernel's offset is ignored: only the home knows the end.
    pub(crate) fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.volume.append(ino, data)
    }

    /// What a write asks for: of a file that it does not cache the kernel syncs nothing itself.
    pub(crate) fn make_durable(&self, ino: InodeId, durable: Durable) -> Result<(), Refused> {
        match durable {
            Durable::Later => Ok(()),
            Durable::Data => self.volume.sync(ino, true),
            Durable::All => self.volume.sync(ino, false),
        }
    }
}

/// When written bytes must be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// At the next fsync(2).
    Later,
    /// Before the call returns: `O_DSYNC`, `RWF_DSYNC`.
    Data,
    /// With all times: `O_SYNC`, `RWF_SYNC`.
    All,
}

impl Durable {
    /// As a write came with them.
    pub(crate) fn of(flags: OpenFlags) -> Self {
        // O_SYNC has the bit of O_DSYNC and one more.
        match (flags.0 & libc::O_SYNC == libc::O_SYNC, flags.0 & libc::O_DSYNC != 0) {
            (true, _) => Self::All,
            (false, true) => Self::Data,
            (false, false) => Self::Later,
        }
    }
}

/// Whether a write goes to the end: not when it is a page that comes back from a mapping.
pub(crate) fn is_append(flags: OpenFlags, write_flags: WriteFlags) -> bool {
    flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE)
}

pub(crate) fn reply_written(written: Result<u32, Refused>, reply: ReplyWrite) {
    match written {
        Ok(written) => reply.written(written),
        Err(refused) => reply.error(errno(&refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_with_o_sync_is_synced() {
        let of = |flags| Durable::of(OpenFlags(libc::O_WRONLY | flags));
        assert_eq!(of(libc::O_APPEND), Durable::Later);
        assert_eq!(of(libc::O_DSYNC), Durable::Data);
        assert_eq!(of(libc::O_SYNC), Durable::All);
    }

    #[test]
    fn pages_of_mappings_keep_their_place() {
        let append = OpenFlags(libc::O_WRONLY | libc::O_APPEND);
        assert!(is_append(append, WriteFlags::empty()));
        assert!(!is_append(append, WriteFlags::FUSE_WRITE_CACHE));
        assert!(!is_append(OpenFlags(libc::O_WRONLY), WriteFlags::empty()));
    }
}
