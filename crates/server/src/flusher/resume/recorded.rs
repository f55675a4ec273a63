//! The bytes of a file that MPI-IO keeps as one part per writer, from what all its nodes have left.
//!
//! Read as its home reads it after a start: all indexes of its container, by the same code and rules
//! ([`hayase_container::Gathered`]). So a block that was being appended when its writer was killed does not count, a
//! whole one does, whether or not its home had heard of it. What is out of reach is an error, never a hole.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use hayase_container::{Gathered, MARK, PartRead, Snapshot, part_reads};
use hayase_layout::{ByteCount, Extent, GlobalOffset, Index, InodeId, WriterId};
use hayase_store::PartStat;
use hayase_store::namespace::Inode;
use hayase_tier::{Key, Tier};
use hayase_wire::message::Refused;

use super::left::{LeftNode, LeftNodes};
use super::left_file::LeftFile;
use super::send::send_all;
use crate::flusher::gather::Sent;
use crate::flusher::source::stat_of;
use crate::limits::FLUSH_BYTES;
use crate::recorded::{refused, shown_path};
use crate::refusals::libc_errno;

/// See the module header. All that was published was read; the parts are looked for when they are wanted.
pub(super) struct RecordedSource<'a> {
    nodes: &'a dyn LeftNodes,
    index: Index,
    parts: HashMap<WriterId, (String, InodeId)>,
    /// Of its container, by name.
    files: BTreeMap<String, InodeId>,
    ino: InodeId,
    found: RefCell<HashMap<WriterId, Rc<LeftFile<'a>>>>,
    pub(super) stat: PartStat,
}

impl<'a> RecordedSource<'a> {
    /// Of a file with this container. Fails with what is missing when one of the nodes with its names or indexes is
    /// not here, or when an index is damaged.
    pub(super) fn open(
        nodes: &'a dyn LeftNodes,
        inode: &Inode,
        container: InodeId,
    ) -> Result<Self, Refused> {
        let path = shown_path(inode.ino);
        let files = files_in(nodes, container)?;
        let snapshot = published(nodes, inode.ino, &files, &BTreeMap::new())?;
        for torn in snapshot.torn() {
            let (index, bytes) = (torn.path.display(), torn.bytes);
            tracing::warn!(%index, bytes, "its end was not published, and does not count");
        }
        let index = snapshot.index(&path).map_err(refused)?;
        let size = snapshot.size(&path).map_err(refused)?.get();
        require_all_that_was_told(inode, &snapshot, size)?;
        let part = |(name, ino): (&String, &InodeId)| {
            Some((Gathered::part_of(name)?, (name.clone(), *ino)))
        };
        let parts = files.iter().filter_map(part).collect();
        let (stat, ino) = (PartStat { size, ..stat_of(inode) }, inode.ino);
        Ok(Self { nodes, index, parts, files, ino, found: RefCell::default(), stat })
    }

