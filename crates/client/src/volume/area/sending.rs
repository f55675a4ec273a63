//! Sending bytes that are written, in pieces of a slot.

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{NodeReply, NodeRequest, Refused, SlotRange};

use super::known::Known;
use super::requests::Requests;
use crate::link::LinkError;

/// Sends what is written.
pub(super) struct Sending {
    pub(super) known: Arc<Known>,
    pub(super) requests: Requests,
}

impl Sending {
    /// Writes bytes at an offset.
    pub(super) fn send(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        let written = self.put(data, |done, from| NodeRequest::Write {
            ino,
            offset: offset + done as u64,
            from,
        });
        self.known.changed(ino);
        written
    }

    /// Writes bytes at the end of the file.
    pub(super) fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        let written = self.put(data, |_, from| NodeRequest::Append { ino, from });
        self.known.changed(ino);
        written
    }

    /// All of `data` in pieces; an error after some bytes is a short count.
    fn put(
        &self,
        data: &[u8],
        request: impl Fn(usize, SlotRange) -> NodeRequest,
    ) -> Result<u32, Refused> {
        let (link, mut done) = (self.requests.link(), 0);
        while done < data.len() {
            let piece = &data[done..data.len().min(done + link.slot_bytes())];
            let answer = link.call_with(piece, &mut |from| request(done, from));
            let written = answer.and_then(|reply| match reply.message {
                NodeReply::Count(0) => Err(Refused::because(libc::EIO, "nothing written").into()),
                NodeReply::Count(written) => Ok(piece.len().min(written as usize)),
                // An append: all of it, there.
                NodeReply::Offset(_) | NodeReply::Done => Ok(piece.len()),
                other => Err(LinkError::unexpected("Write", &other)),
            });
            match written {
                Ok(written) => done += written,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(u32::try_from(done).unwrap_or(u32::MAX))
    }
}
