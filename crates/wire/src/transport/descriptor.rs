//! Bytes with a descriptor beside them: one `sendmsg`, one `recvmsg`.
//!
//! Here: ancillary data and nothing else. Not here: framing ([`crate::node`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors that one receive has room for; a second one is an error, not a leak.
const DESCRIPTORS_MAX: usize = 2;

/// Sends the start of `slices`, with `descriptor` if any; says how many bytes went.
pub(crate) fn send(
    socket: impl AsFd,
    slices: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the space is made for one descriptor");
    }
    Ok(sendmsg(socket, slices, &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives into the start of `into`; 0 bytes at the end of the stream.
pub(crate) fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for received in descriptors {
                if descriptor.replace(received).is_some() {
                    return Err(invalid("more than one descriptor beside a message"));
                }
            }
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(invalid("descriptors were cut off (too many, or none can be opened)"));
    }
    Ok((received.bytes, descriptor))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
