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
use crate::limits::{CALL_WAIT, MULTIPLEXED_FROM, RECONNECT_PAUSE};
use crate::link::{LinkError, Reply};

/// See the module.
#[derive(Default)]
pub(super) struct Multiplexed {
    /// Threads that wait for an answer, on any connection.
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

    /// The connection, made if it is not there and nobody else is making it.
    fn shared(&self) -> Option<Arc<Shared>> {
        let mut state = self.inner.multiplexed.lock();
        match &*state {
            State::Open(shared) => return Some(Arc::clone(shared)),
            State::Connects => return None,
            State::None(Some(not_before)) if Instant::now() < *not_before => return None,
            State::None(_) => *state = State::Connects,
        }
        drop(state);
        let connected = self.connect_shared();
        if let Err(error) = &connected {
            tracing::debug!(%error, "each thread has a connection of its own");
            *self.inner.multiplexed.lock() = State::None(Some(Instant::now() + RECONNECT_PAUSE));
        }
        connected.ok()
    }

    fn connect_shared(&self) -> Result<Arc<Shared>, LinkError> {
        let inner = &self.inner;
        // A server that was started anew is told first what this process holds.
        let told = inner.with_connection_once(|connection| Ok(connection.start_id))?;
        let (channel, welcome) = inner.hello(ClientRole::Multiplexed)?;
        match welcome {
            NodeReply::Welcome { start_id, .. } if start_id == told => {}
            NodeReply::Welcome { .. } => return Err(inner.lost(NodeError::Closed)),
            other => return Err(LinkError::unexpected("Hello", &other)),
        }
        inner.end_with_session(&channel)?;
        let closer = channel.closer().map_err(|e| inner.lost(e))?;
        let (sender, receiver) = channel.halves().map_err(|e| inner.lost(e))?;
        let (sender, callers) = (Mutex::new(sender), Mutex::default());
        let shared = Arc::new(Shared { sender, closer, callers });
        *inner.multiplexed.lock() = State::Open(Arc::clone(&shared));
        let (inner, hears) = (Arc::clone(inner), Arc::clone(&shared));
        let builder = std::thread::Builder::new().name("hayase-answers".to_owned());
        let thread = builder.spawn(move || inner.hear_answers(&hears, receiver));
        let thread = thread.map_err(|error| {
            shared.end();
            self.inner.lost(error)
        })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(shared)
    }
}

impl Inner {
    /// Body of the thread that hears the answers, until the connection ends.
    fn hear_answers(&self, shared: &Shared, mut receiver: BlockingChannel) {
        let ended = loop {
            let (body, descriptor) = match receiver.receive_ref() {
                Ok(received) => received,
                Err(error) => break error,
            };
            let Ok(Numbered { number, message }) = hayase_wire::decode(body) else {
                break NodeError::Malformed { what: "it is no answer to one of many" };
            };
            shared.answer(number, message, descriptor);
        };
        tracing::debug!(error = %ended, "the connection that threads share ended");
        *self.multiplexed.lock() = State::None(Some(Instant::now() + RECONNECT_PAUSE));
        shared.end();
    }
}

impl Shared {
    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer; `None` when the request was not sent.
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
            self.closer.close();
        }
        let answer = caller.wait(wait);
        if answer.is_none() {
            self.callers().waiting.remove(&number);
        }
        Some(answer.unwrap_or(Err(NodeError::Timeout { after: wait })))
    }

    fn answer(&self, number: u64, message: NodeReply, descriptor: Option<OwnedFd>) {
        match self.callers().waiting.remove(&number) {
            Some(caller) => caller.hear(Ok(Reply { message, descriptor })),
            None => tracing::debug!(number, "an answer for which nobody waits"),
        }
    }

    /// Nobody will be answered any more.
    fn end(&self) {
        self.closer.close();
        let mut callers = self.callers();
        callers.is_over = true;
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
