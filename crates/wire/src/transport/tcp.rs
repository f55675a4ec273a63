//! TCP: the transport that works everywhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::low_water::set_low_water;
use super::round_trip::round_trip;
use super::stream::{Reader, StreamReceiver, StreamSender, Writer};
use super::{Address, Connection, Listener, LocalFuture, Transport, TransportError};
use crate::deadline::{LINK_IDLE, SHORT_TRIP};
use crate::limits::SEND_BUFFER_BYTES;
use crate::times::{CONNECT_WAIT, LINK_LOSS_WAIT};

/// As many as Linux allows by default (`net.core.somaxconn`): who floods the port fills it while the
/// server does something else.
const BACKLOG: u32 = 4096;

/// Connects from any address, or from one (a node that is simulated by a loopback address).
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpTransport {
    from: Option<IpAddr>,
}

impl TcpTransport {
    /// Connections leave from the address that routing chooses.
    pub const fn new() -> Self {
        Self { from: None }
    }

    /// Connections leave from `from`.
    pub const fn from_address(from: IpAddr) -> Self {
        Self { from: Some(from) }
    }

    async fn stream(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = socket_for(to)?;
        if let Some(from) = self.from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = tokio::time::timeout(CONNECT_WAIT, socket.connect(to))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        prepare(&stream)?;
        Ok(stream)
    }
}

fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

/// Small frames leave at once; a link that is cut is noticed. Buffer sizes stay with the kernel, whose own tuning
/// grows them to what the path needs; but on a short way no more than that waits to be sent: memory that is used again
/// while the processor's cache has it still costs a third less of the sender's time.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    if round_trip(stream.as_fd()).is_ok_and(|trip| trip <= SHORT_TRIP) {
        sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES)?;
    }
    probe(stream, LINK_IDLE, LINK_LOSS_WAIT)
}

/// A peer that was silent for `idle` is asked by the kernel whether it is there; one that answers
/// nothing is gone `loss` after its last sign of life, or at the next probe where that is later. What is
/// on its way has as long to arrive (tcp(7), `TCP_USER_TIMEOUT`, which also decides about probes).
fn probe(stream: &TcpStream, idle: Duration, loss: Duration) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, idle)?;
    sockopt::set_tcp_keepintvl(stream, idle.min(loss / 2))?;
    sockopt::set_tcp_user_timeout(stream, loss.as_millis() as u32)?;
    Ok(())
}

fn connection(stream: TcpStream, peer: SocketAddr) -> Connection {
    let (reader, writer) = stream.into_split();
    Connection {
        sender: Box::new(StreamSender::new(writer)),
        receiver: Box::new(StreamReceiver::new(reader)),
        peer: Address::Tcp(peer).to_string(),
        upgrade: None,
    }
}

impl Writer for OwnedWriteHalf {
    fn notice_loss_within(&self, wait: Duration) -> io::Result<()> {
        // Intervals are whole seconds.
        probe(self.as_ref(), (wait / 2).max(Duration::from_secs(1)), wait)
    }
}

impl Reader for OwnedReadHalf {
    fn readable_at(&self, bytes: usize) -> io::Result<()> {
        let stream: &TcpStream = self.as_ref();
        set_low_water(stream.as_fd(), bytes)
    }
}

impl Transport for TcpTransport {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let Address::Tcp(address) = *at else {
                return Err(TransportError::Foreign { at: at.clone() });
            };
            let listen = || -> io::Result<TcpListener> {
                let socket = socket_for(address)?;
                // A port whose last connections linger in TIME_WAIT is free; one that listens is not.
                socket.set_reuseaddr(true)?;
                socket.bind(address)?;
                socket.listen(BACKLOG)
            };
            match listen() {
                Ok(listener) => {
                    let local = listener
                        .local_addr()
                        .map_err(|source| TransportError::Listen { at: at.clone(), source })?;
                    Ok(Box::new(TcpFrameListener { listener, local }) as Box<dyn Listener>)
                }
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
            let Address::Tcp(address) = *to else {
                return Err(TransportError::Foreign { at: to.clone() });
            };
            let stream = self
                .stream(address)
                .await
                .map_err(|source| TransportError::Connect { to: to.clone(), source })?;
            Ok(connection(stream, address))
        })
    }
}

