//! A container whose files somebody else reads: the servers of a job keep them where no path leads.
//!
//! Here: which bytes of which indexes are to be read, and what they say. Not here: a container in a
//! directory ([`crate::Container`]), reading parts ([`crate::part_reads`]).

use std::path::{Path, PathBuf};

use hayase_layout::WriterId;

use crate::catalogue::{Catalogue, is_settled};
use crate::names::{self, Kind, MARK};
use crate::{ContainerError, ContainerId, Snapshot, mark};

/// The indexes of one container as far as they were read.
#[derive(Debug)]
pub struct Gathered {
    path: PathBuf,
    id: ContainerId,
    catalogue: Catalogue,
}

impl Gathered {
    /// From the bytes of its mark. `path` is what people are told.
    pub fn new(path: &Path, mark: Vec<u8>) -> Result<Self, ContainerError> {
        let id = mark::parse_container(&path.join(MARK), mark)?;
        Ok(Self { path: path.to_owned(), id, catalogue: Catalogue::default() })
    }

    /// Of all files in it: the indexes, and from which byte on each is to be read. Those that are not
    /// named any more are forgotten.
    pub fn wanted<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, u64)> {
        self.catalogue.wanted(names)
    }

    /// Takes all bytes of an index from where it was wanted; a block that is not whole does not count,
    /// and is wanted again.
    ///
    /// Fails on damage.
    pub fn take(&mut self, name: &str, bytes: &[u8]) -> Result<(), ContainerError> {
        self.catalogue.take(&self.path, self.id, name, bytes)
    }

    /// All that is published in what was taken.
    pub fn snapshot(&self) -> Result<Snapshot, ContainerError> {
        self.catalogue.snapshot_of(&self.path)
    }

    /// Whether a listing of the files has all indexes, by what was listed or is known of before it. One that was made
    /// while indexes were merged may have neither the old names nor the new one.
    ///
    /// Both are sorted.
    pub fn has_all(before: &[String], listed: &[String]) -> bool {
        is_settled(before, listed)
    }

    /// Whose part the file of this name is.
    pub fn part_of(name: &str) -> Option<WriterId> {
        match names::kind(name) {
            Kind::Part(writer) => Some(writer),
            _ => None,
        }
    }

    /// Whether the file of this name is an index, of one writer or merged.
    pub fn is_index(name: &str) -> bool {
        matches!(names::kind(name), Kind::Index(_) | Kind::Merged(_))
    }

    /// Whether the file of this name is the mark, a part or an index, or becomes one.
    pub fn is_synced(name: &str) -> bool {
        let is_index = Self::is_index(name) || matches!(names::kind(name), Kind::Begun(_));
        is_index || matches!(names::kind(name), Kind::Mark | Kind::Part(_))
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{Extent, GlobalOffset, NodeId, Rank};

    use super::*;
    use crate::{Access, Container, ContainerFile, Creation, Durability, Identity, Reader};
    use crate::{part_reads, snapshot::PublishedLog};

    /// Reads a container as a server does, from the names and bytes of its files.
    fn read_all(directory: &Path, gathered: &mut Gathered) -> Vec<u8> {
        let names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        for (name, from) in gathered.wanted(names.iter().map(String::as_str)) {
            let bytes = std::fs::read(directory.join(name)).unwrap();
            gathered.take(name, &bytes[from as usize..]).unwrap();
        }
        let snapshot = gathered.snapshot().unwrap();
        let index = snapshot.index(directory).unwrap();
        let size = snapshot.size(directory).unwrap().get();
        let mut target = vec![0; size as usize];
        let all = Extent::between(GlobalOffset(0), GlobalOffset(size)).unwrap();
        for read in part_reads(&index, all, hayase_layout::ByteCount::kib(4)) {
            let part = std::fs::read(directory.join(names::part(read.writer()))).unwrap();
            let local = read.local();
            read.scatter(&part[local.start().0 as usize..local.end().0 as usize], &mut target);
        }
        target
    }

    /// A listing may be made while indexes are merged.
    #[test]
    fn a_listing_that_misses_an_index_is_told_by_the_next() {
        let sorted = |names: &[&str]| {
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort_unstable();
            names
        };
        let check = |before: &[&str], listed: &[&str], has_all: bool| {
            let told = Gathered::has_all(&sorted(before), &sorted(listed));
            assert_eq!(told, has_all, "{before:?}, then {listed:?}");
        };
        let (one, two) = ("n0-p1-o0.index", "n0-p2-o0.index");
        let (merged, other) = ("merged-8000000000000001.index", "merged-8000000000000002.index");
        check(&[one, "n0-p1-o0.part"], &[one], true); // parts do not count
        check(&[one], &[one, two], true); // a writer has begun
        check(&[one, two], &[two], false); // merged: where is the new one?
        check(&[], &[merged], false); // merged: it was not there before
        check(&[merged], &[merged, one], true);
        check(&[merged], &[other], false);
    }

    #[test]
    fn what_is_gathered_is_what_a_reader_sees() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let open = |process| {
            let identity = Identity { node: NodeId(0), process, opening: 0, rank: Rank(process) };
            let container = Container::open(&path, Creation::IfAbsent).unwrap();
            ContainerFile::open(container, Access::ReadWrite, identity, None).unwrap()
        };
        let files = [open(0), open(1), open(2)];
        let mut gathered = Gathered::new(&path, std::fs::read(path.join(MARK)).unwrap()).unwrap();
        for round in 0..3_u64 {
            for (turn, file) in (0..).zip(&files) {
                for block in 0..20 {
                    let at = GlobalOffset(round * 7000 + (block * 3 + turn) * 100);
                    file.write_at(at, &[(round * 60 + block * 3 + turn) as u8; 97]).unwrap();
                }
                file.publish(Durability::Written).unwrap();
            }
            let container = Container::open(&path, Creation::Never).unwrap();
            let reader = Reader::new(&container, &container.load().unwrap()).unwrap();
            let mut expected = vec![0; reader.size().get() as usize];
            reader.read_at(GlobalOffset(0), &mut expected).unwrap();
            assert_eq!(read_all(&path, &mut gathered), expected, "round {round}");
        }
        let closed = |log: &PublishedLog| log.closed.is_some();
        assert!(!gathered.snapshot().unwrap().logs().values().any(closed));
    }
}
