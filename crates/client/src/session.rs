//! Connections of this process to its node's server.
//!
//! Each thread that calls uses a connection of its own, so an answer wakes exactly who waits for
//! it. Connections are made when they are needed and kept; each owns one slot of the process's
//! arena. Where many threads of a program call at once they share one more ([`multiplexed`]). A few
//! run the other way and carry the server's requests.
//!
//! A server that ended is waited for, because its supervisor starts it anew: calls are sent again.
//! Those that must happen once carry a name by which the servers know them again. Before a server
//! that was started anew serves this process it is told what the process holds.
//!
//! Invariants: a connection is in the pool or at one thread; one that failed is dropped, and with
//! it those in the pool, because they lead to the same server; a call is in one slot of its own.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hayase_layout::NodeId;
use hayase_wire::message::{
    Callback, ClientRole, Holding, NodeReply, NodeRequest, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION,
    Refused, SlotRange,
};
use hayase_wire::node::Closer;
use hayase_wire::{Arena, BlockingChannel, NodeError, Slot};

use crate::limits::{
    CALL_WAIT, CALLBACKS, CHANNELS_MAX, CONNECT_WAIT, RECONNECT_PAUSE, RESTART_PAUSE, RESTART_WAIT,
};
use crate::link::{Callbacks, HandOver, Link, LinkError, Reply};

mod handed;
mod memory;
mod multiplexed;

use self::handed::HandedOver;
use self::multiplexed::Multiplexed;

/// A way to the server of this node, by its socket.
pub struct Session {
    inner: Arc<Inner>,
    /// Of callbacks, of answers to many, and of what was handed over.
    threads: Mutex<Vec<JoinHandle<()>>>,
    node: NodeId,
    nodes: u16,
}

struct Inner {
    socket: PathBuf,
    /// The same random number on all connections of this process.
    process: u64,
    mount: bool,
    /// How long a server that ended is waited for.
    patience: Duration,
    arena: Arena,
    pool: Mutex<Pool>,
    returned: Condvar,
    stopped: AtomicBool,
    /// The incarnation of the server that knows what this process holds.
    met: Mutex<Option<u64>>,
    /// Who knows what this process holds.
    holder: OnceLock<Weak<dyn Callbacks>>,
    turns: Mutex<Turns>,
    /// Of the connections on which the server speaks first, to end them.
    closers: Mutex<Vec<Closer>>,
    handed: HandedOver,
    multiplexed: Multiplexed,
}

/// Slots of requests that happen once: who has one free, with the number of its last request.
#[derive(Default)]
struct Turns {
    free: Vec<(u32, u64)>,
    made: u32,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    /// Idle and in use.
    made: usize,
    /// Grows when connections failed: older ones are not taken back.
    generation: u64,
    /// Threads that wait for one to come back; with none, nobody is woken (a system call).
    waiting: usize,
}

struct Connection {
    channel: BlockingChannel,
    slot: Slot,
    generation: u64,
    /// Of the server.
    start_id: u64,
}

impl Session {
    /// Connects to the server that listens at `socket`. A `mount` is granted things and must
    /// answer recalls ([`Link::answer`]).
    ///
    /// # Errors
    /// When nobody listens, or the server speaks another protocol.
    pub fn connect(socket: &Path, mount: bool) -> Result<Self, LinkError> {
        Self::connect_patiently(socket, mount, RESTART_WAIT)
    }

    fn connect_patiently(
        socket: &Path,
        mount: bool,
        patience: Duration,
    ) -> Result<Self, LinkError> {
        let arena = Arena::create(CHANNELS_MAX as u32)
            .map_err(|error| lost(socket, std::io::Error::other(error)))?;
        let inner = Inner {
            socket: socket.to_owned(),
            process: RandomState::new().build_hasher().finish(),
            mount,
            patience,
            arena,
            pool: Mutex::default(),
            returned: Condvar::new(),
            met: Mutex::default(),
            holder: OnceLock::new(),
            turns: Mutex::default(),
            stopped: AtomicBool::new(false),
            closers: Mutex::default(),
            handed: HandedOver::default(),
            multiplexed: Multiplexed::default(),
        };
        let (channel, welcome) = inner.hello(ClientRole::Requests)?;
        let NodeReply::Welcome { node, nodes, start_id, .. } = welcome else {
            return Err(LinkError::unexpected("Hello", &welcome));
        };
        *inner.met() = Some(start_id);
        let slot = inner.arena.take();
        let mut pool = inner.lock();
        pool.idle.push(Connection { channel, slot, generation: 0, start_id });
        pool.made = 1;
        drop(pool);
        Ok(Self { inner: Arc::new(inner), threads: Mutex::default(), node, nodes })
    }

