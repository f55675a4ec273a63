//! What the ledgers of a job's nodes say that its tier does not have: also when nobody serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hayase_layout::{ByteCount, InodeId, Layout, ServerId};
use hayase_store::area::PARTS_DIRECTORY;
use hayase_store::device::Device;
use hayase_store::namespace::Txn;
use hayase_store::{Ledger, LedgerRecord, PartId, PreadDevice, Salvaged, ops};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::left_names::names;
use super::{JobDir, Settings, found_mark};
use crate::kept_file;

/// Written into the storage of a job that keeps bytes for [`crate::commands::resume`]: its settings.
const RESUME: &str = "resume.json";

/// Begins the name of the list of a node's files that the tier does not have.
const NOT_IN_TIER: &str = "not-in-tier-";

/// Begins the name of the mark of a node that has nothing left to bring there.
const IN_TIER: &str = "in-tier-";

/// One file that the tier does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotDurable {
    /// Where its bytes are.
    pub(crate) node: u16,
    /// From the tier's root.
    pub(crate) path: String,
    /// `dirty`, `flushing`, `failed`, `open`.
    pub(crate) state: String,
    /// Bytes.
    pub(crate) bytes: u64,
    /// There may be more bytes: no server that could know answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
    /// Of the last failure; 0 when there was none.
    pub(crate) errno: i32,
    /// Failures in a row.
    pub(crate) attempts: u32,
}

impl NotDurable {
    /// For people.
    pub(crate) fn size(&self) -> String {
        size(self.bytes, self.at_least)
    }
}

/// So many bytes, or more.
pub(crate) fn size(bytes: u64, at_least: bool) -> String {
    let more = if at_least { " or more" } else { "" };
    format!("{}{more}", ByteCount(bytes))
}

/// What the tier does not have of a node whose server does not answer: its ledger says, if that is on this machine and can be
/// read. A node without storage has nothing.
pub(crate) fn left_of(settings: &Settings, node: u16) -> Option<Vec<NotDurable>> {
    let is_another = |mark: &String| *mark != settings.mark;
    if found_mark(settings).is_ok_and(|found| found.is_some_and(|mark| is_another(&mark))) {
        return None; // a younger job of the same name
    }
    if !settings.has_storage(node) || is_in_tier(settings, node) {
        return Some(Vec::new());
    }
    if settings.tier.is_none() || !settings.ledger(node).exists() {
        return None;
    }
    Some(not_durable(settings, node).ok()?.iter().map(|left| line(settings, node, left)).collect())
}

fn line(settings: &Settings, node: u16, record: &LedgerRecord) -> NotDurable {
    let seen = seen_bytes(settings, node, record);
    NotDurable {
        node,
        path: String::from_utf8_lossy(&record.path).into_owned(),
        state: record.state.word().to_owned(),
        bytes: seen.unwrap_or(record.bytes),
        at_least: seen.is_none(),
        errno: record.errno,
        attempts: record.attempts,
    }
}

/// How large a file is now that nobody serves: its ledger knows only how large it was when it was sent last. `None` where its
/// part can not be seen from here: in an image that is not mounted, or on several nodes.
fn seen_bytes(settings: &Settings, node: u16, record: &LedgerRecord) -> Option<u64> {
    if record.layout != Layout::Whole {
        return None;
    }
    let part = PartId { ino: record.ino, epoch: 0, index: 0 };
    let path = settings.shared_root(node).join(PARTS_DIRECTORY).join(part.to_string());
    Some(fs::metadata(path).ok()?.len())
}

/// What the tier does not have of one node. A node without a ledger on this machine has nothing.
pub(crate) fn not_durable(settings: &Settings, node: u16) -> anyhow::Result<Vec<LedgerRecord>> {
    let records = of(settings, node)?.into_iter();
    Ok(records.filter(|record| !record.state.is_safe()).collect())
}

/// Everything that the ledger of a node says, whose server may be writing it. A node without one on this machine says
/// nothing.
pub(crate) fn of(settings: &Settings, node: u16) -> anyhow::Result<Vec<LedgerRecord>> {
    if settings.tier.is_none() || !settings.ledger(node).exists() {
        return Ok(Vec::new());
    }
    look(settings, node)
}

/// What can still be read of the ledger of a node whose server has ended.
pub(crate) fn salvage(settings: &Settings, node: u16) -> anyhow::Result<Salvaged> {
    let place = settings.ledger(node);
    if !place.exists() {
        return Ok(Salvaged::default());
    }
    let failed = || format!("read the ledger {}", place.display());
    let device = PreadDevice::open(&place).with_context(failed)?;
    Ledger::salvage(&device).with_context(failed)
}

