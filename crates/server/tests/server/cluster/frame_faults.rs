//! A network on which one frame of all meets a fault: its connection breaks, instead of the frame or behind it.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use hayase_wire::header::HEADER_BYTES;
use hayase_wire::transport::{
    Address, Connection, FrameSender, Listener, LocalFuture, Transport, TransportError,
};

/// Shared by all servers of a job.
#[derive(Debug)]
pub(crate) struct FrameFaults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Frames until the fault, which is behind it or not; none is to come otherwise.
    armed: Option<(u64, bool)>,
    hit: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    IsLost,
    IsLast,
}

impl FrameFaults {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// The connection of the `at`th frame from now on (from 1) breaks.
    pub(crate) fn arm(&self, at: u64, behind: bool) {
        *self.0.lock().expect("no holder panics") = State { armed: Some((at, behind)), hit: false };
    }

    /// No fault any more; whether there was one.
    pub(crate) fn disarm(&self) -> bool {
        std::mem::take(&mut *self.0.lock().expect("no holder panics")).hit
    }

    fn fate(&self) -> Fate {
        let mut state = self.0.lock().expect("no holder panics");
        match state.armed {
            None => Fate::Passes,
            Some((1, behind)) => {
                *state = State { armed: None, hit: true };
                if behind { Fate::IsLast } else { Fate::IsLost }
            }
            Some((left, behind)) => {
                state.armed = Some((left - 1, behind));
                Fate::Passes
            }
        }
    }

    /// `inner` as seen through the faults.
    pub(crate) fn over(self: &Arc<Self>, inner: Rc<dyn Transport>) -> Rc<dyn Transport> {
        Rc::new(Faulty { inner, faults: Arc::clone(self) })
    }

    fn shaped(self: &Arc<Self>, connection: Connection) -> Connection {
        let (faults, inner) = (Arc::clone(self), Some(connection.sender));
        Connection { sender: Box::new(Shaped { faults, inner, greeted: false }), ..connection }
    }
}

struct Faulty {
    inner: Rc<dyn Transport>,
    faults: Arc<FrameFaults>,
}

impl Transport for Faulty {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let inner = self.inner.listen(at).await?;
            let faults = Arc::clone(&self.faults);
            Ok(Box::new(FaultyListener { inner, faults }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move { Ok(self.faults.shaped(self.inner.connect(to).await?)) })
    }
}

struct FaultyListener {
    inner: Box<dyn Listener>,
    faults: Arc<FrameFaults>,
}

impl Listener for FaultyListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move { Ok(self.faults.shaped(self.inner.accept().await?)) })
    }

    fn address(&self) -> Address {
        self.inner.address()
    }
}

struct Shaped {
    faults: Arc<FrameFaults>,
    /// `None` once it is broken: the peer sees the end.
    inner: Option<Box<dyn FrameSender>>,
    /// Each side's first frame belongs to the handshake.
    greeted: bool,
}

impl FrameSender for Shaped {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let is_greeting = !std::mem::replace(&mut self.greeted, true);
            let fate = if is_greeting { Fate::Passes } else { self.faults.fate() };
            if fate != Fate::IsLost
                && let Some(inner) = &mut self.inner
            {
                inner.send(header, body, payload).await?;
            }
            if fate != Fate::Passes {
                self.inner = None;
            }
            match self.inner {
                Some(_) => Ok(()),
                None => {
                    let source = std::io::ErrorKind::BrokenPipe.into();
                    Err(TransportError::Io { action: "send a frame", source })
                }
            }
        })
    }
}
