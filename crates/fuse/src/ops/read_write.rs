//! Bytes of files that the kernel does not read and write by itself.

use fuser::{OpenFlags, ReplyData, ReplyWrite, WriteFlags};
use hayase_client::volume::Volume;
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
}

/// A write that comes to us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTo {
    pub(crate) ino: InodeId,
    /// Of an append it is ignored: only the home knows the end.
    pub(crate) offset: u64,
    pub(crate) append: bool,
}

impl WriteTo {
    pub(crate) fn done(self, volume: &dyn Volume, data: &[u8]) -> Result<u32, Refused> {
        match self.append {
            true => volume.append(self.ino, data),
            false => volume.write(self.ino, self.offset, data),
        }
    }

    /// What it asks for besides: of a file that it does not cache the kernel syncs nothing itself.
    pub(crate) fn synced(
        self,
        volume: &dyn Volume,
        durable: Durable,
        written: Result<u32, Refused>,
    ) -> Result<u32, Refused> {
        match (durable, written) {
            (Durable::Later, written) | (_, written @ Err(_)) => written,
            (Durable::Data, Ok(written)) => volume.sync(self.ino, true).map(|()| written),
            (Durable::All, Ok(written)) => volume.sync(self.ino, false).map(|()| written),
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
