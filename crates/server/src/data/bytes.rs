//! Bytes of parts: between a part and a transfer buffer, nowhere else.
//!
//! Large transfers go past the page cache, where nobody on this node has the part open ([`super::direct`]). Other
//! I/O is tried at once where it takes no waiting; what would wait, and everything larger, goes to a thread of the
//! disk pool.

use std::ops::Range;

use hayase_layout::{InodeId, Layout, LocalOffset};
use hayase_store::uring::Transfer;
use hayase_store::{Part, PartId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{PeerReply, Refused};

use super::Data;
use super::direct::is_worth_another_way;
use super::ranges::{Beside, RangeWritten};
use crate::convert::part_refused;
use crate::limits::INLINE_BYTES;
use crate::refusals::{Answer, libc_errno};

/// Which processes of this node may have parts of its files open.
pub(crate) trait LocalUsers {
    /// Whether some process may use the file's part through the page cache.
    fn is_used_locally(&self, ino: InodeId) -> bool;
    /// Where only a mapping may be left that does, finds out.
    async fn find_mapping(&self, ino: InodeId);
}

impl Data {
    /// Bytes of a part into a buffer; short at the end of the part.
    pub(crate) async fn read_into(
        &self,
        users: &impl LocalUsers,
        part: Part,
        offset: LocalOffset,
        len: usize,
        buffer: BoxBuffer,
    ) -> Result<(BoxBuffer, usize), Refused> {
        self.find_local_users(users, &part, offset, len).await;
        let (buffer, done) = match self.may_pass_by(users, &part, offset, len) {
            true => self.move_direct(&part, Transfer::Read, offset, (buffer, len)).await?,
            false => (buffer, 0),
        };
        let (buffer, read) = self.read_through_pages(part, offset, done..len, buffer).await?;
        self.activity.bytes_read(read as u64);
        Ok((buffer, read))
    }

    /// The bytes of `wanted` into their place in the buffer; tells the end of what was read.
    async fn read_through_pages(
        &self,
        part: Part,
        offset: LocalOffset,
        wanted: Range<usize>,
        mut buffer: BoxBuffer,
    ) -> Result<(BoxBuffer, usize), Refused> {
        let offset = LocalOffset(offset.0 + wanted.start as u64);
        if wanted.is_empty() {
            return Ok((buffer, wanted.end));
        }
        if wanted.len() <= INLINE_BYTES
            && let Ok(read) = part.read_nowait(offset, &mut (*buffer).as_mut()[wanted.clone()])
        {
            return Ok((buffer, wanted.start + read));
        }
        let work = move || {
            let bytes = &mut (*buffer).as_mut()[wanted.clone()];
            let read = part.read_at(offset, bytes).map_err(part_refused)?;
            Ok((buffer, wanted.start + read))
        };
        self.disk.run(work).await
    }

    /// All of a buffer's first `len` bytes into a part.
    pub(crate) async fn write_from(
        &self,
        users: &impl LocalUsers,
        part: Part,
        offset: LocalOffset,
        (buffer, len): (BoxBuffer, usize),
    ) -> Result<(), Refused> {
        let (passes_by, _range) = self.begin_write(users, &part, offset, len).await;
        // Until both pieces are there: a truncate must not come between them.
        let _moving = if passes_by { self.direct.moving(part.id().ino) } else { None };
        let (buffer, done) = match passes_by {
            true => self.move_direct(&part, Transfer::Write, offset, (buffer, len)).await?,
            false => (buffer, 0),
        };
        self.write_through_pages(part, offset, done..len, buffer).await?;
        self.activity.bytes_written(len as u64);
        Ok(())
    }

    async fn write_through_pages(
        &self,
        part: Part,
        offset: LocalOffset,
        wanted: Range<usize>,
        buffer: BoxBuffer,
    ) -> Result<(), Refused> {
        let offset = LocalOffset(offset.0 + wanted.start as u64);
        let inline = wanted.len() <= INLINE_BYTES;
        if wanted.is_empty()
            || inline && part.write_nowait(offset, &(*buffer).as_ref()[wanted.clone()]).is_ok()
        {
            return Ok(());
        }
        let work = move || {
            let bytes = &(*buffer).as_ref()[wanted];
            part.write_at(offset, bytes).map_err(part_refused)
        };
        self.disk.run(work).await
    }

    /// Waits for other writes that exclude this one, and tells whether it passes by the page cache. Nothing is waited
    /// for between the last look at that and the answer.
    async fn begin_write(
        &self,
        users: &impl LocalUsers,
        part: &Part,
        offset: LocalOffset,
        len: usize,
    ) -> (bool, RangeWritten<'_>) {
        self.find_local_users(users, part, offset, len).await;
        let may_pass_by = self.may_pass_by(users, part, offset, len);
        let beside = if may_pass_by { Beside::None } else { Beside::Alike };
        let bytes = offset.0..offset.0 + len as u64;
        let range = self.ranges.begin(part.id(), bytes, beside).await;
        (may_pass_by && self.may_pass_by(users, part, offset, len), range)
    }

    /// Whether a transfer is worth going past the page cache, and nobody on this node may have the part open.
    fn may_pass_by(
        &self,
        users: &impl LocalUsers,
        part: &Part,
        offset: LocalOffset,
        len: usize,
    ) -> bool {
        let ino = part.id().ino;
        self.direct.is_worth(ino, offset, len)
            && (self.is_opened_by_messages_only(part) || !users.is_used_locally(ino))
    }

    /// Where only a mapping may be left that keeps a transfer from that, finds out, for a moment.
    async fn find_local_users(
        &self,
        users: &impl LocalUsers,
        part: &Part,
        offset: LocalOffset,
        len: usize,
    ) {
        let ino = part.id().ino;
        if self.direct.is_worth(ino, offset, len) && !self.is_opened_by_messages_only(part) {
            users.find_mapping(ino).await;
        }
    }

    fn is_opened_by_messages_only(&self, part: &Part) -> bool {
        let PartId { ino, index, .. } = part.id();
        index > 0 || ino.home() != self.me
    }

    /// Moves as many bytes past the page cache as go there, from the first on, and tells how many; the rest is to
    /// be moved through it.
    async fn move_direct(
        &self,
        part: &Part,
        transfer: Transfer,
        offset: LocalOffset,
        bytes: (BoxBuffer, usize),
    ) -> Result<(BoxBuffer, usize), Refused> {
        match self.direct.transfer(part, transfer, offset, bytes).await {
            Ok((buffer, Ok(moved))) => Ok((buffer, moved)),
            Ok((buffer, Err(error))) if is_worth_another_way(&error) => Ok((buffer, 0)),
            Ok((_, Err(error))) => {
                let why = format!("{transfer} part {} past the page cache: {error}", part.id());
                Err(Refused::because(error.raw_os_error().unwrap_or(libc_errno::EIO), why))
            }
            Err(buffer) => Ok((buffer, 0)),
        }
    }

    /// The end of a `Whole` file is where its part ends, for local appenders too.
    pub(crate) async fn append(&self, ino: InodeId, (buffer, len): (BoxBuffer, usize)) -> Answer {
        let inode = self.meta.inode(ino)?;
        if inode.layout != Layout::Whole {
            return Ok(PeerReply::Stale);
        }
        let part = self.whole(&inode)?;
        // Else the end would be looked for while a longer file is on its way, in one piece or several.
        let _range = self.ranges.begin(part.id(), 0..u64::MAX, Beside::None).await;
        let work = move || part.append(&(*buffer).as_ref()[..len]).map_err(part_refused);
        let offset = self.disk.run(work).await?;
        self.activity.bytes_written(len as u64);
        Ok(PeerReply::Appended { offset: offset.0, life: self.life })
    }
}
