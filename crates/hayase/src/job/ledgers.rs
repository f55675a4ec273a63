//! What the ledgers of a job's nodes say that its tier does not have: also when nobody serves them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use hayase_store::{Ledger, LedgerRecord, PreadDevice};
use serde_json::json;

use super::Settings;

/// Written into the storage of a job that keeps bytes for [`crate::commands::resume`]: its settings.
const RESUME: &str = "resume.json";

/// Begins the name of the mark of a node that has nothing left to bring there.
const IN_TIER: &str = "in-tier-";

/// What the tier does not have of one node. A node without a ledger on this machine has nothing.
pub(crate) fn not_durable(settings: &Settings, node: u16) -> anyhow::Result<Vec<LedgerRecord>> {
    let place = settings.ledger(node);
    if settings.tier.is_none() || !place.exists() {
        return Ok(Vec::new());
    }
    let ledger = open(settings, node)?;
    Ok(ledger.records().filter(|record| !record.state.is_safe()).cloned().collect())
}

/// Everything that the ledgers on this machine say: of a name that one node has removed, the file may be
/// on another one.
pub(crate) fn all(settings: &Settings) -> anyhow::Result<Vec<LedgerRecord>> {
    let mut all = Vec::new();
    for node in (0..settings.nodes).filter(|node| settings.ledger(*node).exists()) {
        all.extend(open(settings, node)?.records().cloned());
    }
    Ok(all)
}

/// The ledger of a node whose server has ended.
pub(crate) fn open(settings: &Settings, node: u16) -> anyhow::Result<Ledger> {
    let place = settings.ledger(node);
    let failed = || format!("open the ledger {}", place.display());
    let device = PreadDevice::open(&place).with_context(failed)?;
    Ledger::open(std::sync::Arc::new(device)).with_context(failed)
}

/// Whether any node of this machine keeps bytes that exist nowhere else. A ledger that can not be read
/// counts: nothing is removed because of an error.
pub(crate) fn has_undurable(settings: &Settings) -> bool {
    (0..settings.nodes)
        .any(|node| not_durable(settings, node).map_or(true, |left| !left.is_empty()))
}

/// Writes down beside the bytes what is needed to bring them to the tier later.
pub(crate) fn keep_for_resume(settings: &Settings) -> anyhow::Result<()> {
    let path = resume_file(settings);
    let text = serde_json::to_vec_pretty(settings).expect("settings are plain data");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Writes down what the tier does not have of a node, for people and scripts; nothing when it has everything.
pub(crate) fn write_list(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let left = not_durable(settings, node)?;
    if left.is_empty() {
        return Ok(());
    }
    let line = |record: &LedgerRecord| {
        json!({
            "node": node,
            "path": String::from_utf8_lossy(&record.path),
            "state": record.state.word(),
            "bytes": record.bytes,
            "errno": record.errno,
            "attempts": record.attempts,
        })
    };
    let bytes: u64 = left.iter().map(|record| record.bytes).sum();
    let files: Vec<_> = left.iter().map(line).collect();
    tracing::warn!(files = files.len(), bytes, "not in the tier: kept for `hayase resume`");
    let list = json!({ "job": settings.job, "bytes": bytes, "files": files });
    let path = settings.job_storage().join(format!("not-in-tier-{node}.json"));
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

/// Removes these marks, when no node keeps anything.
pub(crate) fn remove_in_tier_marks(settings: &Settings) {
    for node in 0..settings.nodes {
        let _ = fs::remove_file(in_tier_mark(settings, node));
    }
}

fn resume_file(settings: &Settings) -> PathBuf {
    settings.job_storage().join(RESUME)
}

/// The settings of the job whose bytes were kept in `storage`; `None` when none were.
pub(crate) fn kept_in(storage: &std::path::Path) -> anyhow::Result<Option<Settings>> {
    let path = storage.join(RESUME);
    match fs::read(&path) {
        Ok(bytes) => {
            let settings = serde_json::from_slice(&bytes);
            settings.map(Some).with_context(|| format!("read {}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}
