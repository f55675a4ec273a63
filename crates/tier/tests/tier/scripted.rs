//! A server that does what a test tells it: answers, lies, breaks off, falls silent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request as it came, names of headers in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `METHOD /path?query`.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The range that was asked for: first and last byte.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, more headers, body; the length is told.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// An answer whose length is told, of which only so many bytes come.
    Cut(Vec<(&'static str, String)>, Vec<u8>, usize),
    /// The connection ends without a word.
    Close,
    /// Nothing, for so long.
    Silence(Duration),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

/// An error document.
pub(crate) fn error(status: u16, code: &str) -> Reply {
    let document = format!("<Error><Code>{code}</Code><Message>as told</Message></Error>");
    Reply::Answer(status, vec![], document.into_bytes())
}

/// An empty page of a listing, which is what `attach` asks for.
pub(crate) fn empty_page() -> Reply {
    let page = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    Reply::Answer(200, vec![], page.into())
}

type Handler = dyn FnMut(usize, &Request) -> Reply + Send;

/// Serves until the process ends; each request is kept.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// `handler` gets the number of the request, counted from 0 behind those of `attach`, and the request.
    pub(crate) fn start(handler: impl FnMut(usize, &Request) -> Reply + Send + 'static) -> Self {
        Self::with_tls(None, handler)
    }

    pub(crate) fn with_tls(
        tls: Option<Arc<ServerConfig>>,
        handler: impl FnMut(usize, &Request) -> Reply + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Mutex<Box<Handler>>> = Arc::new(Mutex::new(Box::new(handler)));
        let requests = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, handler) = (Arc::clone(&requests), Arc::clone(&handler));
                let tls = tls.clone();
                thread::spawn(move || match tls {
                    None => serve(stream, &seen, &handler),
                    Some(config) => {
                        let session = ServerConnection::new(config).unwrap();
                        serve(StreamOwned::new(session, stream), &seen, &handler);
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests behind those of `attach`.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: impl Read + Write, seen: &Mutex<Vec<Request>>, handler: &Mutex<Box<Handler>>) {
    let mut ahead = Vec::new();
    while let Some(request) = receive(&mut stream, &mut ahead) {
        let knock =
            request.line.contains("list-type=2&max-keys=1&") && !request.line.contains("encoding");
        let number = seen.lock().unwrap().len();
        let reply = handler.lock().unwrap()(number, &request);
        if !knock {
            seen.lock().unwrap().push(request.clone());
        }
        if !send(&mut stream, &request, reply) {
            return;
        }
    }
}

fn receive(stream: &mut impl Read, ahead: &mut Vec<u8>) -> Option<Request> {
    let mut piece = [0; 65536];
    let end = loop {
        if let Some(end) = ahead.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        ahead.extend_from_slice(&piece[..count]);
    };
    let head = String::from_utf8(ahead.drain(..end).collect()).unwrap();
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while ahead.len() < length {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        ahead.extend_from_slice(&piece[..count]);
    }
    Some(Request { line, headers, body: ahead.drain(..length).collect() })
}

/// False when the connection is over.
fn send(stream: &mut (impl Read + Write), request: &Request, reply: Reply) -> bool {
    let (status, headers, body, count) = match reply {
        Reply::Answer(status, headers, body) => {
            let count = body.len();
            (status, headers, body, count)
        }
        Reply::Cut(headers, body, count) => (200, headers, body, count),
        Reply::Close => return false,
        Reply::Silence(time) => {
            thread::sleep(time);
            return false;
        }
        Reply::Raw(bytes) => {
            let _ = stream.write_all(&bytes);
            return false;
        }
    };
    // A length of its own, or that of the body.
    let length = headers.iter().find(|(name, _)| *name == "content-length");
    let length = length.map_or(body.len().to_string(), |(_, length)| length.clone());
    let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| *name != "content-length") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let bodiless = request.line.starts_with("HEAD");
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| if bodiless { Ok(()) } else { stream.write_all(&body[..count]) });
    let _ = stream.flush();
    sent.is_ok() && (bodiless || count == body.len())
}
