//! A key-value store in memory, for tests: it can stop at a commit, and lose power.
//!
//! Here: the map, the commits since the last sync, crash points.
//! Not here: the promises it keeps ([`crate::meta`]).
//!
//! Invariants: `map` = `synced` with all of `pending` applied in order.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{Batch, MetaError, MetaStore, Pair};

/// The map in memory. [`MemoryStore::after_power_cut`] makes what would be left of it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    synced: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Commits since the last sync, oldest first.
    pending: Vec<Batch>,
    /// Commits that still succeed; `None`: all.
    commits_left: Option<u64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A crash point: `commits` more commits succeed, every later commit and sync fails with
    /// [`MetaError::Stopped`], as if the process had died there.
    pub fn stop_after(&self, commits: u64) {
        self.lock().commits_left = Some(commits);
    }

    /// Commits made since the last sync.
    pub fn unsynced(&self) -> usize {
        self.lock().pending.len()
    }

    /// What a new process finds after kill -9: every commit.
    pub fn after_kill(&self) -> Self {
        let mut state = self.lock().clone();
        state.commits_left = None;
        Self { state: Mutex::new(state) }
    }

    /// What a new process finds after a power cut that happened to keep `kept` of the commits
    /// since the last sync (all of them when there are fewer).
    pub fn after_power_cut(&self, kept: usize) -> Self {
        let state = self.lock();
        let mut map = state.synced.clone();
        for batch in state.pending.iter().take(kept) {
            apply(&mut map, batch);
        }
        let state = State { synced: map.clone(), map, pending: Vec::new(), commits_left: None };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &Batch) {
    for (key, value) in batch.changes() {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

impl MetaStore for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        Ok(self.lock().map.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
        let start = from.max(prefix);
        Ok(self
            .lock()
            .map
            .range(start.to_vec()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        let mut state = self.lock();
        match &mut state.commits_left {
            Some(0) => return Err(MetaError::Stopped),
            Some(left) => *left -= 1,
            None => {}
        }
        apply(&mut state.map, &batch);
        state.pending.push(batch);
        Ok(())
    }

    fn sync(&self) -> Result<(), MetaError> {
        let mut state = self.lock();
        if state.commits_left == Some(0) {
            return Err(MetaError::Stopped);
        }
        for batch in std::mem::take(&mut state.pending) {
            apply(&mut state.synced, &batch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &MemoryStore, key: u8) -> Result<(), MetaError> {
        let mut batch = Batch::new();
        batch.put(vec![key], vec![]);
        store.commit(batch)
    }

    fn keys(store: &MemoryStore) -> Vec<u8> {
        store.scan(&[], &[], 100).unwrap().into_iter().map(|(key, _)| key[0]).collect()
    }

    #[test]
    fn passes_the_suite() {
        super::super::conformance::run(&|| Box::new(MemoryStore::new()));
    }

    #[test]
    fn a_power_cut_keeps_the_synced_and_a_prefix() {
        let store = MemoryStore::new();
        for key in 1..=5 {
            put(&store, key).unwrap();
            if key == 2 {
                store.sync().unwrap();
            }
        }
        let check = |kept, expected: &[u8]| {
            assert_eq!(keys(&store.after_power_cut(kept)), expected);
        };
        check(0, &[1, 2]);
        check(1, &[1, 2, 3]);
        check(9, &[1, 2, 3, 4, 5]);
        assert_eq!(keys(&store.after_kill()), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn nothing_is_committed_past_the_crash_point() {
        let store = MemoryStore::new();
        store.stop_after(1);
        put(&store, 1).unwrap();
        assert!(matches!(put(&store, 2), Err(MetaError::Stopped)));
        assert!(matches!(store.sync(), Err(MetaError::Stopped)));
        assert_eq!(keys(&store.after_kill()), [1]);
        assert_eq!(keys(&store.after_power_cut(0)), [0u8; 0]);
    }
}