/// Everything that the ledgers on this machine say: of a name that one node has removed, the file may be
/// on another one.
pub(crate) fn all(settings: &Settings) -> anyhow::Result<Vec<LedgerRecord>> {
    let mut all = Vec::new();
    for node in (0..settings.nodes).filter(|node| settings.ledger(*node).exists()) {
        all.extend(look(settings, node)?);
    }
    Ok(all)
}

/// The ledger of a node whose server has ended, to be written.
pub(crate) fn open(settings: &Settings, node: u16) -> anyhow::Result<Ledger> {
    let place = settings.ledger(node);
    let failed = || format!("open the ledger {}", place.display());
    let device = PreadDevice::open(&place).with_context(failed)?;
    Ledger::open(Arc::new(device)).with_context(failed)
}

/// What the ledger of a node says, whose server may be writing it.
fn look(settings: &Settings, node: u16) -> anyhow::Result<Vec<LedgerRecord>> {
    let place = settings.ledger(node);
    let failed = || format!("read the ledger {}", place.display());
    let device = PreadDevice::open(&place).with_context(failed)?;
    Ledger::look(&device).with_context(failed)
}

/// Whether `node` keeps parts of striped files, or of files of MPI programs, of other nodes that the tier may not have. The
/// ledgers of those say it, where they are on this machine; while nobody knows, it is so.
pub(crate) fn keeps_for_others(settings: &Settings, node: u16) -> bool {
    if settings.tier.is_none() || !settings.has_storage(node) {
        return false;
    }
    let kept = match kept_for_others(settings, node) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!("parts of node {node} are kept: {error:#}");
            return true;
        }
    };
    let is_unknown = |home: u16| !settings.ledger(home).exists() && !is_in_tier(settings, home);
    let is_needed = kept.striped.into_iter().any(|(home, files)| {
        if !settings.ledger(home).exists() {
            return is_unknown(home);
        }
        let is_left = |record: &LedgerRecord| files.contains(&record.ino);
        not_durable(settings, home).map_or(true, |left| left.iter().any(is_left))
    });
    // A part of a container does not say which file it belongs to, nor whose that is.
    let others = || (0..settings.nodes).filter(|home| *home != node && settings.has_storage(*home));
    is_needed || kept.in_container && others().any(is_unknown) || homes_with_recorded(settings)
}

/// Whether a ledger on this machine has a file that MPI-IO keeps in parts, and that the tier does not have.
fn homes_with_recorded(settings: &Settings) -> bool {
    let is_recorded = |record: &LedgerRecord| matches!(record.layout, Layout::Recorded { .. });
    (0..settings.nodes)
        .any(|home| not_durable(settings, home).map_or(true, |left| left.iter().any(is_recorded)))
}

/// What lies on a node for files of the cache area of which other nodes may be the homes.
#[derive(Debug, Default)]
struct KeptForOthers {
    /// By their homes, the striped files with parts here.
    striped: BTreeMap<u16, BTreeSet<InodeId>>,
    /// There are parts or indexes of files of MPI programs.
    in_container: bool,
}

/// As the parts themselves tell it, or, when they are in an image that is not mounted, the names and the notes of parts.
fn kept_for_others(settings: &Settings, node: u16) -> anyhow::Result<KeptForOthers> {
    let root = settings.shared_root(node);
    let parts = root.join(PARTS_DIRECTORY);
    let mut kept = KeptForOthers::default();
    let found = if parts.is_dir() {
        PreadDevice::open(&parts)?.list().context("list its parts")?
    } else if settings.image
        && let Some(names) = names(settings, node)?
    {
        let txn = names.begin();
        kept.in_container = has_container(&txn, node).context("read its inodes")?;
        ops::part_notes(&txn, None, usize::MAX).context("read the notes of its parts")?
    } else {
        Vec::new()
    };
    for part in found {
        let home = part.ino.home().0;
        kept.in_container |= part.ino.is_in_cached_container();
        if part.ino.is_cached() && home != node {
            kept.striped.entry(home).or_default().insert(part.ino);
        }
    }
    Ok(kept)
}

/// Whether a node is the home of anything in the container of a file of the cache area: their numbers are the ones above
/// those of `shared` and below those of `cache`.
fn has_container(names: &Txn<'_>, node: u16) -> anyhow::Result<bool> {
    let last_shared = InodeId::new(ServerId(node), 0).map(InodeId::in_cached_container);
    let first = ops::inodes(names, last_shared, 1)?;
    Ok(first.iter().any(|inode| inode.ino.is_in_cached_container()))
}

