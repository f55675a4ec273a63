//! A connection over UCX: the two halves, and the side channel that they met on.
//!
//! A frame is one message for its header and body and one for its payload, with the same number. Small
//! payloads travel along; of larger ones the receiver fetches the bytes straight into their place. The side channel is
//! silent until it ends: a goodbye says after how many frames, an end without one that the process is gone.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::descriptor::Descriptor;
use super::endpoint::Endpoint;
use super::inbox::{End, Head, Inbox, Payload};
use super::operation::{Operation, Way};
use super::worker::{MESSAGE_HEAD, MESSAGE_PAYLOAD, MESSAGE_TAKEN, label};
use crate::buffer::Loan;
use crate::deadline::{END_WAIT, LAST_FRAMES_WAIT};
use crate::header::HEADER_BYTES;
use crate::limits::{FRAMES_AHEAD_MAX, PAYLOAD_ALONG_MAX};
use crate::transport::{FrameReceiver, FrameSender, Halves, LocalFuture, TransportError};

/// The first bytes of a goodbye; the number of frames follows, then zeros.
const GOODBYE: [u8; 8] = *b"HYBYE\0\0\x01";

const SEND: &str = "send a frame";
const FETCH: &str = "receive a payload";

/// How long the receiver may still wait.
#[derive(Clone, Copy)]
enum Patience {
    /// Both the endpoint and the side channel live.
    Endless,
    Until(Instant),
}

/// What both halves share; the connection ends with it.
pub(super) struct Link {
    endpoint: Rc<Endpoint>,
    inbox: Rc<Inbox>,
    ours: u64,
    theirs: u64,
    side: Box<dyn FrameSender>,
    watch: AbortHandle,
    /// Whole frames that were sent.
    sent: Cell<u64>,
    /// A frame was begun and not completed.
    is_cut: Cell<bool>,
}

/// The two halves of a connection whose inbox at this side is `ours`, at the other side `theirs`.
pub(super) fn halves(
    endpoint: Rc<Endpoint>,
    inbox: Rc<Inbox>,
    (ours, theirs): (u64, u64),
    side: Box<dyn FrameSender>,
    news: Box<dyn FrameReceiver>,
) -> Halves {
    endpoint.join(&inbox);
    let watch = watch(Rc::clone(&inbox), Rc::downgrade(&endpoint), news);
    let watch = tokio::task::spawn_local(watch).abort_handle();
    let (sent, is_cut) = (Cell::new(0), Cell::new(false));
    let link = Rc::new(Link { endpoint, inbox, ours, theirs, side, watch, sent, is_cut });
    let receiver = UcxReceiver { link: Rc::clone(&link), body: None, payload: None, ended: None };
    (Box::new(UcxSender { link }), Box::new(receiver))
}

/// Waits for the end of the side channel. The peer may have closed its endpoint then, which UCX does not always tell.
async fn watch(inbox: Rc<Inbox>, endpoint: Weak<Endpoint>, mut news: Box<dyn FrameReceiver>) {
    let end = match news.header().await {
        Ok(Some(bytes)) if bytes[..8] == GOODBYE => {
            let frames = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
            End::Goodbye { frames }
        }
        Ok(Some(_)) => End::Lost {
            kind: io::ErrorKind::InvalidData,
            why: "a frame on the side channel of UCX".into(),
        },
        Ok(None) | Err(TransportError::Truncated { .. }) => End::Silence,
        Err(TransportError::Io { source, .. }) => {
            End::Lost { kind: source.kind(), why: source.to_string() }
        }
        Err(error) => End::Lost { kind: io::ErrorKind::Other, why: error.to_string() },
    };
    if let Some(endpoint) = endpoint.upgrade() {
        endpoint.retire();
    }
    inbox.set_end(end);
}

impl Drop for Link {
    fn drop(&mut self) {
        self.endpoint.retire();
        self.endpoint.worker.close_inbox(self.ours);
        self.inbox.clear();
        self.watch.abort();
        if self.is_cut.get() {
            return;
        }
        let mut goodbye = [0; HEADER_BYTES];
        goodbye[..8].copy_from_slice(&GOODBYE);
        goodbye[8..16].copy_from_slice(&self.sent.get().to_le_bytes());
        let mut sending = self.side.send(&goodbye, &[], &[]);
        // Nothing else is on the side channel: it fits, or the peer is gone.
        let _ = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl Link {
    /// Fails when nothing can be sent any more.
    fn check_open(&self) -> Result<(), TransportError> {
        let closed = |kind, why: String| Err(failed(SEND, kind, why));
        match self.inbox.end() {
            Some(End::Lost { kind, why }) => closed(kind, why),
            Some(_) => closed(io::ErrorKind::BrokenPipe, "the peer has closed".into()),
            None => match self.inbox.failure() {
                Some(why) => Err(ucx_failed(SEND, &why)),
                None => Ok(()),
            },
        }
    }

    /// Runs `sending` as long as the connection lives.
    async fn while_open<T>(
        &self,
        sending: impl Future<Output = Result<T, String>>,
    ) -> Result<T, TransportError> {
        tokio::pin!(sending);
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return sent.map_err(|why| ucx_failed(SEND, &why)),
                () = self.inbox.relieved.notified() => self.check_open()?,
            }
        }
    }

