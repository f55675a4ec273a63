//! Messages of the node's socket as bytes: 16 bytes of header, a body, perhaps a descriptor.
//! Descriptors of messages that were sent together come with the first of them, in their order.
//!
//! Here: taking messages apart as they come in, free of any waiting, so that the async and the
//! blocking channel share it; the way to sockets whose path is too long for the kernel.
//! Drawn in `FORMAT.md`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::NodeError;
use crate::limits::{BODY_BYTES_MAX, CHANNEL_BUFFER_BYTES};

pub(super) const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"HYND";
const FLAGS_AT: usize = 8;
const FLAG_DESCRIPTOR: u32 = 1;

/// The header of a body of `len` bytes.
pub(super) fn header(len: usize, descriptor: bool) -> Result<[u8; HEADER_BYTES], NodeError> {
    if len > BODY_BYTES_MAX {
        return Err(NodeError::TooLarge { bytes: len });
    }
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    bytes[8..12].copy_from_slice(&u32::from(descriptor).to_le_bytes());
    Ok(bytes)
}

/// Length of the body, and whether a descriptor comes with it.
fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<(usize, bool), NodeError> {
    let u32_at = |at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
    };
    if bytes[0..4] != MAGIC {
        return Err(NodeError::Malformed { what: "it does not start as one" });
    }
    let (len, flags) = (u32_at(4) as usize, u32_at(8));
    if flags & !FLAG_DESCRIPTOR != 0 || u32_at(12) != 0 {
        return Err(NodeError::Malformed { what: "reserved bits are set" });
    }
    if len > BODY_BYTES_MAX {
        return Err(NodeError::Malformed { what: "it announces more bytes than allowed" });
    }
    Ok((len, flags & FLAG_DESCRIPTOR != 0))
}

/// What came of a message so far.
pub(super) struct Inbox {
    buffer: Vec<u8>,
    filled: usize,
    /// Of the start of `buffer`: a message that was taken.
    taken: usize,
    /// Of this message, and of those behind it.
    descriptors: VecDeque<OwnedFd>,
    descriptors_max: usize,
    /// The next message may come before this one was answered.
    may_follow: bool,
}

impl Inbox {
    /// For messages that are answered one by one.
    pub(super) fn new() -> Self {
        let buffer = vec![0; CHANNEL_BUFFER_BYTES];
        Self {
            buffer,
            filled: 0,
            taken: 0,
            descriptors: VecDeque::new(),
            descriptors_max: 1,
            may_follow: false,
        }
    }

    /// For messages of a server, whose first callback may be right behind its welcome.
    pub(super) fn of_server() -> Self {
        Self { may_follow: true, ..Self::new() }
    }

    /// From now on messages need not wait for the answers to those before.
    pub(super) fn may_follow(&mut self) {
        self.may_follow = true;
    }

    /// From now on so many descriptors may come at once.
    pub(super) fn takes_descriptors(&mut self, max: usize) {
        self.descriptors_max = max;
    }

    /// Where the next bytes go, never empty while a message is incomplete, and their descriptors.
    pub(super) fn room(&mut self) -> (&mut [u8], &mut VecDeque<OwnedFd>) {
        (&mut self.buffer[self.filled..], &mut self.descriptors)
    }

    /// `count` bytes came into the room, 0 at the end of the stream.
    pub(super) fn add(&mut self, count: usize) -> Result<(), NodeError> {
        if count == 0 {
            return Err(if self.filled == 0 {
                NodeError::Closed
            } else {
                NodeError::Malformed { what: "it ends in the middle" }
            });
        }
        self.filled += count;
        if self.descriptors.len() > self.descriptors_max {
            return Err(NodeError::Malformed { what: "it brings more descriptors than it may" });
        }
        Ok(())
    }

    /// The length of the body once all of it is here; makes room for a long one.
    pub(super) fn complete(&mut self) -> Result<Option<usize>, NodeError> {
        let Some(bytes) = self.buffer[..self.filled].first_chunk() else {
            return Ok(None);
        };
        let (len, descriptor) = parse(bytes)?;
        let whole = HEADER_BYTES + len;
        if self.filled < whole {
            if self.buffer.len() < whole {
                self.buffer.resize(whole, 0);
            }
            return Ok(None);
        }
        if self.filled > whole && !self.may_follow {
            return Err(NodeError::Malformed { what: "another one follows before its answer" });
        }
        // Where many may come, those that are there may be of messages behind this one.
        let is_wrong = match descriptor {
            true => self.descriptors.is_empty(),
            false => self.descriptors_max == 1 && !self.descriptors.is_empty(),
        };
        if is_wrong {
            return Err(NodeError::Malformed { what: "its descriptor is missing or unannounced" });
        }
        Ok(Some(len))
    }

    /// Takes the complete message of `len` bytes; its body stays readable until the next.
    pub(super) fn take(&mut self, len: usize) -> (&[u8], Option<OwnedFd>) {
        self.taken = HEADER_BYTES + len;
        let descriptor = match self.buffer[FLAGS_AT] & FLAG_DESCRIPTOR as u8 {
            0 => None,
            _ => self.descriptors.pop_front(),
        };
        (&self.buffer[HEADER_BYTES..HEADER_BYTES + len], descriptor)
    }

    /// Begins the next message, with what came of it behind the last; gives memory of a rare long
    /// one back.
    pub(super) fn begin(&mut self) {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= std::mem::take(&mut self.taken);
        if self.filled == 0 && self.buffer.len() > CHANNEL_BUFFER_BYTES {
            self.buffer.truncate(CHANNEL_BUFFER_BYTES);
            self.buffer.shrink_to_fit();
        }
    }
}

