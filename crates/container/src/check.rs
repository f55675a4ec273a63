//! Checking a container: everything that is wrong with it, and where.
//!
//! Here: what `hayase container check` says. Reading stops at the first damage, this goes on behind it.
//! Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hayase_layout::{ByteCount, Index, WriterId};

use crate::catalogue::{INCOMPLETE, Loaded, has_source, is_settled};
use crate::limits::LIST_TRIES_MAX;
use crate::names::{self, Kind};
use crate::snapshot::PublishedLog;
use crate::{Container, ContainerError, ContainerId, Creation, Snapshot};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; no byte is missing.
    Note,
    /// Something was written that was never published: its writer is still at work, or was killed.
    Unpublished,
    /// Something that was published can not be read.
    Damage,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Which file.
    pub path: PathBuf,
    /// Where in it, where that is one place.
    pub at: Option<u64>,
    /// In words.
    pub what: String,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The container.
    pub path: PathBuf,
    /// Its id.
    pub id: ContainerId,
    /// Writers that published.
    pub writers: usize,
    /// Their records.
    pub records: usize,
    /// Length of the file; `None` when the indexes do not tell.
    pub size: Option<ByteCount>,
    /// Bytes of all indexes.
    pub index_bytes: ByteCount,
    /// Bytes of all parts.
    pub part_bytes: ByteCount,
    /// The worst first.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether every byte that was published can be read.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity < Severity::Damage)
    }
}

/// Looks at every block, checksum, record and part length of the container at `path`.
///
/// Fails only when there is no container, or it can not be looked at. A writer that is at work meanwhile is
/// reported as not closed. The check begins again where a compaction has removed files meanwhile.
pub fn check(path: &Path) -> Result<Report, ContainerError> {
    let container = Container::open(path, Creation::Never)?;
    let mut names = container.directory().names()?;
    for _ in 1..LIST_TRIES_MAX {
        let report = check_listed(&container, path, &names)?;
        let again = container.directory().names()?;
        if is_settled(&names, &again) {
            return Ok(report);
        }
        names = again; // indexes were merged meanwhile, and perhaps parts joined
    }
    check_listed(&container, path, &names)
}

/// The indexes among `names`, and the parts that are listed behind them: those that they name are there.
fn check_listed(
    container: &Container,
    path: &Path,
    names: &[String],
) -> Result<Report, ContainerError> {
    let mut check = Check { container, problems: Vec::new() };
    let found = check.indexes(names)?;
    let parts = check.parts(&container.directory().names()?)?;
    let snapshot = union(&found);
    check.incomplete(&found, &snapshot);
    check.uncovered(&snapshot, &parts);
    for published in snapshot.logs().values() {
        check.log(published, &snapshot, &parts);
    }
    let size = match snapshot.size(path) {
        Ok(size) => Some(size),
        Err(error) => {
            check.error(path.to_owned(), &error);
            None
        }
    };
    let mut problems = check.problems;
    problems.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.path.cmp(&b.path)));
    Ok(Report {
        path: path.to_owned(),
        id: container.id(),
        writers: snapshot.logs().len(),
        records: snapshot.record_count(),
        size,
        index_bytes: ByteCount(found.values().map(|index| index.bytes).sum()),
        part_bytes: ByteCount(parts.values().sum()),
        problems,
    })
}

/// What is said of a merged index that does not count yet.
const BEGUN: &str = "not complete: a compaction is under way, or was killed";

struct Check<'a> {
    container: &'a Container,
    problems: Vec<Problem>,
}

/// What all of them say.
fn union(found: &BTreeMap<String, FoundIndex>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let is_merged = |name: &String| matches!(names::kind(name), Kind::Merged(_));
    let counting = found.iter().filter(|(_, index)| index.loaded.counts());
    let (merged, single): (Vec<_>, Vec<_>) = counting.partition(|(name, _)| is_merged(name));
    for (_, index) in merged.into_iter().chain(single) {
        snapshot.add(index.loaded.contents());
    }
    snapshot.settle();
    snapshot
}

/// One index as far as it could be read.
struct FoundIndex {
    loaded: Loaded,
    bytes: u64,
    /// Nothing in it is damaged.
    is_good: bool,
}

