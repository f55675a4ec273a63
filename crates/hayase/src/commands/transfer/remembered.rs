//! How many streams and which parts were good for an endpoint in one direction, for the next time.
//!
//! A small file in this user's runtime directory. Nothing depends on it: what can not be read or
//! written is as if nothing was known.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hayase_stage::limits::{PART_BYTES, STREAMS_START};
use hayase_stage::{Place, Summary};
use serde::{Deserialize, Serialize};

use crate::config::Environment;
use crate::job::Registry;

/// Ways that are remembered; when there are more, the file begins anew.
const WAYS_MAX: usize = 1000;

/// What a copy begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) streams: usize,
    pub(crate) part_bytes: u64,
}

impl Default for Start {
    fn default() -> Self {
        Self { streams: STREAMS_START, part_bytes: PART_BYTES }
    }
}

/// What is known of one way.
pub(crate) struct Remembered {
    /// `None` where nothing can be kept.
    file: Option<PathBuf>,
    way: String,
}

impl Remembered {
    /// Of a copy from `source` to `target`.
    pub(crate) fn of(source: &Place, target: &Place, environment: &Environment) -> Self {
        // Refuses a directory that somebody else could have prepared.
        let prepared = Registry::make(&environment.runtime);
        let file = prepared.ok().map(|_| environment.runtime.join("tuned.json"));
        let end = |place: &Place| (place.tier.endpoint(), place.describe());
        Self { file, way: way(end(source), end(target)) }
    }

    fn read(&self) -> BTreeMap<String, Start> {
        let text = self.file.as_ref().and_then(|file| fs::read(file).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// What to begin with.
    pub(crate) fn start(&self) -> Start {
        self.read().get(&self.way).copied().unwrap_or_default()
    }

    /// What was good; a copy that fixed a number, or had no large files, says nothing about it.
    pub(crate) fn keep(&self, summary: &Summary, (streams, parts): (bool, bool)) {
        let Some(file) = &self.file else { return };
        let mut known = self.read();
        if known.len() >= WAYS_MAX {
            known.clear();
        }
        let start = known.entry(self.way.clone()).or_default();
        if streams {
            start.streams = summary.streams;
        }
        if parts && summary.part_bytes > 0 {
            start.part_bytes = summary.part_bytes;
        }
        let Ok(text) = serde_json::to_vec(&known) else { return };
        // Of two commands that end together the later one counts.
        let new = file.with_extension(format!("{}.new", std::process::id()));
        if fs::write(&new, text).and_then(|()| fs::rename(&new, file)).is_err() {
            let _ = fs::remove_file(&new);
        }
    }
}

/// A server and the direction, whatever the bucket; directories by their names. Each end has its server, if it
/// has one, and its description.
fn way((from, source): (Option<String>, String), (to, target): (Option<String>, String)) -> String {
    match (from, to) {
        (Some(from), None) => format!("down from {from}"),
        (None, Some(to)) => format!("up to {to}"),
        (Some(from), Some(to)) => format!("{from} -> {to}"),
        (None, None) => format!("{source} -> {target}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, bucket: &str) -> (Option<String>, String) {
        (Some(name.to_owned()), format!("s3://{bucket}/ at {name}"))
    }

    fn directory(name: &str) -> (Option<String>, String) {
        (None, format!("directory {name}"))
    }

    #[test]
    fn ways_are_servers_and_directions() {
        let down = way(server("http://a", "x"), directory("/1"));
        assert_eq!(down, way(server("http://a", "y"), directory("/2")));
        let others = [
            way(directory("/1"), server("http://a", "x")),
            way(server("http://b", "x"), directory("/1")),
            way(server("http://a", "x"), server("http://b", "x")),
            way(server("http://b", "x"), server("http://a", "x")),
            way(directory("/1"), directory("/2")),
            way(directory("/2"), directory("/1")),
        ];
        for (number, other) in others.iter().enumerate() {
            assert_ne!(*other, down);
            assert!(!others[..number].contains(other), "{other}");
        }
    }

    #[test]
    fn each_way_keeps_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tuned.json");
        let of = |way: &str| Remembered { file: Some(file.clone()), way: way.to_owned() };
        let found = |streams, part_bytes| Summary { streams, part_bytes, ..Summary::default() };
        assert_eq!(of("down").start(), Start::default());
        of("down").keep(&found(12, 20 << 20), (true, true));
        of("up").keep(&found(6, 0), (true, true));
        assert_eq!(of("down").start(), Start { streams: 12, part_bytes: 20 << 20 });
        assert_eq!(of("up").start(), Start { streams: 6, ..Start::default() });
        // No large files, and a number that a person said.
        of("down").keep(&found(9, 0), (true, true));
        of("down").keep(&found(1, 30 << 20), (false, true));
        of("down").keep(&found(1, 40 << 20), (false, false));
        assert_eq!(of("down").start(), Start { streams: 9, part_bytes: 30 << 20 });
        fs::write(&file, "garbage").unwrap();
        assert_eq!(of("down").start(), Start::default());
    }
}
