//! Bytes of parts on this server.
//!
//! Large transfers go past the page cache, where nobody on this node has the part open ([`crate::direct`]). Other
//! I/O is tried at once where it takes no waiting; what would wait, and everything larger, goes to a thread of the
//! disk pool. Bytes move between the part and the transfer buffer, nowhere else.

use std::ops::Range;
use std::rc::Rc;

use hayase_layout::{Layout, LocalOffset};
use hayase_store::uring::Transfer;
use hayase_store::{Part, PartId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{FileRequest, PAYLOAD_BYTES_MAX, PartRef, PeerReply, Refused};

use super::Answer;
use super::inode::{is_missing, whole_part};
use crate::convert::{part_id, part_refused};
use crate::direct::is_worth_another_way;
use crate::limits::{INLINE_BYTES, WRITEBACK_BYTES};
use crate::node::{Node, libc_errno, unexpected};
use crate::peers::Served;
use crate::ranges::{Beside, RangeWritten};
use crate::unsynced::part_is_empty;

impl Node {
    /// Bytes of a part into a buffer; short at the end of the part.
    pub(crate) async fn read_into(
        self: &Rc<Self>,
        part: Part,
        offset: LocalOffset,
        len: usize,
        buffer: BoxBuffer,
    ) -> Result<(BoxBuffer, usize), Refused> {
        self.find_local_users(&part, offset, len).await;
        let (buffer, done) = match self.may_pass_by(&part, offset, len) {
            true => self.move_direct(&part, Transfer::Read, offset, (buffer, len)).await?,
            false => (buffer, 0),
        };
        let (buffer, read) = self.read_through_pages(part, offset, done..len, buffer).await?;
        self.counters.bytes_read.set(self.counters.bytes_read.get() + read as u64);
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
        self: &Rc<Self>,
        part: Part,
        offset: LocalOffset,
        (buffer, len): (BoxBuffer, usize),
    ) -> Result<(), Refused> {
        let (passes_by, _range) = self.begin_write(&part, offset, len).await;
        // Until both pieces are there: a truncate must not come between them.
        let _moving = if passes_by { self.direct.moving(part.id().ino) } else { None };
        let (buffer, done) = match passes_by {
            true => self.move_direct(&part, Transfer::Write, offset, (buffer, len)).await?,
            false => (buffer, 0),
        };
        self.write_through_pages(part, offset, done..len, buffer).await?;
        self.counters.bytes_written.set(self.counters.bytes_written.get() + len as u64);
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
        self: &Rc<Self>,
        part: &Part,
        offset: LocalOffset,
        len: usize,
    ) -> (bool, RangeWritten<'_>) {
        self.find_local_users(part, offset, len).await;
        let may_pass_by = self.may_pass_by(part, offset, len);
        let beside = if may_pass_by { Beside::None } else { Beside::Alike };
        let bytes = offset.0..offset.0 + len as u64;
        let range = self.ranges.begin(part.id(), bytes, beside).await;
        (may_pass_by && self.may_pass_by(part, offset, len), range)
    }

    /// Whether a transfer is worth going past the page cache, and nobody on this node may have the part open.
    fn may_pass_by(self: &Rc<Self>, part: &Part, offset: LocalOffset, len: usize) -> bool {
        let ino = part.id().ino;
        self.direct.is_worth(ino, offset, len)
            && (self.is_opened_by_messages_only(part) || !self.is_used_locally(ino))
    }

    /// Where only a mapping may be left that keeps a transfer from that, finds out, for a moment.
    async fn find_local_users(self: &Rc<Self>, part: &Part, offset: LocalOffset, len: usize) {
        let ino = part.id().ino;
        if self.direct.is_worth(ino, offset, len) && !self.is_opened_by_messages_only(part) {
            self.find_mapping(ino).await;
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

    pub(super) async fn read_part(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        len: u32,
    ) -> Served {
        let len = (len as usize).min(PAYLOAD_BYTES_MAX);
        if !self.is_here(part.ino) {
            return self.read_fetched(part, offset, len).await;
        }
        let found = match self.existing_part(part) {
            Ok(Some(found)) => found,
            // Nothing was ever written to this part of a striped file.
            Ok(None) if self.is_of_another_layout(part) => return PeerReply::Stale.into(),
            Ok(None) => return PeerReply::Count(0).into(),
            Err(refused) => return PeerReply::Refused(refused).into(),
        };
        let slot = self.peers.slot().await;
        match self.read_into(found, offset, len, slot).await {
            Ok((buffer, read)) => {
                let reply = PeerReply::Count(read as u64);
                Served { reply, payload: (read > 0).then_some((buffer, read)) }
            }
            Err(refused) => PeerReply::Refused(refused).into(),
        }
    }

    /// Of a file of the cache area that is not all here.
    async fn read_fetched(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        len: usize,
    ) -> Served {
        if part_id(part) != whole_part(part.ino, 0) {
            return PeerReply::Stale.into();
        }
        let fetched = self.fetch_range(part.ino, offset.0, len as u64).await;
        let slot = self.peers.slot().await;
        let read = match fetched {
            Ok(()) => match self.parts.get(part_id(part)) {
                Ok(found) => self.read_into(found, offset, len, slot).await,
                Err(error) => Err(part_refused(error)),
            },
            Err(refused) if refused.errno == libc_errno::ENOSPC => {
                self.read_through(part.ino, offset, len, slot).await
            }
            Err(refused) => Err(refused),
        };
        match read {
            Ok((buffer, read)) => {
                let reply = PeerReply::Count(read as u64);
                Served { reply, payload: (read > 0).then_some((buffer, read)) }
            }
            Err(refused) => PeerReply::Refused(refused).into(),
        }
    }

    pub(super) async fn write_part(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        trunc_epoch: u32,
        bytes: (BoxBuffer, usize),
    ) -> Answer {
        self.learn_epoch(part).await?;
        if !self.is_current(part, trunc_epoch) {
            return Ok(PeerReply::Stale);
        }
        let len = bytes.1;
        let target = self.part_for_writing(part)?;
        self.room_for_write(part.ino, len as u64).await;
        let _writing = match part.ino.is_cached() && self.is_striped(part) {
            true => Some(self.will_be_unsynced(part).await?),
            false => None,
        };
        self.write_from(target.clone(), offset, bytes).await?;
        self.write_back(part, target, offset.0..offset.0 + len as u64);
        // A truncate that overtook this write has cut it off: the caller repeats the whole call.
        if !self.is_current(part, trunc_epoch) {
            return Ok(PeerReply::Stale);
        }
        Ok(PeerReply::Written(self.life))
    }

    /// Each [`WRITEBACK_BYTES`] of a part of a striped file begin their way to the disk as soon as
    /// they are written: such files are large, all their nodes write at once, and what waits until
    /// the kernel or fsync(2) wants it makes them all wait at once.
    fn write_back(self: &Rc<Self>, part: PartRef, target: Part, written: Range<u64>) {
        let below = |offset: u64| offset - offset % WRITEBACK_BYTES;
        let whole = below(written.start)..below(written.end);
        if whole.is_empty() || !self.is_striped(part) {
            return;
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let (start, len) = (LocalOffset(whole.start), whole.end - whole.start);
            let work = move || target.begin_writeback(start, len).map_err(part_refused);
            if let Err(error) = this.disk.run(work).await {
                tracing::debug!(%error, "writing back early");
            }
        });
    }

    fn is_striped(&self, part: PartRef) -> bool {
        // The only part of a `Whole` file lies at its home.
        part.index > 0
            || part.ino.home() != self.me
            || self.inode(part.ino).is_ok_and(|inode| inode.layout != Layout::Whole)
    }

    /// Home: its bytes lie elsewhere than who asks knows.
    fn is_of_another_layout(&self, part: PartRef) -> bool {
        let is_home = part.ino.home() == self.me;
        is_home && self.inode(part.ino).is_ok_and(|inode| inode.layout_epoch != part.layout_epoch)
    }

    /// After a restart the epoch of a part is not known: its home has made it durable before the part
    /// was cut.
    async fn learn_epoch(self: &Rc<Self>, part: PartRef) -> Result<(), Refused> {
        let is_known = self.part_epochs.borrow().contains_key(&part.ino);
        if self.incarnation == 1 || is_known || !self.is_striped(part) {
            return Ok(());
        }
        let ino = part.ino;
        match self.ask(ino.home(), FileRequest::SizeOf { ino }).await? {
            PeerReply::Size { trunc_epoch, .. } => {
                let mut epochs = self.part_epochs.borrow_mut();
                let current = epochs.entry(ino).or_default();
                *current = trunc_epoch.max(*current);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn is_current(&self, part: PartRef, trunc_epoch: u32) -> bool {
        let epochs = self.part_epochs.borrow();
        epochs.get(&part.ino).is_none_or(|current| trunc_epoch >= *current)
    }

    /// The part, `None` when a striped file has none here yet. A part that was here and is not any
    /// more is an error, never zeros.
    fn existing_part(&self, part: PartRef) -> Result<Option<Part>, Refused> {
        let id = part_id(part);
        match self.parts.get(id) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) && !self.is_noted(id)? => Ok(None),
            Err(error) => Err(part_refused(error)),
        }
    }

    /// A part of a striped file is made when its first byte comes. That it exists is noted first.
    fn part_for_writing(&self, part: PartRef) -> Result<Part, Refused> {
        let id = part_id(part);
        match self.parts.get(id) {
            Err(error) if is_missing(&error) && !self.is_noted(id)? => {
                self.note(id)?;
                self.parts.create(id).map_err(part_refused)
            }
            other => other.map_err(part_refused),
        }
    }

    fn is_noted(&self, id: PartId) -> Result<bool, Refused> {
        // The only part of a `Whole` file was made with the inode.
        if id.ino.home() == self.me && self.inode(id.ino)?.layout == Layout::Whole {
            return Ok(true);
        }
        let noted = hayase_store::ops::has_part(&self.names.begin(), id);
        noted.map_err(crate::convert::meta_refused)
    }

    fn note(&self, id: PartId) -> Result<(), Refused> {
        let mut txn = self.names.begin();
        hayase_store::ops::note_part(&mut txn, id);
        txn.commit().map_err(crate::convert::meta_refused)
    }

    pub(super) async fn truncate_part(
        self: &Rc<Self>,
        part: PartRef,
        len: u64,
        trunc_epoch: u32,
    ) -> Answer {
        {
            let mut epochs = self.part_epochs.borrow_mut();
            let current = epochs.entry(part.ino).or_default();
            if *current > trunc_epoch {
                return Ok(PeerReply::Done); // Repeated late: a later truncate has been here.
            }
            *current = trunc_epoch;
        }
        let is_emptied = len == 0;
        if is_emptied {
            self.forget_vanished(part_id(part))?;
        }
        let found =
            if len > 0 { Some(self.part_for_writing(part)?) } else { self.existing_part(part)? };
        if let Some(found) = found {
            let _held = self.direct.hold(part.ino).await;
            let work = move || found.truncate(len).map_err(part_refused);
            self.disk.run(work).await?;
        }
        if is_emptied {
            part_is_empty(&self.names, part_id(part))?;
        }
        self.usage_changed();
        Ok(PeerReply::Done)
    }

    pub(super) async fn sync_part(self: &Rc<Self>, part: PartRef, data_only: bool) -> Answer {
        let id = part_id(part);
        self.refuse_lost(id)?;
        let found = self.existing_part(part)?;
        self.sync_accounted(id, found, data_only).await?;
        Ok(PeerReply::Synced(vec![(self.me, self.life)]))
    }

    pub(crate) fn remove_part(self: &Rc<Self>, part: PartRef) -> Answer {
        let id = part_id(part);
        self.discard_part(id);
        self.unsynced.forget(id);
        self.part_epochs.borrow_mut().remove(&part.ino);
        let mut txn = self.names.begin();
        hayase_store::ops::forget_part(&mut txn, id);
        txn.commit().map_err(crate::convert::meta_refused)?;
        self.usage_changed();
        Ok(PeerReply::Done)
    }

    pub(super) fn part_blocks(&self, part: PartRef) -> Answer {
        let blocks = match self.existing_part(part)? {
            Some(found) => found.stat().map_err(part_refused)?.blocks,
            None => 0,
        };
        Ok(PeerReply::Count(blocks))
    }
}
