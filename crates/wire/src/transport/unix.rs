//! Unix sockets as a transport of frames: servers on one node, and tests.
//!
//! Not here: the node's socket that processes talk to, with its descriptors ([`crate::node`]).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::stream::{Reader, StreamReceiver, StreamSender, Writer};
use super::{Address, Connection, Listener, LocalFuture, Transport, TransportError};
use crate::times::CONNECT_WAIT;

/// Listens at and connects to paths.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixTransport;

fn connection(stream: UnixStream, path: &Path) -> Connection {
    let (reader, writer) = stream.into_split();
    Connection {
        sender: Box::new(StreamSender::new(writer)),
        receiver: Box::new(StreamReceiver::new(reader)),
        peer: Address::Unix(path.to_owned()).to_string(),
        upgrade: None,
    }
}

impl Writer for OwnedWriteHalf {
    /// Both ends are on one machine.
    fn notice_loss_within(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Reader for OwnedReadHalf {
    /// Unix sockets have no such mark.
    fn readable_at(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for UnixTransport {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let Address::Unix(path) = at else {
                return Err(TransportError::Foreign { at: at.clone() });
            };
            match UnixListener::bind(path) {
                Ok(listener) => Ok(Box::new(UnixFrameListener { listener, path: path.clone() })
                    as Box<dyn Listener>),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    Err(TransportError::InUse { at: at.clone() })
                }
                Err(source) => Err(TransportError::Listen { at: at.clone(), source }),
            }
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move {
            let Address::Unix(path) = to else {
                return Err(TransportError::Foreign { at: to.clone() });
            };
            let stream = match tokio::time::timeout(CONNECT_WAIT, UnixStream::connect(path)).await {
                Ok(result) => result,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            let stream =
                stream.map_err(|source| TransportError::Connect { to: to.clone(), source })?;
            Ok(connection(stream, path))
        })
    }
}

struct UnixFrameListener {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener for UnixFrameListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move {
            let (stream, _) =
                self.listener.accept().await.map_err(|source| TransportError::Accept { source })?;
            Ok(connection(stream, &self.path))
        })
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::transport::conformance;

    #[tokio::test]
    async fn it_conforms() {
        let dir = tempfile::tempdir().unwrap();
        let at = Address::Unix(dir.path().join("here"));
        let nowhere = Address::Unix(dir.path().join("nowhere"));
        let suite = conformance::run(&UnixTransport, &at, &nowhere);
        LocalSet::new().run_until(suite).await;
    }
}
