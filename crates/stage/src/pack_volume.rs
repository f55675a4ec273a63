//! A set of packs as a tree to be looked at without unpacking: names, attributes, bytes; read-only.
//!
//! Rooms: [`tree`] (names and their nodes, pure), [`pieces`] (parts of objects that are kept, read-ahead),
//! [`blocks`] (what is known of files that are too large to be checked before the first byte).
//! Not here: kernels and inode numbers; the binary shows this through FUSE.
//!
//! What was opened is shown until the end: an index is never changed, and its packs are read by their
//! names. A pack that somebody removes meanwhile makes its files unreadable, never wrong.
//!
//! Invariant: bytes of a file of up to [`WHOLE_BYTES_MAX`], of a compressed one and of sealed ones are
//! handed out only after their checksum, or the seal of their chunk, was checked. Larger ones are checked
//! block by block, as they are read, in any order: the last block that completes the checksum is refused
//! when that is another one, and so is everything that is read afterwards, until the set is opened anew. A
//! block that is fetched again is compared with what it was. So whoever reads all of a file, however often,
//! never gets to its end with a wrong byte.

mod blocks;
mod pieces;
mod tree;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hayase_layout::{ByteCount, InodeId, LocalOffset, Packed};

use self::blocks::{Blocks, Verdict};
use self::pieces::{Gathered, ObjectId, Pieces};
use self::tree::Tree;
use crate::item::{Kind, Mtime};
use crate::limits::{UNPACKED_BYTES, WHOLE_BYTES_MAX};
use crate::pack::{Codec, MasterKey, PackError, PackSet, Row, reader};
use crate::{Place, checksum};

/// Permission bits of directories that the index does not name.
const DIRECTORY_MODE: u32 = 0o755;

/// One name of the tree; [`PackVolume::ROOT`] is the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u32);

/// What a node is.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// File, directory or link.
    pub kind: &'a Kind,
    /// Permission bits.
    pub mode: u32,
    /// Of the file's bytes.
    pub mtime: Mtime,
}

/// A set that is looked at. All calls may come from any number of threads, and block while bytes are read.
pub struct PackVolume {
    set: Arc<PackSet>,
    tree: Tree,
    pieces: Pieces,
    blocks: Blocks,
    /// Files that were unpacked from zstd, the latest last.
    unpacked: Mutex<VecDeque<(Node, Arc<[u8]>)>>,
}

impl std::fmt::Debug for PackVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackVolume({})", self.set.place().describe())
    }
}

impl PackVolume {
    /// The top of the tree.
    pub const ROOT: Node = Node(0);

    /// Opens the set in `place` and starts the threads that read ahead. Keeps the index in memory: some
    /// 200 bytes and the name for each entry; beside that at most [`crate::limits::PIECES_BYTES`] and
    /// [`UNPACKED_BYTES`] of data.
    ///
    /// # Errors
    /// As [`PackSet::open`]; `TwoKinds` when one name is both a directory and something else.
    pub fn open(place: &Place, master: Option<&MasterKey>) -> Result<Self, PackError> {
        let set = Arc::new(PackSet::open(place, master)?);
        let tree = Tree::new(&set.index.rows).map_err(|name| PackError::TwoKinds {
            place: place.describe(),
            name: crate::source::shown(&name),
        })?;
        let pieces = Pieces::new(Arc::clone(&set));
        Ok(Self { set, tree, pieces, blocks: Blocks::default(), unpacked: Mutex::default() })
    }

    /// Entries of the index.
    pub fn entries(&self) -> usize {
        self.set.index.rows.len()
    }

    /// Bytes of the packs.
    pub fn bytes(&self) -> u64 {
        self.set.index.packs.iter().map(|pack| pack.bytes).sum()
    }

    /// Sealed by a key.
    pub fn is_sealed(&self) -> bool {
        self.set.key().is_some()
    }

