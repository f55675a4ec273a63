//! The catalogue: the indexes of a container as far as they were read, so that a refresh reads only what
//! was appended since.
//!
//! Several indexes may tell of one writer while a compaction is under way: they tell the same, of the same part or
//! of a copy in another one ([`Snapshot::add`]). A merged index appears whole, so one that is not complete is
//! damaged; builds before version 2 wrote it under its own name, and one of theirs that is not complete does not
//! count while others tell what it tells.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use hayase_layout::WriterId;
use rustix::fs::OFlags;

use crate::directory::{Directory, is_gone};
use crate::format::{HEADER_BYTES, HeaderFault, Tail, VERSION, check_header, parse_blocks};
use crate::limits::{INDEX_BYTES_MAX, LIST_TRIES_MAX};
use crate::names::{self, Kind, MARK};
use crate::snapshot::{Contents, Torn};
use crate::{Container, ContainerError, ContainerId, Snapshot};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    indexes: BTreeMap<String, Loaded>,
    /// Something was read that no refresh has told of: also when that one failed half way.
    has_news: bool,
}

/// One index.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    contents: Contents,
    blocks: u64,
    /// Bytes of whole blocks, with the header.
    read: u64,
    /// Bytes behind them.
    torn: u64,
    is_merged: bool,
    is_written_in_place: bool,
    modified: Option<SystemTime>,
}

/// What changed meanwhile, so that the listing does not count any more.
pub(crate) struct Vanished;

impl Catalogue {
    /// Reads what was published since the last time; whether there was anything.
    pub(crate) fn refresh(&mut self, container: &Container) -> Result<bool, ContainerError> {
        self.read_all(container)?;
        Ok(std::mem::take(&mut self.has_news))
    }

    fn read_all(&mut self, container: &Container) -> Result<(), ContainerError> {
        let directory = container.directory();
        let mut names = directory.names()?;
        for _ in 0..LIST_TRIES_MAX {
            if let Err(Vanished) = self.load(directory, container.id(), &names)? {
                names = directory.names()?;
                continue;
            }
            // In an area, where parts are not joined, a part without an index means that the listing misses an index, or
            // that the writer of the part has published nothing yet.
            if container.is_in_area() && !self.has_uncovered_part(&names) {
                return Ok(());
            }
            let again = directory.names()?;
            if is_settled(&names, &again) {
                return Ok(());
            }
            names = again;
        }
        let what = format!("its indexes were merged {LIST_TRIES_MAX} times while it was read");
        Err(ContainerError::Limit { path: directory.path().to_owned(), what })
    }

    /// Reads these indexes too, and no others, without those that do not count; `false` when one is gone.
    pub(crate) fn load_some(
        &mut self,
        container: &Container,
        names: impl IntoIterator<Item = String>,
    ) -> Result<bool, ContainerError> {
        for name in names {
            let mut loaded = Loaded::new(&name);
            let read = loaded.read_on(container.directory(), container.id(), &name)?;
            if matches!(read, Err(Vanished)) {
                return Ok(false);
            }
            if loaded.counts() {
                self.indexes.insert(name, loaded);
            }
        }
        Ok(true)
    }

    fn load(
        &mut self,
        directory: &Directory,
        id: ContainerId,
        names: &[String],
    ) -> Result<Result<(), Vanished>, ContainerError> {
        if names.binary_search_by(|name| name.as_str().cmp(MARK)).is_err() {
            return Err(ContainerError::NotFound { path: directory.path().to_owned() });
        }
        let count = self.indexes.len();
        self.indexes.retain(|name, _| names.binary_search(name).is_ok());
        self.has_news |= self.indexes.len() != count;
        for name in indexes(names) {
            let mut loaded = self.indexes.remove(name).unwrap_or_else(|| Loaded::new(name));
            // Where that fails, the index is read anew the next time.
            match loaded.read_on(directory, id, name)? {
                Ok(has_news) => self.has_news |= has_news,
                Err(Vanished) => return Ok(Err(Vanished)),
            }
            self.indexes.insert(name.to_owned(), loaded);
        }
        Ok(Ok(()))
    }

