//! Bytes with descriptors beside them: one `sendmsg`, one `recvmsg`.
//!
//! Here: ancillary data and nothing else. Not here: framing ([`crate::node`]).

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::limits::MULTIPLEXED_MAX;

/// Descriptors that one receive has room for: those of all answers that may leave together, and one more
/// so that too many are an error, not a leak.
const DESCRIPTORS_MAX: usize = MULTIPLEXED_MAX + 1;

/// Sends the start of `slices`, with `descriptors` (at most [`MULTIPLEXED_MAX`]); says how many bytes
/// went. The descriptors go with the first of them.
pub(crate) fn send(
    socket: impl AsFd,
    slices: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MULTIPLEXED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(invalid("more descriptors than may travel together"));
    }
    Ok(sendmsg(socket, slices, &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives into the start of `into`, and what descriptors came with the bytes into `descriptors`;
/// 0 bytes at the end of the stream.
pub(crate) fn receive(
    socket: impl AsFd,
    into: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(invalid("descriptors were cut off (too many, or none can be opened)"));
    }
    Ok(received.bytes)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
