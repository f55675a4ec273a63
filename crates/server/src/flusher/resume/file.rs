//! One file of a dead job comes to the tier.

use hayase_layout::{Layout, ServerId};
use hayase_store::{
    FileState, Ledger, LedgerError, LedgerRecord, PartStat, PendingXattrs, TierVersion,
};
use hayase_tier::{Key, Tier};
use hayase_wire::message::Refused;

use super::left::LeftNodes;
use super::recorded::RecordedSource;
use super::striped::StripedSource;
use super::{Resumed, Resuming};
use crate::cache::object_moves::conflict_paths;
use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::cache::tombstones::version_at;
use crate::flusher::gather::{self, Committed, Sent};
use crate::flusher::source::{PartSource, part_of};
use crate::refusals::libc_errno;

/// Second versions of one file that are tried before it is left as failed.
const CONFLICTS_MAX: usize = 2;

/// Which parts are taken for the file, of whole and recorded ones.
#[derive(Clone, Copy)]
pub(super) enum Take<'a> {
    /// Those of which a power cut can not have taken anything. The life of the machine in which the ledger was written last.
    Durable(Option<&'a str>),
    /// Whatever is there.
    AsItIs,
}

/// Where the bytes of a file are.
pub(super) enum Source<'a> {
    /// One part, on its home.
    Whole(PartSource),
    /// Parts on several nodes.
    Striped(StripedSource),
    /// Parts of several writers, on any nodes.
    Recorded(RecordedSource<'a>),
}

impl<'a> Source<'a> {
    pub(super) fn of(
        home: ServerId,
        nodes: &'a dyn LeftNodes,
        record: &LedgerRecord,
        take: Take<'_>,
    ) -> Result<Self, Refused> {
        let node = nodes.node(home)?;
        let whole = || {
            let part = match take {
                Take::Durable(life) => node.synced_part(life, record)?,
                Take::AsItIs => part_of(node.parts(), record.ino)?,
            };
            PartSource::still(part).map(Self::Whole)
        };
        if record.layout == Layout::Whole {
            return whole();
        }
        // The names know what it is by now, and which of its parts are the last ones: the ledger follows them. Where
        // they are lost, so is the file.
        let inode = node.inode(record.ino)?;
        match inode.layout {
            Layout::Whole => whole(),
            Layout::Striped { .. } => StripedSource::open(nodes, &inode).map(Self::Striped),
            Layout::Recorded { container } => {
                let source = RecordedSource::open(nodes, &inode, container)?;
                if let Take::Durable(_) = take {
                    source.require_kept()?;
                }
                Ok(Self::Recorded(source))
            }
            _ => Err(Refused::because(libc_errno::EOPNOTSUPP, "no file has such a layout here")),
        }
    }

    pub(super) fn stat(&self) -> PartStat {
        match self {
            Self::Whole(source) => source.stat,
            Self::Striped(source) => source.stat,
            Self::Recorded(source) => source.stat,
        }
    }

    pub(super) fn send(&self, tier: &dyn Tier, path: &Key, mode: u32) -> Result<Sent, Refused> {
        match self {
            Self::Whole(source) => gather::send(tier, source, path, mode, &|_| ()),
            Self::Striped(source) => source.send(tier, path, mode),
            Self::Recorded(source) => source.send(tier, path, mode),
        }
    }
}

/// Brings the file of `record`, whose home is `home`, to the tier, and says in its `ledger` how that went. Versions of
/// `earlier` files, which had its name before, are its own to replace.
pub(super) fn resume_file(
    (home, ledger): (ServerId, &mut Ledger),
    nodes: &dyn LeftNodes,
    tier: &dyn Tier,
    earlier: &[LedgerRecord],
    record: LedgerRecord,
) -> Result<Resumed, LedgerError> {
    let was = record.path.clone();
    let mut record = taken_over(tier, earlier, record);
    let source = Source::of(home, nodes, &record, Take::Durable(ledger.life()));
    if let Ok(Source::Whole(source)) = &source {
        record.synced = Some(source.stat.into());
    }
    if let (Ok(source), None) = (&source, record.sent) {
        // If the answer is lost, the next try knows it again. One that was sent before may have arrived: until it
        // is known, it is the one to look for.
        record.sent = Some(gather::mark_of(&source.stat()));
    }
    ledger.put(record.clone())?;
    let (record, failure) = match source.and_then(|source| flush(&source, tier, record.clone())) {
        Ok(durable) => (durable, None),
        Err(refused) => {
            let (state, errno) = (FileState::Failed, refused.errno);
            let attempts = record.attempts.saturating_add(1);
            let has_failed = nodes.node(home).is_ok_and(|node| node.has_failed(record.ino));
            let is_broken = record.is_broken || has_failed;
            (LedgerRecord { state, errno, attempts, is_broken, ..record }, Some(refused))
        }
    };
    ledger.put(record.clone())?;
    ledger.sync()?;
    let LedgerRecord { path, bytes, .. } = record;
    let what = if path == was { Resuming::Flush } else { Resuming::Conflict };
    Ok(Resumed { path, bytes, what, failure })
}

/// The record of a file whose name had `earlier` ones: the version of one of these is the file's to replace. A tier
/// that does not answer says so again when the file is sent.
fn taken_over(tier: &dyn Tier, earlier: &[LedgerRecord], record: LedgerRecord) -> LedgerRecord {
    // What has replaced a version that it knows knows the tombstone of that.
    let is_known =
        |earlier: &LedgerRecord| earlier.state == FileState::Removed && record.version.is_some();
    let mut earlier = earlier.iter().filter(|earlier| !is_known(earlier)).peekable();
    if earlier.peek().is_none() {
        return record;
    }
    let found = key(&record.path).ok().and_then(|key| version_at(tier, &key).ok().flatten());
    let is_earlier = |found: &TierVersion| {
        earlier.any(|earlier| earlier.is_ours(found.identity, found.size, found.mtime))
    };
    match (found.filter(is_earlier), record.version) {
        (None, Some(_)) => record,
        (version, _) => {
            let mut record = LedgerRecord { version, ..record };
            record.xattrs.are_all = true; // Those of the earlier one are not this one's.
            record
        }
    }
}

/// The record of what is durable then.
fn flush(
    source: &Source<'_>,
    tier: &dyn Tier,
    record: LedgerRecord,
) -> Result<LedgerRecord, Refused> {
    let mut record = record;
    let name = record.path.clone();
    let mut names = conflict_paths(&name, record.ino).take(CONFLICTS_MAX);
    loop {
        let path = key(&record.path)?;
        let sent = source.send(tier, &path, gather::mode_of(tier, &record))?;
        let (stat, checksum) = (sent.stat, sent.checksum);
        let committed = gather::commit(tier, &path, &record, sent);
        match committed.map_err(|error| tier_refused(&error))? {
            Committed::Durable(version) => {
                let (state, bytes) = (FileState::Durable, stat.size);
                let (sent, errno, attempts, after) = (None, 0, 0, 0);
                let checksum = Some((version.identity, checksum));
                let version = Some(version);
                let xattrs = PendingXattrs::default();
                let known =
                    LedgerRecord { state, version, sent, bytes, checksum, xattrs, ..record };
                return Ok(LedgerRecord { errno, attempts, after, ..known });
            }
            Committed::Conflict => {
                let Some(next) = names.next() else { break };
                record.path = next;
                (record.version, record.sent, record.xattrs.are_all) = (None, None, true);
            }
        }
    }
    Err(Refused::because(libc_errno::EEXIST, "other versions are in the tier"))
}
