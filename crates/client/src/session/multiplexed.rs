//! The connection that threads of a program share when many of them ask at once.
//!
//! Who asks alone, or beside few, has a connection of its own, and is woken by the server. Where many
//! wait, answers come together on this one: the server wakes one thread of ours for all of them, and that
//! wakes who waits. A server whose processor is busy has time for more calls then.
//! Not here: mounts (what their threads ask is answered one by one), bytes in slots.
//!
//! Invariant: a caller is in `waiting` from before its request is sent until it is answered or gives up.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_wire::limits::MULTIPLEXED_MAX;
use hayase_wire::message::{ClientRole, NodeReply, NodeRequest, Numbered};
use hayase_wire::{BlockingChannel, Closer, NodeError};

use super::{Inner, Session};
use crate::limits::{CALL_WAIT, MULTIPLEXED_FROM, SHARE_PAUSE};
use crate::link::{LinkError, Reply};

/// See the module.
#[derive(Default)]
pub(super) struct Multiplexed {
    /// Threads that wait for an answer, on any connection, but for those that move bytes in slots.
    asking: AtomicUsize,
    state: Mutex<State>,
}

pub(super) enum State {
    /// Not tried before this moment.
    None(Option<Instant>),
    Connects,
    Open(Arc<Shared>),
}

impl Default for State {
    fn default() -> Self {
        Self::None(None)
    }
}

/// One connection.
pub(super) struct Shared {
    sender: Mutex<BlockingChannel>,
    closer: Closer,
    callers: Mutex<Callers>,
}

#[derive(Default)]
struct Callers {
    last: u64,
    waiting: HashMap<u64, Arc<Caller>>,
    is_over: bool,
}

#[derive(Default)]
struct Caller {
    answer: Mutex<Option<Result<Reply, NodeError>>>,
    is_answered: Condvar,
}

/// One thread that asks, until it is dropped.
pub(super) struct Asking<'a> {
    asking: &'a AtomicUsize,
    others: usize,
}