    /// Waits until the peer has room for one more frame.
    async fn wait_for_room(&self) -> Result<(), TransportError> {
        loop {
            self.check_open()?;
            if self.sent.get() - self.inbox.taken_by_peer().min(self.sent.get()) < FRAMES_AHEAD_MAX
            {
                return Ok(());
            }
            self.inbox.relieved.notified().await;
        }
    }

    async fn send(
        &self,
        header: &[u8; HEADER_BYTES],
        body: &[u8],
        payload: &Loan,
    ) -> Result<(), TransportError> {
        self.wait_for_room().await?;
        let number = self.sent.get() + 1;
        let label = label(self.theirs, number);
        self.is_cut.set(true);
        let (label_and_header, body) = ([&label[..], header].concat(), Loan::from(body.to_vec()));
        let head =
            Operation::send(&self.endpoint, MESSAGE_HEAD, label_and_header, &body, Way::Along);
        let way = if payload.len() > PAYLOAD_ALONG_MAX { Way::Fetched } else { Way::Along };
        let rest = (!payload.is_empty()).then(|| {
            Operation::send(&self.endpoint, MESSAGE_PAYLOAD, label.to_vec(), payload, way)
        });
        let sending = async {
            head.done().await?;
            match rest {
                Some(rest) => rest.done().await,
                None => Ok(()),
            }
        };
        self.while_open(sending).await?;
        self.sent.set(number);
        self.is_cut.set(false);
        Ok(())
    }
}

fn failed(action: &'static str, kind: io::ErrorKind, why: String) -> TransportError {
    TransportError::Io { action, source: io::Error::new(kind, why) }
}

/// The side channel tells of peers that are lost; of UCX any failure is one of the connection.
fn ucx_failed(action: &'static str, why: &str) -> TransportError {
    failed(action, io::ErrorKind::ConnectionReset, format!("UCX: {why}"))
}

struct UcxSender {
    link: Rc<Link>,
}

impl FrameSender for UcxSender {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let payload = Loan::from(payload.to_vec());
            self.link.send(header, body, &payload).await
        })
    }

    fn send_lent<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a Loan,
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(self.link.send(header, body, payload))
    }

    fn notice_loss_within(&self, wait: Duration) {
        self.link.side.notice_loss_within(wait);
    }
}

struct UcxReceiver {
    link: Rc<Link>,
    /// Of the frame whose header was given out, until it is asked for.
    body: Option<Vec<u8>>,
    /// What came of its payload and was not asked for yet, and how much was.
    payload: Option<(Vec<u8>, usize)>,
    /// When the end was first seen with frames still to come.
    ended: Option<Instant>,
}

impl UcxReceiver {
    /// Waits for what `take` finds in the inbox; `None` when the peer closed before.
    async fn next<T>(
        &mut self,
        action: &'static str,
        take: impl Fn(&Inbox) -> Option<T>,
    ) -> Result<Option<T>, TransportError> {
        loop {
            if let Some(taken) = take(&self.link.inbox) {
                return Ok(Some(taken));
            }
            let patience = self.patience(action)?;
            let changed = self.link.inbox.changed.notified();
            match patience {
                None => return Ok(None),
                Some(Patience::Endless) => changed.await,
                Some(Patience::Until(until)) => drop(timeout_at(until, changed).await),
            }
        }
    }

    /// How long what is missing may still come; `None` when nothing is missing.
    fn patience(&mut self, action: &'static str) -> Result<Option<Patience>, TransportError> {
        let inbox = &self.link.inbox;
        let wait = match (inbox.end(), inbox.failure()) {
            (None, None) => return Ok(Some(Patience::Endless)),
            (Some(End::Goodbye { frames }), _) if inbox.begun() >= frames => return Ok(None),
            (Some(End::Goodbye { .. }), None) => LAST_FRAMES_WAIT,
            (Some(End::Silence), _) if !inbox.has_pieces() => return Ok(None),
            (Some(End::Goodbye { .. } | End::Silence), _) => {
                return Err(TransportError::Truncated { action });
            }
            (Some(End::Lost { kind, why }), _) => return Err(failed(action, kind, why)),
            (None, Some(_)) => END_WAIT,
        };
        let until = *self.ended.get_or_insert_with(|| Instant::now() + wait);
        if Instant::now() < until {
            return Ok(Some(Patience::Until(until)));
        }
        match inbox.failure() {
            Some(why) => Err(failed(action, io::ErrorKind::ConnectionReset, format!("UCX: {why}"))),
            None => Err(TransportError::Truncated { action }),
        }
    }

    /// Tells the sender from time to time how far we are.
    fn tell_taken(&self, frames: u64) {
        if frames.is_multiple_of(FRAMES_AHEAD_MAX / 2) {
            let label = label(self.link.theirs, frames);
            Operation::tell(&self.link.endpoint, MESSAGE_TAKEN, label.to_vec());
        }
    }