/// Whether any node of this machine keeps bytes that exist nowhere else. A ledger that can not be read
/// counts: nothing is removed because of an error.
pub(crate) fn has_undurable(settings: &Settings) -> bool {
    let has_left =
        |node| not_durable(settings, node).map_or(true, |left: Vec<LedgerRecord>| !left.is_empty());
    if (0..settings.nodes).any(has_left) {
        return true;
    }
    // The ledgers on this machine miss nothing: parts are kept for those that are not here.
    let is_unknown = |home| {
        let is_elsewhere = settings.has_storage(home) && !settings.ledger(home).exists();
        is_elsewhere && !is_in_tier(settings, home)
    };
    let has_parts = |node| settings.node_storage(node).exists() && keeps_for_others(settings, node);
    settings.tier.is_some()
        && (0..settings.nodes).any(is_unknown)
        && (0..settings.nodes).any(has_parts)
}

/// Writes down beside the bytes what is needed to bring them to the tier later; durable when it returns.
pub(crate) fn keep_for_resume(settings: &Settings) -> anyhow::Result<()> {
    Ok(kept_file::write_twice(&resume_file(settings), settings)?)
}

/// Writes down what the tier does not have of a node, for people and scripts; nothing when it has everything.
pub(crate) fn write_list(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let left = not_durable(settings, node)?;
    if left.is_empty() {
        return Ok(());
    }
    let files: Vec<_> = left.iter().map(|record| line(settings, node, record)).collect();
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    tracing::warn!(files = files.len(), bytes, "not in the tier: kept for `hayase resume`");
    let list = json!({ "job": settings.job, "bytes": bytes, "files": files });
    let path = settings.job_storage().join(format!("{NOT_IN_TIER}{node}.json"));
    let text = serde_json::to_vec_pretty(&list).expect("a list is plain data");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Beside the nodes' storage: the tier has everything of this node, and its storage was removed.
fn in_tier_mark(settings: &Settings, node: u16) -> PathBuf {
    settings.job_storage().join(format!("{IN_TIER}{node}"))
}

/// Writes down that nothing of `node` is missing, before its storage goes: nodes that end one by one
/// leave a job of which some keep bytes.
pub(crate) fn mark_in_tier(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let path = in_tier_mark(settings, node);
    fs::write(&path, b"").with_context(|| format!("write {}", path.display()))
}

/// Whether `node` removed its storage because the tier had all of it.
pub(crate) fn is_in_tier(settings: &Settings, node: u16) -> bool {
    in_tier_mark(settings, node).exists()
}

/// Whether a file of this name in the storage of a job only describes what its nodes keep.
pub(crate) fn is_note(name: &str) -> bool {
    name.starts_with(IN_TIER) || name.starts_with(NOT_IN_TIER) || name.starts_with(RESUME)
}

fn resume_file(settings: &Settings) -> PathBuf {
    settings.job_storage().join(RESUME)
}

/// Whether `hayase resume` finds in the storage what it needs; so where a node has nothing to be resumed.
pub(crate) fn can_resume(settings: &Settings, node: u16) -> bool {
    settings.tier.is_none()
        || !settings.node_storage(node).exists()
        || kept_file::read_either::<Settings>(&resume_file(settings))
            .is_ok_and(|kept| kept.is_some_and(|kept| kept.mark == settings.mark))
}

/// The settings of the job whose bytes were kept in a storage; `None` when none were.
pub(crate) fn kept_in(storage: &JobDir) -> anyhow::Result<Option<Settings>> {
    let place = storage.path().join(RESUME);
    Ok(kept_file::read_either_by(&place, |path| storage.open(path))?)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hayase_store::FileState;

    use super::*;
    use crate::job::{FsyncAt, Kind, TierSettings, sample_settings as sample};

    /// A job of two nodes in front of a tier; node 1 has stored parts.
    fn settings_in(storage: &std::path::Path) -> Settings {
        let mut settings = sample(Kind::Loopback { subnet: Ipv4Addr::new(127, 9, 9, 0) }, 2);
        settings.storage = storage.into();
        let place = "/tier".to_owned();
        let fsync = FsyncAt::Node;
        settings.tier = Some(TierSettings {
            place,
            endpoint: None,
            root: None,
            fsync,
            deadline_ms: None,
            flush_open_s: 0,
            faults: None,
        });
        fs::create_dir_all(settings.shared_root(1)).unwrap();
        settings
    }

    fn ino(server: u16, number: u64) -> InodeId {
        InodeId::new(ServerId(server), number).unwrap()
    }

    /// The home of a striped file is node 0, and node 1 has a part of it.
    #[test]
    fn parts_of_others_stay_until_their_home_says_that_the_tier_has_them() {
        let storage = tempfile::tempdir().unwrap();
        let settings = settings_in(storage.path());
        assert!(!keeps_for_others(&settings, 1), "it has no parts");
        let parts = PreadDevice::open(&settings.shared_root(1).join(PARTS_DIRECTORY)).unwrap();
        let part = |ino| parts.create(PartId { ino, epoch: 0, index: 1 }).unwrap();
        part(ino(1, 5).in_cache());
        part(ino(0, 5));
        assert!(!keeps_for_others(&settings, 1), "its own, and one of `shared`");
        let file = ino(0, 6).in_cache();
        part(file);
        assert!(keeps_for_others(&settings, 1), "nobody says what the home knows");
        fs::create_dir_all(settings.ledger(0)).unwrap();
        let mut ledger = open(&settings, 0).unwrap();
        let record = LedgerRecord::new(file, b"f".to_vec(), 0o640);
        ledger.put(record.clone()).unwrap();
        assert!(keeps_for_others(&settings, 1) && has_undurable(&settings));
        ledger.put(LedgerRecord { state: FileState::Durable, ..record }).unwrap();
        assert!(!keeps_for_others(&settings, 1) && !has_undurable(&settings));
        fs::remove_dir_all(settings.ledger(0)).unwrap();
        assert!(keeps_for_others(&settings, 1) && has_undurable(&settings));
        mark_in_tier(&settings, 0).unwrap();
        assert!(!keeps_for_others(&settings, 1), "the home has left all of it in the tier");
        assert!(!has_undurable(&settings));
    }

    /// Node 0 is the home of a file of an MPI program, and a process on node 1 wrote a part of it.
    #[test]
    fn parts_of_containers_stay_until_all_other_nodes_have_left_everything_in_the_tier() {
        let storage = tempfile::tempdir().unwrap();
        let settings = settings_in(storage.path());
        let parts = PreadDevice::open(&settings.shared_root(1).join(PARTS_DIRECTORY)).unwrap();
        let part = |ino| parts.create(PartId { ino, epoch: 0, index: 0 }).unwrap();
        part(ino(1, 5));
        assert!(!keeps_for_others(&settings, 1), "of a file of `shared`, MPI programs or not");
        part(ino(1, 6).in_cached_container());
        assert!(keeps_for_others(&settings, 1), "nobody says what the home knows");
        assert!(has_undurable(&settings));
        fs::create_dir_all(settings.ledger(0)).unwrap();
        let file = LedgerRecord::new(ino(0, 6).in_cache(), b"f".to_vec(), 0o640);
        let container = ino(0, 7).in_cached_container();
        let record = LedgerRecord { layout: Layout::Recorded { container }, ..file };
        let mut ledger = open(&settings, 0).unwrap();
        ledger.put(record.clone()).unwrap();
        assert!(keeps_for_others(&settings, 1) && has_undurable(&settings));
        ledger.put(LedgerRecord { state: FileState::Durable, ..record }).unwrap();
        assert!(!keeps_for_others(&settings, 1) && !has_undurable(&settings));
        fs::remove_dir_all(settings.ledger(0)).unwrap();
        mark_in_tier(&settings, 0).unwrap();
        assert!(!keeps_for_others(&settings, 1), "the home has left all of it in the tier");
    }

    #[test]
    fn containers_of_cached_files_are_seen_among_the_names() {
        let store = Arc::new(hayase_store::MemoryStore::default());
        let names = hayase_store::Namespace::open(store, ServerId(1), Default::default()).unwrap();
        let add = |ino| {
            let mut txn = names.begin();
            let inode = hayase_store::namespace::Inode::new(
                ino,
                hayase_store::namespace::FileKind::Regular,
                Default::default(),
            );
            ops::put_inode(&mut txn, &inode).unwrap();
            txn.commit().unwrap();
        };
        add(ino(1, 5));
        add(ino(1, 6).in_cache());
        assert!(!has_container(&names.begin(), 1).unwrap());
        add(ino(1, 7).in_cached_container());
        assert!(has_container(&names.begin(), 1).unwrap());
    }
}
