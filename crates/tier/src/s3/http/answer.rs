//! Heads of answers and how long their bodies are.

use std::io;

use super::Connection;
use crate::s3::limits::HEADERS_MAX;

/// Status and header lines of an answer.
#[derive(Debug)]
pub(in crate::s3) struct Head {
    pub(in crate::s3) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// The connection may be used again afterwards.
    pub(super) keep: bool,
}

impl Head {
    /// The first value of a header; `name` in lower case.
    pub(in crate::s3) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// So many bytes are left of this chunk; more chunks follow.
    Chunk { left: u64, first: bool },
    /// Everything until the server hangs up.
    Close,
    /// All of it was read.
    Done,
}

/// Reads heads until one is final (100 Continue is not).
pub(super) fn read_head(
    connection: &mut Connection,
    bodiless: bool,
) -> io::Result<(Head, Framing)> {
    loop {
        let (head, length) = read_any_head(connection)?;
        if head.status >= 200 {
            let framing = framing(&head, bodiless)?;
            connection.take(length);
            return Ok((head, framing));
        }
        connection.take(length);
    }
}

fn read_any_head(connection: &mut Connection) -> io::Result<(Head, usize)> {
    if connection.ahead()?.is_empty() {
        return Err(hung_up("before its answer"));
    }
    loop {
        if let Some(found) = parse(connection.ahead()?)? {
            return Ok(found);
        }
        if !connection.read_more()? {
            return Err(hung_up("within the head of its answer"));
        }
    }
}

pub(super) fn hung_up(when: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the server hung up {when}"))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A head and its length, when it is complete.
pub(in crate::s3) fn parse(bytes: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut lines);
    let status = answer
        .parse(bytes)
        .map_err(|error| invalid(format!("what answers does not speak HTTP: {error}")))?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    if ends_a_line_early(&bytes[..length]) {
        return Err(invalid("a line of an answer's head does not end as lines of HTTP do"));
    }
    let headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .map(|line| {
            (line.name.to_ascii_lowercase(), String::from_utf8_lossy(line.value).trim().to_owned())
        })
        .collect();
    let mut head =
        Head { status: answer.code.unwrap_or(0), headers, keep: answer.version == Some(1) };
    if let Some(said) = head.get("connection") {
        head.keep = if head.keep {
            !said.eq_ignore_ascii_case("close")
        } else {
            said.eq_ignore_ascii_case("keep-alive")
        };
    }
    Ok(Some((head, length)))
}

/// A line feed alone: RFC 9112 (2.2) lets us refuse it, and one changed byte would end a head before the lines that
/// say how to check what follows.
fn ends_a_line_early(head: &[u8]) -> bool {
    let is_alone = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    (0..head.len()).any(is_alone)
}

fn framing(head: &Head, bodiless: bool) -> io::Result<Framing> {
    if bodiless || matches!(head.status, 204 | 304) {
        return Ok(Framing::Done);
    }
    if let Some(coding) = head.get("transfer-encoding") {
        if !coding.eq_ignore_ascii_case("chunked") {
            return Err(invalid(format!("a transfer encoding `{coding}`")));
        }
        return Ok(Framing::Chunk { left: 0, first: true });
    }
    let mut lengths = head.headers.iter().filter(|(name, _)| name == "content-length");
    let Some((_, length)) = lengths.next() else { return Ok(Framing::Close) };
    if lengths.any(|(_, other)| other != length) {
        return Err(invalid("an answer with two lengths"));
    }
    let length = length.parse().map_err(|_| invalid(format!("a content-length `{length}`")))?;
    Ok(if length == 0 { Framing::Done } else { Framing::Length(length) })
}