    /// Of these files: the indexes, and from which byte on each is to be read. Forgets those that are gone.
    pub(crate) fn wanted<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
    ) -> Vec<(&'a str, u64)> {
        let is_index = |name: &&str| matches!(names::kind(name), Kind::Index(_) | Kind::Merged(_));
        let names: BTreeSet<_> = names.filter(is_index).collect();
        self.indexes.retain(|name, _| names.contains(name.as_str()));
        let read = |name| self.indexes.get(name).map_or(0, |loaded| loaded.read);
        names.into_iter().map(|name| (name, read(name))).collect()
    }

    /// Takes what somebody else has read of an index: all that is behind what was taken before.
    pub(crate) fn take(
        &mut self,
        container: &Path,
        id: ContainerId,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), ContainerError> {
        let loaded = self.indexes.entry(name.to_owned()).or_insert_with(|| Loaded::new(name));
        loaded.take(&container.join(name), id, bytes).map(drop)
    }

    fn has_uncovered_part(&self, names: &[String]) -> bool {
        let covered: HashSet<_> = self
            .counting()
            .flat_map(|(_, loaded)| &loaded.contents.logs)
            .flat_map(|published| [published.log.writer.id, published.log.part])
            .collect();
        names.iter().any(|name| match names::kind(name) {
            Kind::Part(id) => !covered.contains(&id),
            _ => false,
        })
    }

    /// The indexes that count, merged ones first.
    fn counting(&self) -> impl Iterator<Item = (&String, &Loaded)> {
        let merged = self.indexes.iter().filter(|(_, loaded)| loaded.is_merged);
        let single = self.indexes.iter().filter(|(_, loaded)| !loaded.is_merged);
        merged.filter(|(_, loaded)| loaded.counts()).chain(single)
    }

    /// Names of those that do not: a compaction of a build before is under way, or was killed.
    pub(crate) fn not_counting(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().filter(|(_, loaded)| !loaded.counts()).map(|(name, _)| name.as_str())
    }

    /// The parts that are named, by one index or another.
    pub(crate) fn parts(&self) -> impl Iterator<Item = WriterId> {
        let logs = self.counting().flat_map(|(_, loaded)| &loaded.contents.logs);
        logs.map(|published| published.log.part)
    }

    /// When an index was written last.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.indexes.values().filter_map(|loaded| loaded.modified).max()
    }

    /// Names of the indexes that count.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.counting().map(|(name, _)| name.as_str())
    }

    /// Of one index, by name.
    pub(crate) fn contents(&self, name: &str) -> &Contents {
        &self.indexes[name].contents
    }

    /// All that was read; of indexes that were not, nothing is known.
    pub(crate) fn snapshot(&self, container: &Container) -> Result<Snapshot, ContainerError> {
        self.snapshot_of(container.path())
    }

    /// The same of the container that people know by this path.
    pub(crate) fn snapshot_of(&self, container: &Path) -> Result<Snapshot, ContainerError> {
        let mut snapshot = Snapshot::default();
        for (name, loaded) in self.counting() {
            let path = || container.join(name);
            if !loaded.is_whole() {
                let what = INCOMPLETE.to_owned();
                return Err(ContainerError::Corrupt { path: path(), at: loaded.read, what });
            }
            snapshot.add(&loaded.contents);
            if loaded.torn > 0 {
                snapshot.add_torn(Torn { path: path(), at: loaded.read, bytes: loaded.torn });
            }
        }
        snapshot.settle();
        self.require_covered(container, &snapshot)?;
        Ok(snapshot)
    }

    /// What does not count has nothing that others do not tell; otherwise it did count, and its end is damaged.
    fn require_covered(&self, container: &Path, snapshot: &Snapshot) -> Result<(), ContainerError> {
        let is_counting = self.counting().next().is_some();
        for name in self.not_counting() {
            let loaded = &self.indexes[name];
            let has_source = has_source(name, self.indexes.keys(), is_counting);
            if !has_source || !loaded.is_covered(snapshot) {
                let what = INCOMPLETE.to_owned();
                let path = container.join(name);
                return Err(ContainerError::Corrupt { path, at: loaded.read, what });
            }
        }
        Ok(())
    }
}

impl Container {
    /// All that is published now. Reads every index, O(records).
    pub fn load(&self) -> Result<Snapshot, ContainerError> {
        let mut catalogue = Catalogue::default();
        catalogue.refresh(self)?;
        catalogue.snapshot(self)
    }
}

/// Whether what went into the index `name` of a build before, which is not complete and may tell of no writer, can be
/// there: an index counts, and where there was a merged one before it, one is there (one behind it may have taken its
/// place).
pub(crate) fn has_source<'a>(
    name: &str,
    mut names: impl Iterator<Item = &'a String>,
    is_counting: bool,
) -> bool {
    let Kind::Merged(number) = names::kind(name) else { return true };
    let is_another = |other: &String| matches!(names::kind(other), Kind::Merged(n) if n != number);
    is_counting && (number <= 1 || names.any(is_another))
}

/// Whether a listing has all indexes, judged by a later one. A listing that is made while indexes are merged may have
/// neither the old names nor the new one; the later listing then has a merged index that the first one lacks.
pub(crate) fn is_settled(names: &[String], again: &[String]) -> bool {
    let has = |names: &[String], name: &String| names.binary_search(name).is_ok();
    let is_merged = |name: &&String| matches!(names::kind(name), Kind::Merged(_));
    indexes(names).all(|name| has(again, name))
        && again.iter().filter(is_merged).all(|name| has(names, name))
}

