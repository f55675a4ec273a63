//! One connection of a link while it lives: sends calls, pairs answers, feels the pulse.
//!
//! Invariants: `pending` holds every call that was handed over and has no outcome yet; when the
//! line ends, each of them is told `Lost`, after everything it lent is back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::LinkError;
use super::call::{Call, Outcome};
use crate::handshake::{PeerIdentity, Session};
use crate::header::FrameKind;
use crate::message::Carrier;
use crate::session::{SessionError, SessionReceiver, SessionSender};
use crate::times::{HEARTBEAT, SILENCE_MAX};

pub(super) struct Line {
    pub(super) peer: PeerIdentity,
    pub(super) over: Carrier,
    /// Bounded by the credits of the lane, plus pings, one a second.
    queue: mpsc::UnboundedSender<Order>,
    pending: RefCell<BTreeMap<u64, Rc<Call>>>,
    /// When the peer last gave a sign of life: a frame came, or took a payload of ours.
    heard: Cell<Instant>,
    /// A frame came since the line began.
    proven: Cell<bool>,
    busy: Notify,
    /// Nothing is pending any more; told at most once in [`HEARTBEAT`].
    idle: Notify,
    told_idle: Cell<Option<Instant>>,
    alive: Cell<bool>,
}

enum Order {
    Send(Rc<Call>),
    Ping,
    Close,
}

impl Line {
    /// A line over `session`, and what must run for it; that ends when the line does.
    pub(super) fn start(session: Session) -> (Rc<Self>, impl Future<Output = LinkError>) {
        let (queue, orders) = mpsc::unbounded_channel();
        let line = Rc::new(Self {
            peer: session.peer,
            over: session.over,
            queue,
            pending: RefCell::new(BTreeMap::new()),
            heard: Cell::new(Instant::now()),
            proven: Cell::new(false),
            busy: Notify::new(),
            idle: Notify::new(),
            told_idle: Cell::new(None),
            alive: Cell::new(true),
        });
        let run = run(line.clone(), session.sender, session.receiver, orders);
        (line, run)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.get()
    }

    /// Whether the peer ever sent a frame: connections that die at once are tried less often.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.get()
    }

    /// Takes a call over; its outcome comes by [`Call::outcome`].
    pub(super) fn submit(&self, call: &Rc<Call>) {
        if !self.alive.get() {
            call.finish(Outcome::Lost);
            return;
        }
        let mut pending = self.pending.borrow_mut();
        if pending.is_empty() {
            // Silence counts from when there was something to answer.
            self.heard.set(Instant::now());
            self.busy.notify_one();
        }
        pending.insert(call.id, call.clone());
        // The receiving end lives as long as `alive`.
        let _ = self.queue.send(Order::Send(call.clone()));
    }

    /// Says goodbye and ends.
    pub(super) fn close(&self) {
        let _ = self.queue.send(Order::Close);
    }

    /// The same, unless somebody waits for it.
    pub(super) fn close_if_idle(&self) {
        if self.pending.borrow().is_empty() {
            self.close();
        }
    }

    fn forget(&self, id: u64) {
        let mut pending = self.pending.borrow_mut();
        pending.remove(&id);
        let now = self.heard.get();
        let is_lone = |told: Instant| now.saturating_duration_since(told) >= HEARTBEAT;
        if pending.is_empty() && self.told_idle.get().is_none_or(is_lone) {
            self.told_idle.set(Some(now));
            self.idle.notify_one();
        }
    }
}

async fn run(
    line: Rc<Line>,
    mut sender: SessionSender,
    mut receiver: SessionReceiver,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> LinkError {
    // Requests first: they are bounded by credits, answers follow from them.
    let end = tokio::select! {
        biased;
        end = send(&line, &mut sender, &mut orders) => end,
        end = receive(&line, &mut receiver) => end,
        end = feel_pulse(&line) => end,
    };
    // The halves of the select are gone, and with them every guard.
    drop((sender, receiver));
    line.alive.set(false);
    let pending = std::mem::take(&mut *line.pending.borrow_mut());
    for call in pending.into_values() {
        call.finish(Outcome::Lost);
    }
    end
}

/// Sends what is ordered, until the line ends.
async fn send(
    line: &Line,
    sender: &mut SessionSender,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> LinkError {
    while let Some(order) = orders.recv().await {
        let sent = match order {
            Order::Ping => sender.send(FrameKind::Ping, 0, &[], &[]).await,
            Order::Close => {
                let _ = sender.send(FrameKind::Close, 0, b"no longer needed", &[]).await;
                return LinkError::Closed;
            }
            Order::Send(call) if call.is_abandoned() => {
                line.forget(call.id);
                call.finish(Outcome::Lost);
                Ok(())
            }
            Order::Send(call) => {
                let (kind, id, body) = (FrameKind::Request, call.id, &call.body);
                let sent = match call.lend_sent() {
                    Some(mut lent) => sender.send_lent(kind, id, body, lent.loan()).await,
                    None => sender.send(kind, id, body, &[]).await,
                };
                if call.has_payload() {
                    // A peer that takes whole payloads lives, even if pings queue behind them.
                    line.heard.set(Instant::now());
                }
                sent
            }
        };
        if let Err(error) = sent {
            return LinkError::Lost(error);
        }
    }
    LinkError::Closed
}

/// Takes answers, until the line ends.
async fn receive(line: &Line, receiver: &mut SessionReceiver) -> LinkError {
    loop {
        let frame = match receiver.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return LinkError::Closed,
            Err(error) => return LinkError::Lost(error),
        };
        line.heard.set(Instant::now());
        line.proven.set(true);
        let done = match frame.kind {
            FrameKind::Pong => Ok(()),
            FrameKind::Close => {
                let why = String::from_utf8_lossy(&frame.body).into_owned();
                Err(SessionError::Closed { why })
            }
            FrameKind::Reply => {
                take_reply(line, receiver, frame.request_id, frame.body, frame.payload_len).await
            }
            _ => Err(SessionError::Protocol { what: "a request where answers are due" }),
        };
        if let Err(error) = done {
            return LinkError::Lost(error);
        }
    }
}

async fn take_reply(
    line: &Line,
    receiver: &mut SessionReceiver,
    id: u64,
    body: Vec<u8>,
    payload_len: usize,
) -> Result<(), SessionError> {
    let call = line.pending.borrow().get(&id).cloned();
    let Some(call) = call else {
        return Err(SessionError::Protocol { what: "an answer to nothing" });
    };
    let mut outcome = Outcome::Answered { body, received: payload_len };
    if payload_len > 0 {
        let room = (payload_len <= call.room()).then(|| call.lend_into(payload_len)).flatten();
        match room {
            Some(mut into) => receiver.payload_lent(into.loan()).await?,
            None => {
                receiver.discard().await?;
                outcome = Outcome::Broken { what: "the answer is longer than its buffer" };
            }
        }
    }
    line.forget(id);
    call.finish(outcome);
    Ok(())
}

/// Pings while calls wait; ends when nothing comes back.
async fn feel_pulse(line: &Line) -> LinkError {
    loop {
        if line.pending.borrow().is_empty() {
            line.busy.notified().await;
        }
        tokio::select! {
            biased;
            // After a lone call there is nothing to wake up for.
            () = line.idle.notified() => continue,
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
        if line.pending.borrow().is_empty() {
            continue;
        }
        if line.heard.get().elapsed() >= SILENCE_MAX {
            return LinkError::Silent { after: SILENCE_MAX };
        }
        let _ = line.queue.send(Order::Ping);
    }
}
