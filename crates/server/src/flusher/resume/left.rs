//! What a node whose server is gone has left: its parts, and what its names say of them.
//!
//! Invariant: bytes that a power cut has taken are never read as if they were the file's. The names of a node
//! note which parts were not synced ([`crate::data::unsynced`]); they are opened in the machine's present life, and
//! new ones are never begun: names that are gone would say of every part that nothing was written to it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::namespace::{Inode, NamespaceError};
use hayase_store::ops::{self, Durability, PartBytes};
use hayase_store::{
    Area, Device, FileKind, FileState, FjallStore, Ledger, LedgerRecord, MetaError, MetaStore,
    Namespace, Part, PartError, PartId, Parts, Time,
};
use hayase_wire::message::Refused;

use crate::cache::ledger_refused;
use crate::cache::synced::broken;
use crate::convert::{is_missing, whole_part};
use crate::convert::{meta_refused, part_refused};
use crate::flusher::source::part_of;
use crate::ground::boot_id;
use crate::names::kept_names::begins_kept;
use crate::peer_service::durable_files;
use crate::refusals::libc_errno;

/// Parts of one node that are kept open at once.
const PARTS_OPEN_MAX: usize = 64;

/// Inodes that are looked at in one transaction.
const INODES_PAGE: usize = 4096;

/// Notes of parts that are looked at in one transaction.
const NOTES_PAGE: usize = 1024;

/// What the nodes of a job have left.
pub trait LeftNodes {
    /// Of one node.
    ///
    /// # Errors
    /// Why its storage can not be read, or that it is not found here.
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused>;
}

type OpenNames = dyn Fn() -> Result<Option<Arc<dyn MetaStore>>, MetaError>;

/// What one node has left.
pub struct LeftNode {
    server: ServerId,
    parts: Parts,
    /// For people.
    names_place: PathBuf,
    open_names: Box<OpenNames>,
    boot: String,
    /// Opened when they are wanted: most files need none.
    names: OnceCell<Result<Namespace, Refused>>,
}

impl LeftNode {
    /// Of the server that stored in `area`.
    ///
    /// # Errors
    /// When its parts can not be read.
    pub fn of(server: ServerId, area: &dyn Area) -> Result<Self, PartError> {
        let (parts, path) = (Parts::open(area.parts()?, PARTS_OPEN_MAX), area.names());
        let names_place = path.clone();
        let open = move || -> Result<Option<Arc<dyn MetaStore>>, MetaError> {
            match path.is_dir() {
                true => Ok(Some(Arc::new(FjallStore::open_left(&path)?))),
                false => Ok(None),
            }
        };
        Ok(Self { names_place, ..Self::new(server, parts, Box::new(open), boot_id()) })
    }

    /// The same of a simulation: parts and names that it kept, and the machine's life `boot`, as in
    /// [`Ground::simulated`](crate::Ground::simulated).
    pub fn simulated(
        server: ServerId,
        parts: Arc<dyn Device>,
        names: Arc<dyn MetaStore>,
        boot: u64,
    ) -> Self {
        let open = move || -> Result<_, MetaError> { Ok(Some(Arc::clone(&names))) };
        let parts = Parts::open(parts, PARTS_OPEN_MAX);
        Self::new(server, parts, Box::new(open), boot.to_string())
    }

    /// `boot` is the machine's present life.
    pub(super) fn new(
        server: ServerId,
        parts: Parts,
        open_names: Box<OpenNames>,
        boot: String,
    ) -> Self {
        let names_place = PathBuf::new();
        Self { server, parts, names_place, open_names, boot, names: OnceCell::new() }
    }

    /// Why its names can not be read, where they were wanted.
    pub fn unread_names(&self) -> Option<&Refused> {
        self.names.get()?.as_ref().err()
    }

