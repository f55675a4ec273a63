//! How many streams were good for a source and a target, for the next time.
//!
//! A small file in this user's runtime directory. Nothing depends on it: what can not be read or
//! written is as if nothing was known.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hayase_stage::Place;
use hayase_stage::limits::STREAMS_START;

use crate::config::Environment;
use crate::job::Registry;

/// Pairs that are remembered; when there are more, the file begins anew.
const PAIRS_MAX: usize = 1000;

/// What is known of one pair of places.
pub(crate) struct Remembered {
    /// `None` where nothing can be kept.
    file: Option<PathBuf>,
    pair: String,
}

impl Remembered {
    /// Of a copy from `source` to `target`.
    pub(crate) fn of(source: &Place, target: &Place, environment: &Environment) -> Self {
        // Refuses a directory that somebody else could have prepared.
        let prepared = Registry::new(&environment.runtime).prepare(environment.uid);
        let file = prepared.ok().map(|()| environment.runtime.join("streams.json"));
        Self { file, pair: format!("{} -> {}", source.describe(), target.describe()) }
    }

    fn read(&self) -> BTreeMap<String, usize> {
        let text = self.file.as_ref().and_then(|file| fs::read(file).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// How many to begin with.
    pub(crate) fn start(&self) -> usize {
        self.read().get(&self.pair).copied().unwrap_or(STREAMS_START)
    }

    /// So many were good.
    pub(crate) fn keep(&self, streams: usize) {
        let Some(file) = &self.file else { return };
        let mut known = self.read();
        if known.len() >= PAIRS_MAX {
            known.clear();
        }
        known.insert(self.pair.clone(), streams);
        let Ok(text) = serde_json::to_vec(&known) else { return };
        // Of two commands that end together the later one counts.
        let new = file.with_extension(format!("{}.new", std::process::id()));
        if fs::write(&new, text).and_then(|()| fs::rename(&new, file)).is_err() {
            let _ = fs::remove_file(&new);
        }
    }
}
