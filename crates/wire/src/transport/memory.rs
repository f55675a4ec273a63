//! Frames inside one process, with faults to order.
//!
//! For tests and simulations. A [`Tap`] sees every frame and may change, drop, repeat, hold back
//! or cut; without one, frames arrive as they were sent. Nothing here needs a clock or a socket.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use tokio::sync::mpsc;

use super::{
    Address, Connection, FrameReceiver, FrameSender, Listener, LocalFuture, Transport,
    TransportError,
};
use crate::header::HEADER_BYTES;

/// Frames that one direction holds before a sender waits.
const FRAMES_MAX: usize = 16;
/// Connections that a listener holds before connecting fails.
const CONNECTIONS_MAX: usize = 64;

/// A frame on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFrame {
    /// Its 64 bytes.
    pub header: [u8; HEADER_BYTES],
    /// Its message.
    pub body: Vec<u8>,
    /// Its bulk bytes.
    pub payload: Vec<u8>,
}

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the side that connected.
    Out,
    /// Back to it.
    Back,
}

/// What a tap lets through in place of a frame; `None` cuts the connection.
pub type Tap = dyn FnMut(Direction, MemoryFrame) -> Option<Vec<MemoryFrame>>;

/// A network of names. Clones are the same network.
#[derive(Clone, Default)]
pub struct MemoryTransport {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    listeners: RefCell<BTreeMap<String, mpsc::Sender<Connection>>>,
    tap: RefCell<Option<Box<Tap>>>,
}

impl MemoryTransport {
    /// An empty network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sees every frame from now on.
    pub fn set_tap(
        &self,
        tap: impl FnMut(Direction, MemoryFrame) -> Option<Vec<MemoryFrame>> + 'static,
    ) {
        *self.shared.tap.borrow_mut() = Some(Box::new(tap));
    }

    /// Lets frames through again.
    pub fn clear_tap(&self) {
        *self.shared.tap.borrow_mut() = None;
    }

    /// Two ends of one connection.
    pub fn pair(&self) -> (Connection, Connection) {
        let (out, out_end) = mpsc::channel(FRAMES_MAX);
        let (back, back_end) = mpsc::channel(FRAMES_MAX);
        let end = |direction, frames, received, peer: &str| Connection {
            sender: Box::new(MemorySender {
                shared: self.shared.clone(),
                direction,
                frames: Some(frames),
            }),
            receiver: Box::new(MemoryReceiver {
                frames: received,
                body: None,
                payload: Vec::new(),
                taken: 0,
            }),
            peer: format!("memory:{peer}"),
            upgrade: None,
        };
        (
            end(Direction::Out, out, back_end, "acceptor"),
            end(Direction::Back, back, out_end, "connector"),
        )
    }
}

impl Transport for MemoryTransport {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let Address::Memory(name) = at else {
                return Err(TransportError::Foreign { at: at.clone() });
            };
            let mut listeners = self.shared.listeners.borrow_mut();
            if listeners.get(name).is_some_and(|sender| !sender.is_closed()) {
                return Err(TransportError::InUse { at: at.clone() });
            }
            let (sender, receiver) = mpsc::channel(CONNECTIONS_MAX);
            listeners.insert(name.clone(), sender);
            Ok(Box::new(MemoryListener { receiver, at: at.clone() }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move {
            let Address::Memory(name) = to else {
                return Err(TransportError::Foreign { at: to.clone() });
            };
            let refused = || TransportError::Connect {
                to: to.clone(),
                source: io::ErrorKind::ConnectionRefused.into(),
            };
            let listeners = self.shared.listeners.borrow();
            let listener = listeners.get(name).ok_or_else(refused)?;
            let (here, there) = self.pair();
            listener.try_send(there).map_err(|_| refused())?;
            Ok(here)
        })
    }
}

struct MemoryListener {
    receiver: mpsc::Receiver<Connection>,
    at: Address,
}

