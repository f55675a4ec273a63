//! Whether what a job keeps in its storage may be removed.
//!
//! Invariant: storage of a job is removed only with a [`Removable`], and there are two ways to one: a person has said
//! that the bytes do not matter, or everything was read, as a whole, and the tier has all of it. A list that is empty
//! because it could not be read proves nothing; nor does one that does not speak of a file that is there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use hayase_layout::{InodeId, Layout};
use hayase_store::area::PARTS_DIRECTORY;
use hayase_store::device::Device;
use hayase_store::namespace::Inode;
use hayase_store::{FileKind, Namespace, PreadDevice, ops};

use super::left_names::names;
use super::{Settings, found_mark, ledgers};

/// Inodes that are looked at in one transaction.
const INODES_PAGE: usize = 4096;

/// The proof. See the module header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removable(());

/// Why not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Kept {
    /// The ledger says so.
    #[error("node {node}: {} not in the tier", crate::count::counted(files, "file") + crate::count::verb(files, " is", " are"))]
    NotInTier {
        /// Whose storage it is.
        node: u16,
        /// How many.
        files: usize,
    },
    /// It can not be told whose it is.
    #[error("the storage {} was not removed, because its owner is unknown: {why}", .storage.display())]
    Unmarked {
        /// Which.
        storage: PathBuf,
        /// With the file.
        why: String,
    },
    /// Nobody knows.
    #[error(
        "the storage of node {node} was not removed, because it cannot be read: {why}; `hayase resume --salvage DIR` \
         copies every file that still exists to the tier, `hayase down --discard` removes them"
    )]
    Unread {
        /// Whose storage it is.
        node: u16,
        /// With the file, and the byte.
        why: String,
    },
    /// The ledger does not say what is there.
    #[error(
        "the storage of node {node} was not removed, because the ledger {} does not list {}; \
         `hayase resume --salvage DIR` copies every file that still exists to the tier, `hayase down --discard` removes them",
        .ledger.display(), crate::count::counted(files, "file")
    )]
    Unrecorded {
        /// Whose storage it is.
        node: u16,
        /// How many.
        files: usize,
        /// Which.
        ledger: PathBuf,
    },
}

impl Kept {
    /// Something is wrong with the storage, and a person has to look at it.
    pub(crate) fn is_wrong(&self) -> bool {
        !matches!(self, Self::NotInTier { .. })
    }
}

impl Removable {
    /// A person wants it so.
    ///
    /// # Errors
    /// When it can not be told whether the storage is the job's.
    pub(crate) fn discarded(settings: &Settings) -> Result<Self, Kept> {
        let (storage, marked) = (settings.job_storage(), found_mark(settings));
        marked.map_err(|error| Kept::Unmarked { storage, why: error.to_string() })?;
        Ok(Self(()))
    }

    /// A person wants it so, and the ledgers of these nodes could be read and tell of every file that is here.
    ///
    /// # Errors
    /// Why the storage has to stay.
    pub(crate) fn given_up(
        settings: &Settings,
        nodes: impl IntoIterator<Item = u16>,
    ) -> Result<Self, Kept> {
        for node in nodes {
            check_recorded(settings, node)?;
        }
        Self::discarded(settings)
    }

    /// The tier has everything of these nodes, as far as their storage is here. Parts of files whose homes are other
    /// nodes are not looked at: [`ledgers::keeps_for_others`] does.
    ///
    /// # Errors
    /// Why the storage has to stay.
    pub(crate) fn check(
        settings: &Settings,
        nodes: impl IntoIterator<Item = u16>,
    ) -> Result<Self, Kept> {
        if settings.tier.is_some() {
            for node in nodes.into_iter().filter(|node| settings.node_storage(*node).exists()) {
                check_node(settings, node)?;
            }
        }
        Self::discarded(settings)
    }
}

fn check_node(settings: &Settings, node: u16) -> Result<(), Kept> {
    let unread = |error: anyhow::Error| Kept::Unread { node, why: format!("{error:#}") };
    let records = ledgers::of(settings, node).map_err(unread)?;
    match records.iter().filter(|record| !record.state.is_safe()).count() {
        0 => check_recorded(settings, node),
        files => Err(Kept::NotInTier { node, files }),
    }
}

/// The ledger tells of every file that is here.
fn check_recorded(settings: &Settings, node: u16) -> Result<(), Kept> {
    let unread = |error: anyhow::Error| Kept::Unread { node, why: format!("{error:#}") };
    let records = ledgers::of(settings, node).map_err(unread)?;
    let known = records.iter().map(|record| record.ino).collect();
    match unrecorded(settings, node, &known).map_err(unread)? {
        0 => Ok(()),
        files => Err(Kept::Unrecorded { node, files, ledger: settings.ledger(node) }),
    }
}

