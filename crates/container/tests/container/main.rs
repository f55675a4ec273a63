//! Containers as their users see them: against a naive model, cut at every byte, damaged, full disks,
//! killed writers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "says which tests were skipped")]

mod crash;
mod damage;
mod disk_full;
mod join;
mod killed;
mod lifecycle;
mod many;
mod model;
mod regular;

use std::path::Path;

use hayase_container::{Access, Container, ContainerFile, Creation, Identity};
use hayase_layout::{
    ByteCount, Extent, GlobalOffset, NodeId, Rank, Run, StreamExtent, StreamOffset, View,
};

/// Of process `number` with this rank.
fn identity(number: u32, rank: u32) -> Identity {
    Identity { node: NodeId(0), process: number, opening: 0, rank: Rank(rank) }
}

/// Opens for reading and writing, alone.
fn open(container: &Container, number: u32, rank: u32) -> ContainerFile {
    let who = identity(number, rank);
    ContainerFile::open(container.clone(), Access::ReadWrite, who, None).unwrap()
}

fn create(path: &Path) -> Container {
    Container::open(path, Creation::Exclusive).unwrap()
}

fn extent(start: u64, len: u64) -> Extent {
    Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
}

fn window(start: u64, len: u64) -> StreamExtent {
    StreamExtent::new(StreamOffset(start), ByteCount(len)).unwrap()
}

/// Blocks of `block` bytes every `tile` bytes, the first at `start`.
fn cyclic(start: u64, block: u64, tile: u64) -> View {
    let run = Run::contiguous(extent(start, block)).unwrap();
    View::new(GlobalOffset(0), ByteCount(tile), &[run]).unwrap()
}

/// All of the file as `file` sees it.
fn read_all(file: &ContainerFile) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size().unwrap().get() as usize];
    assert_eq!(file.read_at(GlobalOffset(0), &mut bytes).unwrap(), bytes.len());
    bytes
}

/// The name of the only merged index.
fn merged_name(path: &Path) -> String {
    let names = std::fs::read_dir(path).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let merged = names.by_ref().find(|name| name.starts_with("merged-")).unwrap();
    assert!(!names.any(|name| name.starts_with("merged-")));
    merged
}

/// All of the file as it is published.
fn published(path: &Path) -> Vec<u8> {
    let container = Container::open(path, Creation::Never).unwrap();
    let who = identity(9999, 9999);
    read_all(&ContainerFile::open(container, Access::Read, who, None).unwrap())
}
