//! Striped files: one call becomes one request per server, all at once.
//!
//! A contiguous extent of the file is one contiguous extent of each part, so each server is asked
//! once; pieces are gathered into a transfer buffer before and scattered out of it after.
//! Source: paper 003 (LLIO), 3.1.3.

use std::rc::Rc;

use hayase_layout::{ByteCount, Extent, GlobalOffset, InodeId, Layout, StripeMap};
use hayase_wire::message::{FileRequest, PartRequest, PeerReply, Refused};

use super::read_write::Attempt;
use crate::files::Known;
use crate::node::Node;
use crate::peer_service::sizes::stripe_map;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    /// Bytes up to the end of the file; what no part holds is a hole.
    pub(crate) async fn read_striped(
        self: &Rc<Self>,
        ino: InodeId,
        file: &Known,
        offset: u64,
        target: &mut [u8],
    ) -> Result<Attempt<usize>, Refused> {
        let map = map_of(file)?;
        let extent = extent(offset, target.len())?;
        let mut reads = Vec::new();
        for piece in map.by_server(extent) {
            let this = Rc::clone(self);
            let part = file.part(ino, piece.part);
            reads.push((
                piece,
                tokio::task::spawn_local(async move {
                    let slot = this.rpc.peers.slot().await;
                    let (start, len) = (piece.local.start(), piece.local.len().0 as usize);
                    this.read_remote_or_here(piece.server, part, start, len, slot).await
                }),
            ));
        }
        target.fill(0);
        for (piece, read) in reads {
            match read.await.map_err(|_| broken())?? {
                Attempt::Done((buffer, read)) => piece.scatter(&(*buffer).as_ref()[..read], target),
                Attempt::Stale => return Ok(Attempt::Stale),
            }
        }
        // The size last, and in the epoch that was known first: no truncate came between the parts.
        let size = match self.rpc.ask(ino.home(), FileRequest::SizeOf { ino }).await? {
            PeerReply::Size { size, trunc_epoch } if trunc_epoch == file.trunc_epoch => size,
            PeerReply::Size { .. } => return Ok(Attempt::Stale),
            other => return Err(unexpected(&other)),
        };
        let end = size.clamp(offset, offset + target.len() as u64);
        Ok(Attempt::Done((end - offset) as usize))
    }

    pub(super) async fn write_striped(
        self: &Rc<Self>,
        ino: InodeId,
        file: &Known,
        offset: u64,
        source: &[u8],
    ) -> Result<Attempt<()>, Refused> {
        if let Attempt::Stale = self.write_pieces(ino, file, offset, source).await? {
            return Ok(Attempt::Stale);
        }
        // The size last: nobody is told of bytes that are not there.
        let (end, trunc_epoch) = (offset + source.len() as u64, file.trunc_epoch);
        match self.rpc.ask(ino.home(), FileRequest::Extend { ino, end, trunc_epoch }).await? {
            PeerReply::Size { .. } => Ok(Attempt::Done(())),
            PeerReply::Stale => Ok(Attempt::Stale),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn write_pieces(
        self: &Rc<Self>,
        ino: InodeId,
        file: &Known,
        offset: u64,
        source: &[u8],
    ) -> Result<Attempt<()>, Refused> {
        let map = map_of(file)?;
        let mut writes = Vec::new();
        for piece in map.by_server(extent(offset, source.len())?) {
            let bytes = self.rpc.peers.gathered(&piece, source).await;
            let (this, file) = (Rc::clone(self), file.clone());
            let part = file.part(ino, piece.part);
            writes.push(tokio::task::spawn_local(async move {
                let (offset, trunc_epoch) = (piece.local.start(), file.trunc_epoch);
                let request = PartRequest::Write { part, offset, trunc_epoch };
                this.write_remote_or_here(piece.server, (ino, &file), request, bytes).await
            }));
        }
        let mut stale = false;
        for write in writes {
            stale |= matches!(write.await.map_err(|_| broken())??, Attempt::Stale);
        }
        Ok(if stale { Attempt::Stale } else { Attempt::Done(()) })
    }

    /// A place at the end, the bytes, and the news that they are there.
    pub(super) async fn append_striped(
        self: &Rc<Self>,
        ino: InodeId,
        file: &Known,
        source: &[u8],
    ) -> Result<Attempt<u64>, Refused> {
        let len = source.len() as u32;
        let reserve = FileRequest::AppendReserve { ino, len };
        let (offset, trunc_epoch) = match self.rpc.ask(ino.home(), reserve).await? {
            PeerReply::Offset { offset, trunc_epoch } => (offset, trunc_epoch),
            PeerReply::Stale => return Ok(Attempt::Stale),
            other => return Err(unexpected(&other)),
        };
        let file = Known { trunc_epoch, ..file.clone() };
        if let Attempt::Stale = self.write_pieces(ino, &file, offset, source).await? {
            return Ok(Attempt::Stale);
        }
        let commit = FileRequest::AppendCommit { ino, offset, len, trunc_epoch };
        match self.rpc.ask(ino.home(), commit).await? {
            PeerReply::Count(_) => Ok(Attempt::Done(offset)),
            PeerReply::Stale => Ok(Attempt::Stale),
            other => Err(unexpected(&other)),
        }
    }
}

fn map_of(file: &Known) -> Result<StripeMap, Refused> {
    match &*file.layout {
        Layout::Striped { stripe, servers } => stripe_map(*stripe, servers),
        _ => Err(Refused::new(libc_errno::EINVAL)),
    }
}

fn extent(offset: u64, len: usize) -> Result<Extent, Refused> {
    Extent::new(GlobalOffset(offset), ByteCount(len as u64))
        .map_err(|error| Refused::because(libc_errno::EFBIG, error.to_string()))
}

fn broken() -> Refused {
    Refused::because(libc_errno::EIO, "a part of the call was lost")
}
