//! Bytes by message.

use hayase_layout::InodeId;
use hayase_wire::message::{NodeReply, NodeRequest, Refused, SlotRange};

use super::gathering::Taken;
use super::{Area, LinkError};

/// Most bytes of one server-side copy, so that it ends in reasonable time.
const COPY_BYTES_MAX: u64 = 256 << 20;

impl Area {
    pub(super) fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.hand_on(ino)?;
        self.lost.check(ino)?;
        let slot_bytes = self.link.slot_bytes();
        if len as usize <= slot_bytes {
            let mut request = |into| NodeRequest::Read { ino, offset, into };
            return Ok(self.link.call_into(len, &mut request, sink)?);
        }
        // More than a slot: pieces, put together.
        let mut bytes = Vec::with_capacity(len as usize);
        while bytes.len() < len as usize {
            let piece = (len as usize - bytes.len()).min(slot_bytes) as u32;
            let (start, offset) = (bytes.len(), offset + bytes.len() as u64);
            let mut request = |into| NodeRequest::Read { ino, offset, into };
            self.link.call_into(piece, &mut request, &mut |read| bytes.extend_from_slice(read))?;
            if bytes.len() - start < piece as usize {
                break;
            }
        }
        sink(&bytes);
        Ok(())
    }

    pub(super) fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.lost.check(ino)?;
        match self.gather(ino, offset, data)? {
            Taken::All(taken) => Ok(taken),
            Taken::ToSend(_moves_end) => self.send(ino, offset, data),
        }
    }

    pub(super) fn send(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        let written = self.put(data, |done, from| NodeRequest::Write {
            ino,
            offset: offset + done as u64,
            from,
        });
        self.changed(ino);
        written
    }

    pub(super) fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.lost.check(ino)?;
        let _moves_end = match self.gather_append(ino, data)? {
            Taken::All(taken) => return Ok(taken),
            Taken::ToSend(moves_end) => moves_end,
        };
        let written = self.put(data, |_, from| NodeRequest::Append { ino, from });
        self.changed(ino);
        written
    }

    /// All of `data` in pieces; an error after some bytes is a short count.
    fn put(
        &self,
        data: &[u8],
        request: impl Fn(usize, SlotRange) -> NodeRequest,
    ) -> Result<u32, Refused> {
        let mut done = 0;
        while done < data.len() {
            let piece = &data[done..data.len().min(done + self.link.slot_bytes())];
            let answer = self.link.call_with(piece, &mut |from| request(done, from));
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

    pub(super) fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused> {
        self.hand_on(from.0)?;
        let _moves_end = self.before_moving_end(to.0)?;
        let request = NodeRequest::CopyRange { from, to, len: len.min(COPY_BYTES_MAX) };
        let answer = self.call(&request);
        self.changed(to.0);
        match answer?.message {
            NodeReply::Count(copied) => Ok(copied),
            other => Err(LinkError::unexpected("CopyRange", &other).into()),
        }
    }
}
