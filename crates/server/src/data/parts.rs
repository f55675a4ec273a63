//! Whole parts of this server: found, made, cut, made durable, handed out, removed.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::{InodeId, Layout, LocalOffset};
use hayase_store::namespace::Inode;
use hayase_store::{Part, PartId, Parts, ops};
use hayase_wire::message::{Attr, PartRef, PeerReply, Refused};

use super::Data;
use super::unsynced::part_is_empty;
use crate::convert::{is_missing, meta_refused, part_id, part_refused, whole_part};
use crate::limits::WRITEBACK_BYTES;
use crate::refusals::Answer;

impl Data {
    /// The part, `None` when a striped file has none here yet. A part that was here and is not any
    /// more is an error, never zeros.
    pub(crate) fn existing(&self, part: PartRef) -> Result<Option<Part>, Refused> {
        let id = part_id(part);
        match self.parts.get(id) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missing(&error) && !self.meta.is_noted(id)? => Ok(None),
            Err(error) => Err(part_refused(error)),
        }
    }

    /// A part of a striped file is made when its first byte comes. That it exists is noted first.
    pub(crate) fn for_writing(&self, part: PartRef) -> Result<Part, Refused> {
        let id = part_id(part);
        match self.parts.get(id) {
            Err(error) if is_missing(&error) && !self.meta.is_noted(id)? => {
                self.meta.note(id)?;
                self.parts.create(id).map_err(part_refused)
            }
            other => other.map_err(part_refused),
        }
    }

    /// The part of a `Whole` file of this home.
    pub(crate) fn whole(&self, inode: &Inode) -> Result<Part, Refused> {
        let part = self.parts.get(whole_part(inode.ino, inode.layout_epoch));
        part.map_err(part_refused)
    }

    /// The part of a file that is about to hold all its bytes, none: for O_TRUNC.
    pub(crate) fn empty_part(&self, ino: InodeId) -> Result<(), Refused> {
        let id = whole_part(ino, 0);
        match self.parts.get(id) {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => {
                self.parts.create(id).map(drop).map_err(part_refused)
            }
            Err(error) => Err(part_refused(error)),
        }
    }

    /// The part's descriptor; without one the open is served by messages. A mount only names the
    /// part to its kernel, and what it keeps for later opens must not look like a writer.
    pub(crate) fn descriptor(&self, attr: &Attr, is_mount: bool) -> Option<OwnedFd> {
        let part = self.parts.get(whole_part(attr.ino, attr.layout_epoch));
        let descriptor = match is_mount {
            true => part.and_then(|part| part.path_descriptor()),
            false => part.and_then(|part| part.give_descriptor()),
        };
        match descriptor.map_err(part_refused) {
            Ok(descriptor) => descriptor,
            Err(refused) => {
                tracing::warn!(%refused, "a part's descriptor could not be handed out");
                None
            }
        }
    }

    pub(crate) fn discard(&self, part: PartId) {
        if let Err(error) = self.parts.remove(part) {
            tracing::error!(%error, "a part that nobody needs could not be removed");
        }
    }

    /// Whether the truncate epoch of this part has to be asked for: after a restart it is not known.
    pub(crate) fn lacks_epoch(&self, part: PartRef) -> bool {
        let is_known = self.epochs.borrow().contains_key(&part.ino);
        self.incarnation > 1 && !is_known && self.meta.is_striped(part)
    }

    /// The home has cut the file up to this epoch.
    pub(crate) fn learn_epoch(&self, ino: InodeId, trunc_epoch: u32) {
        let mut epochs = self.epochs.borrow_mut();
        let current = epochs.entry(ino).or_default();
        *current = trunc_epoch.max(*current);
    }

    pub(crate) fn is_current(&self, part: PartRef, trunc_epoch: u32) -> bool {
        let epochs = self.epochs.borrow();
        epochs.get(&part.ino).is_none_or(|current| trunc_epoch >= *current)
    }

    pub(crate) async fn truncate(&self, part: PartRef, len: u64, trunc_epoch: u32) -> Answer {
        {
            let mut epochs = self.epochs.borrow_mut();
            let current = epochs.entry(part.ino).or_default();
            if *current > trunc_epoch {
                return Ok(PeerReply::Done); // Repeated late: a later truncate has been here.
            }
            *current = trunc_epoch;
        }
        let is_emptied = len == 0;
        if is_emptied {
            self.unsynced.forget_vanished(part_id(part))?;
        }
        let found = if len > 0 { Some(self.for_writing(part)?) } else { self.existing(part)? };
        if let Some(found) = found {
            let _held = self.direct.hold(part.ino).await;
            let work = move || found.truncate(len).map_err(part_refused);
            self.disk.run(work).await?;
        }
        if is_emptied {
            part_is_empty(self.meta.store(), part_id(part))?;
        }
        self.usage.changed();
        Ok(PeerReply::Done)
    }

    pub(crate) async fn sync(&self, part: PartRef, data_only: bool) -> Answer {
        let id = part_id(part);
        self.unsynced.refuse_lost(id)?;
        let found = self.existing(part)?;
        self.unsynced.sync(id, found, data_only).await?;
        Ok(PeerReply::Synced(vec![(self.me, self.life)]))
    }

    pub(crate) fn remove(&self, part: PartRef) -> Answer {
        let id = part_id(part);
        self.discard(id);
        self.unsynced.forget(id);
        self.epochs.borrow_mut().remove(&part.ino);
        let mut txn = self.meta.begin();
        ops::forget_part(&mut txn, id);
        txn.commit().map_err(meta_refused)?;
        self.usage.changed();
        Ok(PeerReply::Done)
    }

    pub(crate) fn blocks(&self, part: PartRef) -> Answer {
        let blocks = match self.existing(part)? {
            Some(found) => found.stat().map_err(part_refused)?.blocks,
            None => 0,
        };
        Ok(PeerReply::Count(blocks))
    }

    /// Each [`WRITEBACK_BYTES`] of a part of a striped file begin their way to the disk as soon as
    /// they are written: such files are large, all their nodes write at once, and what waits until
    /// the kernel or fsync(2) wants it makes them all wait at once.
    pub(crate) fn write_back(&self, part: PartRef, target: Part, written: Range<u64>) {
        let below = |offset: u64| offset - offset % WRITEBACK_BYTES;
        let whole = below(written.start)..below(written.end);
        if whole.is_empty() || !self.meta.is_striped(part) {
            return;
        }
        let disk = Rc::clone(&self.disk);
        tokio::task::spawn_local(async move {
            let (start, len) = (LocalOffset(whole.start), whole.end - whole.start);
            let work = move || target.begin_writeback(start, len).map_err(part_refused);
            if let Err(error) = disk.run(work).await {
                tracing::debug!(%error, "writing back early");
            }
        });
    }

    /// Whether no process of this node writes this part any more, mappings included.
    pub(crate) async fn is_quiescent(&self, part: PartId) -> bool {
        let parts = Arc::clone(&self.parts);
        let probe = self.disk.run(move || Ok(is_quiescent(&parts, part)));
        probe.await.unwrap_or(false)
    }

    /// The same of the parts of many inodes that no node has open.
    pub(crate) async fn probe(&self, inos: Vec<InodeId>) -> Vec<(InodeId, bool)> {
        let part_of = |ino: InodeId| {
            let inode = self.meta.inode(ino).ok().filter(|inode| inode.layout == Layout::Whole);
            (ino, inode.map(|inode| whole_part(ino, inode.layout_epoch)))
        };
        let asked: Vec<_> = inos.into_iter().map(part_of).collect();
        let parts = self.parts.clone();
        let found: Vec<_> = asked.iter().map(|(ino, part)| (*ino, part.is_none())).collect();
        let probe = self.disk.run(move || {
            let quiescent = |part: Option<_>| part.is_none_or(|part| is_quiescent(&parts, part));
            Ok(asked.into_iter().map(|(ino, part)| (ino, quiescent(part))).collect())
        });
        probe.await.unwrap_or(found)
    }
}

/// Nobody writes a part behind the server's back. One that is not there, since a power cut came before fsync(2),
/// is written by nobody.
fn is_quiescent(parts: &Parts, part: PartId) -> bool {
    let quiescent = parts.get(part).and_then(|part| part.is_quiescent());
    quiescent.unwrap_or_else(|error| is_missing(&error))
}
