//! A stream to a server: plain or TLS, with deadlines, and without the 40 ms of held back segments.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Manner, Target};
use crate::s3::limits::HEAD_BYTES_MAX;

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A connection and the bytes of it that were read ahead.
pub(super) struct Connection {
    stream: Stream,
    manner: Manner,
    buffer: Box<[u8]>,
    /// What of `buffer` is filled and not yet taken.
    waiting: std::ops::Range<usize>,
    deadline: Instant,
    patience: Duration,
}

impl Connection {
    /// Connects, and shakes hands where TLS is asked for.
    pub(super) fn open(
        target: &Target,
        tls: Option<&Arc<ClientConfig>>,
        manner: Manner,
    ) -> io::Result<Self> {
        let tcp = connect(target, manner.patience)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(manner.patience))?;
        tcp.set_write_timeout(Some(manner.patience))?;
        let stream = if target.tls {
            let config = tls.expect("a TLS target comes with a configuration");
            let name = target.host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(name).map_err(io::Error::other)?;
            let session =
                ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(session, tcp);
            stream.conn.complete_io(&mut stream.sock)?;
            Stream::Tls(Box::new(stream))
        } else {
            Stream::Plain(tcp)
        };
        let buffer = vec![0; HEAD_BYTES_MAX].into_boxed_slice();
        let (patience, deadline) = (manner.patience, Instant::now() + manner.patience);
        Ok(Self { stream, manner, buffer, waiting: 0..0, deadline, patience })
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    /// Bounds what follows: the silence between two bytes, and the whole.
    pub(super) fn allow(&mut self, patience: Duration, whole: Duration) -> io::Result<()> {
        if patience != self.patience {
            self.tcp().set_read_timeout(Some(patience))?;
            self.patience = patience;
        }
        self.deadline = Instant::now() + whole;
        Ok(())
    }

    /// Nothing has come, and the server has not hung up.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(self.tcp(), &mut [0_u8; 1][..], flags);
        self.waiting.is_empty() && matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// Sends all pieces in order.
    pub(super) fn send(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        for piece in pieces {
            match &mut self.stream {
                Stream::Plain(tcp) => tcp.write_all(piece),
                Stream::Tls(tls) => tls.write_all(piece),
            }
            .map_err(explained)?;
            self.check_deadline()?;
        }
        match &mut self.stream {
            Stream::Plain(_) => Ok(()),
            Stream::Tls(tls) => tls.flush().map_err(explained),
        }
    }

    /// For so long nobody wanted to read.
    pub(super) fn prolong(&mut self, time: Duration) {
        self.deadline += time;
    }

    fn check_deadline(&self) -> io::Result<()> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the server is too slow"))
    }

    /// At least one byte into `buffer`, or 0 when the server has hung up.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.waiting.is_empty() {
            let count = buffer.len().min(self.waiting.len());
            buffer[..count].copy_from_slice(&self.buffer[self.waiting.start..][..count]);
            self.waiting.start += count;
            return Ok(count);
        }
        self.check_deadline()?;
        self.acknowledge();
        receive(&mut self.stream, buffer)
    }

    /// The server may wait for our acknowledgement before it sends a last small segment; the kernel
    /// would hold it back for 40 ms, and forgets this option after a while.
    fn acknowledge(&self) {
        if self.manner.acknowledge_at_once {
            // Only speed depends on it.
            let _ = sockopt::set_tcp_quickack(self.tcp(), true);
        }
    }

    /// What was read ahead, after reading more when there is nothing; empty: the server has hung up.
    pub(super) fn ahead(&mut self) -> io::Result<&[u8]> {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
            self.read_more()?;
        }
        Ok(&self.buffer[self.waiting.clone()])
    }

    /// Reads more behind what is waiting; false when the server has hung up.
    pub(super) fn read_more(&mut self) -> io::Result<bool> {
        if self.waiting.start > 0 {
            self.buffer.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        if self.waiting.end == self.buffer.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a head without an end"));
        }
        self.check_deadline()?;
        self.acknowledge();
        let count = receive(&mut self.stream, &mut self.buffer[self.waiting.end..])?;
        self.waiting.end += count;
        Ok(count > 0)
    }

    /// Takes bytes that [`Connection::ahead`] showed.
    pub(super) fn take(&mut self, count: usize) {
        self.waiting.start = (self.waiting.start + count).min(self.waiting.end);
    }
}

fn receive(stream: &mut Stream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let answer = match stream {
            Stream::Plain(tcp) => tcp.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        };
        match answer {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(explained(error)),
            Ok(count) => return Ok(count),
        }
    }
}

/// The kernel calls a timeout of a socket `EAGAIN`.
fn explained(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        return io::Error::new(io::ErrorKind::TimedOut, "the server is silent");
    }
    error
}

fn connect(target: &Target, patience: Duration) -> io::Result<TcpStream> {
    match (&target.address, &target.proxy) {
        (Some(address), _) => TcpStream::connect_timeout(address, patience),
        (None, Some(proxy)) => proxy.tunnel(&target.host, target.port, patience),
        (None, None) => connect_to(&target.host, target.port, patience),
    }
}

pub(super) fn connect_to(host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        io::Error::new(io::ErrorKind::NotFound, format!("look up the host {host}: {error}"))
    })?;
    let mut last =
        io::Error::new(io::ErrorKind::NotFound, format!("the host {host} has no address"));
    for address in addresses {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
