//! One request or answer on a lane's socket: two lengths, a message, bytes behind it, perhaps a descriptor.
//!
//! `u32` length of the message, `u32` length of the bytes (both little endian), the message (postcard), the bytes.
//! Both ends are the same program, so there is no version.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

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

/// A message, the bytes behind it, the descriptor beside it.
pub(super) type Frame<M> = (M, Vec<u8>, Option<OwnedFd>);

pub(super) fn send<M: Serialize>(
    mut socket: &UnixStream,
    message: &M,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
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
    let slices = [IoSlice::new(&head), IoSlice::new(bytes)];
    let sent = sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL)?;
    if sent < head.len() {
        socket.write_all(&head[sent..])?;
        socket.write_all(bytes)
    } else {
        socket.write_all(&bytes[sent - head.len()..])
    }
}

/// `None` at the end of the stream.
pub(super) fn receive<M: DeserializeOwned>(
    mut socket: &UnixStream,
) -> io::Result<Option<Frame<M>>> {
    let mut lengths = [0; LENGTHS];
    let (got, descriptor) = receive_some(socket, &mut lengths)?;
    if got == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut lengths[got..])?;
    let [a, b, c, d, e, f, g, h] = lengths;
    let message = read(socket, u32::from_le_bytes([a, b, c, d]), MESSAGE_BYTES_MAX)?;
    let bytes = read(socket, u32::from_le_bytes([e, f, g, h]), BYTES_MAX)?;
    let message = postcard::from_bytes(&message).map_err(io::Error::other)?;
    Ok(Some((message, bytes, descriptor)))
}

fn receive_some(socket: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(into)];
    let received = loop {
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            answer => break answer?,
        }
    };
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().next()))
}

fn length(len: usize, max: usize) -> io::Result<u32> {
    let fits = u32::try_from(len).ok().filter(|_| len <= max);
    fits.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a message is too long"))
}

fn read(mut socket: &UnixStream, len: u32, max: usize) -> io::Result<Vec<u8>> {
    let len = len as usize;
    length(len, max)?;
    let mut bytes = vec![0; len];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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
                send(&here, &request, &bytes, Some(file.as_fd())).unwrap();
                send(&here, &Request::Sync { file: 8 }, &[], None).unwrap();
                here.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let (message, came, descriptor) = receive::<Request>(&there).unwrap().unwrap();
            assert_eq!((message, came == bytes), (request.clone(), true));
            let stat = rustix::fs::fstat(descriptor.unwrap()).unwrap();
            assert_eq!(stat.st_size, 12345);
            let (message, came, descriptor) = receive::<Request>(&there).unwrap().unwrap();
            assert_eq!((message, came.len()), (Request::Sync { file: 8 }, 0));
            assert!(descriptor.is_none());
            assert!(receive::<Request>(&there).unwrap().is_none());
        });
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[0xff; 64]).unwrap();
        assert!(receive::<Request>(&there).is_err());
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[1, 0]).unwrap();
        drop(here);
        assert!(receive::<Request>(&there).is_err(), "cut off");
    }
}
