//! A process's end of one connection to the server of its node; blocking.
//!
//! One `sendmsg`, one `poll` and one `recvmsg` for a call whose messages fit the kernel's buffer, and no
//! allocation but the answer's body ([`BlockingChannel::call_ref`]: none).

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::NodeError;
use super::channel::{receive_failed, send_failed};
use super::frame::{Inbox, header, short_path};
use crate::limits::MULTIPLEXED_MAX;
use crate::transport::descriptor;

/// A connection to the server of this node, for one thread at a time.
pub struct BlockingChannel {
    stream: UnixStream,
    inbox: Inbox,
    /// For one answer; `None` waits without limit.
    wait: Option<Duration>,
    broken: bool,
}

/// Ends a channel from another thread.
pub struct Closer(UnixStream);

impl Closer {
    /// Whoever waits on the channel returns with [`NodeError::Closed`].
    pub fn close(&self) {
        // Fails only when the other side closed first.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl BlockingChannel {
    /// Connects to the server that listens at `path`, within `timeout`; a socket that is not there
    /// fails at once. Answers are waited for without limit until [`Self::set_wait`].
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, NodeError> {
        let connect = || -> io::Result<UnixStream> {
            let (short, _directory) = short_path(path)?;
            let flags = SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // A full backlog makes connect(2) wait as long as a send would.
            sockopt::set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
            let address = SocketAddrUnix::new(&short)?;
            let until = Instant::now() + timeout;
            loop {
                match rustix::net::connect(&socket, &address) {
                    Ok(()) => break,
                    Err(rustix::io::Errno::INTR) if Instant::now() < until => {}
                    Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(error) => return Err(error.into()),
                }
            }
            sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
            Ok(socket.into())
        };
        let stream =
            connect().map_err(|source| NodeError::Connect { path: path.to_owned(), source })?;
        Ok(Self { stream, inbox: Inbox::of_server(), wait: None, broken: false })
    }

    /// From now on a message that takes longer, either way, fails and breaks the channel.
    pub fn set_wait(&mut self, wait: Option<Duration>) -> Result<(), NodeError> {
        sockopt::set_socket_timeout(&self.stream, Timeout::Send, wait).map_err(|error| {
            NodeError::Io { action: "set the time to wait for answers", source: error.into() }
        })?;
        self.wait = wait;
        Ok(())
    }

    /// Lets another thread end what this one waits for.
    pub fn closer(&self) -> Result<Closer, NodeError> {
        self.stream
            .try_clone()
            .map(Closer)
            .map_err(|source| NodeError::Io { action: "copy a descriptor", source })
    }

    /// Two halves of one connection, for two threads: what is sent on the first is not answered in
    /// turn, and the second receives what the server sends, many messages with their descriptors at
    /// a time.
    pub fn halves(mut self) -> Result<(Self, Self), NodeError> {
        let stream = self.stream.try_clone();
        let stream =
            stream.map_err(|source| NodeError::Io { action: "copy a descriptor", source })?;
        self.inbox.takes_descriptors(MULTIPLEXED_MAX);
        let sender = Self { stream, inbox: Inbox::of_server(), ..self };
        Ok((sender, Self { wait: None, ..self }))
    }

    /// Asks and waits for the answer; `descriptor` goes along as a copy.
    pub fn call(
        &mut self,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Vec<u8>, Option<OwnedFd>), NodeError> {
        self.call_ref(body, descriptor).map(|(body, descriptor)| (body.to_vec(), descriptor))
    }

    /// As [`Self::call`]; the answer's body lies in the channel until the next call.
    pub fn call_ref(
        &mut self,
        body: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(&[u8], Option<OwnedFd>), NodeError> {
        self.send(body, descriptor)?;
        self.receive_ref()
    }

    /// The next message of the server, where it does not wait to be asked.
    pub fn receive(&mut self) -> Result<(Vec<u8>, Option<OwnedFd>), NodeError> {
        self.receive_ref().map(|(body, descriptor)| (body.to_vec(), descriptor))
    }

    /// The answer to what [`Self::receive`] gave.
    pub fn reply(&mut self, body: &[u8]) -> Result<(), NodeError> {
        self.send(body, None)
    }

    /// Sends a message that is not answered in turn.
    pub fn tell(&mut self, body: &[u8]) -> Result<(), NodeError> {
        self.send(body, None)
    }

    fn send(&mut self, body: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), NodeError> {
        let header = header(body.len(), descriptor.is_some())?;
        if self.broken {
            return Err(NodeError::Broken);
        }
        let sent = self.send_all(&header, body, descriptor);
        self.broken = sent.is_err();
        sent
    }

    fn send_all(
        &self,
        header: &[u8],
        body: &[u8],
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), NodeError> {
        let mut slices = [IoSlice::new(header), IoSlice::new(body)];
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match descriptor::send(&self.stream, left, descriptor.as_slice()) {
                Ok(sent) => {
                    // It went with the first byte.
                    descriptor = None;
                    IoSlice::advance_slices(&mut left, sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.timed_out(&error).unwrap_or(send_failed(error))),
            }
        }
        Ok(())
    }

    /// As [`Self::receive`]; the body lies in the channel until the next.
    pub fn receive_ref(&mut self) -> Result<(&[u8], Option<OwnedFd>), NodeError> {
        if self.broken {
            return Err(NodeError::Broken);
        }
        self.inbox.begin();
        match self.receive_whole() {
            Ok(len) => Ok(self.inbox.take(len)),
            Err(error) => {
                self.broken = true;
                Err(error)
            }
        }
    }

    fn receive_whole(&mut self) -> Result<usize, NodeError> {
        loop {
            if let Some(len) = self.inbox.complete()? {
                return Ok(len);
            }
            self.wait_readable()?;
            let (room, descriptors) = self.inbox.room();
            let count = match descriptor::receive(&self.stream, room, descriptors) {
                Ok(count) => count,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::ConnectionReset => 0,
                    _ => return Err(receive_failed(error)),
                },
            };
            self.inbox.add(count)?;
        }
    }

    /// Waits in `poll`, not in `recvmsg`: that one would be woken, for nothing, when the other side
    /// takes our message (the kernel tells all who sleep on a Unix socket that it is writable).
    fn wait_readable(&self) -> Result<(), NodeError> {
        let wait = self.wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        loop {
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], wait.as_ref()) {
                Ok(0) => {
                    let after = self.wait.unwrap_or_default();
                    return Err(NodeError::Timeout { after });
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(receive_failed(error.into())),
            }
        }
    }

    fn timed_out(&self, error: &io::Error) -> Option<NodeError> {
        let after = self.wait.filter(|_| error.kind() == io::ErrorKind::WouldBlock)?;
        Some(NodeError::Timeout { after })
    }
}
