//! Unfinished uploads that a killed server, or a dead job, left in the tier.
//!
//! They lie beside the files that were on their way, and the ledger knows which those were: so a few directories
//! are looked through, never the whole tier. What is there is ours by its name ([`hayase_tier::Owner`]); whose
//! file was renamed into another directory meanwhile, or removed, leaves its upload behind.

use std::collections::BTreeSet;
use std::rc::Rc;

use hayase_store::LedgerRecord;
use hayase_tier::Tier;

use crate::cache::area::CacheArea;
use crate::cache::order::directory_of;

/// Directories in which uploads of `records` may have been cut off.
pub(crate) fn directories<'a>(
    records: impl Iterator<Item = &'a LedgerRecord>,
) -> BTreeSet<Vec<u8>> {
    let was_sent = records.filter(|record| record.sent.is_some());
    was_sent.map(|record| directory_of(&record.path).to_vec()).collect()
}

/// Removes what earlier attachments of the tier's owner left in `directories`; how many. What can not be removed
/// is hidden, and stays.
pub(crate) fn sweep(tier: &dyn Tier, directories: &BTreeSet<Vec<u8>>) -> usize {
    if !tier.capabilities().owned {
        return 0;
    }
    let mut removed = 0;
    for directory in directories {
        match tier.sweep_own(directory) {
            Ok(more) => removed += more,
            Err(error) => tracing::warn!(%error, "unfinished uploads stay in the tier"),
        }
    }
    removed
}

impl CacheArea {
    /// Once, beside the first flushes: those have names of their own.
    pub(crate) fn sweep_leftovers(self: &Rc<Self>) {
        let Some(cache) = self.get() else { return };
        let directories = cache.cut_off.take();
        if directories.is_empty() || !cache.tier.capabilities().owned {
            return;
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let Some(cache) = this.get() else { return };
            match cache.ask_tier(move |tier| Ok(sweep(tier, &directories))).await {
                Ok(0) => {}
                Ok(removed) => tracing::info!(removed, "uploads that a kill cut off are removed"),
                Err(error) => tracing::warn!(%error, "unfinished uploads stay in the tier"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;
    use hayase_store::Time;
    use hayase_tier::{Attributes, Key, Owner, Posix};

    use super::*;

    #[test]
    fn what_was_on_its_way_is_removed_beside_its_file() {
        let root = tempfile::tempdir().unwrap();
        let attach = || Posix::attach_owned(root.path(), &Owner::new("job-0").unwrap()).unwrap();
        let killed = attach();
        for path in ["top", "d/f", "never/sent"] {
            let upload = killed.begin(&Key::new(path).unwrap(), Attributes::default()).unwrap();
            std::mem::forget(upload); // Not dropped, as by kill -9.
        }
        let record = |number, path: &str, is_sent: bool| LedgerRecord {
            sent: is_sent.then_some((1, Time { seconds: 1, nanos: 0 })),
            ..LedgerRecord::new(InodeId(number).in_cache(), path.into(), 0o640)
        };
        let records =
            [record(1, "top", true), record(2, "d/f", true), record(3, "never/sent", false)];
        let found = directories(records.iter());
        assert_eq!(found, BTreeSet::from([b"".to_vec(), b"d".to_vec()]));
        assert_eq!(sweep(&Posix::attach(root.path()).unwrap(), &found), 0);
        assert_eq!(sweep(&attach(), &found), 2);
        assert_eq!(std::fs::read_dir(root.path().join("d")).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(root.path().join("never")).unwrap().count(), 1);
    }
}
