//! Lines from a pipe, read without waiting: how daemons tell that they are ready.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// A line longer than this is cut.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The reading end of a pipe, cut into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    fd: OwnedFd,
    pending: Vec<u8>,
    is_at_end: bool,
}

impl Lines {
    /// Reads from `fd`, which is made non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self { fd, pending: Vec::new(), is_at_end: false })
    }

    /// The next whole line without its end, if one has come.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.is_at_end || !self.fill() {
                return None;
            }
        }
    }

    /// True when something new was read.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 4096];
        match rustix::io::read(&self.fd, &mut chunk) {
            Ok(0) => {
                self.is_at_end = true;
                // The last line may have no end of its own.
                if !self.pending.is_empty() {
                    self.pending.push(b'\n');
                }
                !self.pending.is_empty()
            }
            Ok(count) => {
                self.pending.extend_from_slice(&chunk[..count]);
                if self.pending.len() > LINE_BYTES_MAX && !self.pending.contains(&b'\n') {
                    self.pending.truncate(LINE_BYTES_MAX);
                    self.pending.push(b'\n');
                }
                true
            }
            Err(rustix::io::Errno::INTR) => self.fill(),
            Err(rustix::io::Errno::AGAIN) => false,
            Err(_) => {
                self.is_at_end = true;
                false
            }
        }
    }

    /// The other side is closed and everything was taken.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_at_end && self.pending.is_empty()
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_the_last_one_without_its_end() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut lines = Lines::new(reader).unwrap();
        assert_eq!(lines.next(), None);
        rustix::io::write(&writer, b"one\ntw").unwrap();
        assert_eq!(lines.next().as_deref(), Some("one"));
        assert_eq!(lines.next(), None);
        rustix::io::write(&writer, b"o\nlast").unwrap();
        assert_eq!(lines.next().as_deref(), Some("two"));
        assert!(!lines.is_at_end());
        drop(writer);
        assert_eq!(lines.next().as_deref(), Some("last"));
        assert_eq!(lines.next(), None);
        assert!(lines.is_at_end());
    }
}