impl Listener for MemoryListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move {
            self.receiver.recv().await.ok_or_else(|| TransportError::Accept {
                source: io::ErrorKind::NotConnected.into(),
            })
        })
    }

    fn address(&self) -> Address {
        self.at.clone()
    }
}

struct MemorySender {
    shared: Rc<Shared>,
    direction: Direction,
    /// `None` after a cut.
    frames: Option<mpsc::Sender<MemoryFrame>>,
}

impl FrameSender for MemorySender {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let broken = || TransportError::Io {
                action: "send a frame",
                source: io::ErrorKind::BrokenPipe.into(),
            };
            let frame =
                MemoryFrame { header: *header, body: body.to_vec(), payload: payload.to_vec() };
            let let_through = match self.shared.tap.borrow_mut().as_mut() {
                Some(tap) => tap(self.direction, frame),
                None => Some(vec![frame]),
            };
            let Some(let_through) = let_through else {
                self.frames = None;
                return Err(broken());
            };
            for frame in let_through {
                let frames = self.frames.as_ref().ok_or_else(broken)?;
                frames.send(frame).await.map_err(|_| broken())?;
            }
            Ok(())
        })
    }
}

struct MemoryReceiver {
    frames: mpsc::Receiver<MemoryFrame>,
    /// Of the frame whose header was given out.
    body: Option<Vec<u8>>,
    payload: Vec<u8>,
    /// Of the payload.
    taken: usize,
}

impl FrameReceiver for MemoryReceiver {
    fn header(&mut self) -> LocalFuture<'_, Result<Option<[u8; HEADER_BYTES]>, TransportError>> {
        Box::pin(async move {
            let Some(frame) = self.frames.recv().await else {
                return Ok(None);
            };
            self.body = Some(frame.body);
            (self.payload, self.taken) = (frame.payload, 0);
            Ok(Some(frame.header))
        })
    }

    fn body<'a>(&'a mut self, into: &'a mut [u8]) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            match self.body.take() {
                Some(body) if body.len() == into.len() => {
                    into.copy_from_slice(&body);
                    Ok(())
                }
                _ => Err(TransportError::Truncated { action: "receive a body" }),
            }
        })
    }

    fn payload<'a>(
        &'a mut self,
        into: &'a mut [u8],
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        Box::pin(async move {
            let left = &self.payload[self.taken..];
            if left.is_empty() {
                return Err(TransportError::Truncated { action: "receive a payload" });
            }
            let count = into.len().min(left.len());
            into[..count].copy_from_slice(&left[..count]);
            self.taken += count;
            Ok(count)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::transport::conformance;

    #[tokio::test]
    async fn it_conforms() {
        let address = |name: &str| Address::Memory(name.into());
        let transport = MemoryTransport::new();
        let (here, nowhere) = (address("here"), address("nowhere"));
        let suite = conformance::run(&transport, &here, &nowhere);
        LocalSet::new().run_until(suite).await;
    }

    #[tokio::test]
    async fn a_tap_changes_what_passes() {
        let transport = MemoryTransport::new();
        let (mut near, mut far) = transport.pair();
        transport.set_tap(|direction, frame| match (direction, frame.body[0]) {
            (Direction::Out, b'd') => Some(vec![]),
            (Direction::Out, b't') => Some(vec![frame.clone(), frame]),
            (Direction::Back, b'c') => None,
            _ => Some(vec![frame]),
        });
        for body in [b"d", b"t", b"x"] {
            near.sender.send(&[0; HEADER_BYTES], body, &[]).await.unwrap();
        }
        for expected in [b"t", b"t", b"x"] {
            far.receiver.header().await.unwrap().unwrap();
            let mut body = [0];
            far.receiver.body(&mut body).await.unwrap();
            assert_eq!(&body, expected);
        }
        assert!(far.sender.send(&[0; HEADER_BYTES], b"c", &[]).await.is_err());
        assert!(near.receiver.header().await.unwrap().is_none(), "cut");
    }
}
