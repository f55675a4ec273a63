//! The bytes of a striped file, from the parts that all its nodes have left.

use hayase_layout::{ByteCount, Extent, GlobalOffset, Layout, StripeMap};
use hayase_store::namespace::Inode;
use hayase_store::{Part, PartId, PartStat};
use hayase_tier::{Key, Tier};
use hayase_wire::message::Refused;

use super::left::LeftNodes;
use super::send::{read_up_to, send_all};
use crate::flusher::gather::Sent;
use crate::flusher::source::stat_of;
use crate::peer_service::sizes::stripe_map;
use crate::refusals::libc_errno;

/// See the module header. All parts are there and durable.
pub(super) struct StripedSource {
    map: StripeMap,
    /// In their order; `None` where nothing was ever written.
    parts: Vec<Option<Part>>,
    pub(super) stat: PartStat,
}

impl StripedSource {
    /// Fails with what is missing when one of its nodes, or a part of it, is not there as it was acknowledged.
    pub(super) fn open(nodes: &dyn LeftNodes, inode: &Inode) -> Result<Self, Refused> {
        let Layout::Striped { stripe, servers } = &inode.layout else {
            return Err(Refused::new(libc_errno::EINVAL));
        };
        let map = stripe_map(*stripe, servers)?;
        let part = |(server, index)| {
            let id = PartId { ino: inode.ino, epoch: inode.layout_epoch, index };
            nodes.node(server)?.durable_part(id)
        };
        let parts = servers.iter().copied().zip(0..).map(part).collect::<Result<_, _>>()?;
        Ok(Self { map, parts, stat: stat_of(inode) })
    }

    /// Sends all bytes, [`FLUSH_BYTES`](crate::limits::FLUSH_BYTES) at a time.
    pub(super) fn send(&self, tier: &dyn Tier, key: &Key, mode: u32) -> Result<Sent, Refused> {
        let mut scratch = Vec::new();
        send_all(tier, key, self.stat, mode, |at, target| self.read_at(at, target, &mut scratch))
    }

    /// All bytes of `target`, of which those that no part holds are zeros.
    pub(super) fn read_at(
        &self,
        start: u64,
        target: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let extent = Extent::new(GlobalOffset(start), ByteCount(target.len() as u64))
            .map_err(|error| Refused::because(libc_errno::EFBIG, error.to_string()))?;
        target.fill(0);
        for piece in self.map.by_server(extent) {
            let Some(part) = &self.parts[usize::from(piece.part)] else { continue };
            scratch.resize(piece.local.len().0 as usize, 0);
            let done = read_up_to(part, piece.local.start().0, scratch)?;
            piece.scatter(&scratch[..done], target);
        }
        Ok(())
    }
}
