//! What has come for one connection and was not taken yet, and what is known of its end.
//!
//! Filled by the callbacks of the library, emptied by the receiving half. Frames are numbered from 1,
//! since messages of UCX overtake each other; at most [`FRAMES_AHEAD_MAX`] may be here at a time, which the
//! sender keeps by counting what the receiver tells it to have taken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use tokio::sync::Notify;

use super::descriptor::Descriptor;
use crate::header::{HEADER_BYTES, TAG_BYTES};
use crate::limits::{BODY_BYTES_MAX, FRAMES_AHEAD_MAX, PAYLOAD_BYTES_MAX};

/// A frame of which something came.
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) head: Option<Head>,
    pub(super) payload: Option<Payload>,
}

pub(super) struct Head {
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) body: Vec<u8>,
}

pub(super) enum Payload {
    /// Small: it came along.
    Here(Vec<u8>),
    /// To be fetched into its place.
    There(Descriptor),
}

/// How the side channel ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// After so many frames.
    Goodbye { frames: u64 },
    /// Without a word, as when the process is killed.
    Silence,
    /// It broke.
    Lost { kind: std::io::ErrorKind, why: String },
}

#[derive(Default)]
pub(super) struct Inbox {
    frames: RefCell<BTreeMap<u64, Arrived>>,
    /// The frame that the receiver is at; all before are gone.
    at: Cell<u64>,
    /// Of our frames, as the peer says.
    taken_by_peer: Cell<u64>,
    end: RefCell<Option<End>>,
    /// Why the endpoint can carry no more.
    failure: RefCell<Option<String>>,
    /// For the receiver: something came, or ended.
    pub(super) changed: Notify,
    /// For the sender: the peer took something, or all ended.
    pub(super) relieved: Notify,
}

impl Inbox {
    /// A header and its body; wrong numbers and lengths end the connection.
    pub(super) fn put_head(&self, number: u64, header: &[u8], body: &[u8]) {
        let Ok(header) = header.try_into() else {
            return self.fail("a header of another length".into());
        };
        if body.len() > BODY_BYTES_MAX + TAG_BYTES {
            return self.fail("a body longer than allowed".into());
        }
        if number == self.at.get() && number > 0 {
            return self.settle(Some(true));
        }
        let head = Head { header, body: body.to_vec() };
        let again = self.with(number, |arrived| arrived.head.replace(head).is_some());
        self.settle(again);
    }

    /// A payload that came whole.
    pub(super) fn put_bytes(&self, number: u64, bytes: Vec<u8>) {
        drop(self.put_payload(number, Payload::Here(bytes)));
    }

    /// A payload that waits at the peer; given back when it is not wanted.
    pub(super) fn put_descriptor(&self, number: u64, descriptor: Descriptor) -> Option<Descriptor> {
        match self.put_payload(number, Payload::There(descriptor))? {
            Payload::There(descriptor) => Some(descriptor),
            Payload::Here(_) => None,
        }
    }

