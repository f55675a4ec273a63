//! Extended attributes of files and directories of the area, where the tier keeps them.
//!
//! Of a file that the tier has as the job left it, and of a directory, the tier is asked each time, and changed before
//! the call is answered, as with rights and times ([`Node::before_set_attr`]). Of any other file the ledger keeps what
//! the job has set and removed ([`hayase_store::PendingXattrs`]): all that a file of the job's own has, or what changed
//! on top of the version that the tier has of it. The flush, or a resume, gives all of them to the new version before
//! that is seen ([`crate::flusher::gather`]). A file that is renamed leaves its version behind: the ledger is told of
//! all of them before.
//!
//! Only those of programs (`user.`) are kept. A file that nobody else can reach any more has those that the job gave it
//! since its last flush.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_store::{
    FileKind, Inode, LedgerRecord, PENDING_XATTRS_BYTES_MAX, PendingXattrs, TierVersion, ops,
};
use hayase_tier::{Key, Tier, TierError, USER_XATTR_PREFIX, XattrChanges, Xattrs};
use hayase_wire::message::{Name, Refused, XattrMode};

use super::object_moves::as_told_now;
use super::paths::key;
use super::{Cache, tier_refused, version_of};
use crate::node::{Node, libc_errno};

/// So often the tier is asked for a file whose name changes meanwhile.
const TRIES: u32 = 8;

/// One attribute that is to be set, or removed.
pub(crate) struct XattrChange {
    pub(crate) name: Name,
    /// `None` removes.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) mode: XattrMode,
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

    /// Whether it depends on what is there.
    fn asks(&self) -> bool {
        self.value.is_none() || self.mode != XattrMode::Set
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
    /// An attribute of a program, which the tier can keep.
    fn require_xattr(&self, name: &[u8]) -> Result<(), Refused> {
        let why = match self.tier.capabilities().xattrs {
            false => "the tier keeps no extended attributes",
            true if !name.starts_with(USER_XATTR_PREFIX) => "the tier keeps those of users only",
            true => return Ok(()),
        };
        Err(Refused::because(libc_errno::EOPNOTSUPP, why))
    }
}

impl Node {
    /// Home: one attribute of a file or directory of the area.
    pub(crate) async fn cached_xattr(
        self: &Rc<Self>,
        cache: &Cache,
        inode: &Inode,
        name: &Name,
    ) -> Result<Vec<u8>, Refused> {
        let none = || Refused::new(libc_errno::ENODATA);
        if !name.starts_with(USER_XATTR_PREFIX) {
            return Err(none()); // Kernels ask for some before each write.
        }
        cache.require_xattr(name)?;
        self.cached_xattrs(cache, inode).await?.remove(name).ok_or_else(none)
    }

    /// Home: all of them.
    pub(crate) async fn cached_xattrs(
        self: &Rc<Self>,
        cache: &Cache,
        inode: &Inode,
    ) -> Result<Xattrs, Refused> {
        if !cache.tier.capabilities().xattrs {
            return Ok(Xattrs::new());
        }
        match inode.kind {
            FileKind::Regular => self.xattrs_of_file(cache, inode.ino).await,
            FileKind::Directory => {
                let path = self.directory_path(inode.ino).await?;
                if path.is_empty() {
                    return Ok(Xattrs::new());
                }
                xattrs_in_tier(cache, key(&path)?).await
            }
            _ => Ok(Xattrs::new()),
        }
    }

    async fn xattrs_of_file(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<Xattrs, Refused> {
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

    /// Home: sets or removes one, in the tier or for the next flush.
    pub(crate) async fn change_cached_xattr(
        self: &Rc<Self>,
        cache: &Cache,
        inode: &Inode,
        change: XattrChange,
    ) -> Result<(), Refused> {
        cache.require_xattr(&change.name)?;
        change.check_form()?;
        let ino = inode.ino;
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return self.change_of_directory(cache, ino, change).await,
            _ => return Err(Refused::new(libc_errno::EPERM)),
        }
        self.recover_record(cache, ino).await?;
        let _held = cache.publishing.lock(ino).await;
        let active = cache.active(ino);
        active.changed();
        let Some(record) = cache.record(ino) else { return Err(Refused::new(libc_errno::ESTALE)) };
        // What lies under the name of one that has lost it is for its tombstone to know again.
        let is_as_here = record.state.is_safe() && !record.is_nameless;
        let Some(version) = record.version.filter(|_| is_as_here) else {
            return change_pending(cache, &record, change).await;
        };
        let key = key(&record.path)?;
        let made = cache.tier_work(move |tier| change_object(tier, &key, &change, version)).await;
        if made.as_ref().is_err_and(|refused| refused.errno == libc_errno::ESTALE) {
            active.checked.set(None); // The next lookup finds out what is there now.
        }
        let version = made?;
        cache.update(ino, |record| record.same_bytes_in(version))
    }

    async fn change_of_directory(
        self: &Rc<Self>,
        cache: &Cache,
        dir: InodeId,
        change: XattrChange,
    ) -> Result<(), Refused> {
        let path = self.directory_path(dir).await?;
        if path.is_empty() {
            let why = "the tier's own root is not the job's to change";
            return Err(Refused::because(libc_errno::EOPNOTSUPP, why));
        }
        let key = key(&path)?;
        let _alone = cache.publishing.lock(dir).await;
        cache.tier_work(move |tier| change.make(tier, &key)).await
    }

    /// Home, before the file leaves the version behind that it was made from: the ledger knows all that it has. With
    /// `publishing` held.
    pub(super) async fn detach_xattrs(&self, cache: &Cache, ino: InodeId) -> Result<(), Refused> {
        let keeps = cache.tier.capabilities().xattrs;
        let record = cache.record(ino).filter(|record| keeps && record.has_xattrs_of_version());
        let Some(record) = record else { return Ok(()) };
        let all = PendingXattrs::all(xattrs_by(cache, &record).await?);
        check_room(&all)?;
        cache.update(ino, |record| record.xattrs = all)
    }
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
    cache.update(record.ino, |record| record.xattrs = pending)
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