/// Some bytes of the body into `buffer`; 0 when all was read.
pub(super) fn read_body(
    connection: &mut Connection,
    framing: &mut Framing,
    buffer: &mut [u8],
) -> io::Result<usize> {
    if buffer.is_empty() {
        return Ok(0);
    }
    if let Framing::Chunk { left: 0, first } = *framing {
        *framing = next_chunk(connection, first)?;
    }
    match *framing {
        Framing::Done => Ok(0),
        Framing::Close => {
            let count = connection.read(buffer)?;
            if count == 0 {
                *framing = Framing::Done;
            }
            Ok(count)
        }
        Framing::Length(left) => {
            let count = read_some(connection, left, buffer)?;
            let left = left - count as u64;
            *framing = if left == 0 { Framing::Done } else { Framing::Length(left) };
            Ok(count)
        }
        Framing::Chunk { left, .. } => {
            let count = read_some(connection, left, buffer)?;
            *framing = Framing::Chunk { left: left - count as u64, first: false };
            Ok(count)
        }
    }
}

fn read_some(connection: &mut Connection, left: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    match connection.read(&mut buffer[..wanted])? {
        0 => Err(hung_up(&format!("{left} bytes before the end of its answer"))),
        count => Ok(count),
    }
}

/// The size line of the next chunk, or the end.
fn next_chunk(connection: &mut Connection, first: bool) -> io::Result<Framing> {
    if !first && !read_line(connection)?.is_empty() {
        return Err(invalid("a chunk without an end"));
    }
    let line = read_line(connection)?;
    let digits = line.split(';').next().unwrap_or("").trim();
    let size = u64::from_str_radix(digits, 16).map_err(|_| invalid("a chunk without a size"))?;
    if size > 0 {
        return Ok(Framing::Chunk { left: size, first: false });
    }
    for _ in 0..HEADERS_MAX {
        if read_line(connection)?.is_empty() {
            return Ok(Framing::Done);
        }
    }
    Err(invalid("trailers without an end"))
}

fn read_line(connection: &mut Connection) -> io::Result<String> {
    loop {
        let ahead = connection.ahead()?;
        if let Some(end) = ahead.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&ahead[..end]).trim_end().to_owned();
            connection.take(end + 1);
            return Ok(line);
        }
        if !connection.read_more()? {
            return Err(hung_up("within a chunk"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> io::Result<Option<(Head, usize)>> {
        parse(text.as_bytes())
    }

    #[test]
    fn heads_tell_status_framing_and_whether_to_stay() {
        let check = |text: &str, bodiless, expected: Framing, keep: bool| {
            let (head, length) = head(text).unwrap().unwrap();
            assert_eq!(framing(&head, bodiless).unwrap(), expected, "{text}");
            assert_eq!((head.keep, length), (keep, text.len()), "{text}");
        };
        let ok = "HTTP/1.1 200 OK\r\n";
        check(&format!("{ok}Content-Length: 5\r\n\r\n"), false, Framing::Length(5), true);
        check(&format!("{ok}Content-Length: 5\r\n\r\n"), true, Framing::Done, true);
        check(&format!("{ok}content-length: 0\r\n\r\n"), false, Framing::Done, true);
        check(&format!("{ok}connection: close\r\n\r\n"), false, Framing::Close, false);
        check("HTTP/1.0 200 OK\r\n\r\n", false, Framing::Close, false);
        let chunked = Framing::Chunk { left: 0, first: true };
        check(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n"), false, chunked, true);
        check("HTTP/1.1 204 No Content\r\n\r\n", false, Framing::Done, true);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        assert!(head("HTTP/1.1 200 OK\r\ncontent-").unwrap().is_none());
        assert!(head("SSH-2.0-OpenSSH\r\n").is_err());
        for text in ["HTTP/1.1 200 OK\n\r\n", "HTTP/1.1 206 x\r\netag: \"v1\n\r\nsum: 5\r\n\r\n"] {
            assert!(head(text).is_err(), "{text}");
        }
        for lines in
            ["content-length: x", "content-length: 1\r\ncontent-length: 2", "transfer-encoding: br"]
        {
            let (head, _) = head(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).unwrap().unwrap();
            assert!(framing(&head, false).is_err(), "{lines}");
        }
    }
}