    /// The node of this process.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    fn ask(&self, request: &NodeRequest) -> Result<Reply, LinkError> {
        let asking = self.inner.multiplexed.begin();
        if asking.is_one_of_many()
            && !self.inner.mount
            && let Some(answer) = self.ask_with_others(request)
        {
            return answer;
        }
        self.inner.ask(request)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.inner.stopped.store(true, Ordering::SeqCst);
        let closers = self.inner.closers.lock().unwrap_or_else(PoisonError::into_inner);
        for closer in closers.iter() {
            closer.close();
        }
        drop(closers);
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        let me = std::thread::current().id();
        for thread in threads.drain(..).filter(|thread| thread.thread().id() != me) {
            if thread.join().is_err() {
                tracing::error!("a thread of the session panicked");
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hello(&self, role: ClientRole) -> Result<(BlockingChannel, NodeReply), LinkError> {
        let mut channel =
            BlockingChannel::connect(&self.socket, CONNECT_WAIT).map_err(|e| self.lost(e))?;
        channel.set_wait(Some(CALL_WAIT)).map_err(|e| self.lost(e))?;
        let hello = NodeRequest::Hello {
            version: PROTOCOL_VERSION,
            role,
            process: self.process,
            arena_slots: self.arena.slots(),
            mount: self.mount,
            returning: self.met().is_some(),
        };
        let descriptor = match role {
            ClientRole::Requests => Some(memory::for_server(&self.arena)),
            ClientRole::HandOver => self.handed.device(),
            ClientRole::Callback | ClientRole::Multiplexed => None,
        };
        let reply = self.exchange(&mut channel, &hello, descriptor)?;
        Ok((channel, reply.message))
    }

    fn exchange(
        &self,
        channel: &mut BlockingChannel,
        request: &NodeRequest,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, LinkError> {
        let body = hayase_wire::encode(request).map_err(|e| self.lost(e))?;
        let (body, descriptor): (&[u8], Option<OwnedFd>) =
            channel.call_ref(&body, descriptor).map_err(|e| self.lost(e))?;
        match hayase_wire::decode(body).map_err(|e| self.lost(e))? {
            NodeReply::Refused(refused) => Err(refused.into()),
            message => Ok(Reply { message, descriptor }),
        }
    }

    fn lost(&self, error: impl std::error::Error + Send + Sync + 'static) -> LinkError {
        lost(&self.socket, std::io::Error::other(error))
    }

    fn met(&self) -> MutexGuard<'_, Option<u64>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a server that was started anew what this process holds, on a connection to it.
    fn tell(&self, channel: &mut BlockingChannel, start_id: u64) -> Result<(), LinkError> {
        // Held meanwhile: one thread tells.
        let mut met = self.met();
        if *met == Some(start_id) {
            return Ok(());
        }
        let Some(holder) = self.holder.get().and_then(Weak::upgrade) else { return Ok(()) };
        let (opens, locks) = holder.held();
        tracing::info!(opens = opens.len(), locks = locks.len(), "the server was restarted");
        for holding in Holding::in_batches(&opens, &locks) {
            let request = NodeRequest::Reclaim(Box::new(holding));
            match self.exchange(channel, &request, None)?.message {
                NodeReply::Reclaimed { lost } => holder.not_given_back(&lost),
                other => return Err(LinkError::unexpected("Reclaim", &other)),
            }
        }
        *met = Some(start_id);
        Ok(())
    }

    /// Runs `work` with a connection of its own; again with another one when the server ended
    /// meanwhile, as long as patience lasts.
    fn with_connection<T>(
        &self,
        mut work: impl FnMut(&mut Connection) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        let mut until = None;
        loop {
            let result = self.with_connection_once(&mut work);
            if !matches!(result, Err(LinkError::Lost { .. })) {
                return result;
            }
            let now = Instant::now();
            let until = *until.get_or_insert(now + self.patience);
            if now >= until || self.stopped.load(Ordering::SeqCst) {
                return result;
            }
            std::thread::sleep(RESTART_PAUSE);
        }
    }

    /// Runs `work` with a connection of its own; waits while all are in use.
    fn with_connection_once<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        let mut connection = self.take()?;
        let result = work(&mut connection);
        let mut pool = self.lock();
        if matches!(result, Err(LinkError::Lost { .. })) {
            if connection.generation == pool.generation {
                pool.generation += 1;
                pool.made -= pool.idle.len();
                pool.idle.clear();
            }
            pool.made -= 1;
        } else if connection.generation == pool.generation {
            pool.idle.push(connection);
        } else {
            pool.made -= 1;
        }
        self.one_less(pool);
        result
    }

    fn take(&self) -> Result<Connection, LinkError> {
        let mut pool = self.lock();
        let generation = loop {
            if let Some(connection) = pool.idle.pop() {
                return Ok(connection);
            }
            if pool.made < CHANNELS_MAX {
                pool.made += 1;
                break pool.generation;
            }
            pool.waiting += 1;
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
            pool.waiting -= 1;
        };
        drop(pool);
        let made = self.hello(ClientRole::Requests);
        let made = made.and_then(|(mut channel, welcome)| {
            let NodeReply::Welcome { start_id, .. } = welcome else {
                return Err(LinkError::unexpected("Hello", &welcome));
            };
            // A mount tells from the thread that makes its kernel give back first.
            if !self.mount {
                self.tell(&mut channel, start_id)?;
            }
            // As many slots as connections, and each connection holds one.
            Ok(Connection { channel, slot: self.arena.take(), generation, start_id })
        });
        if made.is_err() {
            let mut pool = self.lock();
            pool.made -= 1;
            self.one_less(pool);
        }
        made
    }

    /// A connection is idle, or may be made.
    fn one_less(&self, pool: MutexGuard<'_, Pool>) {
        let is_awaited = pool.waiting > 0;
        drop(pool);
        if is_awaited {
            self.returned.notify_one();
        }
    }

    /// Body of a callback thread: answers until the session or the answerer ends.
    fn serve_callbacks(
        &self,
        mut channel: Option<BlockingChannel>,
        answerer: &Weak<dyn Callbacks>,
    ) {
        while !self.stopped.load(Ordering::SeqCst) {
            if let Some(channel) = channel.take() {
                let ended = self.answer_all(channel, answerer);
                let Some(answerer) = answerer.upgrade() else { return };
                if self.stopped.load(Ordering::SeqCst) {
                    return;
                }
                tracing::warn!(error = %ended, "the server's callback connection ended");
                answerer.lost();
            }
            std::thread::sleep(RECONNECT_PAUSE);
            channel = match self.callback_channel() {
                Ok((channel, start_id)) => match self.meet_again(start_id) {
                    Ok(()) => Some(channel),
                    Err(error) => {
                        tracing::warn!(%error, "failed to tell the server what this process holds");
                        None
                    }
                },
                Err(_) => None,
            };
        }
    }

    /// After the kernel has given back: tells the server, if it is another one than before.
    fn meet_again(&self, start_id: u64) -> Result<(), LinkError> {
        // On a connection that stays: with the last one the server takes the process for gone.
        let tell = |connection: &mut Connection| {
            if connection.start_id != start_id {
                return Err(self.lost(NodeError::Closed));
            }
            self.tell(&mut connection.channel, start_id)
        };
        // The first may lead to the server before, and takes others like it along; if the second does
        // not lead to this one, it has ended already.
        self.with_connection_once(tell).or_else(|_| self.with_connection_once(tell))
    }

    fn ask(&self, request: &NodeRequest) -> Result<Reply, LinkError> {
        self.with_connection(|connection| self.exchange(&mut connection.channel, request, None))
    }

    /// A slot for a request that happens once, and its number there.
    fn take_turn(&self) -> (u32, u64) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, last) = turns.free.pop().unwrap_or_else(|| {
            turns.made += 1;
            (turns.made - 1, 0)
        });
        (slot, last + 1)
    }