    /// Gives out what is left here of a payload; 0 when nothing is.
    fn take_left(&mut self, into: &mut [u8]) -> usize {
        let Some((bytes, taken)) = &mut self.payload else { return 0 };
        let count = into.len().min(bytes.len() - *taken);
        into[..count].copy_from_slice(&bytes[*taken..*taken + count]);
        *taken += count;
        count
    }

    async fn receive_payload(
        &mut self,
        into: &mut Loan,
        at: usize,
    ) -> Result<usize, TransportError> {
        if self.payload.is_none() {
            let Some(payload) = self.next(FETCH, Inbox::take_payload).await? else {
                return Err(TransportError::Truncated { action: FETCH });
            };
            match payload {
                Payload::Here(bytes) => self.payload = Some((bytes, 0)),
                Payload::There(from) if from.len() <= into.len() - at => {
                    let len = from.len();
                    self.fetch(from, into, at).await?;
                    self.payload = Some((Vec::new(), 0));
                    return Ok(len);
                }
                Payload::There(from) => {
                    // Wanted in pieces, as by who throws it away.
                    self.payload = Some((self.fetch_apart(from).await?, 0));
                }
            }
        }
        let into = into.bytes_mut().ok_or_else(TransportError::still_in_use)?;
        self.give_left(&mut into[at..])
    }

    /// The same into what was borrowed, which the library must not know.
    async fn copy_payload(&mut self, into: &mut [u8]) -> Result<usize, TransportError> {
        if self.payload.is_none() {
            let bytes = match self.next(FETCH, Inbox::take_payload).await? {
                Some(Payload::Here(bytes)) => bytes,
                Some(Payload::There(from)) => self.fetch_apart(from).await?,
                None => return Err(TransportError::Truncated { action: FETCH }),
            };
            self.payload = Some((bytes, 0));
        }
        self.give_left(into)
    }

    fn give_left(&mut self, into: &mut [u8]) -> Result<usize, TransportError> {
        match self.take_left(into) {
            0 => Err(TransportError::Truncated { action: FETCH }),
            count => Ok(count),
        }
    }

    /// All of it, to be given out in pieces.
    async fn fetch_apart(&self, from: Descriptor) -> Result<Vec<u8>, TransportError> {
        let mut bytes = Loan::from(vec![0; from.len()]);
        self.fetch(from, &mut bytes, 0).await?;
        Ok(bytes.into_bytes())
    }

    async fn fetch(
        &self,
        from: Descriptor,
        into: &mut Loan,
        at: usize,
    ) -> Result<(), TransportError> {
        self.check_fetchable()?;
        let endpoint = &self.link.endpoint;
        self.fetched(Operation::fetch(endpoint, from, into, at).done()).await
    }

    /// Runs `fetching` as long as the peer can give what it has. UCX itself says nothing where the peer gave it up.
    async fn fetched(
        &self,
        fetching: impl Future<Output = Result<(), String>>,
    ) -> Result<(), TransportError> {
        tokio::pin!(fetching);
        loop {
            tokio::select! {
                biased;
                fetched = &mut fetching => {
                    return fetched.map_err(|why| ucx_failed(FETCH, &why));
                }
                () = self.link.inbox.changed.notified() => self.check_fetchable()?,
            }
        }
    }

    /// A peer that said goodbye had sent all of its frames before.
    fn check_fetchable(&self) -> Result<(), TransportError> {
        let inbox = &self.link.inbox;
        match (inbox.end(), inbox.failure()) {
            (Some(End::Lost { kind, why }), _) => Err(failed(FETCH, kind, why)),
            (Some(End::Silence), _) => Err(TransportError::Truncated { action: FETCH }),
            (_, Some(why)) => Err(ucx_failed(FETCH, &why)),
            (Some(End::Goodbye { .. }) | None, None) => Ok(()),
        }
    }
}

impl FrameReceiver for UcxReceiver {
    fn header(&mut self) -> LocalFuture<'_, Result<Option<[u8; HEADER_BYTES]>, TransportError>> {
        Box::pin(async move {
            let taken = self.next("receive a header", Inbox::take_head).await?;
            let Some((number, Head { header, body })) = taken else { return Ok(None) };
            (self.body, self.payload) = (Some(body), None);
            self.tell_taken(number);
            Ok(Some(header))
        })
    }

    fn body<'a>(&'a mut self, into: &'a mut [u8]) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            match self.body.take() {
                Some(body) if body.len() == into.len() => {
                    into.copy_from_slice(&body);
                    Ok(())
                }
                _ => Err(TransportError::Truncated { action: "receive a body" }),
            }
        })
    }

    fn payload<'a>(
        &'a mut self,
        into: &'a mut [u8],
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        Box::pin(self.copy_payload(into))
    }

    fn payload_lent<'a>(
        &'a mut self,
        into: &'a mut Loan,
        from: usize,
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        Box::pin(self.receive_payload(into, from))
    }
}
