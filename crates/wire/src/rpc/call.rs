//! One call: what was lent for it, where that is now, and how it ended.
//!
//! Invariant: a buffer is in exactly one place: here, in a [`Lent`] guard of the connection that
//! works on it, or back with the caller. A guard puts it back when it is dropped, so a connection
//! may end at any point.

use std::cell::{Cell, RefCell};
use std::fmt;

use tokio::sync::Notify;

use super::credit::{Credit, RequestId};
use crate::buffer::{BoxBuffer, Loan};

/// What a peer answered.
pub struct Answer {
    /// The encoded reply.
    pub body: Vec<u8>,
    /// What was sent, unchanged.
    pub sent: Option<BoxBuffer>,
    /// What was lent to receive into, with the number of bytes at its start that came.
    pub received: Option<(BoxBuffer, usize)>,
}

/// Buffers of a call that failed.
#[derive(Default)]
pub struct Returned {
    /// What was sent, unchanged.
    pub sent: Option<BoxBuffer>,
    /// What was lent to receive into; its content is anything.
    pub into: Option<BoxBuffer>,
}

/// How a call ended, as its connection saw it.
pub(super) enum Outcome {
    Answered {
        body: Vec<u8>,
        received: usize,
    },
    /// The connection did not live to see the answer.
    Lost,
    Broken {
        what: &'static str,
    },
}

pub(super) struct Call {
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
    sent_len: usize,
    sent: RefCell<Option<BoxBuffer>>,
    into: RefCell<Option<BoxBuffer>>,
    into_len: usize,
    /// How many guards are out.
    lent: Cell<usize>,
    outcome: RefCell<Option<Outcome>>,
    abandoned: Cell<bool>,
    changed: Notify,
    /// Held until the answer came or the connection ended, also when the caller gave up.
    credit: RefCell<Option<Credit>>,
}

impl Call {
    /// One that holds `credit`, as its id says.
    pub(super) fn new(
        id: RequestId,
        credit: Credit,
        body: Vec<u8>,
        send: Option<(BoxBuffer, usize)>,
        into: Option<BoxBuffer>,
    ) -> Self {
        let (sent, sent_len) = match send {
            Some((buffer, len)) => (Some(buffer), len),
            None => (None, 0),
        };
        Self {
            id: id.0,
            body,
            sent_len,
            sent: RefCell::new(sent),
            into_len: into.as_ref().map_or(0, |buffer| buffer.as_ref().as_ref().len()),
            into: RefCell::new(into),
            lent: Cell::new(0),
            outcome: RefCell::new(None),
            abandoned: Cell::new(false),
            changed: Notify::new(),
            credit: RefCell::new(Some(credit)),
        }
    }

    pub(super) fn has_payload(&self) -> bool {
        self.sent_len > 0
    }

    /// How many bytes of answer payload the caller has room for.
    pub(super) fn room(&self) -> usize {
        self.into_len
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    /// Lends the bytes to send; `None` when there are none.
    pub(super) fn lend_sent(&self) -> Option<Lent<'_>> {
        self.lend(&self.sent, self.sent_len)
    }

    /// Lends the room for `len` bytes of answer; `None` when the caller gave up.
    pub(super) fn lend_into(&self, len: usize) -> Option<Lent<'_>> {
        self.lend(&self.into, len)
    }

    fn lend<'a>(&'a self, home: &'a RefCell<Option<BoxBuffer>>, len: usize) -> Option<Lent<'a>> {
        let buffer = home.borrow_mut().take()?;
        self.lent.set(self.lent.get() + 1);
        Some(Lent { call: self, home, loan: Some(Loan::new(buffer, len)) })
    }

    /// The connection is done with this call.
    pub(super) fn finish(&self, outcome: Outcome) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.credit_if_abandoned();
        self.changed.notify_one();
    }

    fn credit_if_abandoned(&self) {
        if self.abandoned.get() {
            self.credit.borrow_mut().take();
        }
    }

    /// Waits for the outcome, and for the buffers to be home.
    pub(super) async fn outcome(&self) -> Outcome {
        loop {
            if self.lent.get() == 0
                && let Some(outcome) = self.outcome.borrow_mut().take()
            {
                return outcome;
            }
            self.changed.notified().await;
        }
    }

    /// The caller gives up: whatever comes is thrown away.
    pub(super) fn abandon(&self) -> Returned {
        self.abandoned.set(true);
        self.take_buffers()
    }

    pub(super) fn take_buffers(&self) -> Returned {
        Returned { sent: self.sent.borrow_mut().take(), into: self.into.borrow_mut().take() }
    }
}

/// A buffer at work.
pub(super) struct Lent<'a> {
    call: &'a Call,
    home: &'a RefCell<Option<BoxBuffer>>,
    loan: Option<Loan>,
}

impl Lent<'_> {
    pub(super) fn loan(&mut self) -> &mut Loan {
        self.loan.as_mut().expect("held until dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if !self.call.abandoned.get() {
            // `None` where a transport never let go of it.
            *self.home.borrow_mut() = self.loan.take().and_then(Loan::end);
        }
        self.call.lent.set(self.call.lent.get() - 1);
        self.call.changed.notify_one();
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let received = self.received.as_ref().map(|(_, len)| *len);
        f.debug_struct("Answer")
            .field("body", &self.body.len())
            .field("received", &received)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returned")
            .field("sent", &self.sent.is_some())
            .field("into", &self.into.is_some())
            .finish()
    }
}