struct TcpFrameListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener for TcpFrameListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move {
            let accept = async {
                let (stream, peer) = self.listener.accept().await?;
                prepare(&stream)?;
                Ok((stream, peer))
            };
            let (stream, peer) =
                accept.await.map_err(|source: io::Error| TransportError::Accept { source })?;
            Ok(connection(stream, peer))
        })
    }

    fn address(&self) -> Address {
        Address::Tcp(self.local)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::task::LocalSet;

    use super::*;
    use crate::header::HEADER_BYTES;
    use crate::limits::{LOW_WATER_BYTES, SEGMENT_BYTES};
    use crate::times::PEER_LOSS_WAIT;
    use crate::transport::conformance;

    #[tokio::test]
    async fn it_conforms() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let nowhere = Address::Tcp(free.local_addr().unwrap());
        drop(free);
        for (transport, at) in [
            (TcpTransport::new(), "127.0.0.1:0"),
            (TcpTransport::from_address("127.0.0.2".parse().unwrap()), "127.0.0.3:0"),
        ] {
            let at = Address::Tcp(at.parse().unwrap());
            let suite = conformance::run(&transport, &at, &nowhere);
            LocalSet::new().run_until(suite).await;
        }
    }

    #[tokio::test]
    async fn a_payload_that_comes_in_pieces_is_taken_whole_and_so_is_what_follows() {
        const PAYLOAD: usize = LOW_WATER_BYTES + SEGMENT_BYTES + 1;
        let at = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let mut listener = TcpTransport::new().listen(&at).await.unwrap();
        let Address::Tcp(address) = listener.address() else { unreachable!() };
        let sender = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            // Each pause leaves less than the low-water mark, or the very last byte, outstanding.
            for piece in [HEADER_BYTES, LOW_WATER_BYTES, SEGMENT_BYTES, 1, HEADER_BYTES] {
                stream.write_all(&vec![7; piece]).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            stream // Stays open: an end would wake the receiver too.
        });
        let receive = async {
            let mut receiver = listener.accept().await.unwrap().receiver;
            let mut payload = vec![0; PAYLOAD];
            assert_eq!(receiver.header().await.unwrap(), Some([7; HEADER_BYTES]));
            let mut filled = 0;
            while filled < PAYLOAD {
                filled += receiver.payload(&mut payload[filled..]).await.unwrap();
            }
            assert!(payload.iter().all(|byte| *byte == 7));
            assert_eq!(receiver.header().await.unwrap(), Some([7; HEADER_BYTES]));
        };
        tokio::time::timeout(Duration::from_secs(10), receive).await.expect("nothing hangs");
        drop(sender.join().unwrap());
    }

    #[tokio::test]
    async fn only_who_asks_for_it_is_probed_each_second() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpTransport::new().stream(listener.local_addr().unwrap()).await.unwrap();
        let probed_after = |stream: &TcpStream| sockopt::tcp_keepidle(stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(probed_after(&stream), LINK_IDLE);
        let (reader, writer) = stream.into_split();
        Writer::notice_loss_within(&writer, PEER_LOSS_WAIT).unwrap();
        let stream = reader.reunite(writer).unwrap();
        assert_eq!(probed_after(&stream), Duration::from_secs(1));
        let loss = sockopt::tcp_user_timeout(&stream).unwrap();
        assert_eq!(Duration::from_millis(loss.into()), PEER_LOSS_WAIT);
    }

    #[tokio::test]
    async fn connections_leave_from_the_address_they_are_told() {
        let from: IpAddr = "127.0.0.2".parse().unwrap();
        let transport = TcpTransport::from_address(from);
        let at = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let mut listener = transport.listen(&at).await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(transport.connect(&address), listener.accept());
        near.unwrap();
        let peer = far.unwrap().peer;
        assert!(peer.starts_with("tcp:127.0.0.2:"), "{peer}");
    }
}
