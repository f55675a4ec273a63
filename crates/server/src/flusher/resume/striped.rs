//! The bytes of a striped file, from the parts that all its nodes have left.

use hayase_layout::{ByteCount, Extent, GlobalOffset, Layout, LocalOffset, StripeMap};
use hayase_store::namespace::Inode;
use hayase_store::{Part, PartId, PartStat};
use hayase_tier::{Key, Tier};
use hayase_wire::message::Refused;

use super::left::LeftNodes;
use crate::convert::part_refused;
use crate::flusher::gather::{Sending, Sent};
use crate::flusher::source::stat_of;
use crate::limits::FLUSH_BYTES;
use crate::node::libc_errno;
use crate::peer_service::sizes::stripe_map;

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

    /// Sends all bytes, [`FLUSH_BYTES`] at a time.
    pub(super) fn send(&self, tier: &dyn Tier, key: &Key, mode: u32) -> Result<Sent, Refused> {
        let mut sending = Sending::begin(tier, key, self.stat, mode)?;
        let mut bytes = vec![0; FLUSH_BYTES.min(self.stat.size.max(1)) as usize];
        let mut scratch = bytes.clone();
        while sending.left() > 0 {
            let len = sending.left().min(FLUSH_BYTES) as usize;
            self.read_at(sending.done(), &mut bytes[..len], &mut scratch)?;
            sending.add(&bytes[..len])?;
        }
        Ok(sending.end())
    }

    /// All bytes of `target`, of which those that no part holds are zeros; `scratch` is as long at least.
    fn read_at(&self, start: u64, target: &mut [u8], scratch: &mut [u8]) -> Result<(), Refused> {
        let extent = Extent::new(GlobalOffset(start), ByteCount(target.len() as u64))
            .map_err(|error| Refused::because(libc_errno::EFBIG, error.to_string()))?;
        target.fill(0);
        for piece in self.map.by_server(extent) {
            let Some(part) = &self.parts[usize::from(piece.part)] else { continue };
            let wanted = &mut scratch[..piece.local.len().0 as usize];
            let mut done = 0;
            while done < wanted.len() {
                let at = LocalOffset(piece.local.start().0 + done as u64);
                match part.read_at(at, &mut wanted[done..]).map_err(part_refused)? {
                    0 => break,
                    read => done += read,
                }
            }
            piece.scatter(&wanted[..done], target);
        }
        Ok(())
    }
}
