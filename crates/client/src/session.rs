//! Connections of this process to its node's server.
//!
//! Each thread that calls uses a connection of its own, so an answer wakes exactly who waits for
//! it. Connections are made when they are needed and kept; each owns one slot of the process's
//! arena. A few more run the other way and carry the server's requests.
//!
//! Invariants: a connection is in the pool or at one thread; one that failed is dropped, and with
//! it those in the pool, because they lead to the same server.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use hayase_layout::NodeId;
use hayase_wire::message::{
    Callback, ClientRole, NodeReply, NodeRequest, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION, SlotRange,
};
use hayase_wire::node::Closer;
use hayase_wire::{Arena, BlockingChannel, NodeError, Slot};

use crate::limits::{CALL_WAIT, CALLBACKS, CHANNELS_MAX, CONNECT_WAIT, RECONNECT_PAUSE};
use crate::link::{Callbacks, Link, LinkError, Reply};

/// A way to the server of this node, by its socket.
pub struct Session {
    inner: Arc<Inner>,
    callbacks: Mutex<Vec<JoinHandle<()>>>,
    node: NodeId,
    nodes: u16,
}

struct Inner {
    socket: PathBuf,
    /// The same random number on all connections of this process.
    process: u64,
    mount: bool,
    arena: Arena,
    pool: Mutex<Pool>,
    returned: Condvar,
    stopped: AtomicBool,
    /// Of the callback connections, to end them.
    closers: Mutex<Vec<Closer>>,
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
}

impl Session {
    /// Connects to the server that listens at `socket`. A `mount` is granted things and must
    /// answer recalls ([`Link::answer`]).
    ///
    /// # Errors
    /// When nobody listens, or the server speaks another protocol.
    pub fn connect(socket: &Path, mount: bool) -> Result<Self, LinkError> {
        let arena = Arena::create(CHANNELS_MAX as u32)
            .map_err(|error| lost(socket, std::io::Error::other(error)))?;
        let inner = Inner {
            socket: socket.to_owned(),
            process: RandomState::new().build_hasher().finish(),
            mount,
            arena,
            pool: Mutex::default(),
            returned: Condvar::new(),
            stopped: AtomicBool::new(false),
            closers: Mutex::default(),
        };
        let (channel, welcome) = inner.hello(ClientRole::Requests)?;
        let NodeReply::Welcome { node, nodes, .. } = welcome else {
            return Err(LinkError::unexpected("Hello", &welcome));
        };
        let slot = inner.arena.take();
        let mut pool = inner.lock();
        pool.idle.push(Connection { channel, slot, generation: 0 });
        pool.made = 1;
        drop(pool);
        Ok(Self { inner: Arc::new(inner), callbacks: Mutex::default(), node, nodes })
    }

    /// The node of this process.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> u16 {
        self.nodes
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
        let threads = self.callbacks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let me = std::thread::current().id();
        for thread in threads.drain(..).filter(|thread| thread.thread().id() != me) {
            if thread.join().is_err() {
                tracing::error!("a callback thread panicked");
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
        };
        let arena = (role == ClientRole::Requests).then(|| self.arena.descriptor());
        let reply = self.exchange(&mut channel, &hello, arena)?;
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

    /// Runs `work` with a connection of its own; waits while all are in use.
    fn with_connection<T>(
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
        let made = made.map(|(channel, _)| {
            // As many slots as connections, and each connection holds one.
            Connection { channel, slot: self.arena.take(), generation }
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
            channel = self.callback_channel().ok();
        }
    }

    fn callback_channel(&self) -> Result<BlockingChannel, LinkError> {
        let (mut channel, _) = self.hello(ClientRole::Callback)?;
        channel.set_wait(None).map_err(|e| self.lost(e))?;
        let closer = channel.closer().map_err(|e| self.lost(e))?;
        let mut closers = self.closers.lock().unwrap_or_else(PoisonError::into_inner);
        if closers.len() >= 2 * CALLBACKS {
            closers.drain(..CALLBACKS); // Of connections that ended.
        }
        closers.push(closer);
        drop(closers);
        if self.stopped.load(Ordering::SeqCst) {
            return Err(self.lost(NodeError::Closed));
        }
        Ok(channel)
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
        self.inner.with_connection(|connection| {
            self.inner.exchange(&mut connection.channel, request, None)
        })
    }

    fn call_with(
        &self,
        data: &[u8],
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
    ) -> Result<Reply, LinkError> {
        self.inner.with_connection(|connection| {
            connection.slot.as_mut()[..data.len()].copy_from_slice(data);
            let range = SlotRange { slot: connection.slot.index(), len: data.len() as u32 };
            self.inner.exchange(&mut connection.channel, &request(range), None)
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

    fn answer(&self, callbacks: Weak<dyn Callbacks>) {
        let mut threads = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 0..CALLBACKS {
            // The first connections are made here: nothing is granted before recalls can come.
            let channel = match self.inner.callback_channel() {
                Ok(channel) => Some(channel),
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