/// Longest path that fits into `sun_path` with its NUL.
const SUN_PATH_MAX: usize = 107;

/// A path for `bind` or `connect` that is short enough: the directory's descriptor stands for a
/// long one, and must be kept open meanwhile.
pub(super) fn short_path(path: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    if path.as_os_str().len() <= SUN_PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let (parent, name) = (path.parent().ok_or_else(invalid)?, path.file_name());
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", parent.as_fd().as_raw_fd()))
        .join(name.ok_or_else(invalid)?);
    Ok((short, Some(parent)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `bytes` in pieces of `step`; the message, when it becomes complete.
    fn feed(bytes: &[u8], step: usize) -> Result<Option<Vec<u8>>, NodeError> {
        let mut inbox = Inbox::new();
        for piece in bytes.chunks(step) {
            inbox.room().0[..piece.len()].copy_from_slice(piece);
            inbox.add(piece.len())?;
            if let Some(len) = inbox.complete()? {
                return Ok(Some(inbox.take(len).0.to_vec()));
            }
        }
        Ok(None)
    }

    fn message(body: &[u8]) -> Vec<u8> {
        [&header(body.len(), false).unwrap()[..], body].concat()
    }

    #[test]
    fn messages_come_together_from_any_pieces() {
        let long = vec![3; BODY_BYTES_MAX];
        for body in [&b""[..], b"x", b"a message", &long] {
            for step in [1000, 4096, 60_000] {
                assert_eq!(feed(&message(body), step).unwrap().unwrap(), body);
            }
        }
        assert_eq!(
            feed(&message(b"one byte at a time"), 1).unwrap().unwrap(),
            b"one byte at a time"
        );
        assert!(feed(&message(b"cut")[..18], 5).unwrap().is_none());
    }

    #[test]
    fn what_a_server_sends_in_a_row_comes_one_by_one() {
        let long = vec![5; CHANNEL_BUFFER_BYTES];
        let bodies = [&b"welcome"[..], b"", b"a callback", &long, b"another"];
        let bytes = bodies.iter().flat_map(|body| message(body)).collect::<Vec<_>>();
        for step in [1, 20, 1000] {
            let (mut inbox, mut pieces, mut found) = (Inbox::of_server(), &bytes[..], Vec::new());
            while found.len() < bodies.len() {
                inbox.begin();
                while inbox.complete().unwrap().is_none() {
                    let count = step.min(pieces.len()).min(inbox.room().0.len());
                    inbox.room().0[..count].copy_from_slice(&pieces[..count]);
                    inbox.add(count).unwrap();
                    pieces = &pieces[count..];
                }
                let len = inbox.complete().unwrap().unwrap();
                found.push(inbox.take(len).0.to_vec());
            }
            assert_eq!(found, bodies);
            inbox.begin();
            assert!(matches!(inbox.add(0), Err(NodeError::Closed)));
        }
    }

    /// Three messages that came together; the first and the last have a descriptor.
    fn with_descriptors(
        descriptors: usize,
        descriptors_max: usize,
    ) -> Result<[bool; 3], NodeError> {
        let mut inbox = Inbox::of_server();
        inbox.takes_descriptors(descriptors_max);
        let mut bytes = Vec::new();
        for has_descriptor in [true, false, true] {
            bytes.extend_from_slice(&header(0, has_descriptor).unwrap());
        }
        let (room, came) = inbox.room();
        room[..bytes.len()].copy_from_slice(&bytes);
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        came.extend((0..descriptors).map(|_| open()));
        inbox.add(bytes.len())?;
        let mut found = [false; 3];
        for has_descriptor in &mut found {
            inbox.begin();
            let len = inbox.complete()?.unwrap();
            *has_descriptor = inbox.take(len).1.is_some();
        }
        Ok(found)
    }

    #[test]
    fn descriptors_that_come_together_go_to_their_messages() {
        assert_eq!(with_descriptors(2, 2).unwrap(), [true, false, true]);
        let wrong = |descriptors, max| with_descriptors(descriptors, max).unwrap_err().to_string();
        assert!(wrong(1, 2).ends_with("its descriptor is missing or unannounced"));
        assert!(wrong(3, 2).ends_with("it brings more descriptors than it may"));
        assert!(wrong(2, 1).ends_with("it brings more descriptors than it may"));
    }

    #[test]
    fn bad_messages_are_told_apart() {
        let check = |at: usize, value: u8, expected: &str| {
            let mut bytes = message(b"body");
            bytes[at] = value;
            assert_eq!(feed(&bytes, 64).unwrap_err().to_string(), expected);
        };
        check(0, b'X', "message of this node's socket: it does not start as one");
        check(7, 1, "message of this node's socket: it announces more bytes than allowed");
        check(8, 2, "message of this node's socket: reserved bits are set");
        check(8, 1, "message of this node's socket: its descriptor is missing or unannounced");
        check(4, 3, "message of this node's socket: another one follows before its answer");
        assert!(matches!(header(BODY_BYTES_MAX + 1, false), Err(NodeError::TooLarge { .. })));
        let mut inbox = Inbox::of_server();
        assert!(matches!(inbox.add(0), Err(NodeError::Closed)));
        inbox.add(1).unwrap();
        assert!(matches!(inbox.add(0), Err(NodeError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 1..64), step in 1..64usize, magic: bool
        ) {
            let mut bytes = bytes;
            if magic && bytes.len() >= 12 {
                let len = usize::from(bytes[4]) % 64;
                bytes[..12].copy_from_slice(&header(len, false).unwrap()[..12]);
            }
            if let Ok(Some(body)) = feed(&bytes, step) {
                prop_assert_eq!(&message(&body)[..], &bytes[..HEADER_BYTES + body.len()]);
            }
        }
    }
}
