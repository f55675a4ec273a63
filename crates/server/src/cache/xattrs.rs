//! Extended attributes of files and directories of the area, and their access control lists, where the tier keeps them.
//!
//! Of a file that the tier has as the job left it, and of a directory, the tier is asked each time, and changed before
//! the call is answered, as with rights and times ([`Node::before_set_attr`]). Of any other file the ledger keeps what
//! the job has set and removed ([`hayase_store::PendingXattrs`]): all that a file of the job's own has, or what changed
//! on top of the version that the tier has of it. The flush, or a resume, gives all of them to the new version before
//! that is seen ([`crate::flusher::gather`]). A file that is renamed leaves its version behind: the ledger is told of
//! all of them before.
//!
//! Only those of programs (`user.`) and lists are kept. A file that nobody else can reach any more has those that the job
//! gave it since its last flush.
//!
//! Lists go the same ways, as the attributes that they are to programs, and are kept with the inode as well, since kernels
//! check them ([`crate::acl`]). Of an inode that was taken from the tier they are not known before somebody asks; then the
//! inode learns them, once. Where the tier keeps none they stay on the nodes ([`super::lists`]).

use crate::cache::area::CacheArea;
use std::rc::Rc;

use hayase_layout::acl::{ACCESS_NAME, DEFAULT_NAME, is_acl};
use hayase_layout::{Acl, Acls, InodeId};
use hayase_store::{
    FileKind, Inode, LedgerRecord, PENDING_XATTRS_BYTES_MAX, PendingXattrs, TierVersion, ops,
};
use hayase_tier::{Key, Tier, TierError, USER_XATTR_PREFIX, XattrChanges, Xattrs};
use hayase_wire::message::{MetaChange, Name, Refused, XattrMode};

use super::object_moves::as_told_now;
use super::paths::key;
use super::{Cache, tier_refused, version_of};
use crate::acl::{AclChange, acl_names, acl_value};
use crate::node::Node;
use crate::refusals::libc_errno;

/// So often the tier is asked for a file whose name changes meanwhile.
const TRIES: u32 = 8;

/// One attribute that is to be set, or removed.
pub(crate) struct XattrChange {
    pub(crate) name: Name,
    /// `None` removes.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) mode: XattrMode,
    /// Of a list: the mode that it brings to the tier.
    pub(crate) rights: Option<u32>,
}

impl XattrChange {
    fn check_form(&self) -> Result<(), Refused> {
        if self.name.len() > ops::XATTR_NAME_MAX {
            return Err(Refused::new(libc_errno::ERANGE));
        }
        match &self.value {
            Some(value) if value.len() > ops::XATTR_VALUE_MAX => {
                Err(Refused::new(libc_errno::E2BIG))
            }
            _ => Ok(()),
        }
    }

    /// Whether it depends on what is there. A list that is not there is as good as taken away.
    fn asks(&self) -> bool {
        !is_acl(&self.name) && (self.value.is_none() || self.mode != XattrMode::Set)
    }

    fn check_there(&self, there: &Xattrs) -> Result<(), Refused> {
        let is_there = there.contains_key(&self.name);
        match self.mode {
            XattrMode::Create if is_there => Err(Refused::new(libc_errno::EEXIST)),
            XattrMode::Replace if !is_there => Err(Refused::new(libc_errno::ENODATA)),
            _ if self.value.is_none() && !is_there => Err(Refused::new(libc_errno::ENODATA)),
            _ => Ok(()),
        }
    }

    /// In the tier, on an object or a directory.
    fn make(&self, tier: &dyn Tier, key: &Key) -> Result<(), Refused> {
        let refused = |error: TierError| tier_refused(&error);
        if self.asks() {
            self.check_there(&tier.user_xattrs(key).map_err(refused)?)?;
        }
        let changes = XattrChanges::from([(self.name.clone(), self.value.clone())]);
        tier.change_user_xattrs(key, &changes).map_err(refused)
    }
}

impl Cache {
    /// An attribute that the tier can keep.
    fn require_xattr(&self, name: &[u8]) -> Result<(), Refused> {
        let keeps = self.tier.capabilities();
        let why = match (name.starts_with(USER_XATTR_PREFIX), keeps.xattrs) {
            (true, true) => return Ok(()),
            _ if is_acl(name) && keeps.acls => return Ok(()),
            (_, false) => "the tier keeps no extended attributes",
            (false, true) => "the tier keeps those of users only",
        };
        Err(Refused::because(libc_errno::EOPNOTSUPP, why))
    }
}

fn keeps_any(tier: &dyn Tier) -> bool {
    let keeps = tier.capabilities();
    keeps.xattrs || keeps.acls
}

/// An inode of the area, at its home, as far as attributes and lists go.
pub(crate) struct Bearer<'a> {
    pub(crate) node: &'a Rc<Node>,
    pub(crate) cache: &'a Cache,
    pub(crate) inode: &'a Inode,
}

