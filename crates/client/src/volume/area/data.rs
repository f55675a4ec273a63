//! Bytes by message.

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{NodeReply, NodeRequest, Refused};

use super::gathering::{Gatherer, Taken};
use super::known::Known;
use super::lost::LostFiles;
use super::requests::Requests;
use super::sending::Sending;
use crate::link::LinkError;

/// Most bytes of one server-side copy, so that it ends in reasonable time.
const COPY_BYTES_MAX: u64 = 256 << 20;

/// Reads and writes files that are open by messages.
pub(super) struct Data {
    pub(super) known: Arc<Known>,
    pub(super) requests: Requests,
    pub(super) lost: Arc<LostFiles>,
    pub(super) sending: Arc<Sending>,
    pub(super) gatherer: Arc<Gatherer>,
}

impl Data {
    pub(super) fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.gatherer.hand_on(ino)?;
        self.lost.check(ino)?;
        let link = self.requests.link();
        let slot_bytes = link.slot_bytes();
        if len as usize <= slot_bytes {
            let mut request = |into| NodeRequest::Read { ino, offset, into };
            return Ok(link.call_into(len, &mut request, sink)?);
        }
        // More than a slot: pieces, put together.
        let mut bytes = Vec::with_capacity(len as usize);
        while bytes.len() < len as usize {
            let piece = (len as usize - bytes.len()).min(slot_bytes) as u32;
            let (start, offset) = (bytes.len(), offset + bytes.len() as u64);
            let mut request = |into| NodeRequest::Read { ino, offset, into };
            link.call_into(piece, &mut request, &mut |read| bytes.extend_from_slice(read))?;
            if bytes.len() - start < piece as usize {
                break;
            }
        }
        sink(&bytes);
        Ok(())
    }

    pub(super) fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.lost.check(ino)?;
        match self.gatherer.gather(ino, offset, data)? {
            Taken::All(taken) => Ok(taken),
            Taken::ToSend(_moves_end) => self.sending.send(ino, offset, data),
        }
    }

    pub(super) fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.lost.check(ino)?;
        let _moves_end = match self.gatherer.gather_append(ino, data)? {
            Taken::All(taken) => return Ok(taken),
            Taken::ToSend(moves_end) => moves_end,
        };
        self.sending.append(ino, data)
    }

    pub(super) fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused> {
        self.gatherer.hand_on(from.0)?;
        let _moves_end = self.gatherer.before_moving_end(to.0)?;
        let request = NodeRequest::CopyRange { from, to, len: len.min(COPY_BYTES_MAX) };
        let answer = self.requests.call(&request);
        self.known.changed(to.0);
        match answer?.message {
            NodeReply::Count(copied) => Ok(copied),
            other => Err(LinkError::unexpected("CopyRange", &other).into()),
        }
    }

    /// Reserves or frees room, as fallocate(2).
    pub(super) fn allocate(
        &self,
        ino: InodeId,
        mode: i32,
        (offset, len): (u64, u64),
    ) -> Result<(), Refused> {
        let _cuts = self.gatherer.cuts();
        self.gatherer.hand_on(ino)?;
        let request = NodeRequest::Allocate { ino, mode, offset, len };
        let result = self.requests.call_done("Allocate", &request);
        self.known.changed(ino);
        result
    }

    /// Finds data or a hole, as lseek(2).
    pub(super) fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        self.gatherer.hand_on(ino)?;
        match self.requests.call(&NodeRequest::Seek { ino, offset, whence })?.message {
            NodeReply::Offset(found) => Ok(found),
            other => Err(LinkError::unexpected("Seek", &other).into()),
        }
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self, ino: InodeId, data_only: bool) -> Result<(), Refused> {
        self.gatherer.hand_on(ino)?;
        self.lost.check(ino)?;
        self.requests.call_done("Fsync", &NodeRequest::Fsync { ino, data_only })
    }
}