/// How many files of the cache area with this home are here of which `known` has none: by its parts, or, when they are
/// in an image that is not mounted, by its names. A part whose file the names do not know is that of a removed one.
fn unrecorded(settings: &Settings, node: u16, known: &BTreeSet<InodeId>) -> anyhow::Result<usize> {
    let parts = settings.shared_root(node).join(PARTS_DIRECTORY);
    if !parts.is_dir() {
        return Ok(match names(settings, node)? {
            Some(names) => unrecorded_names(&names, node, known)?,
            None => 0,
        });
    }
    let is_strange = |ino: &InodeId| is_own(*ino, node) && !known.contains(ino);
    let listed = PreadDevice::open(&parts)?.list().context("list its parts")?;
    let strange: BTreeSet<_> = listed.into_iter().map(|part| part.ino).filter(is_strange).collect();
    if strange.is_empty() {
        return Ok(0);
    }
    let Some(names) = names(settings, node)? else { return Ok(strange.len()) };
    let mut files = 0;
    for ino in strange {
        let inode = ops::get_inode(&names.begin(), ino).context("read its names")?;
        files += usize::from(inode.as_ref().is_some_and(has_bytes));
    }
    Ok(files)
}

fn unrecorded_names(
    names: &Namespace,
    node: u16,
    known: &BTreeSet<InodeId>,
) -> anyhow::Result<usize> {
    let (mut files, mut last) = (0, None);
    loop {
        let page = ops::inodes(&names.begin(), last, INODES_PAGE).context("read its names")?;
        let is_strange = |inode: &&Inode| {
            is_own(inode.ino, node) && has_bytes(inode) && !known.contains(&inode.ino)
        };
        files += page.iter().filter(is_strange).count();
        match page.last() {
            Some(inode) if page.len() == INODES_PAGE => last = Some(inode.ino),
            _ => return Ok(files),
        }
    }
}

fn is_own(ino: InodeId, node: u16) -> bool {
    ino.is_cached() && ino.home().0 == node
}

/// It is a file that programs see.
fn has_bytes(inode: &Inode) -> bool {
    inode.kind == FileKind::Regular
        && inode.layout != Layout::None
        && inode.name.is_some()
        && inode.nlink > 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use hayase_layout::ServerId;
    use hayase_store::{FileState, LedgerRecord, PartId};

    use super::*;
    use crate::job::{FsyncAt, Kind, TierSettings, sample_settings as sample};

    fn job(storage: &Path) -> Settings {
        let mut settings = sample(Kind::Loopback { subnet: Ipv4Addr::new(127, 9, 9, 0) }, 1);
        settings.storage = storage.into();
        settings.tier = Some(TierSettings {
            place: "/tier".to_owned(),
            endpoint: None,
            root: None,
            fsync: FsyncAt::Node,
            deadline_ms: None,
            flush_open_s: 0,
            faults: None,
        });
        settings
    }

    fn check(settings: &Settings, expected: &str) {
        let found =
            Removable::check(settings, 0..1).map_or_else(|kept| kept.to_string(), |_| "yes".into());
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn storage_is_removed_only_when_all_of_it_is_accounted_for() {
        let storage = tempfile::tempdir().unwrap();
        let settings = job(storage.path());
        check(&settings, "yes"); // it was never made
        fs::create_dir_all(settings.ledger(0)).unwrap();
        check(&settings, "yes"); // it never served
        let parts = PreadDevice::open(&settings.shared_root(0).join(PARTS_DIRECTORY)).unwrap();
        let file = InodeId::new(ServerId(0), 5).unwrap().in_cache();
        parts.create(PartId { ino: file, epoch: 0, index: 0 }).unwrap();
        check(&settings, "does not list 1 file");
        let record = LedgerRecord::new(file, b"f".to_vec(), 0o640);
        let mut ledger = ledgers::open(&settings, 0).unwrap();
        ledger.put(record.clone()).unwrap();
        check(&settings, "1 file is not in the tier");
        // A person may give up what the ledger tells of, and nothing else.
        ledger.sync().unwrap();
        Removable::given_up(&settings, 0..1).unwrap();
        let other = InodeId::new(ServerId(0), 6).unwrap().in_cache();
        let part = PartId { ino: other, epoch: 0, index: 0 };
        parts.create(part).unwrap();
        check(&settings, "1 file is not in the tier");
        let refused = Removable::given_up(&settings, 0..1).unwrap_err();
        assert!(matches!(refused, Kept::Unrecorded { files: 1, .. }), "{refused}");
        parts.remove(part).unwrap();
        ledger.put(LedgerRecord { state: FileState::Durable, ..record }).unwrap();
        ledger.sync().unwrap();
        check(&settings, "yes");
        // The first frame of one copy, and of both.
        let copies: Vec<_> = fs::read_dir(settings.ledger(0).join("00")).unwrap().collect();
        for (copy, expected) in copies.into_iter().zip(["yes", "is damaged at byte 1024"]) {
            let file = fs::OpenOptions::new().write(true).open(copy.unwrap().path()).unwrap();
            file.write_at(&[0xff], 1030).unwrap();
            check(&settings, expected);
        }
        fs::remove_dir_all(settings.ledger(0)).unwrap();
        check(&settings, "does not list 1 file");
    }
}