    /// Fails where a power cut may have taken bytes that the file shows, or where the storage has lost some; what is here is
    /// durable from here on. Costs an fsync(2) of each part and index, and where something is in doubt a walk through the
    /// index.
    pub(super) fn require_kept(&self) -> Result<(), Refused> {
        self.require_sizes_kept()?;
        let mut doubtful = HashMap::new();
        for writer in self.index.parts() {
            let kept = self.part(writer.id).and_then(|part| part.kept());
            if kept != Ok(u64::MAX) {
                doubtful.insert(writer.id, kept);
            }
        }
        let homes = self.parts.values().map(|(_, ino)| ino.home());
        for home in homes.collect::<BTreeSet<_>>() {
            // One that is not here is doubtful.
            self.nodes.node(home).map_or(Ok(()), LeftNode::names_durable)?;
        }
        let mut at = 0;
        while at < self.stat.size && !doubtful.is_empty() {
            let len = FLUSH_BYTES.min(self.stat.size - at);
            for read in self.reads(at, len)? {
                match doubtful.get(&read.writer()) {
                    Some(Err(refused)) => return Err(refused.clone()),
                    Some(Ok(kept)) if *kept < read.local().end().0 => {
                        return Err(self.part(read.writer())?.restarted());
                    }
                    _ => {}
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Of an index that nobody synced all may be lost, and without any index nothing tells of what is lost; then the
    /// container itself is durable. A change of size has no bytes in any part: it counts where its index was synced behind
    /// it.
    fn require_sizes_kept(&self) -> Result<(), Refused> {
        let (mut kept, mut first) = (BTreeMap::new(), None);
        let mut indexes = self.files.iter().filter(|(name, _)| Gathered::is_index(name)).peekable();
        let mark = self.files.iter().find(|(name, _)| *name == MARK);
        let mark = mark.filter(|_| indexes.peek().is_none());
        for (name, ino) in indexes.chain(mark) {
            let index = LeftFile::open(self.nodes, name, *ino)?;
            match index.kept()? {
                0 => return Err(index.restarted()),
                u64::MAX => {}
                bytes => {
                    kept.insert(name.clone(), bytes);
                    first = first.or(Some(index));
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let all = published(self.nodes, self.ino, &self.files, &BTreeMap::new())?;
        // A merged index has no end there.
        let sizes = published(self.nodes, self.ino, &self.files, &kept)
            .map(|kept| kept.cuts() == all.cuts() && kept.grows() == all.grows());
        match sizes {
            Ok(true) => Ok(()),
            _ => Err(first.restarted()),
        }
    }

    fn reads(&self, at: u64, len: u64) -> Result<Vec<PartRead>, Refused> {
        let extent = Extent::new(GlobalOffset(at), ByteCount(len))
            .map_err(|error| Refused::because(libc_errno::EFBIG, error.to_string()))?;
        Ok(part_reads(&self.index, extent, ByteCount(FLUSH_BYTES)))
    }

    /// Sends all bytes in their order, [`FLUSH_BYTES`] at a time, in whatever pieces they were written.
    pub(super) fn send(&self, tier: &dyn Tier, key: &Key, mode: u32) -> Result<Sent, Refused> {
        let mut scratch = Vec::new();
        send_all(tier, key, self.stat, mode, |at, target| self.read_at(at, target, &mut scratch))
    }

    /// All bytes of `target`, holes as zeros.
    fn read_at(&self, at: u64, target: &mut [u8], scratch: &mut Vec<u8>) -> Result<(), Refused> {
        target.fill(0);
        for read in self.reads(at, target.len() as u64)? {
            scratch.resize(read.local().len().get() as usize, 0);
            self.read_part(&read, scratch)?;
            read.scatter(scratch, target);
        }
        Ok(())
    }

    fn read_part(&self, read: &PartRead, target: &mut [u8]) -> Result<(), Refused> {
        let part = self.part(read.writer())?;
        let found = part.read_at(read.local().start().0, target)?;
        if found == target.len() {
            return Ok(());
        }
        let (missing, name) = (target.len() - found, part.name());
        let why = format!("{name} of its container ends {missing} bytes before what was published");
        Err(Refused::because(libc_errno::EIO, why))
    }

    fn part(&self, writer: WriterId) -> Result<Rc<LeftFile<'a>>, Refused> {
        if let Some(found) = self.found.borrow().get(&writer) {
            return Ok(Rc::clone(found));
        }
        let (name, ino) = self.parts.get(&writer).ok_or_else(|| {
            let WriterId { node, process, opening } = writer;
            let why = format!("n{node}-p{process}-o{opening}.part is missing in its container");
            Refused::because(libc_errno::EIO, why)
        })?;
        let part = Rc::new(LeftFile::open(self.nodes, name, *ino)?);
        self.found.borrow_mut().insert(writer, Rc::clone(&part));
        Ok(part)
    }
}

/// Files of a container by name, from all servers that may hold some of the names.
fn files_in(
    nodes: &dyn LeftNodes,
    container: InodeId,
) -> Result<BTreeMap<String, InodeId>, Refused> {
    let mut files = BTreeMap::new();
    for shard in nodes.node(container.home())?.shards_of(container)? {
        for (name, ino) in nodes.node(shard)?.entries_of(container)? {
            files.extend(String::from_utf8(name).ok().map(|name| (name, ino)));
        }
    }
    Ok(files)
}

/// All that the indexes among these files say, of some of them only in so many bytes at their start.
fn published(
    nodes: &dyn LeftNodes,
    ino: InodeId,
    files: &BTreeMap<String, InodeId>,
    at_most: &BTreeMap<String, u64>,
) -> Result<Snapshot, Refused> {
    let missing = || Refused::because(libc_errno::EIO, "the mark of its container is missing");
    let mark = LeftFile::open(nodes, MARK, *files.get(MARK).ok_or_else(missing)?)?;
    let mut gathered = Gathered::new(&shown_path(ino), mark.read_all()?).map_err(refused)?;
    for (name, _) in gathered.wanted(files.keys().map(String::as_str)) {
        let mut bytes = LeftFile::open(nodes, name, files[name])?.read_all()?;
        let most = at_most.get(name).copied().unwrap_or(u64::MAX);
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        gathered.take(name, &bytes).map_err(refused)?;
    }
    gathered.snapshot().map_err(refused)
}

/// The home had told how far the file was published: what is shorter, and was not cut, is not all of it.
fn require_all_that_was_told(inode: &Inode, snapshot: &Snapshot, size: u64) -> Result<(), Refused> {
    let was_cut = snapshot.cuts().iter().any(|cut| cut.size.get() < inode.size);
    if size >= inode.size || was_cut {
        return Ok(());
    }
    let told = inode.size;
    let why = format!(
        "{told} bytes of it were published, and its indexes know of {size}: the rest was lost with the power of a node, before fsync(2)"
    );
    Err(Refused::because(libc_errno::ENODATA, why))
}
