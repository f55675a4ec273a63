//! Connections that wait for their next request, and the exchange that uses one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::answer::{Framing, Head, read_body, read_head};
use super::connection::Connection;
use super::{Manner, Target};
use crate::s3::limits::{
    ATTEMPT_MAX, CONNECTIONS_MAX, DOCUMENT_BYTES_MAX, FRESH_MAX, IDLE_MAX, RATE_MIN,
};

/// A body up to this size travels in one segment with its head.
const JOINED_MAX: usize = 64 * 1024;

/// Bytes that are sent between two looks at the clock, and counted.
const SENT_AT_ONCE: usize = 256 * 1024;

/// Connections to the servers of one tier.
pub(in crate::s3) struct Pool {
    tls: Option<Arc<ClientConfig>>,
    manner: Manner,
    state: Mutex<State>,
    freed: Condvar,
    /// Bytes of bodies, in both directions.
    carried: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The one that was used last is at the end, and is used next.
    idle: Vec<(Target, Connection, Instant)>,
    /// In use.
    active: usize,
    /// Who waits for one.
    waiting: usize,
}

/// A right to have one connection.
struct Slot<'a>(&'a Pool);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.active -= 1;
        if state.waiting > 0 {
            self.0.freed.notify_one();
        }
    }
}

impl Pool {
    pub(in crate::s3) fn new(tls: Option<Arc<ClientConfig>>, manner: Manner) -> Self {
        Self {
            tls,
            manner,
            state: Mutex::default(),
            freed: Condvar::new(),
            carried: AtomicU64::new(0),
        }
    }

    /// Bytes of bodies that were sent or came, up to now.
    pub(in crate::s3) fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counters and whole connections only: a panic leaves none half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self) -> Slot<'_> {
        let mut state = self.state();
        while state.active >= CONNECTIONS_MAX {
            state.waiting += 1;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.active += 1;
        Slot(self)
    }

    /// A connection that waits and is still good.
    fn idle(&self, target: &Target) -> Option<Connection> {
        loop {
            let mut state = self.state();
            state.idle.retain(|(to, _, since)| to == target && since.elapsed() < IDLE_MAX);
            let (_, connection, since) = state.idle.pop()?;
            drop(state);
            if since.elapsed() < FRESH_MAX || connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Sends a request and reads the head of its answer. `patience` bounds the silence before it.
    ///
    /// A kept connection that the server closed in this very moment costs a second try here, on a new
    /// one. When the server answers before it took the whole body, that answer counts.
    pub(in crate::s3) fn exchange(
        &self,
        target: &Target,
        head: &[u8],
        body: &[&[u8]],
        patience: Duration,
    ) -> io::Result<Exchange<'_>> {
        let slot = self.slot();
        let length: usize = body.iter().map(|piece| piece.len()).sum();
        let joined = [&[head][..], body].concat();
        let joined = if length <= JOINED_MAX { vec![joined.concat()] } else { vec![] };
        let pieces: Vec<&[u8]> = match joined.first() {
            Some(all) => vec![all],
            None => [&[head][..], body].concat(),
        };
        let bodiless = head.starts_with(b"HEAD ");
        let whole = ATTEMPT_MAX.max(patience) + Duration::from_secs(length as u64 / RATE_MIN);
        if let Some(connection) = self.idle(target) {
            let answer = self.converse(connection, &pieces, bodiless, (patience, whole));
            match answer {
                Err(error) if is_stale(&error) => {}
                answer => return begun(answer?, slot, target, patience),
            }
        }
        let connection = Connection::open(target, self.tls.as_ref(), self.manner)?;
        let answer = self.converse(connection, &pieces, bodiless, (patience, whole))?;
        begun(answer, slot, target, patience)
    }

    /// Sends, and reads until the head of the answer is there.
    fn converse(
        &self,
        mut connection: Connection,
        pieces: &[&[u8]],
        bodiless: bool,
        (patience, whole): (Duration, Duration),
    ) -> io::Result<(Connection, Head, Framing)> {
        connection.allow(patience, whole)?;
        let mut slices = pieces.iter().flat_map(|piece| piece.chunks(SENT_AT_ONCE));
        let sent = slices.try_for_each(|slice| {
            connection.send(&[slice])?;
            self.carried.fetch_add(slice.len() as u64, Ordering::Relaxed);
            Ok(())
        });
        match (sent, read_head(&mut connection, bodiless)) {
            (Ok(()), Ok((head, framing))) => Ok((connection, head, framing)),
            (Err(_), Ok((mut head, framing))) if head.status >= 300 => {
                // The rest of the body never went: nothing more can be said on this connection.
                head.keep = false;
                Ok((connection, head, framing))
            }
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
        }
    }
}

/// The head is there; the body has as much time as it is long.
fn begun<'a>(
    (mut connection, head, framing): (Connection, Head, Framing),
    slot: Slot<'a>,
    target: &Target,
    patience: Duration,
) -> io::Result<Exchange<'a>> {
    let length = if let Framing::Length(length) = framing { length } else { 0 };
    let whole = ATTEMPT_MAX.max(patience) + Duration::from_secs(length / RATE_MIN);
    connection.allow(patience, whole)?;
    let connection = Some(connection);
    Ok(Exchange { connection, head, framing, target: target.clone(), slot })
}

/// What the end of an idle connection looks like to the one who writes on it.
fn is_stale(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// An answer whose body is being read. The connection goes back when it was read to its end.
pub(in crate::s3) struct Exchange<'a> {
    connection: Option<Connection>,
    head: Head,
    framing: Framing,
    target: Target,
    slot: Slot<'a>,
}

impl Exchange<'_> {
    pub(in crate::s3) fn head(&self) -> &Head {
        &self.head
    }

    /// Length of the body where the head told it.
    pub(in crate::s3) fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Done => Some(0),
            Framing::Chunk { .. } | Framing::Close => None,
        }
    }

    /// Fills `buffer`; fewer bytes only at the end of the body.
    pub(in crate::s3) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(connection) = self.connection.as_mut() else { break };
            let count = read_body(connection, &mut self.framing, &mut buffer[filled..])?;
            if count == 0 {
                break;
            }
            filled += count;
            self.slot.0.carried.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.give_back();
        Ok(filled)
    }

    /// Whoever takes the bytes was at them for so long: the server did not use that time.
    pub(in crate::s3) fn prolong(&mut self, time: Duration) {
        if let Some(connection) = self.connection.as_mut() {
            connection.prolong(time);
        }
    }

    /// The whole body, which is no object.
    pub(in crate::s3) fn document(&mut self) -> io::Result<Vec<u8>> {
        let mut document = Vec::new();
        let mut piece = vec![0; 16 * 1024];
        loop {
            let count = self.fill(&mut piece)?;
            document.extend_from_slice(&piece[..count]);
            if count < piece.len() {
                return Ok(document);
            }
            if document.len() > DOCUMENT_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an end"));
            }
        }
    }

    fn give_back(&mut self) {
        if self.framing != Framing::Done {
            return;
        }
        if let Some(connection) = self.connection.take().filter(|_| self.head.keep) {
            let mut state = self.slot.0.state();
            if state.idle.len() < CONNECTIONS_MAX {
                state.idle.push((self.target.clone(), connection, Instant::now()));
            }
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        write!(f, "Pool({} active, {} idle)", state.active, state.idle.len())
    }
}
