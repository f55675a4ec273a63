//! Sessions: frames that are known to come from the peer, once each and in order.
//!
//! Here: sealing and opening of frames over a connection whose keys a handshake made, the codes
//! of payloads, the time a stalled peer gets. Not here: how the keys came about
//! ([`crate::handshake`]), what frames mean ([`crate::rpc`]).
//!
//! Invariants: each direction has its own key and counter, so a frame that is repeated, reflected,
//! reordered or left out fails; nothing of a body is looked at before its code was checked.

use std::time::Duration;

use crate::buffer::Loan;
use crate::header::{FrameKind, HEADER_BYTES, Header, HeaderError};
use crate::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::times::STALL_MAX;
use crate::transport::{FrameReceiver, FrameSender, TransportError};

mod payload_code;
mod seal;

pub(crate) use payload_code::NO_CODE;
pub use payload_code::authenticates_payloads;
pub(crate) use seal::{DirectionKeys, Opener, Payload, Protection, Sealer};

/// Receives into here what nobody wants any more.
const DISCARD_BYTES: usize = 16 << 10;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The connection broke.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// What came is no frame.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The frame is not by the peer, or was changed on its way.
    #[error("frame {counter} is not genuine: its authentication code is wrong")]
    Forged {
        /// As it said.
        counter: u64,
    },
    /// A frame came twice, late, or not at all.
    #[error("frame {found} came where frame {expected} was due")]
    OutOfOrder {
        /// Due.
        expected: u64,
        /// Received.
        found: u64,
    },
    /// The payload is not what its sender had.
    #[error("payload of frame {counter} was changed on its way")]
    Damaged {
        /// Which.
        counter: u64,
    },
    /// Neither a payload nor its end in time.
    #[error("the peer stopped in the middle of a frame for {:?}", .after)]
    Stalled {
        /// For how long.
        after: Duration,
    },
    /// Frames that do not belong there.
    #[error("the peer broke the protocol: {what}")]
    Protocol {
        /// How.
        what: &'static str,
    },
    /// The peer said goodbye.
    #[error("closed by the peer: {why}")]
    Closed {
        /// In its words.
        why: String,
    },
}

impl SessionError {
    /// See [`TransportError::is_loss`].
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_loss())
    }
}

/// The sending half of a session.
pub struct SessionSender {
    sender: Box<dyn FrameSender>,
    sealer: Sealer,
}

/// The receiving half of a session.
pub struct SessionReceiver {
    receiver: Box<dyn FrameReceiver>,
    opener: Opener,
    /// Of the payload that was announced and not yet taken.
    payload: Option<Header>,
}

/// A frame without its payload, which waits in the connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Pairs replies with requests.
    pub request_id: u64,
    /// The encoded message.
    pub body: Vec<u8>,
    /// Bytes to be taken by [`SessionReceiver::payload`] or [`SessionReceiver::discard`] before
    /// the next frame.
    pub payload_len: usize,
}

impl SessionSender {
    pub(crate) fn new(sender: Box<dyn FrameSender>, sealer: Sealer) -> Self {
        Self { sender, sealer }
    }

    /// To go on another way; between two frames.
    pub(crate) fn into_parts(self) -> (Box<dyn FrameSender>, Sealer) {
        (self.sender, self.sealer)
    }

    /// Sends one frame. `body` and `payload` must be within their bounds.
    pub async fn send(
        &mut self,
        kind: FrameKind,
        request_id: u64,
        body: &[u8],
        payload: &[u8],
    ) -> Result<(), SessionError> {
        self.send_payload(kind, request_id, body, Payload::Borrowed(payload)).await
    }

    /// The same of a payload that the transport may hold on to ([`FrameSender::send_lent`]).
    pub async fn send_lent(
        &mut self,
        kind: FrameKind,
        request_id: u64,
        body: &[u8],
        payload: &Loan,
    ) -> Result<(), SessionError> {
        self.send_payload(kind, request_id, body, Payload::Lent(payload)).await
    }