    pub(super) fn server(&self) -> ServerId {
        self.server
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    fn names(&self) -> Result<&Namespace, Refused> {
        let names = self.names.get_or_init(|| {
            let refused = |why: String| {
                let why = format!("the names of node {} can not be read: {why}", self.server);
                Refused::because(libc_errno::EIO, why)
            };
            let store = (self.open_names)().map_err(|error| refused(error.to_string()))?;
            let missing = || refused(format!("{} has none", self.names_place.display()));
            let store = store.ok_or_else(missing)?;
            let open = || -> Result<Option<Namespace>, NamespaceError> {
                if !Namespace::is_in(&*store)? {
                    return Ok(None);
                }
                let names = Namespace::open(store, self.server, Time::default())?;
                if names.begin_boot(&self.boot)? {
                    let server = self.server;
                    tracing::warn!(%server, "the machine was restarted: what was not synced may be lost");
                }
                Ok(Some(names))
            };
            let names = open().map_err(|error| refused(error.to_string()))?;
            names.ok_or_else(missing)
        });
        names.as_ref().map_err(Clone::clone)
    }

    /// All servers that may hold names of a directory of this home.
    pub(super) fn shards_of(&self, dir: InodeId) -> Result<Vec<ServerId>, Refused> {
        let txn = self.names()?.begin();
        let is_spread = ops::are_names_spread(&txn, dir).map_err(meta_refused)?;
        match begins_kept(dir) && !is_spread {
            true => Ok(vec![self.server]),
            false => ops::dir_shards(&txn, dir).map_err(meta_refused),
        }
    }

    /// Names in a directory that are kept here, and what they stand for.
    pub(super) fn entries_of(&self, dir: InodeId) -> Result<Vec<(Vec<u8>, InodeId)>, Refused> {
        let found = ops::list(&self.names()?.begin(), dir, 0, usize::MAX).map_err(meta_refused)?;
        Ok(found.into_iter().map(|(_, name, entry)| (name, entry.ino)).collect())
    }

    /// What a name stands for that is kept here.
    pub(super) fn entry_of(&self, dir: InodeId, name: &[u8]) -> Result<Option<InodeId>, Refused> {
        let found = ops::lookup(&self.names()?.begin(), dir, name).map_err(meta_refused)?;
        Ok(found.map(|entry| entry.ino))
    }

    /// Files of the cache area that programs saw here, as their home's names say.
    pub(super) fn cached_files(&self) -> Result<Vec<Inode>, Refused> {
        let (mut files, mut last) = (Vec::new(), None);
        loop {
            let page =
                ops::inodes(&self.names()?.begin(), last, INODES_PAGE).map_err(meta_refused)?;
            let is_full = page.len() == INODES_PAGE;
            last = page.last().map(|inode| inode.ino);
            let is_seen = |inode: &Inode| {
                let is_file = inode.kind == FileKind::Regular && inode.layout != Layout::None;
                inode.ino.is_cached() && is_file && inode.name.is_some() && inode.nlink > 0
            };
            files.extend(page.into_iter().filter(is_seen));
            if !is_full {
                return Ok(files);
            }
        }
    }

    /// Inodes of the cache area of which something lies here, whatever their homes.
    pub(super) fn cached_parts(&self) -> Result<BTreeSet<InodeId>, Refused> {
        let parts = self.parts.list().map_err(part_refused)?;
        Ok(parts.into_iter().map(|part| part.ino).filter(|ino| ino.is_cached()).collect())
    }

    /// The record of a file of this home, of which its part alone does not tell.
    pub(super) fn inode(&self, ino: InodeId) -> Result<Inode, Refused> {
        let found = ops::get_inode(&self.names()?.begin(), ino).map_err(meta_refused)?;
        found.ok_or_else(|| {
            let why = format!(
                "{} does not know it any more: it was lost with the power of the node, before fsync(2), or with the end \
                 of the journal there",
                self.names_place.display()
            );
            Refused::because(libc_errno::ENODATA, why)
        })
    }

    /// The part of a whole file, durable from here on. `life`: of the machine, when the server wrote the ledger last.
    ///
    /// # Errors
    /// `EIO` where the storage has lost bytes of it; `ENODATA` where the machine was started since, and the part is not as it was when it was last synced, or never was:
    /// a power cut may have taken some of its bytes.
    pub(super) fn synced_part(
        &self,
        life: Option<&str>,
        record: &LedgerRecord,
    ) -> Result<Part, Refused> {
        if record.is_broken {
            return Err(broken());
        }
        let part = part_of(&self.parts, record.ino)?;
        let is_same_life = life == Some(&self.boot) && !self.boot.is_empty();
        if is_same_life {
            part.sync(false).map_err(part_refused)?;
            return Ok(part);
        }
        let stat = part.stat().map_err(part_refused)?;
        match record.synced == Some(stat.into()) {
            true => Ok(part),
            false => Err(self.restarted()),
        }
    }

    /// Of bytes that a power cut may have taken here.
    pub(super) fn restarted(&self) -> Refused {
        let why = format!(
            "node {} was started again before it was synced, so some of its bytes may be lost: it stays, and \
             `hayase resume --salvage` brings what is there",
            self.server
        );
        Refused::because(libc_errno::ENODATA, why)
    }

    /// Whether a power cut may have taken bytes of files of containers: then what is noted as durable is known to be there, and
    /// nothing else.
    pub(super) fn has_lost_power(&self) -> Result<bool, Refused> {
        Ok(self.boot.is_empty() || self.names()?.has_lost_power().map_err(meta_refused)?)
    }

    /// What is noted of a file of a container, of this home.
    pub(super) fn durability(&self, ino: InodeId) -> Result<Durability, Refused> {
        ops::durability(&self.names()?.begin(), ino).map_err(meta_refused)
    }

    /// Notes that all of a file of a container, of this home, is durable; durably when the names are.
    pub(super) fn note_durable(&self, ino: InodeId, len: u64) -> Result<(), Refused> {
        durable_files::note_durable(self.names()?, ino, len, len)
    }

    pub(super) fn names_durable(&self) -> Result<(), Refused> {
        self.names()?.sync().map_err(meta_refused)
    }

    /// Makes a part of a file of `shared` durable, which is `found` here, and notes durably where the storage has lost bytes of it.
    pub(super) fn sync_shared(&self, found: &Part) -> Result<(), Refused> {
        let synced = found.sync(false).map_err(part_refused);
        if synced.is_err() && found.has_failed() {
            let (id, mut txn) = (found.id(), self.names()?.begin());
            match id == whole_part(id.ino, id.epoch) && id.ino.home() == self.server {
                true => ops::note_broken(&mut txn, id.ino).map_err(meta_refused)?,
                false => ops::note_bytes(&mut txn, id, PartBytes::Lost),
            }
            txn.commit().map_err(meta_refused)?;
            self.names_durable()?;
        }
        synced
    }

    /// The storage has lost bytes of a whole file, as this process has heard.
    pub(super) fn has_failed(&self, ino: InodeId) -> bool {
        self.parts.has_failed(whole_part(ino, 0))
    }

    /// Makes durable what the tier does not have of this node, and what other nodes may need of it, so that the machine can be
    /// switched off. What can not be made durable is told when it is wanted.
    ///
    /// # Errors
    /// When the names can not be read, or the ledger not be written.
    pub fn seal(&self, ledger: &mut Ledger) -> Result<(), Refused> {
        if ledger.life() == Some(&self.boot) {
            let is_left = |record: &&LedgerRecord| {
                let is_file = record.state != FileState::Removed && !record.is_nameless;
                !record.state.is_safe() && is_file && record.layout == Layout::Whole
            };
            let left: Vec<LedgerRecord> = ledger.records().filter(is_left).cloned().collect();
            for record in left {
                match self.synced_part(Some(&self.boot), &record) {
                    Ok(part) => {
                        let synced = Some(part.stat().map_err(part_refused)?.into());
                        ledger.put(LedgerRecord { synced, ..record }).map_err(ledger_refused)?;
                    }
                    Err(refused) => {
                        let (server, ino) = (self.server, record.ino);
                        tracing::warn!(%server, %ino, %refused, "not made durable");
                        let is_broken = record.is_broken || self.has_failed(ino);
                        ledger.put(LedgerRecord { is_broken, ..record }).map_err(ledger_refused)?;
                    }
                }
            }
            ledger.sync().map_err(ledger_refused)?;
        }
        self.sync_parts()
    }

    /// A part of a striped file, durable from here on; `None` when nothing was ever written to it.
    pub(super) fn durable_part(&self, id: PartId) -> Result<Option<Part>, Refused> {
        let names = self.names()?;
        let (bytes, is_noted) = {
            let txn = names.begin();
            let bytes = ops::bytes_of_part(&txn, id).map_err(meta_refused)?;
            (bytes, ops::has_part(&txn, id).map_err(meta_refused)?)
        };
        if bytes == PartBytes::Lost {
            let why = format!(
                "some of its bytes were lost with the power of node {}, before fsync(2), or by an error of its storage",
                self.server
            );
            return Err(Refused::because(libc_errno::ENODATA, why));
        }
        let part = match self.parts.get(id) {
            Err(error) if is_missing(&error) && !is_noted => return Ok(None),
            Err(error) if is_missing(&error) => {
                let why = format!("its part {id} is gone from the storage of node {}", self.server);
                return Err(Refused::because(libc_errno::EIO, why));
            }
            other => other.map_err(part_refused)?,
        };
        if bytes == PartBytes::Unsynced {
            let synced = part.sync(false).map_err(part_refused);
            let noted = match synced.is_err() && part.has_failed() {
                true => PartBytes::Lost,
                false if synced.is_err() => PartBytes::Unsynced,
                false => PartBytes::Kept,
            };
            let mut txn = names.begin();
            ops::note_bytes(&mut txn, id, noted);
            txn.commit().map_err(meta_refused)?;
            names.sync().map_err(meta_refused)?;
            synced?;
        }
        Ok(Some(part))
    }

    /// Makes durable what is here of files that may have another home: parts of striped files, the names, and all files of
    /// `shared`, since a part of a container does not tell that it is one. That all of these are durable is noted.
    fn sync_parts(&self) -> Result<(), Refused> {
        let warn = |id, refused: Refused| {
            tracing::warn!(server = %self.server, part = %id, %refused, "not made durable");
        };
        let mut last = None;
        loop {
            let notes = {
                let txn = self.names()?.begin();
                ops::part_notes(&txn, last, NOTES_PAGE).map_err(meta_refused)?
            };
            for id in notes.iter().filter(|id| id.ino.is_cached()) {
                if let Err(refused) = self.durable_part(*id) {
                    warn(*id, refused);
                }
            }
            match notes.last() {
                Some(id) if notes.len() == NOTES_PAGE => last = Some(*id),
                _ => break,
            }
        }
        let mut are_accounted = true;
        for id in self.parts.list().map_err(part_refused)?.iter().filter(|id| !id.ino.is_cached()) {
            let part = self.parts.get(*id).map_err(part_refused);
            if let Err(refused) = part.and_then(|part| self.sync_shared(&part)) {
                warn(*id, refused);
                are_accounted &= self.parts.has_failed(*id); // noted
            }
        }
        self.names_durable()?;
        match are_accounted && !self.has_lost_power()? {
            true => self.names()?.seal().map_err(meta_refused),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::LocalOffset;
    use hayase_store::{CrashDevice, MemoryStore};

    use super::*;

    /// Also of nodes of which nothing is resumed: parts of containers are files of `shared`.
    #[test]
    fn what_others_may_need_outlives_the_power_when_it_was_synced() {
        let (device, store) = (Arc::new(CrashDevice::new()), Arc::new(MemoryStore::new()));
        let names = Namespace::open(store.clone(), ServerId(1), Time::default()).unwrap();
        names.begin_boot("first").unwrap();
        let mut txn = names.begin();
        ops::add_dir_shard(&mut txn, InodeId(7), ServerId(2)).unwrap();
        txn.commit().unwrap();
        let id = whole_part(InodeId(5), 1);
        let parts = Parts::open(device.clone(), 8);
        parts.create(id).unwrap().write_at(LocalOffset(0), b"bytes").unwrap();
        let found = store.clone();
        let open = move || Ok(Some(found.clone() as Arc<dyn MetaStore>));
        let left = LeftNode::new(ServerId(1), parts, Box::new(open), "first".to_owned());
        left.sync_parts().unwrap();
        let after = Parts::open(Arc::new(device.after_power_cut(|| false)), 8);
        let mut bytes = [0; 5];
        assert_eq!(after.get(id).unwrap().read_at(LocalOffset(0), &mut bytes).unwrap(), 5);
        assert_eq!(&bytes, b"bytes");
        let store = Arc::new(store.after_power_cut(0));
        let names = Namespace::open(store, ServerId(1), Time::default()).unwrap();
        let shards = ops::dir_shards(&names.begin(), InodeId(7)).unwrap();
        assert_eq!(shards, [ServerId(2)]);
    }
}
