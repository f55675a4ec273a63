//! A file that MPI-IO keeps as one part per writer: the container is made in a plain directory and put into the area
//! file by file, as its writers would have made it there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hayase_container::{
    AREA_DIRECTORY, Access, Container, ContainerFile, Creation, Durability, Identity, area,
};
use hayase_layout::{GlobalOffset, InodeId, NodeId, Rank};
use hayase_wire::message::{FileKind, NodeReply, NodeRequest, RecordedStep, Refused};
use tempfile::TempDir;

use crate::cluster::{Cluster, Process, R, RW};

const ROOT: InodeId = InodeId::ROOT;
pub(crate) const BLOCK: usize = 10_000;
pub(crate) const WRITERS: usize = 3;

/// As much as a process of these tests reads or writes at once.
const PIECE: usize = 1 << 20;

pub(crate) fn step(process: &mut Process, ino: InodeId, step: RecordedStep) -> Result<(), Refused> {
    match process.ask(&NodeRequest::Recorded { ino, step })? {
        NodeReply::Done => Ok(()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn published(index: &str) -> RecordedStep {
    RecordedStep::Published { index: index.to_owned() }
}

/// What block `block` of the file holds.
pub(crate) fn block(block: usize) -> Vec<u8> {
    (0..BLOCK).map(|i| ((block * 31 + i) % 251 + 1) as u8).collect()
}

/// A container that three writers write, a copy of it in the area, and the file that shows it.
pub(crate) struct Recorded {
    directory: TempDir,
    pub(crate) writers: Vec<ContainerFile>,
    pub(crate) ino: InodeId,
    pub(crate) container: InodeId,
    /// In the area: inode, and bytes that are there.
    pub(crate) copied: BTreeMap<String, (InodeId, u64)>,
    pub(crate) rounds: usize,
}

impl Recorded {
    pub(crate) fn make(cluster: &Cluster, name: &str) -> Self {
        Self::make_in(cluster, ROOT, name)
    }

    /// Its container is in `shared`, wherever the file is. As the library makes it: until it has a container it has no
    /// name of its own, and is not flushed.
    pub(crate) fn make_in(cluster: &Cluster, top: InodeId, name: &str) -> Self {
        let hidden = format!(".{name}.hayase-0123456789abcdef");
        let recorded = Self::make_written(cluster, top, &hidden, 0);
        cluster.process(0).rename((top, &hidden), (top, name)).unwrap();
        recorded
    }

    /// So many rounds are in its container before the file shows it, which has its name before.
    pub(crate) fn make_written(cluster: &Cluster, top: InodeId, name: &str, rounds: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writers = (0..WRITERS)
            .map(|writer| {
                let (process, rank) = (writer as u32, Rank(writer as u32));
                let identity = Identity { node: NodeId(0), process, opening: 0, rank };
                let container = Container::open(&path, Creation::IfAbsent).unwrap();
                ContainerFile::open(container, Access::Write, identity, None).unwrap()
            })
            .collect();
        let mut process = cluster.process(0);
        let ino = process.create(top, name, FileKind::Regular).unwrap().ino;
        let all = match process.lookup(ROOT, AREA_DIRECTORY) {
            Ok(entry) => entry.attr.ino,
            Err(_) => process.create(ROOT, AREA_DIRECTORY, FileKind::Directory).unwrap().ino,
        };
        let container =
            process.create(all, &area::name_of(ino.0), FileKind::Directory).unwrap().ino;
        let copied = BTreeMap::new();
        let mut recorded = Self { directory, writers, ino, container, copied, rounds: 0 };
        for _ in 0..rounds {
            recorded.write();
        }
        recorded.copy(cluster);
        step(&mut process, ino, RecordedStep::Begin { container }).unwrap();
        recorded
    }

    /// Of the container in the plain directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    /// Each writer writes its block of the next round, and publishes.
    pub(crate) fn write(&mut self) {
        for (turn, writer) in self.writers.iter().enumerate() {
            let number = self.rounds * WRITERS + turn;
            writer.write_at(GlobalOffset((number * BLOCK) as u64), &block(number)).unwrap();
            writer.publish(Durability::Written).unwrap();
        }
        self.rounds += 1;
    }

    /// What is new of each file, each on another node.
    pub(crate) fn copy(&mut self, cluster: &Cluster) {
        let names = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        for (name, node) in names.iter().zip((0..3).cycle()) {
            let bytes = std::fs::read(self.path().join(name)).unwrap();
            let mut process = cluster.process(node);
            let (ino, len) = *self.copied.entry(name.clone()).or_insert_with(|| {
                (process.create(self.container, name, FileKind::Regular).unwrap().ino, 0)
            });
            process.open(ino, RW).unwrap();
            for (piece, at) in bytes[len as usize..].chunks(PIECE).zip((len..).step_by(PIECE)) {
                process.write(ino, at, piece).unwrap();
            }
            self.copied.insert(name.clone(), (ino, bytes.len() as u64));
        }
    }

    pub(crate) fn publish(&mut self, cluster: &Cluster) {
        self.write();
        self.copy(cluster);
        step(&mut cluster.process(1), self.ino, published("")).unwrap();
    }

    /// All that was written.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        (0..self.rounds * WRITERS).flat_map(block).collect()
    }

    /// Every node sees it, whole.
    pub(crate) fn check(&self, cluster: &Cluster) {
        for node in 0..3 {
            let mut process = cluster.process(node);
            let size = self.rounds * WRITERS * BLOCK;
            assert_eq!(process.attr(self.ino).unwrap().size, size as u64);
            process.open(self.ino, R).unwrap();
            let mut bytes = Vec::new();
            loop {
                let piece = process.read(self.ino, bytes.len() as u64, PIECE as u32).unwrap();
                bytes.extend_from_slice(&piece);
                if piece.is_empty() {
                    break;
                }
            }
            assert!(bytes == self.bytes(), "node {node} reads other bytes");
        }
    }

    pub(crate) fn part(&self, writer: usize) -> (String, InodeId) {
        let name = format!("n0-p{writer}-o0.part");
        let ino = self.copied[&name].0;
        (name, ino)
    }
}