    async fn send_payload(
        &mut self,
        kind: FrameKind,
        request_id: u64,
        body: &[u8],
        payload: Payload<'_>,
    ) -> Result<(), SessionError> {
        if body.len() > BODY_BYTES_MAX || payload.bytes().len() > PAYLOAD_BYTES_MAX {
            return Err(SessionError::Protocol {
                what: "a frame longer than allowed was to be sent",
            });
        }
        let sealed = self.sealer.seal(kind, request_id, body, payload);
        let sending = match sealed.payload {
            Payload::Borrowed(bytes) => self.sender.send(&sealed.header, sealed.body, bytes),
            Payload::Lent(loan) => self.sender.send_lent(&sealed.header, sealed.body, loan),
        };
        match tokio::time::timeout(STALL_MAX, sending).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(SessionError::Stalled { after: STALL_MAX }),
        }
    }
}

impl SessionReceiver {
    pub(crate) fn new(receiver: Box<dyn FrameReceiver>, opener: Opener) -> Self {
        Self { receiver, opener, payload: None }
    }

    /// To go on another way; between two frames.
    pub(crate) fn into_parts(self) -> (Box<dyn FrameReceiver>, Opener) {
        assert!(self.payload.is_none(), "between two frames");
        (self.receiver, self.opener)
    }

    /// The next frame; `None` when the peer closed without a word. Waits without limit for its
    /// first byte, and not longer than a stalled peer gets for the rest.
    pub async fn next(&mut self) -> Result<Option<Frame>, SessionError> {
        assert!(self.payload.is_none(), "the payload of a frame is taken before the next frame");
        let Some(bytes) = self.receiver.header().await? else {
            return Ok(None);
        };
        let (header, mut body) = receive_body(&mut *self.receiver, &bytes).await?;
        if header.kind == FrameKind::Hello {
            return Err(SessionError::Protocol { what: "a handshake inside a session" });
        }
        self.opener.open(&bytes, &header, &mut body)?;
        if header.payload_len > 0 {
            self.payload = Some(header);
        }
        Ok(Some(Frame {
            kind: header.kind,
            request_id: header.request_id,
            body,
            payload_len: header.payload_len as usize,
        }))
    }

    /// Takes the payload of the last frame into the start of `into`, which has room for it.
    pub async fn payload(&mut self, into: &mut [u8]) -> Result<(), SessionError> {
        let header = self.payload.take().expect("asked only for a payload that was announced");
        let into = &mut into[..header.payload_len as usize];
        let mut filled = 0;
        let mut code = self.opener.begin_payload(&header);
        while filled < into.len() {
            let count = within_stall(self.receiver.payload(&mut into[filled..])).await??;
            // Now, while the bytes are still in the cache.
            code.update(&into[filled..filled + count]);
            filled += count;
        }
        self.opener.open_payload(&header, into, code)
    }

    /// The same into what the transport may hold on to ([`FrameReceiver::payload_lent`]).
    pub async fn payload_lent(&mut self, into: &mut Loan) -> Result<(), SessionError> {
        let header = self.payload.take().expect("asked only for a payload that was announced");
        let len = header.payload_len as usize;
        let mut filled = 0;
        let mut code = self.opener.begin_payload(&header);
        while filled < len {
            let count = within_stall(self.receiver.payload_lent(into, filled)).await??;
            code.update(&into.bytes()[filled..filled + count]);
            filled += count;
        }
        let into = into.bytes_mut().ok_or_else(TransportError::still_in_use)?;
        self.opener.open_payload(&header, &mut into[..len], code)
    }

    /// Takes the payload of the last frame to nowhere.
    pub async fn discard(&mut self) -> Result<(), SessionError> {
        let header = self.payload.take().expect("asked only for a payload that was announced");
        let mut left = header.payload_len as usize;
        let mut nowhere = vec![0; left.min(DISCARD_BYTES)];
        while left > 0 {
            let part = left.min(DISCARD_BYTES);
            left -= within_stall(self.receiver.payload(&mut nowhere[..part])).await??;
        }
        self.opener.skip_payload();
        Ok(())
    }
}

/// Parses a header and receives the body it announces.
pub(crate) async fn receive_body(
    receiver: &mut dyn FrameReceiver,
    bytes: &[u8; HEADER_BYTES],
) -> Result<(Header, Vec<u8>), SessionError> {
    let header = Header::parse(bytes)?;
    let mut body = vec![0; header.body_len as usize];
    if !body.is_empty() {
        within_stall(receiver.body(&mut body)).await??;
    }
    Ok((header, body))
}

async fn within_stall<T>(future: impl Future<Output = T>) -> Result<T, SessionError> {
    tokio::time::timeout(STALL_MAX, future)
        .await
        .map_err(|_| SessionError::Stalled { after: STALL_MAX })
}