impl Bearer<'_> {
    /// One attribute.
    pub(crate) async fn value(&self, name: &Name) -> Result<Vec<u8>, Refused> {
        let none = || Refused::new(libc_errno::ENODATA);
        if is_acl(name) {
            return acl_value(&self.with_lists().await?, name).ok_or_else(none);
        }
        if !name.starts_with(USER_XATTR_PREFIX) {
            return Err(none()); // Kernels ask for some before each write.
        }
        self.cache.require_xattr(name)?;
        self.all().await?.remove(name).ok_or_else(none)
    }

    /// Names of all of them.
    pub(crate) async fn names(&self) -> Result<Vec<Name>, Refused> {
        let inode = self.with_lists().await?;
        let of_programs = self.all().await?.into_keys().filter(|name| !is_acl(name));
        Ok(of_programs.chain(acl_names(&inode)).collect())
    }

    /// The inode with its lists, for which the tier is asked where they are not known.
    async fn with_lists(&self) -> Result<Inode, Refused> {
        let is_unknown = |inode: &Inode| inode.acls.as_ref().is_some_and(|acls| acls.in_tier);
        if !is_unknown(self.inode) {
            return Ok(self.inode.clone());
        }
        let lists = lists_among(self.all().await?)?;
        self.node.meta.change_inode(self.inode.ino, |inode| {
            if is_unknown(inode) {
                learn(inode, lists);
            }
        })
    }

    /// All that there are, by name.
    async fn all(&self) -> Result<Xattrs, Refused> {
        if !keeps_any(&*self.cache.tier) {
            return Ok(Xattrs::new());
        }
        match self.inode.kind {
            FileKind::Regular => self.of_file().await,
            FileKind::Directory => {
                let path = self.node.directory_path(self.inode.ino).await?;
                if path.is_empty() {
                    let mut xattrs = self.cache.ask_tier(|tier| tier.root_xattrs()).await?;
                    xattrs.retain(|name, _| name == DEFAULT_NAME);
                    return Ok(xattrs);
                }
                xattrs_in_tier(self.cache, key(&path)?).await
            }
            _ => Ok(Xattrs::new()),
        }
    }

    async fn of_file(&self) -> Result<Xattrs, Refused> {
        let (cache, ino) = (self.cache, self.inode.ino);
        for _ in 1..TRIES {
            let generation = cache.active(ino).generation.get();
            let Some(record) = cache.record(ino) else { return Ok(Xattrs::new()) };
            let found = xattrs_by(cache, &record).await?;
            if cache.active(ino).generation.get() == generation {
                return Ok(found);
            }
        }
        let why = "it is changed all the time";
        Err(Refused::because(libc_errno::EBUSY, why))
    }

    /// Sets or removes one that is no list, in the tier or for the next flush.
    pub(crate) async fn change(&self, change: XattrChange) -> Result<(), Refused> {
        let (cache, ino) = (self.cache, self.inode.ino);
        cache.require_xattr(&change.name)?;
        change.check_form()?;
        match self.inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return self.change_of_directory(change).await,
            _ => return Err(Refused::new(libc_errno::EPERM)),
        }
        self.node.recover_record(cache, ino).await?;
        let _held = cache.publishing.lock(ino).await;
        let active = cache.active(ino);
        active.changed();
        let Some(record) = cache.record(ino) else { return Err(Refused::new(libc_errno::ESTALE)) };
        // What lies under the name of one that has lost it is for its tombstone to know again.
        let is_as_here = record.state.is_safe() && !record.is_nameless;
        let Some(version) = record.version.filter(|_| is_as_here) else {
            return change_pending(cache, &record, change).await;
        };
        let (key, rights) = (key(&record.path)?, change.rights);
        let made = cache.tier_work(move |tier| change_object(tier, &key, &change, version)).await;
        if made.as_ref().is_err_and(|refused| refused.errno == libc_errno::ESTALE) {
            active.checked.set(None); // The next lookup finds out what is there now.
        }
        let version = made?;
        cache.update(ino, |record| {
            record.same_bytes_in(version);
            record.mode = rights.unwrap_or(record.mode);
        })
    }

    async fn change_of_directory(&self, change: XattrChange) -> Result<(), Refused> {
        let path = self.node.directory_path(self.inode.ino).await?;
        if path.is_empty() {
            if is_acl(&change.name) {
                return Ok(()); // As its mode, that of the job's own root.
            }
            let why = "the tier's own root is not the job's to change";
            return Err(Refused::because(libc_errno::EOPNOTSUPP, why));
        }
        let key = key(&path)?;
        let _alone = self.cache.publishing.lock(self.inode.ino).await;
        self.cache.tier_work(move |tier| change.make(tier, &key)).await
    }

    /// Before a list is set or taken away here: in the tier, or for the next flush.
    pub(crate) async fn before_list(&self, name: &Name, list: &AclChange) -> Result<(), Refused> {
        let mut after = self.with_lists().await?;
        list.make(&mut after)?;
        let acls = after.acls.as_deref();
        let of_access = name == ACCESS_NAME;
        if !self.cache.lists.are_kept {
            self.cache.lists.stay_here(acls);
            let mode = of_access.then_some(after.mode);
            return self
                .node
                .before_set_attr(&after, &MetaChange { mode, ..MetaChange::default() })
                .await;
        }
        let value = match acls.and_then(|acls| acls.get(name)) {
            // Or one that a new file gets from its directory in the tier would stay.
            None if of_access => Some(Acl::of_mode(after.mode).to_value()),
            list => list.map(Acl::to_value),
        };
        let rights = of_access.then(|| self.cache.lists.mode(after.mode, acls));
        let (name, mode) = (name.clone(), XattrMode::Set);
        self.change(XattrChange { name, value, mode, rights }).await
    }
}

