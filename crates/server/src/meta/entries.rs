//! Directory entries, and inodes of directories, as records of this server.

use hayase_layout::InodeId;
use hayase_store::namespace::{EntryRecord, FileKind, Inode, IntentKind};
use hayase_store::ops;
use hayase_wire::message::{Binding, PeerReply, Place, Refused, ShardEntry};

use super::Meta;
use crate::convert::{kind, meta_refused, stored_kind, stored_time};
use crate::refusals::{Answer, libc_errno};

/// A listing's reply holds at most this many entries, however short the names.
const LIST_MAX: usize = 1024;

pub(crate) fn record(binding: Binding) -> EntryRecord {
    EntryRecord { ino: binding.ino, kind: stored_kind(binding.kind) }
}

pub(crate) fn binding(record: &EntryRecord) -> Binding {
    Binding { ino: record.ino, kind: kind(record.kind) }
}

impl Meta {
    pub(crate) fn bound(&self, place: &Place) -> Result<Option<Binding>, Refused> {
        let txn = self.store.begin();
        let found = ops::lookup(&txn, place.parent, &place.name);
        Ok(found.map_err(meta_refused)?.as_ref().map(binding))
    }

    pub(crate) fn list(&self, dir: InodeId, cookie: u64, bytes: u32) -> Answer {
        let txn = self.store.begin();
        let mut entries = Vec::new();
        let mut room = i64::from(bytes);
        let mut end = false;
        let mut after = cookie;
        while room > 0 && entries.len() < LIST_MAX {
            let page = ops::list(&txn, dir, after, 128).map_err(meta_refused)?;
            end = page.is_empty();
            let Some((last, _, _)) = page.last() else { break };
            after = *last;
            for (cookie, name, record) in page {
                room -= name.len() as i64 + 24;
                entries.push(ShardEntry { cookie, name, binding: binding(&record) });
            }
        }
        Ok(PeerReply::Listing { entries, end })
    }

    /// A living directory of this home.
    pub(crate) fn directory(&self, dir: InodeId) -> Result<Inode, Refused> {
        let found = ops::get_inode(&self.store.begin(), dir);
        match found.map_err(meta_refused)? {
            Some(inode) if inode.kind != FileKind::Directory => {
                Err(Refused::new(libc_errno::ENOTDIR))
            }
            Some(inode) if !inode.removed => Ok(inode),
            _ => Err(Refused::new(libc_errno::ENOENT)),
        }
    }

    pub(crate) fn dir_parent(&self, dir: InodeId) -> Answer {
        Ok(PeerReply::Parent(self.directory(dir)?.name.map(|(parent, _)| parent)))
    }

    pub(crate) fn dir_name(&self, dir: InodeId) -> Answer {
        let name = self.directory(dir)?.name;
        Ok(PeerReply::Named(name.map(|(parent, name)| Place { parent, name })))
    }

    pub(crate) fn forget_directory(&self, dir: InodeId) -> Result<(), Refused> {
        let mut txn = self.store.begin();
        let found = ops::get_inode(&txn, dir).map_err(meta_refused)?;
        if let Some(mut inode) = found {
            (inode.removed, inode.nlink, inode.ctime) = (true, 0, stored_time(self.now()));
            ops::put_inode(&mut txn, &inode).map_err(meta_refused)?;
            ops::clear_dir_shards(&mut txn, dir).map_err(meta_refused)?;
        }
        txn.commit().map_err(meta_refused)
    }

    pub(crate) fn removal_of(&self, place: &Place, found: Binding) -> IntentKind {
        let (parent, name) = (place.parent, place.name.clone());
        let time = stored_time(self.now());
        IntentKind::Remove { entry: record(found), parent, name, time }
    }
}
