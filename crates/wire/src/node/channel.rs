//! The server's end of one connection of a process; async.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::frame::{Inbox, header};
use super::{NodeError, PeerCredentials};
use crate::deadline::STALL_MAX;
use crate::transport::descriptor;

/// One process at this server. One request at a time: `recv`, then `send`; on a callback channel
/// the other way round.
pub struct NodeChannel {
    stream: UnixStream,
    peer: PeerCredentials,
    inbox: Inbox,
    broken: bool,
}

impl NodeChannel {
    pub(super) fn new(stream: UnixStream) -> Result<Self, NodeError> {
        let peer = stream.peer_cred().map_err(|source| NodeError::Accept { source })?;
        let peer =
            PeerCredentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid().unwrap_or(0) };
        Ok(Self { stream, peer, inbox: Inbox::new(), broken: false })
    }

    /// Who is at the other end.
    pub fn peer_credentials(&self) -> PeerCredentials {
        self.peer
    }

    /// The next message and the descriptor that came with it; [`NodeError::Closed`] when the
    /// process is gone. Waits without limit; may be dropped and called again without losing any.
    pub async fn recv(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>), NodeError> {
        if self.broken {
            return Err(NodeError::Broken);
        }
        let result = self.receive().await;
        self.broken = result.is_err();
        result
    }

    async fn receive(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>), NodeError> {
        self.inbox.shrink();
        loop {
            // Asked first, since a dropped call may have left a whole message.
            if let Some(len) = self.inbox.complete()? {
                let (body, descriptor) = self.inbox.take(len);
                return Ok((body.to_vec(), descriptor));
            }
            let (stream, inbox) = (&self.stream, &mut self.inbox);
            let received = stream
                .async_io(Interest::READABLE, || descriptor::receive(stream, inbox.room()))
                .await;
            let (count, descriptor) = match received {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (0, None),
                Err(source) => return Err(NodeError::Io { action: "receive a message", source }),
            };
            self.inbox.add(count, descriptor)?;
        }
    }

    /// Sends one message, with a copy of `descriptor` beside it. A process that takes nothing for
    /// long is given up. A call that was dropped half-way leaves the channel broken.
    pub async fn send(
        &mut self,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), NodeError> {
        let header = header(body.len(), descriptor.is_some())?;
        if self.broken {
            return Err(NodeError::Broken);
        }
        self.broken = true;
        let sending = self.send_all(&header, body, descriptor);
        let sent = tokio::time::timeout(STALL_MAX, sending)
            .await
            .map_err(|_| NodeError::Timeout { after: STALL_MAX })?;
        self.broken = sent.is_err();
        sent
    }

    async fn send_all(
        &self,
        header: &[u8],
        body: &[u8],
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), NodeError> {
        let mut slices = [IoSlice::new(header), IoSlice::new(body)];
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let stream = &self.stream;
            let sent = stream
                .async_io(Interest::WRITABLE, || descriptor::send(stream, left, descriptor))
                .await
                .map_err(send_failed)?;
            // It went with the first byte.
            descriptor = None;
            IoSlice::advance_slices(&mut left, sent);
        }
        Ok(())
    }
}

pub(super) fn send_failed(source: io::Error) -> NodeError {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => NodeError::Closed,
        _ => NodeError::Io { action: "send a message", source },
    }
}
