//! A ring of the kernel (io_uring(7)) that reads and writes files past the page cache, many at once, for one thread.
//!
//! Here: handing requests over, their ends, the transfer buffers registered once.
//! Rooms: [`requests`] keeps what the kernel has in its hands.
//! Not here: waiting for the end of a request (its owner waits until the ring's descriptor is readable); what
//! does not fit direct I/O ([`crate::device::DeviceFile`] reads and writes it through the page cache).
//!
//! Invariants: a buffer belongs to the ring from [`Ring::begin`] to [`Ring::ended`], so nobody reads, writes or
//! frees what the kernel moves bytes of; it is asked once where they are; a ring that is dropped waits for all it has
//! begun. A buffer borrows nothing, so that of a ring that is forgotten, or whose drop panics, stays for ever.
//! Source: io_uring_enter(2), io_uring_register(2).
#![expect(
    unsafe_code,
    reason = "memory that the kernel uses after the call; owned by the ring meanwhile"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use crate::slots::SlotPool;

mod requests;

use self::requests::{Lent, Requests};

/// Offsets, lengths and addresses of direct I/O are multiples of it: enough for any disk in use.
pub const DIRECT_ALIGN: usize = 4096;

/// How many of `len` bytes at `offset` can be moved past the page cache, from the first on: 0 where the first is
/// not aligned.
pub fn direct_len(offset: u64, len: usize) -> usize {
    match offset.is_multiple_of(DIRECT_ALIGN as u64) {
        true => len - len % DIRECT_ALIGN,
        false => 0,
    }
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

impl std::fmt::Display for Transfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// One request: all of the first `len` bytes of `buffer`, at `offset` of `file`.
pub struct Request<B: ?Sized> {
    /// Opened with `O_DIRECT`.
    pub file: Arc<OwnedFd>,
    /// Which way.
    pub transfer: Transfer,
    /// A multiple of [`DIRECT_ALIGN`].
    pub offset: u64,
    /// Begins at a multiple of [`DIRECT_ALIGN`] in memory.
    pub buffer: Box<B>,
    /// A multiple of [`DIRECT_ALIGN`], at most what the buffer has.
    pub len: usize,
}

/// The number of a request that has begun; given again after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(usize);

/// The end of a request.
pub struct Ended<B: ?Sized> {
    /// Which.
    pub id: RequestId,
    /// Its buffer, again the caller's.
    pub buffer: Box<B>,
    /// Bytes that were moved, fewer than asked for at the end of the file or when the kernel stopped short.
    pub moved: io::Result<usize>,
}

/// See the module header.
pub struct Ring<B: ?Sized> {
    requests: Requests<B>,
    ring: IoUring,
    /// Addresses of the registered buffers.
    registered: std::ops::Range<usize>,
    /// The registered memory lives as long as the ring.
    _slots: SlotPool,
}

impl<B: ?Sized + AsRef<[u8]> + AsMut<[u8]> + 'static> Ring<B> {
    /// A ring for `requests_max` requests at once, with the memory of `slots` registered where the limit of
    /// locked memory allows it. Fails where the kernel has no rings, or the system forbids them. Registering
    /// makes all of the slots' memory resident.
    pub fn new(requests_max: u32, slots: &SlotPool) -> io::Result<Self> {
        let ring = build(requests_max)?;
        let span = slots.span();
        let memory = libc::iovec { iov_base: span.start as *mut _, iov_len: span.len() };
        // SAFETY: the mapping of the slots lives as long as `_slots`, which is dropped after `ring`.
        let registered = unsafe { ring.submitter().register_buffers(&[memory]) };
        let registered = if registered.is_ok() { span } else { 0..0 };
        let requests = Requests::new(requests_max as usize);
        Ok(Self { requests, ring, registered, _slots: slots.clone() })
    }

    /// Whether transfers from and to slots save the kernel the look at their pages.
    pub fn has_registered_slots(&self) -> bool {
        !self.registered.is_empty()
    }

    /// Hands a request to the kernel; it is given back when as many as fit are under way, or when it is not
    /// aligned as direct I/O asks. One system call.
    pub fn begin(&mut self, request: Request<B>) -> Result<RequestId, Request<B>> {
        if !self.requests.has_room() {
            return Err(request);
        }
        let Request { file, transfer, offset, buffer, len } = request;
        let buffer = Lent::new(buffer);
        if !is_aligned(&buffer, offset, len) {
            // SAFETY: it was not submitted to the kernel.
            let buffer = unsafe { buffer.give_back() };
            return Err(Request { file, transfer, offset, buffer, len });
        }
        let (fd, start) = (types::Fd(file.as_raw_fd()), buffer.start().as_ptr());
        let id = self.requests.put(file, buffer);
        let entry = self.entry(fd, transfer, offset, start, len).user_data(id.0 as u64);
        // SAFETY: file and buffer are kept in `requests` until the kernel says that it has done with them; `len` bytes
        // from `start` on are the buffer's.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // SAFETY: it was not submitted to the kernel.
            let (file, buffer) = unsafe { self.requests.take(id) };
            return Err(Request { file, transfer, offset, buffer, len });
        }
        // What the kernel does not take now goes with a later call ([`Ring::is_behind`]): it is under way all the same.
        let _ = self.submit();
        Ok(id)
    }

    fn entry(
        &self,
        fd: types::Fd,
        transfer: Transfer,
        offset: u64,
        start: *mut u8,
        len: usize,
    ) -> io_uring::squeue::Entry {
        let count = len as u32;
        let is_registered =
            self.registered.contains(&start.addr()) && start.addr() + len <= self.registered.end;
        match (transfer, is_registered) {
            (Transfer::Read, true) => {
                opcode::ReadFixed::new(fd, start, count, 0).offset(offset).build()
            }
            (Transfer::Write, true) => {
                opcode::WriteFixed::new(fd, start, count, 0).offset(offset).build()
            }
            (Transfer::Read, false) => opcode::Read::new(fd, start, count).offset(offset).build(),
            (Transfer::Write, false) => opcode::Write::new(fd, start, count).offset(offset).build(),
        }
    }

    fn submit(&self) -> io::Result<usize> {
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// The next request that has ended; `None` when none has. Costs no system call where the kernel has told
    /// of it already.
    pub fn ended(&mut self) -> Option<Ended<B>> {
        let mut entry = self.ring.completion().next();
        if entry.is_none() && self.has_work_for_the_kernel() {
            self.submit().ok()?;
            entry = self.ring.completion().next();
        }
        let entry = entry?;
        let id = RequestId(entry.user_data() as usize);
        // SAFETY: the kernel has said so just now.
        let (_, buffer) = unsafe { self.requests.take(id) };
        let moved = match entry.result() {
            count @ 0.. => Ok(count as usize),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        };
        Some(Ended { id, buffer, moved })
    }

    /// Whether the kernel has not taken all requests, being short of memory: [`Ring::ended`] offers them again.
    pub fn is_behind(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// What did not go with its own call, or ends that wait for a call to be told of.
    fn has_work_for_the_kernel(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Requests that have begun and of whose end nobody was told.
    pub fn under_way(&self) -> usize {
        self.requests.count()
    }

    /// A descriptor that is readable while a request has ended that nobody was told of.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring is open as long as it is borrowed.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        ring.try_clone_to_owned()
    }

    /// Waits for the end of one at least, where any has begun.
    pub fn wait(&self) -> io::Result<()> {
        if self.requests.count() == 0 {
            return Ok(());
        }
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

/// With what newer kernels offer to who uses a ring from one thread, else without.
fn build(requests_max: u32) -> io::Result<IoUring> {
    let best = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(requests_max.saturating_mul(2))
        .build(requests_max);
    match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(requests_max),
        result => result,
    }
}

fn is_aligned<B: ?Sized>(buffer: &Lent<B>, offset: u64, len: usize) -> bool {
    len > 0
        && len <= buffer.len()
        && len.is_multiple_of(DIRECT_ALIGN)
        && offset.is_multiple_of(DIRECT_ALIGN as u64)
        && buffer.start().addr().get().is_multiple_of(DIRECT_ALIGN)
}

impl<B: ?Sized> Drop for Ring<B> {
    fn drop(&mut self) {
        while self.requests.count() > 0 {
            let waited = self.ring.submit_and_wait(1);
            let ids: Vec<_> =
                self.ring.completion().map(|entry| RequestId(entry.user_data() as usize)).collect();
            for id in ids {
                // SAFETY: the kernel has said so just now.
                drop(unsafe { self.requests.take(id) });
            }
            let failed = waited.err().filter(|error| error.kind() != io::ErrorKind::Interrupted);
            if failed.is_some() {
                // What is left is better lost than freed under the kernel's hands.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
