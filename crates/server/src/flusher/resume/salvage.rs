//! Bringing to the tier what is there of a node whose ledger is damaged or gone.
//!
//! Nothing that the ledger says of the tier is believed: what is still to be read of it may be older than what was lost.
//! So every file of the cache area whose bytes are here is brought, none replaces anything, and nothing is removed. The
//! last name that a whole record tells is the file's, else that in the names of the job; a file without either goes to
//! `lost+found/JOB/INODE` of the tier. One that the tier has with the same bytes is not brought again, so an interrupted
//! run continues where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use hayase_layout::acl::ACCESS_NAME;
use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::namespace::Inode;
use hayase_store::{FileState, LedgerRecord};
use hayase_tier::{Key, Tier, if_there};
use hayase_wire::message::Refused;
use xxhash_rust::xxh3::Xxh3;

use super::file::{Source, Take};
use super::left::{LeftNode, LeftNodes};
use crate::cache::object_moves::conflict_paths;
use crate::cache::paths::{join, key};
use crate::cache::tier_refused;
use crate::flusher::gather::{self, Committed};
use crate::limits::FLUSH_BYTES;
use crate::refusals::libc_errno;

/// Where files without a name go, below the root of the tier.
const NAMELESS: &str = "lost+found";

/// Directories above a file.
const DEPTH_MAX: usize = 1024;

/// Permission bits that a tier shows.
const MODE: u32 = 0o7777;

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedFile {
    /// Which.
    pub ino: InodeId,
    /// Its name in the tier, where it is now or should be.
    pub path: Vec<u8>,
    /// Bytes.
    pub bytes: u64,
    /// What was done.
    pub what: Salvaging,
}

/// What can become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salvaging {
    /// It was brought under its name.
    Brought,
    /// It was brought under another one: the tier has something else there.
    Conflict,
    /// The tier has these very bytes.
    Same,
    /// It was not brought.
    Lost(Refused),
}

/// Brings what is here of the files of `home`, of which `records` are what is known; `told` hears of each.
///
/// # Errors
/// When the parts of the node can not be listed; failures of single files are passed to `told`.
pub fn salvage(
    job: &str,
    (home, records): (ServerId, &BTreeMap<InodeId, LedgerRecord>),
    nodes: &dyn LeftNodes,
    tier: &dyn Tier,
    mut told: impl FnMut(SalvagedFile),
) -> Result<(), Refused> {
    let node = nodes.node(home)?;
    let parts = node.cached_parts()?;
    let named: BTreeMap<InodeId, Inode> = match node.cached_files() {
        Ok(files) => files.into_iter().map(|inode| (inode.ino, inode)).collect(),
        Err(refused) => {
            tracing::warn!(server = %home, %refused, "the names cannot be read: files keep those in the ledger");
            BTreeMap::new()
        }
    };
    let own = parts.iter().copied().filter(|ino| ino.home() == home);
    let all: BTreeSet<_> =
        own.chain(records.keys().copied()).chain(named.keys().copied()).collect();
    for ino in all {
        let left = Left {
            job,
            node,
            nodes,
            ino,
            record: records.get(&ino),
            inode: named.get(&ino),
            has_part: parts.contains(&ino),
        };
        if left.has_bytes() {
            told(left.bring(tier));
        }
    }
    Ok(())
}

/// What is known of one file.
struct Left<'a> {
    job: &'a str,
    node: &'a LeftNode,
    nodes: &'a dyn LeftNodes,
    ino: InodeId,
    record: Option<&'a LedgerRecord>,
    inode: Option<&'a Inode>,
    has_part: bool,
}

