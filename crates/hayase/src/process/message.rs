//! Messages between processes of this program on one host: each is one JSON object in a line.
//!
//! Supervisors and daemons say them on their standard output, commands and supervisors exchange them over a socket,
//! workers of `stage` get one by their standard input. Between hosts they are cut and marked in addition
//! ([`crate::launch::tree::lines`]): login scripts print, and srun mixes the lines of all nodes.

use std::io::{self, BufRead, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message as a line. Messages are plain data, which always becomes JSON.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("messages are plain data");
    line.push(b'\n');
    line
}

/// The next message from `reader`, of at most `bytes_max` with its end. Waits for it.
///
/// # Errors
/// `UnexpectedEof` where the line has no end, also because it is longer; `InvalidData` for a line that is no such message;
/// those of reading.
pub(crate) fn receive<M: DeserializeOwned>(
    reader: &mut impl BufRead,
    bytes_max: u64,
) -> io::Result<M> {
    let mut line = Vec::new();
    reader.take(bytes_max).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let what = match line.len() {
            0 => "it ended without a message".to_owned(),
            len => format!("a message without its end, after {len} bytes"),
        };
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    let not_one = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    serde_json::from_slice(&line).map_err(not_one)
}

/// Whether [`receive`] failed because no message came, and not because nothing could be read.
pub(crate) fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_by_one() {
        let stream = [encode(&"one\ntwo"), encode(&3)].concat();
        let mut reader = stream.as_slice();
        assert_eq!(receive::<String>(&mut reader, 99).unwrap(), "one\ntwo");
        assert_eq!(receive::<u8>(&mut reader, 99).unwrap(), 3);
        let end = receive::<u8>(&mut reader, 99).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_cut_too_long_or_something_else_is_no_message() {
        for (line, bytes_max, kind) in [
            (&b"12"[..], 99, io::ErrorKind::UnexpectedEof),
            (b"12345\n", 3, io::ErrorKind::UnexpectedEof),
            (b"", 99, io::ErrorKind::UnexpectedEof),
            (b"rubbish\n", 99, io::ErrorKind::InvalidData),
            (b"{\n", 99, io::ErrorKind::InvalidData),
            (b"\n", 99, io::ErrorKind::InvalidData),
        ] {
            assert_eq!(receive::<u32>(&mut &*line, bytes_max).unwrap_err().kind(), kind);
        }
    }
}
