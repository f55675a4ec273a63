//! The bytes of one file of a container, as its nodes have left it: a file of `shared` like any other.

use hayase_layout::{InodeId, Layout};
use hayase_store::namespace::Inode;
use hayase_store::ops::Durability;
use hayase_store::{Part, PartId};
use hayase_wire::message::Refused;

use super::left::{LeftNode, LeftNodes};
use super::send::read_up_to;
use super::striped::StripedSource;
use crate::convert::part_refused;
use crate::convert::{is_missing, whole_part};
use crate::peer_service::durable_files::lost_bytes_of;
use crate::refusals::libc_errno;

/// Of an index, before it is known to be longer.
const FIRST_BYTES: usize = 64 << 10;

/// See the module header. No part of it is held open: a container may have more files than a process may open.
pub(super) struct LeftFile<'a> {
    /// In its container.
    name: String,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    /// One part.
    Whole(&'a LeftNode, PartId),
    /// It was made when its node was full.
    Striped(&'a dyn LeftNodes, Box<Inode>),
}

impl<'a> LeftFile<'a> {
    /// Fails with what is missing.
    pub(super) fn open(
        nodes: &'a dyn LeftNodes,
        name: &str,
        ino: InodeId,
    ) -> Result<Self, Refused> {
        let of_file = |refused| of_file(name, refused);
        let node = nodes.node(ino.home()).map_err(of_file)?;
        let inode = node.inode(ino).map_err(of_file)?;
        let bytes = match &inode.layout {
            Layout::Whole => Bytes::Whole(node, whole_part(ino, inode.layout_epoch)),
            Layout::Striped { .. } => Bytes::Striped(nodes, Box::new(inode)),
            _ => return Err(of_file(Refused::because(libc_errno::EIO, "it is not a plain file"))),
        };
        Ok(Self { name: name.to_owned(), bytes })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes there are from `at` on; fewer than asked for only at its end.
    pub(super) fn read_at(&self, at: u64, target: &mut [u8]) -> Result<usize, Refused> {
        let read = match &self.bytes {
            Bytes::Whole(node, id) => read_whole(node, *id, at, target),
            Bytes::Striped(nodes, inode) => read_striped(*nodes, inode, at, target),
        };
        read.map_err(|refused| of_file(&self.name, refused))
    }

    /// How many of its bytes, from the first one on, are known to be as they were written. Where that is more than it has, they
    /// are durable from here on, and noted as that; durably when the names of its home are.
    ///
    /// # Errors
    /// `EIO` where the storage has lost some of them.
    pub(super) fn kept(&self) -> Result<u64, Refused> {
        let kept = match &self.bytes {
            Bytes::Whole(node, id) => kept_whole(node, *id),
            Bytes::Striped(nodes, inode) => kept_striped(*nodes, inode),
        };
        let (home, noted) = self.noted()?;
        match noted.is_broken {
            true => Err(lost_bytes_of(&self.name, home.server())),
            false => kept.map_err(|refused| of_file(&self.name, refused)),
        }
    }

    /// Of bytes of it that are not [kept](Self::kept).
    pub(super) fn restarted(&self) -> Refused {
        let restarted = || match &self.bytes {
            Bytes::Whole(node, _) => Ok(node.restarted()),
            Bytes::Striped(nodes, inode) => {
                let lost = restarted_among(*nodes, inode)?;
                Ok(lost.map_or_else(|| Refused::new(libc_errno::ENODATA), LeftNode::restarted))
            }
        };
        of_file(&self.name, restarted().unwrap_or_else(|refused| refused))
    }

    /// Its home, and what that has noted of it.
    fn noted(&self) -> Result<(&LeftNode, Durability), Refused> {
        let (home, ino) = match &self.bytes {
            Bytes::Whole(node, id) => (*node, id.ino),
            Bytes::Striped(nodes, inode) => (nodes.node(inode.ino.home())?, inode.ino),
        };
        Ok((home, home.durability(ino)?))
    }

    /// All its bytes: of an index.
    pub(super) fn read_all(&self) -> Result<Vec<u8>, Refused> {
        let (mut bytes, mut end) = (Vec::new(), 0_usize);
        loop {
            let wanted = end.max(FIRST_BYTES);
            bytes.resize(end + wanted, 0);
            let read = self.read_at(end as u64, &mut bytes[end..])?;
            end += read;
            if read < wanted {
                bytes.truncate(end);
                return Ok(bytes);
            }
            if end as u64 > hayase_container::limits::INDEX_BYTES_MAX.get() {
                let refused = Refused::because(libc_errno::EFBIG, "this is not an index");
                return Err(of_file(&self.name, refused));
            }
        }
    }
}

/// The only part of a whole file was made with it: where it is gone, so are its bytes.
fn part_of_whole(node: &LeftNode, id: PartId) -> Result<Part, Refused> {
    node.parts().get(id).map_err(|error| match is_missing(&error) {
        true => {
            let why = format!("it is gone from the storage of node {}", node.server());
            Refused::because(libc_errno::EIO, why)
        }
        false => part_refused(error),
    })
}

fn read_whole(node: &LeftNode, id: PartId, at: u64, target: &mut [u8]) -> Result<usize, Refused> {
    read_up_to(&part_of_whole(node, id)?, at, target)
}

fn kept_whole(node: &LeftNode, id: PartId) -> Result<u64, Refused> {
    let part = part_of_whole(node, id)?;
    let bytes = part.stat().map_err(part_refused)?.size;
    if node.has_lost_power()? {
        let noted = node.durability(id.ino)?.bytes;
        if noted > bytes {
            let why = format!("{noted} bytes of it were synced, and {bytes} are there");
            return Err(Refused::because(libc_errno::EIO, why));
        }
        return Ok(all_or(noted, bytes));
    }
    node.sync_shared(&part)?;
    node.note_durable(id.ino, bytes)?;
    Ok(u64::MAX)
}

fn kept_striped(nodes: &dyn LeftNodes, inode: &Inode) -> Result<u64, Refused> {
    let home = nodes.node(inode.ino.home())?;
    if restarted_among(nodes, inode)?.is_some() {
        return Ok(all_or(home.durability(inode.ino)?.bytes, inode.size));
    }
    for (node, index) in nodes_of(nodes, inode)?.into_iter().zip(0..) {
        let id = PartId { ino: inode.ino, epoch: inode.layout_epoch, index };
        if let Some(part) = node.durable_part(id)? {
            node.sync_shared(&part)?;
        }
    }
    home.note_durable(inode.ino, inode.size)?;
    Ok(u64::MAX)
}

/// What is kept of `bytes` bytes of which so many are `noted`. That a file is empty is not known without a note.
fn all_or(noted: u64, bytes: u64) -> u64 {
    if noted > 0 && noted >= bytes { u64::MAX } else { noted }
}

/// A node with a piece of a striped file of which a power cut may have taken some.
fn restarted_among<'a>(
    nodes: &'a dyn LeftNodes,
    inode: &Inode,
) -> Result<Option<&'a LeftNode>, Refused> {
    for node in nodes_of(nodes, inode)? {
        if node.has_lost_power()? {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

fn nodes_of<'a>(nodes: &'a dyn LeftNodes, inode: &Inode) -> Result<Vec<&'a LeftNode>, Refused> {
    let Layout::Striped { servers, .. } = &inode.layout else { return Ok(Vec::new()) };
    servers.iter().map(|server| nodes.node(*server)).collect()
}

fn read_striped(
    nodes: &dyn LeftNodes,
    inode: &Inode,
    at: u64,
    target: &mut [u8],
) -> Result<usize, Refused> {
    let len = inode.size.saturating_sub(at).min(target.len() as u64) as usize;
    let source = StripedSource::open(nodes, inode)?;
    source.read_at(at, &mut target[..len], &mut Vec::new()).map(|()| len)
}

/// Says which file of the container it was.
fn of_file(name: &str, refused: Refused) -> Refused {
    let errno = refused.errno;
    let why = refused.why.unwrap_or_else(|| format!("error {errno}"));
    Refused::because(errno, format!("{name} of its container: {why}"))
}
