//! One request or answer on a lane's socket: two lengths, a message, bytes behind it, perhaps a descriptor.
//!
//! `u32` length of the message, `u32` length of the bytes (both little endian), the message (postcard), the bytes.
//! Both ends are the same program, so there is no version.
//! They take turns: nothing comes behind a frame until it is answered, so that one call takes what is short.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message: a directory of some millions of names.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Most bytes behind a message: a request of the kernel, or an extended attribute.
const BYTES_MAX: usize = 16 << 20;
const LENGTHS: usize = 8;
/// A frame that is no longer takes one call.
const SHORT: usize = 1024;

/// A message, the bytes behind it, the descriptor beside it.
pub(super) type Frame<M> = (M, Vec<u8>, Option<OwnedFd>);

/// `deadline`: of the whole frame, however slowly the other end takes it; `TimedOut` then.
pub(super) fn send<M: Serialize>(
    socket: &UnixStream,
    message: &M,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let mut head = vec![0; LENGTHS];
    let message = postcard::to_stdvec(message).map_err(io::Error::other)?;
    head[..4].copy_from_slice(&length(message.len(), MESSAGE_BYTES_MAX)?.to_le_bytes());
    head[4..].copy_from_slice(&length(bytes.len(), BYTES_MAX)?.to_le_bytes());
    head.extend_from_slice(&message);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the space is made for one descriptor");
    }
    let mut sent = 0;
    while sent < head.len() + bytes.len() {
        let behind = sent.saturating_sub(head.len());
        let slices = [IoSlice::new(&head[sent.min(head.len())..]), IoSlice::new(&bytes[behind..])];
        sent += retried(socket, PollFlags::OUT, deadline, || {
            sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        })?;
        control.clear(); // it went with the first byte
    }
    Ok(())
}

/// `None` at the end of the stream; `deadline` as in [`send`].
pub(super) fn receive<M: DeserializeOwned>(
    socket: &UnixStream,
    deadline: Option<Instant>,
) -> io::Result<Option<Frame<M>>> {
    if deadline.is_some() {
        wait(socket, PollFlags::IN, deadline)?; // who asks is never answered at once
    }
    let mut first = [0; SHORT];
    let (mut got, descriptor) = receive_some(socket, &mut first, deadline)?;
    if got == 0 {
        return Ok(None);
    }
    if got < LENGTHS {
        receive_all(socket, &mut first[got..LENGTHS], deadline)?;
        got = LENGTHS;
    }
    let [a, b, c, d, e, f, g, h, ..] = first;
    let mut came = &first[LENGTHS..got];
    let mut read = |len, max| read(socket, &mut came, len, max, deadline);
    let message = read(u32::from_le_bytes([a, b, c, d]), MESSAGE_BYTES_MAX)?;
    let bytes = read(u32::from_le_bytes([e, f, g, h]), BYTES_MAX)?;
    if !came.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more than one message came"));
    }
    let message = postcard::from_bytes(&message).map_err(io::Error::other)?;
    Ok(Some((message, bytes, descriptor)))
}

fn receive_some(
    socket: &UnixStream,
    into: &mut [u8],
    deadline: Option<Instant>,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(into)];
    let waits = if deadline.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let received = retried(socket, PollFlags::IN, deadline, || {
        recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC | waits)
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().next()))
}

fn receive_all(
    socket: &UnixStream,
    mut into: &mut [u8],
    deadline: Option<Instant>,
) -> io::Result<()> {
    while !into.is_empty() {
        match receive_some(socket, into, deadline)?.0 {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => into = &mut into[got..],
        }
    }
    Ok(())
}

/// What `call` answers once it need not wait.
fn retried<T>(
    socket: &UnixStream,
    ready: PollFlags,
    deadline: Option<Instant>,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, ready, deadline)?,
            answer => return Ok(answer?),
        }
    }
}

/// Until the socket is ready or has ended.
fn wait(socket: &UnixStream, ready: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Longer than it can say is without end.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(socket, ready)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn length(len: usize, max: usize) -> io::Result<u32> {
    let fits = u32::try_from(len).ok().filter(|_| len <= max);
    fits.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a message is too long"))
}

/// `came`: what was received already, of which it takes its part.
fn read(
    socket: &UnixStream,
    came: &mut &[u8],
    len: u32,
    max: usize,
    deadline: Option<Instant>,
) -> io::Result<Vec<u8>> {
    let len = len as usize;
    length(len, max)?;
    let mut bytes = vec![0; len];
    let (here, rest) = came.split_at(len.min(came.len()));
    bytes[..here.len()].copy_from_slice(here);
    *came = rest;
    receive_all(socket, &mut bytes[here.len()..], deadline)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::gfarm::lane::Request;

    #[test]
    fn messages_bytes_and_descriptors_arrive_together() {
        let (here, there) = UnixStream::pair().unwrap();
        let request = Request::Write { file: 7, offset: 1 << 40 };
        let bytes = vec![0xa5; 3 << 20];
        let file = tempfile::tempfile().unwrap();
        file.set_len(12345).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send(&here, &request, &bytes, Some(file.as_fd()), None).unwrap();
                send(&here, &Request::Sync { file: 8 }, &[], None, None).unwrap();
                here.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let (message, came, descriptor) = receive::<Request>(&there, None).unwrap().unwrap();
            assert_eq!((message, came == bytes), (request.clone(), true));
            let stat = rustix::fs::fstat(descriptor.unwrap()).unwrap();
            assert_eq!(stat.st_size, 12345);
            let (message, came, descriptor) = receive::<Request>(&there, None).unwrap().unwrap();
            assert_eq!((message, came.len()), (Request::Sync { file: 8 }, 0));
            assert!(descriptor.is_none());
            assert!(receive::<Request>(&there, None).unwrap().is_none());
        });
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[0xff; 64]).unwrap();
        assert!(receive::<Request>(&there, None).is_err());
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[1, 0]).unwrap();
        drop(here);
        assert!(receive::<Request>(&there, None).is_err(), "cut off");
    }

    /// A deadline that is meant to run out.
    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(200))
    }

    #[test]
    fn what_comes_in_small_pieces_has_one_deadline() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let pieces = std::thread::spawn(move || {
            let mut next: &[u8] = &[0, 0, 1 << 4, 0, 0, 0, 0, 0]; // 1 MiB is announced
            while here.write_all(next).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                next = &[0];
            }
        });
        let error = receive::<Request>(&there, soon()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(there);
        pieces.join().unwrap();
    }

    #[test]
    fn what_nobody_takes_has_a_deadline() {
        let (here, _there) = UnixStream::pair().unwrap();
        let request = Request::Write { file: 7, offset: 0 };
        let error = send(&here, &request, &[0; 3 << 20], None, soon()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