/// The names of indexes among these.
pub(crate) fn indexes(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| matches!(names::kind(name), Kind::Index(_) | Kind::Merged(_)))
}

/// What is said of a merged index that does not end as one.
pub(crate) const INCOMPLETE: &str = "the end of this merged index is damaged or missing";

impl Loaded {
    /// Of which nothing was read yet.
    pub(crate) fn new(name: &str) -> Self {
        let is_merged = matches!(names::kind(name), Kind::Merged(_));
        let is_written_in_place = names::is_written_in_place(name);
        Self { is_merged, is_written_in_place, ..Self::default() }
    }

    /// A merged index appears whole; others grow.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_merged || (self.contents.is_complete && self.torn == 0)
    }

    /// Whether what it says counts, or that it says it badly.
    pub(crate) fn counts(&self) -> bool {
        self.is_whole() || !self.is_written_in_place
    }

    /// Whether others tell all that it tells, apart from what was cut off. A writer without records may have some
    /// behind the end, unless it closed.
    pub(crate) fn is_covered(&self, by: &Snapshot) -> bool {
        self.contents.logs.iter().all(|published| {
            let is_known = published.closed.is_some() || !published.log.records.is_empty();
            by.logs().contains_key(&published.log.writer.id)
                || (is_known && published.is_cut_off(by))
        })
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Bytes of whole blocks, with the header.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Bytes behind them.
    pub(crate) fn torn(&self) -> u64 {
        self.torn
    }

    /// Takes what was appended; whether that was anything.
    pub(crate) fn read_on(
        &mut self,
        directory: &Directory,
        id: ContainerId,
        name: &str,
    ) -> Result<Result<bool, Vanished>, ContainerError> {
        let path = directory.shown(name);
        let failed = |source| ContainerError::io("read the index", &path, source);
        let damaged = |at, what: &str| ContainerError::Corrupt {
            path: path.clone(),
            at,
            what: what.to_owned(),
        };
        // Opened before its length is asked for: an open is what makes NFS look.
        let file = match directory.open_file(name, OFlags::RDONLY) {
            Err(error) if is_gone(&error) => return Ok(Err(Vanished)),
            file => file.map_err(failed)?,
        };
        let metadata = match file.metadata() {
            Err(error) if is_gone(&error) => return Ok(Err(Vanished)),
            metadata => metadata.map_err(failed)?,
        };
        self.modified = metadata.modified().ok();
        let len = match metadata.len() {
            len if len < self.read => return Err(damaged(len, "it has become shorter")),
            len if len > INDEX_BYTES_MAX.get() => {
                let what = format!("an index has at most {INDEX_BYTES_MAX}");
                return Err(ContainerError::Limit { path, what });
            }
            len => len,
        };
        if len == self.read && len > 0 {
            self.torn = 0;
            return Ok(Ok(false));
        }
        let bytes = match read_from(&file, self.read, len) {
            Err(error) if is_gone(&error) => return Ok(Err(Vanished)),
            bytes => bytes.map_err(failed)?,
        };
        self.take(&path, id, &bytes).map(Ok)
    }

    /// Takes all that is behind the bytes that were taken before; whether there was anything new in it.
    fn take(&mut self, path: &Path, id: ContainerId, bytes: &[u8]) -> Result<bool, ContainerError> {
        let damaged = |at, what: &str| ContainerError::Corrupt {
            path: path.to_owned(),
            at,
            what: what.to_owned(),
        };
        let body = match self.read {
            0 => match check_header(bytes, id) {
                Ok(()) => HEADER_BYTES,
                Err(HeaderFault::Short) => {
                    self.torn = bytes.len() as u64;
                    return Ok(false);
                }
                Err(HeaderFault::Damaged(at, what)) => return Err(damaged(at, what)),
                Err(HeaderFault::Newer(found)) => {
                    let path = path.to_owned();
                    return Err(ContainerError::NewerFormat { path, found, known: VERSION });
                }
            },
            _ => 0,
        };
        let from = self.read + body as u64;
        let (entries, blocks, used, tail) = parse_blocks(&bytes[body..], from, self.blocks)
            .map_err(|damage| damaged(from + damage.at as u64, damage.what))?;
        let has_changed = !entries.is_empty();
        for entry in entries {
            self.contents.take(entry).map_err(|what| damaged(from, what))?;
        }
        (self.blocks, self.read) = (blocks, from + used as u64);
        self.torn = match tail {
            Tail::Clean => 0,
            Tail::Torn(bytes) => bytes,
        };
        Ok(has_changed)
    }
}

/// At most to `end`; less when the file is shorter by now.
fn read_from(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (end - start) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
