//! The cache area as one server has it: the cache in front of the tier if the job has one, with the records and parts of its
//! files.
//!
//! Not here: what asks other servers (names of the tier, removals), which is the rest of this room.

use crate::checksum_line;
use crate::limits::CHECKSUMS_PAGE;
use std::rc::Rc;

use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::{FileKind, FileState, Inode, LedgerRecord, ops};
use hayase_wire::message::{NewNode, NodeReply, Place, Refused};

use super::{CACHE_NAME, Cache};
use crate::convert::stored_time;
use crate::data::Data;
use crate::meta::Meta;
use crate::refusals::libc_errno;
use crate::serve_error::ServeError;

/// Whether a file has bytes of its own, which come to the tier.
pub(super) fn is_flushed(layout: &Layout) -> bool {
    matches!(layout, Layout::Whole | Layout::Striped { .. } | Layout::Recorded { .. })
}

/// See the module.
pub(crate) struct CacheArea {
    me: ServerId,
    cache: Option<Rc<Cache>>,
    pub(super) meta: Rc<Meta>,
    pub(super) data: Rc<Data>,
}

impl CacheArea {
    pub(crate) fn new(
        me: ServerId,
        cache: Option<Rc<Cache>>,
        (meta, data): (&Rc<Meta>, &Rc<Data>),
    ) -> Rc<Self> {
        Rc::new(Self { me, cache, meta: Rc::clone(meta), data: Rc::clone(data) })
    }

    /// The cache, of a job with a tier.
    pub(crate) fn get(&self) -> Option<&Rc<Cache>> {
        self.cache.as_ref()
    }

    /// The cache area, or the error that there is none.
    pub(crate) fn need(&self) -> Result<&Cache, Refused> {
        let none = || Refused::because(libc_errno::EOPNOTSUPP, "this job has no tier");
        self.cache.as_deref().ok_or_else(none)
    }

    /// Where an inode of the cache area comes in at its home; `None` for all others.
    pub(crate) fn of(&self, ino: InodeId) -> Option<&Cache> {
        self.cache.as_deref().filter(|_| ino.is_cached())
    }

    /// Whether the part of a file holds its bytes: not while they are fetched.
    pub(crate) fn is_here(&self, ino: InodeId) -> bool {
        let state = self.of(ino).and_then(|cache| cache.state(ino));
        state.is_none_or(FileState::is_here)
    }

    /// What the tier has of a file whose part does not hold its bytes.
    pub(crate) fn only_in_tier(&self, ino: InodeId) -> Option<hayase_store::TierVersion> {
        let record = self.of(ino)?.record(ino)?;
        record.version.filter(|_| !record.state.is_here())
    }

    /// The root of the area, made at the first start of its home.
    pub(crate) fn make_root(&self) -> Result<(), ServeError> {
        let root = InodeId::CACHE_ROOT;
        if root.home() != self.me {
            return Ok(());
        }
        let failed = |source| ServeError::Names { server: self.me, source };
        let mut txn = self.meta.begin();
        if ops::get_inode(&txn, root).map_err(failed)?.is_some() {
            return Ok(());
        }
        let inode = Inode {
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            name: Some((InodeId::ROOT, CACHE_NAME.to_vec())),
            acls: self.cache.as_ref().and_then(|cache| cache.lists.unknown()),
            ..Inode::new(root, FileKind::Directory, stored_time(self.meta.now()))
        };
        ops::put_inode(&mut txn, &inode).map_err(failed)?;
        txn.commit().map_err(failed)
    }

    /// The name of the area itself is nobody's to make or remove.
    pub(crate) fn refuse_name(&self, parent: InodeId, name: &[u8]) -> Result<(), Refused> {
        match parent == InodeId::ROOT && name == CACHE_NAME && self.get().is_some() {
            true => Err(Refused::because(libc_errno::EPERM, "this is the cache area")),
            false => Ok(()),
        }
    }

    /// Home: a new file of the area is dirty from the start. Its directory's path is known.
    pub(crate) fn file_made(&self, node: &NewNode, inode: &Inode) -> Result<(), Refused> {
        let cache = self.of(inode.ino).filter(|_| is_flushed(&inode.layout));
        let Some(cache) = cache else { return Ok(()) };
        let above = self.known_path(node.parent)?;
        let above = above.ok_or_else(|| Refused::because(libc_errno::EIO, "its path is lost"))?;
        let path = super::paths::join(&above, &node.name);
        cache.active(inode.ino).is_name_known.set(true);
        cache.put(cache.lists.record(inode, path))
    }

    /// The same, when no question is needed.
    pub(crate) fn known_path(&self, dir: InodeId) -> Result<Option<Rc<[u8]>>, Refused> {
        if dir == InodeId::CACHE_ROOT {
            return Ok(Some(Rc::from([])));
        }
        Ok(self.need()?.paths.borrow().get(&dir).cloned())
    }

    /// A name was made here: the tier need not be asked for it to be known.
    pub(crate) fn is_there_now(&self, place: &Place) {
        if let Some(cache) = self.of(place.parent) {
            cache.absent.borrow_mut().remove(place);
        }
    }

    /// Of the part that a recorded file becomes.
    pub(crate) fn whole_epoch(&self, recorded: &Inode) -> u32 {
        match self.of(recorded.ino) {
            Some(_) => recorded.layout_epoch,
            None => recorded.layout_epoch + 1,
        }
    }

    /// Versions in the tier whose bytes came from here, by inode: a page of them, `most` at most.
    pub(crate) fn checksums(&self, after: u64, most: u16) -> Result<NodeReply, Refused> {
        let cache = self.need()?;
        let line = |record: &LedgerRecord| {
            let mut line = checksum_line(record)?;
            // The tier may have its next version before the ledger knows of it.
            line.checksum = line.checksum.filter(|_| !cache.publishing.is_locked(&record.ino));
            Some(line)
        };
        let most = usize::from(most).min(CHECKSUMS_PAGE);
        Ok(NodeReply::Checksums(cache.page_of(InodeId(after), most, line)))
    }
}
