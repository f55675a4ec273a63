//! The server's end of one connection of a process; async.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net;

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::frame::{Inbox, header};
use super::{NodeError, PeerCredentials};
use crate::limits::CHANNEL_BUFFER_BYTES;
use crate::times::STALL_MAX;
use crate::transport::descriptor;
use crate::watch::{self, Watched};

/// One process at this server. One request at a time: `recv`, then `send`; on a callback channel
/// the other way round.
pub struct NodeChannel {
    /// Watched for reading only.
    stream: Watched<net::UnixStream>,
    peer: PeerCredentials,
    inbox: Inbox,
    broken: bool,
    /// The next message may be there already: what is answered does not end what is asked.
    pipelined: bool,
    /// The last read left nothing: from now on the runtime tells of more.
    drained: bool,
}

/// The sending half of a pipelined channel.
pub struct NodeSender {
    stream: net::UnixStream,
    broken: bool,
}

/// Messages that leave together.
#[derive(Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Outgoing {
    /// Adds one, with its descriptor; at most [`MULTIPLEXED_MAX`] have one.
    ///
    /// [`MULTIPLEXED_MAX`]: crate::limits::MULTIPLEXED_MAX
    ///
    /// # Errors
    /// [`NodeError::TooLarge`]; then nothing was added.
    pub fn add(&mut self, body: &[u8], descriptor: Option<OwnedFd>) -> Result<(), NodeError> {
        self.bytes.extend_from_slice(&header(body.len(), descriptor.is_some())?);
        self.bytes.extend_from_slice(body);
        self.descriptors.extend(descriptor);
        Ok(())
    }

    /// Forgets them; the room for their bytes stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(CHANNEL_BUFFER_BYTES);
        self.descriptors.clear();
    }
}

impl NodeChannel {
    pub(super) fn new(stream: UnixStream) -> Result<Self, NodeError> {
        let peer = stream.peer_cred().map_err(|source| NodeError::Accept { source })?;
        let peer =
            PeerCredentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid().unwrap_or(0) };
        let stream = stream
            .into_std()
            .and_then(|stream| watch::stream(stream, Interest::READABLE))
            .map_err(|source| NodeError::Accept { source })?;
        Ok(Self {
            stream,
            peer,
            inbox: Inbox::new(),
            broken: false,
            pipelined: false,
            drained: false,
        })
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

    /// From now on messages of both sides pass each other: this half receives, the other one sends.
    pub fn pipelined(mut self) -> Result<(Self, NodeSender), NodeError> {
        let stream = self.stream.get_ref().try_clone();
        let stream =
            stream.map_err(|source| NodeError::Io { action: "copy a descriptor", source })?;
        self.inbox.may_follow();
        self.pipelined = true;
        Ok((self, NodeSender { stream, broken: false }))
    }

    async fn receive(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>), NodeError> {
        self.inbox.begin();
        // Between two messages nothing is there to read where each question waits for its answer.
        let mut drained = !self.pipelined || self.drained;
        loop {
            // Asked first, since a dropped call may have left a whole message.
            if let Some(len) = self.inbox.complete()? {
                let (body, descriptor) = self.inbox.take(len);
                return Ok((body.to_vec(), descriptor));
            }
            if std::mem::take(&mut drained) {
                self.stream.readable().await.map_err(receive_failed)?;
            }
            let (room, descriptors) = self.inbox.room();
            let (len, before) = (room.len(), descriptors.len());
            match descriptor::receive(self.stream.get_ref(), room, descriptors) {
                Ok(count) => {
                    // What comes after a short read is told; a descriptor ends a read.
                    self.drained = count < len && descriptors.len() == before;
                    self.inbox.add(count)?;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => drained = true,
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => self.inbox.add(0)?,
                    _ => return Err(receive_failed(error)),
                },
            }
        }
    }

    /// Sends one message, with a copy of `descriptor` beside it. A process that takes nothing for
    /// long is given up. A call that was dropped half-way leaves the channel broken.
    pub async fn send(
        &mut self,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), NodeError> {
        if self.broken {
            return Err(NodeError::Broken);
        }
        self.broken = true;
        let sent = send(self.stream.get_ref(), body, descriptor.as_slice()).await;
        self.broken =
            sent.as_ref().is_err_and(|error| !matches!(error, NodeError::TooLarge { .. }));
        sent
    }
}

impl NodeSender {
    /// As [`NodeChannel::send`].
    pub async fn send(&mut self, body: &[u8]) -> Result<(), NodeError> {
        if self.broken {
            return Err(NodeError::Broken);
        }
        self.broken = true;
        let sent = send(&self.stream, body, &[]).await;
        self.broken =
            sent.as_ref().is_err_and(|error| !matches!(error, NodeError::TooLarge { .. }));
        sent
    }

    /// Ends the connection, both ways: the other half finds it [`NodeError::Closed`].
    pub fn close(&self) {
        // Fails only when the other side closed first.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Sends messages together: who waits for them is woken once.
    ///
    /// # Errors
    /// As [`NodeChannel::send`]; also when more descriptors go with them than may.
    pub async fn send_all(&mut self, messages: &Outgoing) -> Result<(), NodeError> {
        if self.broken {
            return Err(NodeError::Broken);
        }
        self.broken = true;
        let descriptors: Vec<_> = messages.descriptors.iter().map(AsFd::as_fd).collect();
        let sent =
            send_slices(&self.stream, &mut [IoSlice::new(&messages.bytes)], &descriptors).await;
        self.broken = sent.is_err();
        sent
    }
}

async fn send(
    stream: &net::UnixStream,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), NodeError> {
    let header = header(body.len(), !descriptors.is_empty())?;
    send_slices(stream, &mut [IoSlice::new(&header), IoSlice::new(body)], descriptors).await
}

async fn send_slices(
    stream: &net::UnixStream,
    mut left: &mut [IoSlice<'_>],
    mut descriptors: &[BorrowedFd<'_>],
) -> Result<(), NodeError> {
    while !left.is_empty() {
        match descriptor::send(stream, left, descriptors) {
            Ok(sent) => {
                // They went with the first byte.
                descriptors = &[];
                IoSlice::advance_slices(&mut left, sent);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout(STALL_MAX, writable(stream))
                    .await
                    .map_err(|_| NodeError::Timeout { after: STALL_MAX })?
                    .map_err(send_failed)?;
            }
            Err(error) => return Err(send_failed(error)),
        }
    }
    Ok(())
}

/// Waits for room, which is rare, by a descriptor that is watched only now.
async fn writable(stream: &net::UnixStream) -> io::Result<()> {
    let copy = watch::stream(stream.try_clone()?, Interest::WRITABLE)?;
    copy.writable().await
}

pub(super) fn receive_failed(source: io::Error) -> NodeError {
    NodeError::Io { action: "receive a message", source }
}

pub(super) fn send_failed(source: io::Error) -> NodeError {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => NodeError::Closed,
        _ => NodeError::Io { action: "send a message", source },
    }
}