    fn end_turn(&self, turn: (u32, u64)) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).free.push(turn);
    }

    /// A connection on which the server asks, and which incarnation that is.
    fn callback_channel(&self) -> Result<(BlockingChannel, u64), LinkError> {
        let (mut channel, welcome) = self.hello(ClientRole::Callback)?;
        let NodeReply::Welcome { start_id, .. } = welcome else {
            return Err(LinkError::unexpected("Hello", &welcome));
        };
        channel.set_wait(None).map_err(|e| self.lost(e))?;
        self.end_with_session(&channel)?;
        Ok((channel, start_id))
    }

    /// Whoever waits on the channel returns when the session is dropped.
    fn end_with_session(&self, channel: &BlockingChannel) -> Result<(), LinkError> {
        let closer = channel.closer().map_err(|e| self.lost(e))?;
        let mut closers = self.closers.lock().unwrap_or_else(PoisonError::into_inner);
        if closers.len() >= 2 * (CALLBACKS + 1) {
            closers.drain(..=CALLBACKS); // Of connections that ended.
        }
        closers.push(closer);
        drop(closers);
        if self.stopped.load(Ordering::SeqCst) {
            return Err(self.lost(NodeError::Closed));
        }
        Ok(())
    }

    fn answer_all(
        &self,
        mut channel: BlockingChannel,
        answerer: &Weak<dyn Callbacks>,
    ) -> Box<dyn std::error::Error> {
        loop {
            let callback: Callback = match channel.receive() {
                Ok((body, _)) => match hayase_wire::decode(&body) {
                    Ok(callback) => callback,
                    Err(error) => return error.into(),
                },
                Err(error) => return error.into(),
            };
            let Some(answerer) = answerer.upgrade() else { return NodeError::Closed.into() };
            let reply = answerer.answer(callback);
            drop(answerer);
            let sent = hayase_wire::encode(&reply)
                .map_err(|error| Box::new(error) as Box<dyn std::error::Error>)
                .and_then(|body| channel.reply(&body).map_err(Into::into));
            if let Err(error) = sent {
                return error;
            }
        }
    }
}

