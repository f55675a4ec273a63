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

    pub(crate) fn write(&self, ino: InodeId, offset: u64, data: &[u8], reply: ReplyWrite) {
        reply_written(self.volume.write(ino, offset, data), reply);
    }

    /// The kernel's offset is ignored: only the home knows the end.
    pub(crate) fn append(&self, ino: InodeId, data: &[u8], reply: ReplyWrite) {
        reply_written(self.volume.append(ino, data), reply);
    }
}

/// Whether a write goes to the end: not when it is a page that comes back from a mapping.
pub(crate) fn is_append(flags: OpenFlags, write_flags: WriteFlags) -> bool {
    flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE)
}

fn reply_written(written: Result<u32, Refused>, reply: ReplyWrite) {
    match written {
        Ok(written) => reply.written(written),
        Err(refused) => reply.error(errno(&refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_mappings_keep_their_place() {
        let append = OpenFlags(libc::O_WRONLY | libc::O_APPEND);
        assert!(is_append(append, WriteFlags::empty()));
        assert!(!is_append(append, WriteFlags::FUSE_WRITE_CACHE));
        assert!(!is_append(OpenFlags(libc::O_WRONLY), WriteFlags::empty()));
    }
}
