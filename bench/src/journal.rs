//! What a bench has made and not removed yet: a write-ahead log in the bench's own tree.
//!
//! The bench writes a line before it makes something that must not stay, and another when it has removed it. While the
//! bench or its guard lives, it holds a shared lock (flock(2)) on the file. The kernel drops the lock with the last of
//! them, however they end, so a log that can be locked exclusively belongs to nobody: unlike a process number, a lock
//! is never given to somebody else.
//! Not here: removing things ([`crate::guard`]), finding the logs of benches that were killed ([`crate::leftovers`]).

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// In the tree of a bench.
pub(crate) const NAME: &str = "journal";

/// Something that must not stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Thing {
    /// A job.
    Job {
        /// Its directory.
        directory: PathBuf,
        /// The program that started it, and ends it.
        hayase: PathBuf,
    },
    /// A control group.
    ControlGroup(PathBuf),
    /// A directory with everything below it.
    Tree(PathBuf),
    /// Something that is mounted there.
    Mount(PathBuf),
    /// A process that sees the end of the bench, and ends: it is waited for.
    Ending(u32),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Made(Thing),
    Removed(Thing),
}

/// The open log, locked.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    /// A new one in `tree`. It has its name only when it is locked, so that no other bench finds it without.
    pub(crate) fn create(tree: &Path) -> anyhow::Result<Self> {
        let (unnamed, path) = (tree.join("journal.new"), tree.join(NAME));
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&unnamed);
        let file = file.with_context(|| format!("make {}", unnamed.display()))?;
        flock(&file, FlockOperation::NonBlockingLockShared).context("lock the journal")?;
        std::fs::rename(&unnamed, &path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self { file })
    }

    /// The one of a bench that lives: the lock is shared with it.
    pub(crate) fn share(tree: &Path) -> anyhow::Result<Self> {
        Self::open(tree, FlockOperation::NonBlockingLockShared)
    }

    /// The one of a bench that is gone, and its guard too; nobody else may have it meanwhile.
    pub(crate) fn seize(tree: &Path) -> anyhow::Result<Self> {
        Self::open(tree, FlockOperation::NonBlockingLockExclusive)
    }

    fn open(tree: &Path, lock: FlockOperation) -> anyhow::Result<Self> {
        let path = tree.join(NAME);
        let file = OpenOptions::new().read(true).append(true).open(&path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        flock(&file, lock).with_context(|| format!("lock {}", path.display()))?;
        Ok(Self { file })
    }

    /// To be called before `thing` is made.
    pub(crate) fn made(&self, thing: Thing) -> anyhow::Result<()> {
        self.append(&Line::Made(thing))
    }

    /// To be called when it is gone.
    pub(crate) fn removed(&self, thing: Thing) -> anyhow::Result<()> {
        self.append(&Line::Removed(thing))
    }

    fn append(&self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        (&self.file).write_all(&text).context("write to the journal")
    }

    /// What was made and not removed, in the order in which it was made.
    pub(crate) fn remains(&self) -> anyhow::Result<Vec<Thing>> {
        let mut text = String::new();
        let mut file = &self.file;
        file.rewind().and_then(|()| file.read_to_string(&mut text)).context("read the journal")?;
        let mut things: Vec<Thing> = Vec::new();
        // A line that was cut short by a kill is of something that was not made yet.
        for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match line {
                Line::Made(thing) => things.push(thing),
                Line::Removed(thing) => things.retain(|known| *known != thing),
            }
        }
        Ok(things)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_removed_remains() {
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::create(place.path()).unwrap();
        let [one, two] = ["/one", "/two"].map(|path| Thing::Tree(path.into()));
        let job = Thing::Job { directory: "/job".into(), hayase: "/hayase".into() };
        for thing in [&one, &job, &two] {
            journal.made(thing.clone()).unwrap();
        }
        journal.removed(one).unwrap();
        (&journal.file).write_all(b"{\"made\":{\"tr").unwrap();
        assert_eq!(journal.remains().unwrap(), [job, two]);
    }

    #[test]
    fn nobody_seizes_what_somebody_holds() {
        let place = tempfile::tempdir().unwrap();
        let bench = Journal::create(place.path()).unwrap();
        let guard = Journal::share(place.path()).unwrap();
        assert!(Journal::seize(place.path()).is_err());
        drop(bench);
        assert!(Journal::seize(place.path()).is_err(), "the guard still has it");
        drop(guard);
        let seized = Journal::seize(place.path()).unwrap();
        assert!(Journal::seize(place.path()).is_err() && Journal::share(place.path()).is_err());
        drop(seized);
    }
}