    fn put_payload(&self, number: u64, payload: Payload) -> Option<Payload> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            self.fail("a payload longer than allowed".into());
            return Some(payload);
        }
        let mut payload = Some(payload);
        let again = self.with(number, |arrived| {
            let again = arrived.payload.is_some();
            if !again {
                arrived.payload = payload.take();
            }
            again
        });
        self.settle(again);
        payload
    }

    fn settle(&self, again: Option<bool>) {
        match again {
            Some(false) => self.changed.notify_one(),
            Some(true) => self.fail("a frame came twice".into()),
            None => self.fail("a frame that is not due".into()),
        }
    }

    /// `None` when that frame may not come now.
    fn with<T>(&self, number: u64, change: impl FnOnce(&mut Arrived) -> T) -> Option<T> {
        let at = self.at.get();
        let due = at.max(1)..=at + FRAMES_AHEAD_MAX + 1;
        due.contains(&number).then(|| change(self.frames.borrow_mut().entry(number).or_default()))
    }

    /// Leaves the frame the receiver is at, and takes the head of the next one if it is here; says its number.
    pub(super) fn take_head(&self) -> Option<(u64, Head)> {
        let (at, mut frames) = (self.at.get(), self.frames.borrow_mut());
        let head = frames.get_mut(&(at + 1))?.head.take()?;
        let left = frames.remove(&at);
        self.at.set(at + 1);
        drop(frames);
        drop(left);
        Some((at + 1, head))
    }

    /// The payload of the frame the receiver is at.
    pub(super) fn take_payload(&self) -> Option<Payload> {
        self.frames.borrow_mut().get_mut(&self.at.get())?.payload.take()
    }

    /// How many frames the receiver began.
    pub(super) fn begun(&self) -> u64 {
        self.at.get()
    }

    /// Whether something came behind the frame the receiver is at, which is no whole head.
    pub(super) fn has_pieces(&self) -> bool {
        self.frames.borrow().keys().any(|number| *number > self.at.get())
    }

    pub(super) fn set_taken_by_peer(&self, frames: u64) {
        if frames > self.taken_by_peer.get() {
            self.taken_by_peer.set(frames);
            self.relieved.notify_one();
        }
    }

    pub(super) fn taken_by_peer(&self) -> u64 {
        self.taken_by_peer.get()
    }

    pub(super) fn set_end(&self, end: End) {
        self.end.borrow_mut().get_or_insert(end);
        self.tell();
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end.borrow().clone()
    }

    /// Nothing more goes either way.
    pub(super) fn fail(&self, why: String) {
        self.failure.borrow_mut().get_or_insert(why);
        self.tell();
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    fn tell(&self) {
        self.changed.notify_one();
        self.relieved.notify_one();
    }

    /// Gives back what the library keeps for us, while the worker lives.
    pub(super) fn clear(&self) {
        let frames = std::mem::take(&mut *self.frames.borrow_mut());
        drop(frames);
    }
}

impl Payload {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::There(descriptor) => descriptor.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; HEADER_BYTES] = [3; HEADER_BYTES];

    #[test]
    fn frames_are_taken_in_their_order() {
        let inbox = Inbox::default();
        inbox.put_bytes(2, vec![2]);
        inbox.put_head(2, &HEADER, b"two");
        assert!(inbox.take_head().is_none() && inbox.has_pieces());
        inbox.put_head(1, &HEADER, b"one");
        for (number, body) in [(1, b"one"), (2, b"two")] {
            let (found, head) = inbox.take_head().unwrap();
            assert_eq!((found, &head.body[..]), (number, &body[..]));
        }
        assert!(matches!(inbox.take_payload(), Some(Payload::Here(bytes)) if bytes == [2]));
        assert!(!inbox.has_pieces() && inbox.failure().is_none());
    }

    #[test]
    fn what_is_not_due_ends_the_connection() {
        let refused = |put: &dyn Fn(&Inbox)| {
            let inbox = Inbox::default();
            put(&inbox);
            inbox.failure().expect("refused")
        };
        let late = |inbox: &Inbox| inbox.put_head(FRAMES_AHEAD_MAX + 2, &HEADER, b"");
        assert!(refused(&late).contains("not due"));
        assert!(refused(&|inbox| inbox.put_head(0, &HEADER, b"")).contains("not due"));
        assert!(refused(&|inbox| inbox.put_head(1, &HEADER[1..], b"")).contains("length"));
        let body = vec![0; BODY_BYTES_MAX + TAG_BYTES + 1];
        assert!(refused(&|inbox| inbox.put_head(1, &HEADER, &body)).contains("longer"));
        let twice = |inbox: &Inbox| {
            inbox.put_head(1, &HEADER, b"");
            inbox.take_head().unwrap();
            inbox.put_head(1, &HEADER, b"");
        };
        assert!(refused(&twice).contains("twice"));
        let long = |inbox: &Inbox| inbox.put_bytes(1, vec![0; PAYLOAD_BYTES_MAX + 1]);
        assert!(refused(&long).contains("longer"));
    }

    #[test]
    fn as_many_frames_as_allowed_may_wait() {
        let inbox = Inbox::default();
        (1..=FRAMES_AHEAD_MAX).for_each(|number| inbox.put_head(number, &HEADER, b""));
        assert!(inbox.failure().is_none());
    }
}
