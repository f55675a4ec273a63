//! Requests whose success the server tells the kernel itself.
//!
//! They go over a connection of their own, one after the other, and nobody waits for them: who made
//! them is woken by the server. What became of them comes back on the same connection, of many at once;
//! one thread hears it. When the server ends, what was under way is asked for again, in the usual way
//! and under the same number, so that it happens once.
//!
//! Invariant: a request is in `under_way` from before it is sent until its end is heard.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use hayase_wire::limits::HANDED_OVER_MAX;
use hayase_wire::message::{ClientRole, HandedBack, NodeReply, NodeRequest};
use hayase_wire::{BlockingChannel, NodeError};

use super::Inner;
use crate::limits::{CALL_WAIT, RECONNECT_PAUSE};
use crate::link::{HandOver, Handed, LinkError};

/// See the module.
#[derive(Default)]
pub(super) struct HandedOver {
    /// Where the kernel asks this process.
    device: OnceLock<OwnedFd>,
    state: Mutex<State>,
    asked_again: Condvar,
}

#[derive(Default)]
struct State {
    /// Where they are sent. With none there is no such way at the moment.
    sender: Option<BlockingChannel>,
    under_way: HashMap<u64, UnderWay>,
    /// The server ended, and another one is asked for what was under way.
    asks_again: bool,
}

struct UnderWay {
    turn: (u32, u64),
    request: NodeRequest,
    end: Box<dyn FnOnce(Handed) + Send>,
}

impl HandedOver {
    pub(super) fn answer_at(&self, device: OwnedFd) {
        // The first stays: there is one kernel over a session.
        let _ = self.device.set(device);
    }

    pub(super) fn device(&self) -> Option<BorrowedFd<'_>> {
        self.device.get().map(AsFd::as_fd)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None is handed over from now on.
    pub(super) fn end(&self) {
        self.lock().sender = None;
    }

    /// No more of them; those whose end nobody will tell.
    fn take_all(&self) -> HashMap<u64, UnderWay> {
        let mut state = self.lock();
        state.sender = None;
        state.asks_again = !state.under_way.is_empty();
        std::mem::take(&mut state.under_way)
    }

    fn end_asking_again(&self) {
        self.lock().asks_again = false;
        self.asked_again.notify_all();
    }

    /// As [`crate::Link::until_asked_again`].
    pub(super) fn until_asked_again(&self) -> bool {
        self.wait_while_asking(self.lock())
    }

    fn wait_while_asking(&self, mut state: MutexGuard<'_, State>) -> bool {
        let had_any = state.asks_again;
        while state.asks_again {
            state = self.asked_again.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        had_any
    }
}

impl Inner {
    /// As [`crate::Link::hand_over`].
    pub(super) fn hand_over(&self, HandOver { unique, request, end }: HandOver) {
        let mut state = self.handed.lock();
        let has_room = state.under_way.len() < HANDED_OVER_MAX;
        let (true, State { sender: Some(sender), under_way, .. }) = (has_room, &mut *state) else {
            drop(state);
            return end(Handed::NotTaken);
        };
        let turn @ (slot, number) = self.take_turn();
        let request = NodeRequest::Once { slot, number, request: Box::new(request) };
        let message = hayase_wire::message::HandedOver { unique, request };
        let body = hayase_wire::encode(&message);
        under_way.insert(unique, UnderWay { turn, request: message.request, end });
        let sent = body
            .map_err(|error| error.to_string())
            .and_then(|body| sender.tell(&body).map_err(|error| error.to_string()));
        if let Err(error) = sent {
            // The thread that hears of them finds the connection ended, and asks for all of them again.
            tracing::debug!(error, "a request was not handed over");
            self.close(sender);
        }
    }

    fn close(&self, sender: &BlockingChannel) {
        match sender.closer() {
            Ok(closer) => closer.close(),
            Err(error) => tracing::error!(%error, "a broken connection stays open"),
        }
    }

    /// Both halves of a connection by which the server can answer the kernel.
    pub(super) fn hand_over_channel(&self) -> Result<BlockingChannel, LinkError> {
        let (mut channel, welcome) = self.hello(ClientRole::HandOver)?;
        let NodeReply::Welcome { .. } = welcome else {
            return Err(LinkError::unexpected("Hello", &welcome));
        };
        channel.set_wait(Some(CALL_WAIT)).map_err(|e| self.lost(e))?;
        self.end_with_session(&channel)?;
        let (sender, receiver) = channel.halves().map_err(|e| self.lost(e))?;
        self.handed.lock().sender = Some(sender);
        Ok(receiver)
    }

    /// Body of the thread that hears of them, until the session ends.
    pub(super) fn hear_of_handed(&self, mut receiver: Option<BlockingChannel>) {
        while !self.stopped.load(Ordering::SeqCst) {
            if let Some(receiver) = receiver.take() {
                let ended = self.hear_until_end(receiver);
                tracing::debug!(error = %ended, "the server answers the kernel no more");
            }
            for (_, UnderWay { turn, request, end }) in self.handed.take_all() {
                let answer = self.ask(&request).map(|reply| reply.message);
                self.end_turn(turn);
                end(Handed::Answered(answer));
            }
            self.handed.end_asking_again();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(RECONNECT_PAUSE);
            receiver = self.hand_over_channel().ok();
        }
    }

    fn hear_until_end(&self, mut receiver: BlockingChannel) -> NodeError {
        loop {
            let body = match receiver.receive() {
                Ok((body, _)) => body,
                Err(error) => return error,
            };
            let Ok(HandedBack { told, answers }) = hayase_wire::decode(&body) else {
                return NodeError::Malformed { what: "it tells nothing of what was handed over" };
            };
            for (unique, ino) in told {
                self.end_handed(unique, Handed::Told(ino));
            }
            for (unique, reply) in answers {
                let answer = match reply {
                    NodeReply::Refused(refused) => Err(refused.into()),
                    reply => Ok(reply),
                };
                self.end_handed(unique, Handed::Answered(answer));
            }
        }
    }

    fn end_handed(&self, unique: u64, handed: Handed) {
        let Some(UnderWay { turn, end, .. }) = self.handed.lock().under_way.remove(&unique) else {
            return tracing::warn!(unique, "the server answered a request that was not made");
        };
        self.end_turn(turn);
        end(handed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_of_files_waits_while_removals_are_asked_again() {
        let handed = HandedOver::default();
        assert!(!handed.until_asked_again(), "nothing was under way");
        std::thread::scope(|scope| {
            let mut state = handed.lock();
            state.asks_again = true;
            // It needs the lock, which is free only while this thread waits.
            scope.spawn(|| handed.end_asking_again());
            assert!(handed.wait_while_asking(state), "and asks once more");
        });
        assert!(handed.take_all().is_empty() && !handed.until_asked_again());
    }
}