    /// `None` when there is no such node.
    pub fn shown(&self, node: Node) -> Option<Shown<'_>> {
        const DIRECTORY: &Kind = &Kind::Directory;
        let row = match self.tree.row(node)? {
            Some(number) => &self.set.index.rows[number as usize].item,
            None => {
                return Some(Shown { kind: DIRECTORY, mode: DIRECTORY_MODE, mtime: Mtime::EPOCH });
            }
        };
        Some(Shown { kind: &row.kind, mode: row.mode, mtime: row.mtime })
    }

    /// The node `name` of a directory. O(log n).
    pub fn find(&self, directory: Node, name: &[u8]) -> Option<Node> {
        self.tree.find(&self.set.index.rows, directory, name)
    }

    /// Names of a directory in bytewise order; empty for what is none.
    pub fn children(&self, directory: Node) -> impl ExactSizeIterator<Item = (&[u8], Node)> {
        let rows = &self.set.index.rows;
        self.tree.children(directory).iter().map(|&node| (self.tree.name(rows, node), node))
    }

    /// Where the stored bytes of a file lie; `None` for what is in no pack, or compressed.
    pub fn packed(&self, node: Node) -> Option<Packed> {
        let at = self.row(node)?.location.filter(|at| at.codec == Codec::Raw)?;
        Packed::new(InodeId(at.pack.into()), LocalOffset(at.offset), ByteCount(at.stored)).ok()
    }

    /// For people: the object that holds a file.
    pub fn object(&self, node: Node) -> Option<String> {
        let row = self.row(node)?;
        Some(match row.location {
            Some(at) => format!("pack {}", self.set.index.packs[at.pack as usize].id),
            None => format!("object {}", row.item.name),
        })
    }

    fn row(&self, node: Node) -> Option<&Row> {
        let number = self.tree.row(node)??;
        Some(&self.set.index.rows[number as usize])
    }

    /// Calls `sink` once with bytes `offset..offset + len` of a file; fewer at its end. `len` is at most
    /// [`WHOLE_BYTES_MAX`].
    ///
    /// # Errors
    /// What the storage says; `Entry` and `Damaged` when the bytes are not those that were packed.
    pub fn read(
        &self,
        node: Node,
        offset: u64,
        len: usize,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), PackError> {
        let Some(row) = self.row(node) else {
            sink(&[]);
            return Ok(());
        };
        let bytes = row.item.bytes();
        let start = offset.min(bytes);
        let end = start.saturating_add(len.min(WHOLE_BYTES_MAX) as u64).min(bytes);
        if start == end {
            sink(&[]);
            return Ok(());
        }
        let is_frame = row.location.is_some_and(|at| at.codec == Codec::Zstd);
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= WHOLE_BYTES_MAX => {
                self.read_whole(row, &mut |all| sink(&all[start as usize..end as usize]))
            }
            Ok(_) if is_frame => {
                let all = self.unpack(node, row)?;
                sink(&all[start as usize..end as usize]);
                Ok(())
            }
            _ => self.read_large(node, row, (start, end), sink),
        }
    }

    /// The object of a file, and where its stored bytes lie in it.
    fn stored(&self, node_row: &Row) -> (ObjectId, u64, u64) {
        match node_row.location {
            Some(at) => (ObjectId::Pack(at.pack), at.offset, at.stored),
            None => {
                let rows = self.set.index.rows.as_slice();
                let number = rows.binary_search_by(|row| row.item.order(&node_row.item));
                let number = number.expect("the row is one of the index");
                (ObjectId::Loose(number as u32), 0, node_row.item.bytes())
            }
        }
    }

    /// All bytes of a small file, checked; what came damaged is fetched once more.
    fn read_whole(&self, row: &Row, sink: &mut dyn FnMut(&[u8])) -> Result<(), PackError> {
        let (object, start, len) = self.stored(row);
        let mut tries = 0;
        loop {
            let stored = self.pieces.read(object, start, len as usize)?;
            match reader::checked(&self.pieces.shown(object), row, &stored) {
                Ok(bytes) => {
                    sink(&bytes);
                    return Ok(());
                }
                Err(_) if tries == 0 => self.pieces.forget(object, start, len as usize),
                Err(error) => return Err(error),
            }
            tries += 1;
        }
    }

    /// A compressed file that is larger than one read: unpacked once, for a while.
    fn unpack(&self, node: Node, row: &Row) -> Result<Arc<[u8]>, PackError> {
        let kept = || self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = kept().iter().find(|(of, _)| *of == node) {
            return Ok(Arc::clone(bytes));
        }
        let mut all: Arc<[u8]> = Arc::default();
        self.read_whole(row, &mut |bytes| all = bytes.into())?;
        let mut kept = kept();
        kept.retain(|(of, _)| *of != node);
        kept.push_back((node, Arc::clone(&all)));
        let sum = |kept: &VecDeque<(Node, Arc<[u8]>)>| kept.iter().map(|(_, b)| b.len()).sum();
        while kept.len() > 1 && UNPACKED_BYTES < sum(&kept) {
            kept.pop_front();
        }
        Ok(all)
    }

    fn read_large(
        &self,
        node: Node,
        row: &Row,
        (start, end): (u64, u64),
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), PackError> {
        let (object, base, bytes) = self.stored(row);
        // The seal of each chunk says more than the checksum of the whole.
        let is_vouched_for = self.is_sealed() && row.location.is_some();
        let wanted = || self.pieces.read(object, base + start, (end - start) as usize);
        if is_vouched_for {
            sink(&wanted()?);
            return Ok(());
        }
        let range = start..end;
        if self.blocks.knows(node, &range) && !self.blocks.is_damaged(node) {
            let data = wanted()?;
            if self.blocks.has_checked(node, &range, &data.stamps) {
                sink(&data);
                return Ok(());
            }
        }
        // What is handed out is what was checked here, wherever its pieces are by then.
        let mut all = Vec::with_capacity((end - start) as usize);
        for number in blocks::touched(&range) {
            let extent = blocks::extent(number, bytes);
            let data = self.checked_block(node, row, number)?;
            let from = start.max(extent.start) - extent.start;
            let to = end.min(extent.end) - extent.start;
            all.extend_from_slice(&data[from as usize..to as usize]);
        }
        sink(&all);
        Ok(())
    }

    /// A block of a large file, compared with what is known of it; one that came otherwise than before is
    /// fetched once more.
    fn checked_block(&self, node: Node, row: &Row, number: usize) -> Result<Gathered, PackError> {
        let (object, base, bytes) = self.stored(row);
        let extent = blocks::extent(number, bytes);
        let (from, len) = (base + extent.start, (extent.end - extent.start) as usize);
        for tries in 0..2 {
            if self.blocks.is_damaged(node) {
                break;
            }
            let data = self.pieces.read(object, from, len)?;
            let sum = (checksum::of(&data), &data.stamps);
            match self.blocks.learn(node, number, sum, (bytes, row.crc32c)) {
                Verdict::Fine if !self.blocks.is_damaged(node) => return Ok(data),
                Verdict::Other if tries == 0 => self.pieces.forget(object, from, len),
                _ => break,
            }
        }
        Err(PackError::Entry {
            object: self.pieces.shown(object),
            name: row.item.name.to_string(),
            why: "its checksum is another",
        })
    }
}