/// Access and default.
type Lists = (Option<Acl>, Option<Acl>);

fn lists_among(mut xattrs: Xattrs) -> Result<Lists, Refused> {
    let mut list = |name: &[u8]| match xattrs.remove(name) {
        Some(value) => Acl::parse(&value).map_err(crate::acl::refused),
        None => Ok(None),
    };
    Ok((list(ACCESS_NAME)?, list(DEFAULT_NAME)?))
}

/// The lists of the tier, with the mode that the inode has by now.
fn learn(inode: &mut Inode, (mut access, default): Lists) {
    if let Some(acl) = &mut access {
        acl.chmod(inode.mode);
    }
    let access = access.filter(|acl| !acl.is_mode());
    let default = default.filter(|_| inode.kind == FileKind::Directory);
    inode.acls = Acls { access, default, in_tier: false }.kept();
}

/// Of what the ledger and, where that says so, the tier know.
async fn xattrs_by(cache: &Cache, record: &LedgerRecord) -> Result<Xattrs, Refused> {
    let below = match record.has_xattrs_of_version() {
        true => xattrs_in_tier(cache, key(&record.path)?).await?,
        false => Xattrs::new(),
    };
    Ok(record.xattrs.over(below))
}

/// What is not there any more has none.
async fn xattrs_in_tier(cache: &Cache, key: Key) -> Result<Xattrs, Refused> {
    let found = cache.ask_tier(move |tier| match tier.user_xattrs(&key) {
        Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(Xattrs::new()),
        other => other,
    });
    found.await
}

/// Of a file that the tier does not have as it is: the next flush brings it.
async fn change_pending(
    cache: &Cache,
    record: &LedgerRecord,
    change: XattrChange,
) -> Result<(), Refused> {
    if change.asks() {
        change.check_there(&xattrs_by(cache, record).await?)?;
    }
    let mut pending = record.xattrs.clone();
    pending.change(change.name, change.value);
    check_room(&pending)?;
    cache.update(record.ino, |record| {
        record.xattrs = pending;
        record.mode = change.rights.unwrap_or(record.mode);
    })
}

fn check_room(pending: &PendingXattrs) -> Result<(), Refused> {
    match pending.bytes() <= PENDING_XATTRS_BYTES_MAX {
        true => Ok(()),
        false => {
            let why =
                "a file that the tier does not have has 64 KiB of extended attributes at most";
            Err(Refused::because(libc_errno::ENOSPC, why))
        }
    }
}

/// Of the version that is expected there; answers it as it is then. Another one is somebody else's.
fn change_object(
    tier: &dyn Tier,
    key: &Key,
    change: &XattrChange,
    expected: TierVersion,
) -> Result<TierVersion, Refused> {
    let before = tier.stat_as_written(key).map_err(|error| tier_refused(&error))?;
    if before.identity != expected.identity {
        return Err(Refused::because(libc_errno::ESTALE, "it has changed in the tier"));
    }
    change.make(tier, key)?;
    let after = as_told_now(tier, key, before).map_err(|error| tier_refused(&error))?;
    Ok(version_of(&after))
}

impl CacheArea {
    /// Home, before the file leaves the version behind that it was made from: the ledger knows all that it has. With
    /// `publishing` held.
    pub(crate) async fn detach_xattrs(&self, cache: &Cache, ino: InodeId) -> Result<(), Refused> {
        let keeps = keeps_any(&*cache.tier);
        let record = cache.record(ino).filter(|record| keeps && record.has_xattrs_of_version());
        let Some(record) = record else { return Ok(()) };
        let all = PendingXattrs::all(xattrs_by(cache, &record).await?);
        check_room(&all)?;
        cache.update(ino, |record| record.xattrs = all)
    }
}
