//! Room, durability, holes, copies.

use std::sync::Arc;

use fuser::{ReplyEmpty, ReplyLseek, ReplyStatfs, ReplyWrite};
use hayase_client::volume::Volume;
use hayase_layout::InodeId;

use super::link::reply_empty;
use crate::errno::errno;
use crate::limits::NAME_BYTES_MAX;

/// Unit of statfs(2).
const BLOCK_BYTES: u32 = 4096;

/// Requests that only the volume answers.
pub(crate) struct Space {
    volume: Arc<dyn Volume>,
}

impl Space {
    pub(crate) fn new(volume: Arc<dyn Volume>) -> Self {
        Self { volume }
    }

    pub(crate) fn statfs(&self, reply: ReplyStatfs) {
        match self.volume.usage() {
            Ok(usage) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
                let free = blocks(usage.free);
                reply.statfs(
                    blocks(usage.total),
                    free,
                    free,
                    usage.inodes,
                    usage.inodes_free,
                    BLOCK_BYTES,
                    NAME_BYTES_MAX as u32,
                    BLOCK_BYTES,
                );
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn fsync(&self, ino: InodeId, data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.volume.sync(ino, data_only), reply);
    }

    pub(crate) fn fallocate(
        &self,
        ino: InodeId,
        mode: i32,
        offset: u64,
        len: u64,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.volume.allocate(ino, mode, offset, len), reply);
    }

    pub(crate) fn lseek(&self, ino: InodeId, offset: i64, whence: i32, reply: ReplyLseek) {
        let (Ok(offset), Ok(whence @ (3 | 4))) = (u64::try_from(offset), u8::try_from(whence))
        else {
            // The kernel does SEEK_SET, SEEK_CUR and SEEK_END by itself.
            return reply.error(if offset < 0 {
                fuser::Errno::ENXIO
            } else {
                fuser::Errno::EINVAL
            });
        };
        match self.volume.seek(ino, offset, whence) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn copy_file_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
        reply: ReplyWrite,
    ) {
        match self.volume.copy_range(from, to, len) {
            Ok(copied) => reply.written(copied),
            Err(refused) => reply.error(errno(&refused)),
        }
    }
}