impl Asking<'_> {
    pub(super) fn is_one_of_many(&self) -> bool {
        self.others >= MULTIPLEXED_FROM
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Multiplexed {
    pub(super) fn begin(&self) -> Asking<'_> {
        Asking { asking: &self.asking, others: self.asking.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is none, for a while.
    fn end(&self) {
        *self.lock() = State::None(Some(Instant::now() + SHARE_PAUSE));
    }
}

impl Session {
    /// Asks on the connection that threads share; `None` when there is none, or it ended meanwhile, or
    /// too many use it.
    pub(super) fn ask_with_others(
        &self,
        request: &NodeRequest,
    ) -> Option<Result<Reply, LinkError>> {
        let answer = self.shared()?.ask(request, CALL_WAIT)?;
        match answer {
            Ok(Reply { message: NodeReply::Refused(refused), .. }) => Some(Err(refused.into())),
            Ok(reply) => Some(Ok(reply)),
            Err(error) => {
                tracing::debug!(%error, "asked again on another connection");
                None
            }
        }
    }

    /// The connection, if it is there. Else a thread makes it, and nobody waits for it.
    fn shared(&self) -> Option<Arc<Shared>> {
        let mut state = self.inner.multiplexed.lock();
        match &*state {
            State::Open(shared) => return Some(Arc::clone(shared)),
            State::Connects => return None,
            State::None(Some(not_before)) if Instant::now() < *not_before => return None,
            State::None(_) => *state = State::Connects,
        }
        drop(state);
        let inner = Arc::clone(&self.inner);
        let builder = std::thread::Builder::new().name("hayase-answers".to_owned());
        match builder.spawn(move || inner.share()) {
            Ok(thread) => {
                let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => {
                tracing::debug!(%error, "each thread keeps to a connection of its own");
                self.inner.multiplexed.end();
            }
        }
        None
    }
}

impl Inner {
    /// Body of the thread that makes the connection and hears the answers, until it ends and no other
    /// can be had.
    fn share(&self) {
        let mut connected = self.connect_shared();
        while let Ok((shared, receiver)) = connected {
            *self.multiplexed.lock() = State::Open(Arc::clone(&shared));
            let ended = self.hear_answers(&shared, receiver);
            tracing::debug!(error = %ended, "the connection that threads share ended");
            *self.multiplexed.lock() = State::Connects;
            shared.close();
            if self.stopped.load(Ordering::SeqCst) {
                shared.end();
                return;
            }
            // A server that lives welcomes the next when it has done all that came on this one. Who asks
            // again before could be overtaken by their own first request.
            let next = self.connect_shared();
            shared.end();
            // Where there was no room for the descriptors of answers, there may be none a moment later.
            let would_end_again = matches!(ended, NodeError::Io { .. });
            if let Ok((next, _)) = &next
                && would_end_again
            {
                next.close();
                break;
            }
            connected = next;
        }
        self.multiplexed.end();
    }

    fn connect_shared(&self) -> Result<(Arc<Shared>, BlockingChannel), LinkError> {
        // A server that was started anew is told first what this process holds.
        let told = self.with_connection_once(|connection| Ok(connection.start_id))?;
        let (channel, welcome) = self.hello(ClientRole::Multiplexed)?;
        match welcome {
            NodeReply::Welcome { start_id, .. } if start_id == told => {}
            NodeReply::Welcome { .. } => return Err(self.lost(NodeError::Closed)),
            other => return Err(LinkError::unexpected("Hello", &other)),
        }
        self.end_with_session(&channel)?;
        let closer = channel.closer().map_err(|e| self.lost(e))?;
        let (sender, receiver) = channel.halves().map_err(|e| self.lost(e))?;
        let (sender, callers) = (Mutex::new(sender), Mutex::default());
        Ok((Arc::new(Shared { sender, closer, callers }), receiver))
    }

    /// Until the connection ends.
    fn hear_answers(&self, shared: &Shared, mut receiver: BlockingChannel) -> NodeError {
        loop {
            let (body, descriptor) = match receiver.receive_ref() {
                Ok(received) => received,
                Err(error) => return error,
            };
            let Ok(Numbered { number, message }) = hayase_wire::decode(body) else {
                return NodeError::Malformed { what: "it is no answer to one of many" };
            };
            shared.answer(number, message, descriptor);
        }
    }
}

impl Shared {
    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer; `None` when there was no place for the request. Who waits in vain keeps its
    /// place: the server owes the answer still.
    fn ask(&self, request: &NodeRequest, wait: Duration) -> Option<Result<Reply, NodeError>> {
        let caller = Arc::new(Caller::default());
        let number = self.callers().add(&caller)?;
        let Ok(body) = hayase_wire::encode(&Numbered { number, message: request }) else {
            self.callers().waiting.remove(&number);
            return None;
        };
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sender.tell(&body);
        drop(sender);
        if let Err(error) = sent {
            tracing::debug!(%error, "a request was not sent");
            // Who hears the answers finds it ended, and tells all.
            self.close();
        }
        Some(caller.wait(wait).unwrap_or(Err(NodeError::Timeout { after: wait })))
    }

    fn answer(&self, number: u64, message: NodeReply, descriptor: Option<OwnedFd>) {
        match self.callers().waiting.remove(&number) {
            Some(caller) => caller.hear(Ok(Reply { message, descriptor })),
            None => tracing::debug!(number, "an answer for which nobody waits"),
        }
    }

    fn close(&self) {
        self.callers().is_over = true;
        self.closer.close();
    }

    /// Nobody will be answered any more.
    fn end(&self) {
        let mut callers = self.callers();
        let waiting = std::mem::take(&mut callers.waiting);
        drop(callers);
        waiting.into_values().for_each(|caller| caller.hear(Err(NodeError::Closed)));
    }
}

impl Callers {
    /// Its number, if there is room for it.
    fn add(&mut self, caller: &Arc<Caller>) -> Option<u64> {
        if self.is_over || self.waiting.len() >= MULTIPLEXED_MAX {
            return None;
        }
        self.last += 1;
        self.waiting.insert(self.last, Arc::clone(caller));
        Some(self.last)
    }
}

impl Caller {
    fn hear(&self, answer: Result<Reply, NodeError>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.is_answered.notify_one();
    }

    fn wait(&self, wait: Duration) -> Option<Result<Reply, NodeError>> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.is_answered.wait_timeout_while(answer, wait, |answer| answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}