impl Check<'_> {
    fn add(&mut self, severity: Severity, name: &str, at: Option<u64>, what: impl Into<String>) {
        let path = self.container.directory().shown(name);
        self.problems.push(Problem { severity, path, at, what: what.into() });
    }

    /// An error is a finding: its own words, and those of what is behind it.
    fn error(&mut self, path: PathBuf, error: &ContainerError) {
        let (path, at, what) = match error {
            ContainerError::Corrupt { path, at, what } => (path.clone(), Some(*at), what.clone()),
            _ => {
                let source = std::error::Error::source(error);
                let source = source.map_or(String::new(), |source| format!(": {source}"));
                (path, None, format!("{error}{source}"))
            }
        };
        self.problems.push(Problem { severity: Severity::Damage, path, at, what });
    }

    fn indexes(
        &mut self,
        names: &[String],
    ) -> Result<BTreeMap<String, FoundIndex>, ContainerError> {
        let directory = self.container.directory();
        let mut found = BTreeMap::new();
        for name in names {
            match names::kind(name) {
                Kind::Index(_) | Kind::Merged(_) => {}
                Kind::Begun(_) => {
                    self.add(Severity::Note, name, None, BEGUN);
                    continue;
                }
                Kind::Foreign => {
                    self.add(Severity::Note, name, None, "not part of a container");
                    continue;
                }
                Kind::Mark | Kind::Stub | Kind::Part(_) | Kind::Removed => continue,
            }
            let mut loaded = Loaded::new(name);
            let read = loaded.read_on(directory, self.container.id(), name);
            let is_good = read.is_ok();
            match read {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => continue, // merged with others meanwhile
                Err(error) => self.error(directory.shown(name), &error),
            }
            let bytes = directory.len(name).ok().flatten().unwrap_or(0);
            let torn = loaded.torn();
            if torn > 0 && loaded.is_whole() {
                let what = format!("{torn} bytes are no whole block: a publication was cut short");
                self.add(Severity::Unpublished, name, Some(bytes.saturating_sub(torn)), what);
            }
            found.insert(name.clone(), FoundIndex { loaded, bytes, is_good });
        }
        Ok(found)
    }

    fn parts(&self, names: &[String]) -> Result<BTreeMap<WriterId, u64>, ContainerError> {
        let directory = self.container.directory();
        let mut parts = BTreeMap::new();
        for id in names::parts_among(names) {
            let name = names::part(id);
            let len = directory.len(&name);
            let len = len.map_err(|e| ContainerError::io("look at", &directory.shown(&name), e))?;
            parts.extend(len.map(|len| (id, len)));
        }
        Ok(parts)
    }

    /// Merged indexes appear whole; those of builds before did not.
    fn incomplete(&mut self, found: &BTreeMap<String, FoundIndex>, snapshot: &Snapshot) {
        let is_counting = found.values().any(|index| index.loaded.counts());
        let is_cut = |index: &FoundIndex| index.is_good && !index.loaded.is_whole();
        for (name, index) in found.iter().filter(|(_, index)| is_cut(index)) {
            let is_begun = !index.loaded.counts()
                && has_source(name, found.keys(), is_counting)
                && index.loaded.is_covered(snapshot);
            let (severity, what) =
                if is_begun { (Severity::Note, BEGUN) } else { (Severity::Damage, INCOMPLETE) };
            self.add(severity, name, Some(index.loaded.read()), what);
        }
    }

    fn uncovered(&mut self, snapshot: &Snapshot, parts: &BTreeMap<WriterId, u64>) {
        let named: BTreeSet<WriterId> =
            snapshot.logs().values().map(|published| published.log.part).collect();
        for (id, len) in parts.iter().filter(|(id, _)| !named.contains(id)) {
            let name = names::part(*id);
            if names::is_joined(*id) || snapshot.logs().contains_key(id) {
                let what =
                    "its bytes are in another part: a compaction is under way, or was killed";
                self.add(Severity::Note, &name, None, what);
                continue;
            }
            let what = format!("no index tells of its {len} bytes: nothing of it was published");
            self.add(Severity::Unpublished, &name, None, what);
        }
    }

    /// One writer: its records by themselves, and against its part.
    fn log(&mut self, published: &PublishedLog, all: &Snapshot, parts: &BTreeMap<WriterId, u64>) {
        let id = published.log.writer.id;
        let (part, index) = (names::part(published.log.part), names::index(id));
        if let Err(source) = Index::new(std::slice::from_ref(&published.log), &[]) {
            self.add(Severity::Damage, &index, None, source.to_string());
        }
        let ends = published.log.records.iter().filter_map(hayase_layout::Record::end);
        let needed = ends.map(|end| end.0).max().unwrap_or(0);
        let Some(len) = parts.get(&published.log.part).copied() else {
            // One of two compactions at once may have removed it, and the other tells of it still.
            if needed > 0 && !published.is_dead(all) {
                self.add(Severity::Damage, &part, None, format!("missing: it has {needed} bytes"));
            }
            return;
        };
        if len < needed {
            let what = format!("it ends there, and {needed} bytes of it were published");
            self.add(Severity::Damage, &part, Some(len), what);
        }
        if published.closed.is_none() {
            let what = match len.saturating_sub(needed) {
                0 => "its writer has not closed: it is at work, or was killed".to_owned(),
                more => format!("its writer has not closed, and {more} bytes are not published"),
            };
            self.add(Severity::Unpublished, &part, Some(needed), what);
        }
    }
}
