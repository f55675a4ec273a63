//! Reads and writes of parts on this server, for any node: what must be known before bytes move.
//!
//! Not here: how they move ([`crate::data::bytes`]).

use std::rc::Rc;

use hayase_layout::LocalOffset;
use hayase_wire::BoxBuffer;
use hayase_wire::message::{FileRequest, PAYLOAD_BYTES_MAX, PartRef, PeerReply, Refused};

use super::Answer;
use crate::convert::whole_part;
use crate::convert::{part_id, part_refused};
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};
use crate::rpc::peers::Served;

impl Node {
    pub(super) async fn read_part(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        len: u32,
    ) -> Served {
        let len = (len as usize).min(PAYLOAD_BYTES_MAX);
        if !self.cache.is_here(part.ino) {
            return self.read_fetched(part, offset, len).await;
        }
        let found = match self.data.existing(part) {
            Ok(Some(found)) => found,
            // Nothing was ever written to this part of a striped file.
            Ok(None) if self.meta.is_of_another_layout(part) => return PeerReply::Stale.into(),
            Ok(None) => return PeerReply::Count(0).into(),
            Err(refused) => return PeerReply::Refused(refused).into(),
        };
        let slot = self.rpc.peers.slot().await;
        match self.data.read_into(self, found, offset, len, slot).await {
            Ok((buffer, read)) => {
                let reply = PeerReply::Count(read as u64);
                Served { reply, payload: (read > 0).then_some((buffer, read)) }
            }
            Err(refused) => PeerReply::Refused(refused).into(),
        }
    }

    /// Of a file of the cache area that is not all here.
    async fn read_fetched(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        len: usize,
    ) -> Served {
        if part_id(part) != whole_part(part.ino, 0) {
            return PeerReply::Stale.into();
        }
        let fetched = self.cache.fetch_range(part.ino, offset.0, len as u64).await;
        let slot = self.rpc.peers.slot().await;
        let read = match fetched {
            Ok(()) => match self.data.parts.get(part_id(part)) {
                Ok(found) => self.data.read_into(self, found, offset, len, slot).await,
                Err(error) => Err(part_refused(error)),
            },
            Err(refused) if refused.errno == libc_errno::ENOSPC => {
                self.cache.read_through(part.ino, offset, len, slot).await
            }
            Err(refused) => Err(refused),
        };
        match read {
            Ok((buffer, read)) => {
                let reply = PeerReply::Count(read as u64);
                Served { reply, payload: (read > 0).then_some((buffer, read)) }
            }
            Err(refused) => PeerReply::Refused(refused).into(),
        }
    }

    pub(super) async fn write_part(
        self: &Rc<Self>,
        part: PartRef,
        offset: LocalOffset,
        trunc_epoch: u32,
        bytes: (BoxBuffer, usize),
    ) -> Answer {
        self.learn_epoch(part).await?;
        if !self.data.is_current(part, trunc_epoch) {
            return Ok(PeerReply::Stale);
        }
        let len = bytes.1;
        let target = self.data.for_writing(part)?;
        self.room_for_write(part.ino, len as u64).await;
        let _writing = match part.ino.is_cached() && self.meta.is_striped(part) {
            true => Some(self.data.unsynced.begin_write(part).await?),
            false => None,
        };
        self.data.write_from(self, target.clone(), offset, bytes).await?;
        self.data.write_back(part, target, offset.0..offset.0 + len as u64);
        // A truncate that overtook this write has cut it off: the caller repeats the whole call.
        if !self.data.is_current(part, trunc_epoch) {
            return Ok(PeerReply::Stale);
        }
        Ok(PeerReply::Written(self.data.life))
    }

    /// After a restart the epoch of a part is not known: its home has made it durable before the part
    /// was cut.
    async fn learn_epoch(self: &Rc<Self>, part: PartRef) -> Result<(), Refused> {
        if !self.data.lacks_epoch(part) {
            return Ok(());
        }
        let ino = part.ino;
        match self.rpc.ask(ino.home(), FileRequest::SizeOf { ino }).await? {
            PeerReply::Size { trunc_epoch, .. } => {
                self.data.learn_epoch(ino, trunc_epoch);
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }
}
