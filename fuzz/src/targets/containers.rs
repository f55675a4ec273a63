//! Marks and indexes of containers, as anybody may have left them in a directory, and snapshots as another
//! server may send them.
//!
//! Checksums keep most broken bytes from what reads them: here they are made right again, as somebody with
//! intent would do it.

use std::path::Path;
use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, Digest};
use hayase_container::{
    Access, Container, ContainerError, ContainerFile, Creation, Durability, Gathered, Identity,
    MARK, Snapshot, part_reads,
};
use hayase_layout::{ByteCount, Extent, GlobalOffset, NodeId, Rank};

use super::{way, way_of};

/// Of a mark and of the header of an index; their checksum is the last word, their container's id here.
const HEADER_BYTES: usize = 64;
const SUM_AT: usize = 56;
const ID: std::ops::Range<usize> = 16..32;

/// Of the frame of a block: magic, length, number, checksum.
const FRAME_BYTES: usize = 24;

/// Bytes of the file that are looked at: a hostile view selects them one by one.
const WINDOW: u64 = 4096;

/// What people are told; nothing is there.
const PLACE: &str = "container";

/// Bytes of a good container.
struct Good {
    mark: Vec<u8>,
    /// By name.
    indexes: Vec<(String, Vec<u8>)>,
}

/// Two writers, one of them still writing; the id is always the same.
fn good() -> &'static Good {
    static GOOD: OnceLock<Good> = OnceLock::new();
    GOOD.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let open = |process| {
            let identity = Identity { node: NodeId(0), process, opening: 0, rank: Rank(process) };
            let container = Container::open(&path, Creation::IfAbsent).expect("a container");
            ContainerFile::open(container, Access::ReadWrite, identity, None).expect("a writer")
        };
        let writers = [open(0), open(1)];
        for (turn, file) in (0..).zip(&writers) {
            for block in 0..4 {
                let at = GlobalOffset((block * 2 + turn) * 100);
                file.write_at(at, &[block as u8; 90]).expect("written");
            }
            file.publish(Durability::Written).expect("published");
            file.write_at(GlobalOffset(5000 + turn), b"alone").expect("written");
            file.publish(Durability::Written).expect("published");
        }
        let mut mark = std::fs::read(path.join(MARK)).expect("a mark");
        repair(&mut mark);
        let mut gathered = Gathered::new(Path::new(PLACE), mark.clone()).expect("a good mark");
        let listing = std::fs::read_dir(&path).expect("a listing").filter_map(Result::ok);
        let names: Vec<_> =
            listing.filter_map(|file| file.file_name().into_string().ok()).collect();
        let wanted = gathered.wanted(names.iter().map(String::as_str));
        let read = |(name, _): (&str, u64)| {
            let mut bytes = std::fs::read(path.join(name)).expect("an index");
            repair(&mut bytes);
            (name.to_owned(), bytes)
        };
        let mut indexes: Vec<_> = wanted.into_iter().map(read).collect();
        indexes.sort();
        Good { mark, indexes }
    })
}

fn sum(pieces: &[&[u8]]) -> [u8; 8] {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize().to_le_bytes()
}

/// Of container 0, with checksums that fit: the header's, and those of the blocks that it can find.
fn repair(bytes: &mut [u8]) {
    let Some((header, mut blocks)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    header[ID].fill(0);
    let fits = sum(&[&header[..SUM_AT]]);
    header[SUM_AT..].copy_from_slice(&fits);
    while let Some((frame, rest)) = blocks.split_at_mut_checked(FRAME_BYTES) {
        let len = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
        let Some((payload, behind)) = rest.split_at_mut_checked(len) else { return };
        let fits = sum(&[&frame[..16], payload]);
        frame[16..].copy_from_slice(&fits);
        blocks = behind;
    }
}

pub(super) fn marks() -> Vec<Vec<u8>> {
    vec![good().mark.clone()]
}

pub(super) fn mark(bytes: &[u8]) -> u64 {
    let read = |bytes: Vec<u8>| way_of(Gathered::new(Path::new(PLACE), bytes), |_| 1);
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    way((read(bytes.to_vec()), read(repaired)))
}

pub(super) fn indexes() -> Vec<Vec<u8>> {
    good().indexes.iter().map(|(_, bytes)| bytes.clone()).collect()
}

/// Beside a good index of another writer; in two steps, as while it is being written.
pub(super) fn index(bytes: &[u8]) -> u64 {
    let good = good();
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    let read = || -> Result<u64, ContainerError> {
        let mut gathered = Gathered::new(Path::new(PLACE), good.mark.clone())?;
        let (first, other) = (&good.indexes[0], &good.indexes[1]);
        gathered.take(&other.0, &other.1)?;
        gathered.take(&first.0, &bytes[..bytes.len() / 2])?;
        let from = gathered.wanted([first.0.as_str(), other.0.as_str()].into_iter())[0].1;
        gathered.take(&first.0, &bytes[from as usize..])?;
        looked_at(&gathered.snapshot()?)
    };
    way_of(read(), |way| *way)
}

pub(super) fn snapshots() -> Vec<Vec<u8>> {
    let good = good();
    let mut gathered = Gathered::new(Path::new(PLACE), good.mark.clone()).expect("a good mark");
    for (name, bytes) in &good.indexes {
        gathered.take(name, bytes).expect("a good index");
    }
    vec![gathered.snapshot().expect("good indexes").encode(), Snapshot::default().encode()]
}

/// What decodes is the same again when it is sent on.
pub(super) fn snapshot(bytes: &[u8]) -> u64 {
    let read = Snapshot::decode(bytes).and_then(|snapshot| {
        let again = Snapshot::decode(&snapshot.encode());
        assert_eq!(again.as_ref().ok(), Some(&snapshot));
        looked_at(&snapshot)
    });
    way_of(read, |way| *way)
}

/// Asks a snapshot all that a reader asks.
fn looked_at(snapshot: &Snapshot) -> Result<u64, ContainerError> {
    let index = snapshot.index(Path::new(PLACE))?;
    let size = snapshot.size(Path::new(PLACE))?;
    let end = GlobalOffset(size.get().min(WINDOW));
    let window = Extent::between(GlobalOffset(0), end).expect("it does not end before it begins");
    let mut target = vec![0; end.0 as usize];
    let reads = part_reads(&index, window, ByteCount::kib(1));
    for read in &reads {
        read.scatter(&vec![1; read.local().len().get() as usize], &mut target);
    }
    Ok(way((snapshot.logs().len(), snapshot.record_count(), snapshot.cuts().len(), reads.len())))
}