fn lost(socket: &Path, source: std::io::Error) -> LinkError {
    LinkError::Lost { socket: socket.display().to_string(), source }
}

impl Link for Session {
    fn call(&self, request: &NodeRequest) -> Result<Reply, LinkError> {
        if !request.happens_once() {
            return self.ask(request);
        }
        let turn @ (slot, number) = self.inner.take_turn();
        let request = Box::new(request.clone());
        let result = self.ask(&NodeRequest::Once { slot, number, request });
        self.inner.end_turn(turn);
        result
    }

    fn call_with(
        &self,
        data: &[u8],
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
    ) -> Result<Reply, LinkError> {
        // Bytes that may be at the end of the file already are not sent twice.
        let mut is_append = false;
        let mut sent = false;
        self.inner.with_connection(|connection| {
            if is_append && sent {
                return Err(Refused::because(libc::EIO, "the server ended during an append").into());
            }
            connection.slot.as_mut()[..data.len()].copy_from_slice(data);
            let range = SlotRange { slot: connection.slot.index(), len: data.len() as u32 };
            let request = request(range);
            is_append = matches!(request, NodeRequest::Append { .. });
            sent = true;
            self.inner.exchange(&mut connection.channel, &request, None)
        })
    }

    fn call_into(
        &self,
        len: u32,
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LinkError> {
        self.inner.with_connection(|connection| {
            let range = SlotRange { slot: connection.slot.index(), len };
            let reply = self.inner.exchange(&mut connection.channel, &request(range), None)?;
            match reply.message {
                NodeReply::Count(count) if count <= len => {
                    sink(&connection.slot.as_ref()[..count as usize]);
                    Ok(())
                }
                other => Err(LinkError::unexpected("a read", &other)),
            }
        })
    }

    fn slot_bytes(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }

    fn answer_kernel_at(&self, device: OwnedFd) {
        self.inner.handed.answer_at(device);
        let channel = self.inner.hand_over_channel();
        if let Err(error) = &channel {
            tracing::debug!(%error, "the server can not answer the kernel yet");
        }
        let inner = Arc::clone(&self.inner);
        let builder = std::thread::Builder::new().name("hayase-handed".to_owned());
        match builder.spawn(move || inner.hear_of_handed(channel.ok())) {
            Ok(thread) => {
                self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            }
            Err(error) => {
                tracing::error!(%error, "start a thread for what is handed over");
                self.inner.handed.end();
            }
        }
    }

    fn hand_over(&self, request: HandOver) {
        self.inner.hand_over(request);
    }

    fn until_asked_again(&self) -> bool {
        self.inner.handed.until_asked_again()
    }

    fn held_by(&self, holder: Weak<dyn Callbacks>) {
        // The first stays: there is one volume over a session.
        let _ = self.inner.holder.set(holder);
    }

    fn answer(&self, callbacks: Weak<dyn Callbacks>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 0..CALLBACKS {
            // The first connections are made here: nothing is granted before recalls can come.
            let channel = match self.inner.callback_channel() {
                Ok((channel, _)) => Some(channel),
                Err(error) => {
                    tracing::warn!(%error, "no callback connection yet");
                    None
                }
            };
            let (inner, callbacks) = (Arc::clone(&self.inner), Weak::clone(&callbacks));
            let builder = std::thread::Builder::new().name(format!("hayase-recall-{number}"));
            match builder.spawn(move || inner.serve_callbacks(channel, &callbacks)) {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::error!(%error, "start a callback thread"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
