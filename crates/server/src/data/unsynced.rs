//! Which parts here a power cut would rob of bytes that were acknowledged.
//!
//! The bytes of a striped file lie on servers that die one by one. One that lost power comes back with less
//! than it had acknowledged, and neither the file's home nor whoever calls fsync(2) would hear of it: syncing what is
//! left succeeds. So a part of a striped file of the cache area is noted as unsynced, durably, before its first byte
//! since its last sync is acknowledged. After a power cut such a note says that bytes are lost: the part is not
//! synced any more, so fsync(2) fails and no flush takes it for the file, until it is emptied or goes. So it is with a part
//! whose sync has failed, also in `shared`.
//!
//! A kill loses nothing: the machine's life tells the two apart ([`hayase_store::namespace::Namespace::begin_boot`]).

use crate::disk::Disk;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use hayase_store::ops::{self, PartBytes};
use hayase_store::{Namespace, Part, PartId, Parts};
use hayase_wire::message::{PartRef, Refused};

use crate::convert::is_missing;
use crate::convert::{meta_refused, part_id, part_refused};
use crate::meta::Meta;
use crate::refusals::libc_errno;

/// In memory: parts that are noted as unsynced, as far as this life of the server knows.
pub(crate) struct UnsyncedParts {
    written: RefCell<HashMap<PartId, Written>>,
    meta: Rc<Meta>,
    parts: Arc<Parts>,
    disk: Rc<Disk>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    /// Writes that began.
    begun: u64,
    /// Writes under way.
    running: u64,
    /// A power cut would be noticed.
    is_noted: bool,
}

/// A write to a part.
pub(crate) struct Writing<'a> {
    parts: &'a UnsyncedParts,
    id: PartId,
}

impl UnsyncedParts {
    pub(super) fn new(meta: &Rc<Meta>, parts: &Arc<Parts>, disk: &Rc<Disk>) -> Self {
        let (meta, parts, disk) = (Rc::clone(meta), Arc::clone(parts), Rc::clone(disk));
        Self { written: RefCell::default(), meta, parts, disk }
    }

    /// Before bytes are written to a part of a striped file. Costs a sync of the names for the first ones.
    pub(crate) async fn begin_write(&self, part: PartRef) -> Result<Writing<'_>, Refused> {
        let id = part_id(part);
        let writing = self.begin(id);
        if self.is_noted(id) {
            return Ok(writing);
        }
        if bytes_of(self.meta.store(), id)? == PartBytes::Kept {
            note_bytes_of(self.meta.store(), id, PartBytes::Unsynced)?;
        }
        self.meta.durable().await?;
        self.noted(id);
        Ok(writing)
    }

    /// `ENODATA` for a part of which a power cut or an error of its storage has taken something.
    pub(crate) fn refuse_lost(&self, id: PartId) -> Result<(), Refused> {
        if bytes_of(self.meta.store(), id)? != PartBytes::Lost {
            return Ok(());
        }
        let why =
            "some of its bytes were lost, with the power of a node or by an error of its storage";
        Err(Refused::because(libc_errno::ENODATA, why))
    }

    /// Makes a part durable, and notes that.
    pub(crate) async fn sync(
        &self,
        id: PartId,
        found: Option<Part>,
        data_only: bool,
    ) -> Result<(), Refused> {
        let noted = bytes_of(self.meta.store(), id)?;
        let seen = self.seen(id);
        if let Some(found) = found {
            let part = found.clone();
            let work = move || part.sync(data_only).map_err(part_refused);
            let synced = self.disk.run(work).await;
            if synced.is_err() && found.has_failed() {
                // No later sync tells what the storage has lost.
                note_bytes_of(self.meta.store(), id, PartBytes::Lost)?;
                self.meta.durable().await?;
            }
            synced?;
        }
        if noted == PartBytes::Unsynced && seen.is_some() && self.seen(id) == seen {
            self.forget(id);
            note_bytes_of(self.meta.store(), id, PartBytes::Kept)?;
            self.meta.durable().await?;
        }
        Ok(())
    }

    /// Before a part is emptied: the power cut may have taken all of it, and then it is not looked for any more.
    pub(crate) fn forget_vanished(&self, id: PartId) -> Result<(), Refused> {
        let is_gone = matches!(self.parts.get(id), Err(error) if is_missing(&error));
        if !is_gone || bytes_of(self.meta.store(), id)? != PartBytes::Lost {
            return Ok(());
        }
        let mut txn = self.meta.begin();
        ops::forget_part(&mut txn, id);
        txn.commit().map_err(meta_refused)
    }

    fn begin(&self, id: PartId) -> Writing<'_> {
        let mut parts = self.written.borrow_mut();
        let written = parts.entry(id).or_default();
        (written.begun, written.running) = (written.begun + 1, written.running + 1);
        Writing { parts: self, id }
    }

    /// What a sync that begins now will have made durable; `None` while writes are under way.
    fn seen(&self, id: PartId) -> Option<Option<Written>> {
        let written = self.written.borrow().get(&id).copied();
        written.is_none_or(|written| written.running == 0).then_some(written)
    }

    fn is_noted(&self, id: PartId) -> bool {
        self.written.borrow().get(&id).is_some_and(|written| written.is_noted)
    }

    fn noted(&self, id: PartId) {
        if let Some(written) = self.written.borrow_mut().get_mut(&id) {
            written.is_noted = true;
        }
    }

    pub(crate) fn forget(&self, id: PartId) {
        self.written.borrow_mut().remove(&id);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(written) = self.parts.written.borrow_mut().get_mut(&self.id) {
            written.running = written.running.saturating_sub(1);
        }
    }
}

/// Nothing is left of which something could be missing.
pub(crate) fn part_is_empty(names: &Namespace, id: PartId) -> Result<(), Refused> {
    match bytes_of(names, id)? {
        PartBytes::Lost => note_bytes_of(names, id, PartBytes::Kept),
        PartBytes::Kept | PartBytes::Unsynced => Ok(()),
    }
}

fn bytes_of(names: &Namespace, id: PartId) -> Result<PartBytes, Refused> {
    ops::bytes_of_part(&names.begin(), id).map_err(meta_refused)
}

fn note_bytes_of(names: &Namespace, id: PartId, bytes: PartBytes) -> Result<(), Refused> {
    let mut txn = names.begin();
    ops::note_bytes(&mut txn, id, bytes);
    txn.commit().map_err(meta_refused)
}