impl Left<'_> {
    /// Something is here, or should be.
    fn has_bytes(&self) -> bool {
        let should = |record: &LedgerRecord| match record.state {
            FileState::InTier | FileState::Removed => false,
            FileState::Clean => *self.layout() != Layout::Whole,
            _ => true,
        };
        self.has_part || self.record.map_or(*self.layout() != Layout::Whole, should)
    }

    fn layout(&self) -> &Layout {
        let of_record = self.record.map(|record| &record.layout);
        self.inode.map(|inode| &inode.layout).or(of_record).unwrap_or(&Layout::Whole)
    }

    fn bring(&self, tier: &dyn Tier) -> SalvagedFile {
        let path = self.path();
        let mut file =
            SalvagedFile { ino: self.ino, path: path.clone(), bytes: 0, what: Salvaging::Same };
        file.what = match self.bring_to(tier, &mut file) {
            Ok(true) if file.path == path => Salvaging::Brought,
            Ok(true) => Salvaging::Conflict,
            Ok(false) => Salvaging::Same,
            Err(refused) => Salvaging::Lost(refused),
        };
        file
    }

    /// `false` when the tier has it.
    fn bring_to(&self, tier: &dyn Tier, file: &mut SalvagedFile) -> Result<bool, Refused> {
        let record = self.record_of(&file.path);
        let source = Source::of(self.ino.home(), self.nodes, &record, Take::AsItIs)?;
        file.bytes = source.stat().size;
        let first = file.path.clone();
        for path in iter::once(first.clone()).chain(conflict_paths(&first, self.ino)) {
            file.path.clone_from(&path);
            let key = key(&path)?;
            let there = if_there(tier.stat(&key)).map_err(|error| tier_refused(&error))?;
            if there.is_some_and(|there| there.size.get() != file.bytes) {
                continue;
            }
            let sent = source.send(tier, &key, gather::mode_of(tier, &record))?;
            if there.is_some() {
                if checksum_of(tier, &key)? == sent.checksum {
                    return Ok(false);
                }
                continue;
            }
            let committed =
                gather::commit(tier, &key, &LedgerRecord { path, ..record.clone() }, sent);
            match committed.map_err(|error| tier_refused(&error))? {
                Committed::Durable(_) => return Ok(true),
                Committed::Conflict => {}
            }
        }
        Err(Refused::because(libc_errno::EEXIST, "other versions are in the tier"))
    }

    /// As of a file that the tier does not have: what was known of that is not believed.
    fn record_of(&self, path: &[u8]) -> LedgerRecord {
        let of_inode = self.inode.map(|inode| inode.mode & MODE);
        let mode = self.record.map(|record| record.mode).or(of_inode).unwrap_or(0o600);
        let mut record = LedgerRecord::new(self.ino, path.to_vec(), mode);
        record.layout = self.layout().clone();
        if let Some(known) = self.record {
            record.xattrs = known.xattrs.clone();
            record.xattrs.are_all = true;
        }
        // That of a version in the tier is not in the record.
        let acls = self.inode.and_then(|inode| inode.acls.as_ref());
        if let Some(list) = acls.and_then(|acls| acls.access.as_ref()) {
            record.xattrs.change(ACCESS_NAME.to_vec(), Some(list.to_value()));
        }
        record
    }

    fn path(&self) -> Vec<u8> {
        let recorded = self.record.filter(|record| {
            !record.is_nameless && record.state != FileState::Removed && !record.path.is_empty()
        });
        recorded
            .map(|record| record.path.clone())
            .or_else(|| self.path_by_names())
            .unwrap_or_else(|| format!("{NAMELESS}/{}/{:016x}", self.job, self.ino.0).into_bytes())
    }

    /// Up to the root of the area; `None` where a directory on the way is not known.
    fn path_by_names(&self) -> Option<Vec<u8>> {
        let (mut parent, mut path) = self.inode?.name.clone()?;
        for _ in 0..DEPTH_MAX {
            if parent == InodeId::CACHE_ROOT {
                return Some(path);
            }
            let above = match parent.home() == self.node.server() {
                true => self.node.inode(parent).ok()?,
                false => self.nodes.node(parent.home()).ok()?.inode(parent).ok()?,
            };
            let (next, name) = above.name?;
            path = join(&name, &path);
            parent = next;
        }
        None
    }
}

/// XXH3 of what the tier has.
fn checksum_of(tier: &dyn Tier, key: &Key) -> Result<u64, Refused> {
    let reader = tier.open(key).map_err(|error| tier_refused(&error))?;
    let (mut checksum, mut at) = (Xxh3::new(), 0);
    let mut buffer = vec![0; FLUSH_BYTES as usize];
    loop {
        let read = reader.read_at(at, &mut buffer).map_err(|error| tier_refused(&error))?;
        if read == 0 {
            return Ok(checksum.digest());
        }
        checksum.update(&buffer[..read]);
        at += read as u64;
    }
}
