//! Bytes on their way into a pipe whose reader may be slow, or may hang: written as far as it takes them, never waited for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The writing end of a pipe and what it has not taken yet.
#[derive(Debug)]
pub(crate) struct Outbox {
    fd: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    is_closing: bool,
}

impl Outbox {
    /// Writes to `fd`, which is made non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self { fd: Some(fd), waiting: VecDeque::new(), is_closing: false })
    }

    /// Adds bytes and writes what can be written.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if self.fd.is_some() && !self.is_closing {
            self.waiting.extend(bytes);
            self.flush();
        }
    }

    /// Closes the pipe once everything is written.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.flush();
    }

    /// Writes what can be written. A reader who has gone is noticed by the end of its process, not here.
    pub(crate) fn flush(&mut self) {
        while let (Some(fd), false) = (&self.fd, self.waiting.is_empty()) {
            let (front, _) = self.waiting.as_slices();
            match rustix::io::write(fd, front) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.fd = None;
                    self.waiting.clear();
                }
            }
        }
        if self.is_closing {
            self.fd = None;
        }
    }

    /// What to wait for: the pipe, while something waits for it.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_slow_reader_gets_everything_and_then_the_end() {
        let (reader, writer) = io::pipe().unwrap();
        let mut outbox = Outbox::new(writer.into()).unwrap();
        let bytes: Vec<u8> = (0..300_000).map(|n| (n % 251) as u8).collect();
        outbox.send(&bytes);
        outbox.close();
        assert!(outbox.wants_to_write().is_some(), "a pipe does not hold all of it");
        let read = std::thread::spawn(move || {
            let mut found = Vec::new();
            let mut reader = reader;
            reader.read_to_end(&mut found).unwrap();
            found
        });
        while outbox.wants_to_write().is_some() {
            outbox.flush();
            std::thread::yield_now();
        }
        assert_eq!(read.join().unwrap(), bytes);
    }

    #[test]
    fn a_reader_who_has_gone_is_no_trouble() {
        let (reader, writer) = io::pipe().unwrap();
        let mut outbox = Outbox::new(writer.into()).unwrap();
        drop(reader);
        outbox.send(b"x");
        assert!(outbox.wants_to_write().is_none());
    }
}
