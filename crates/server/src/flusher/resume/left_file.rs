//! The bytes of one file of a container, as its nodes have left it: a file of `shared` like any other.

use hayase_layout::{InodeId, Layout};
use hayase_store::PartId;
use hayase_store::namespace::Inode;
use hayase_wire::message::Refused;

use super::left::{LeftNode, LeftNodes};
use super::send::read_up_to;
use super::striped::StripedSource;
use crate::convert::part_refused;
use crate::node::libc_errno;
use crate::peer_service::inode::{is_missing, whole_part};

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
            _ => return Err(of_file(Refused::because(libc_errno::EIO, "it is no plain file"))),
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
                let refused = Refused::because(libc_errno::EFBIG, "this is no index");
                return Err(of_file(&self.name, refused));
            }
        }
    }
}

/// The only part of a whole file was made with it: where it is gone, so are its bytes.
fn read_whole(node: &LeftNode, id: PartId, at: u64, target: &mut [u8]) -> Result<usize, Refused> {
    let part = node.parts().get(id).map_err(|error| match is_missing(&error) {
        true => {
            let why = format!("it is gone from the storage of node {}", node.server());
            Refused::because(libc_errno::EIO, why)
        }
        false => part_refused(error),
    })?;
    read_up_to(&part, at, target)
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
