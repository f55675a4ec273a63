//! A port at which one server tells its counters, for those who asked for one.
//!
//! A thread that sleeps until somebody connects: a node that nobody asks does nothing. It asks the server
//! as any process of the node does, one question at a time, so the server's own work is one request.
//! It speaks as much HTTP/1.1 as `GET /metrics` needs, and holds no state.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Measured, text};
use crate::advice::{Advice, Advise};
use crate::wiring::status::server_status;

/// A whole question; longer ones are dropped.
const QUESTION_BYTES_MAX: u64 = 8 << 10;

/// Who does not ask, or does not listen, within this is dropped.
const CALLER_PATIENCE: Duration = Duration::from_secs(2);

/// How long the server may take.
const SERVER_PATIENCE: Duration = Duration::from_secs(5);

/// After accept(2) failed: it would fail again at once.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a text is no address to listen at.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected PORT or ADDRESS:PORT, for example 0.0.0.0:9464")]
pub(crate) struct MetricsAddressError(String);

/// `PORT`, on the loopback address, or `ADDRESS:PORT`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, MetricsAddressError> {
    let wrong = || MetricsAddressError(text.to_owned());
    let address = match text.parse::<u16>() {
        Ok(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        Err(_) => text.parse().map_err(|_| wrong())?,
    };
    if address.port() == 0 { Err(wrong()) } else { Ok(address) }
}

/// Whose counters are told.
#[derive(Debug)]
pub(crate) struct Told {
    /// The job.
    pub(crate) job: String,
    /// The node.
    pub(crate) node: u16,
    /// For people.
    pub(crate) host: String,
    /// The server's socket.
    pub(crate) socket: PathBuf,
}

/// The port can not be had.
#[derive(Debug, thiserror::Error)]
#[error("listen at {address} for Prometheus (--metrics)")]
pub(crate) struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

impl ListenError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<&'static str> {
        match self.source.kind() {
            io::ErrorKind::AddrInUse => {
                Some("another program of this host, or another job, has that port: choose another")
            }
            io::ErrorKind::AddrNotAvailable => {
                Some("this host does not have that address; 0.0.0.0 means all its IPv4 addresses")
            }
            io::ErrorKind::PermissionDenied => Some("choose a port from 1024 up"),
            _ => None,
        }
    }
}

impl Advise for ListenError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::failure(self.help().map(str::to_owned)))
    }
}

/// Opens the port and answers there until the process ends.
///
/// # Errors
/// When the port can not be had.
pub(crate) fn listen(address: SocketAddr, told: Told) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).map_err(|source| ListenError { address, source })?;
    tracing::info!(%address, "serving counters for Prometheus");
    serve(listener, told)
}

/// On a thread of its own.
fn serve(listener: TcpListener, told: Told) -> anyhow::Result<()> {
    let serve = move || {
        for caller in listener.incoming() {
            match caller {
                Ok(caller) => {
                    if let Err(error) = answer(&caller, &told) {
                        tracing::debug!(%error, "a question about counters");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "nobody can ask for counters now");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(serve)
        .context("start a thread")?;
    Ok(())
}

/// Reads of a caller until a moment, however slowly its bytes come.
struct Until<'a> {
    caller: &'a TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.caller.set_read_timeout(Some(left))?;
        self.caller.read(buffer)
    }
}

fn answer(mut caller: &TcpStream, told: &Told) -> io::Result<()> {
    caller.set_write_timeout(Some(CALLER_PATIENCE))?;
    let question = Until { caller, end: Instant::now() + CALLER_PATIENCE };
    let mut lines = BufReader::new(question.take(QUESTION_BYTES_MAX)).lines();
    let first = lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
    // To the end of the question: who is still writing would not read.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let (status, body) = reply(&first, || {
        let served = server_status(&told.socket, SERVER_PATIENCE);
        let (job, node, host) = (told.job.as_str(), told.node, told.host.as_str());
        text(&[Measured { job, node, host, served: served.as_ref().ok() }])
    });
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    caller.write_all(head.as_bytes())?;
    caller.write_all(body.as_bytes())
}

/// Status and body for the first line of a question.
fn reply(line: &str, counters: impl FnOnce() -> String) -> (&'static str, String) {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("GET"), Some("/metrics"), Some(version)) if version.starts_with("HTTP/1.") => {
            ("200 OK", counters())
        }
        (Some("GET"), Some(_), Some(_)) => ("404 Not Found", "ask for /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET only\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine_only() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse_address(text).map(|at| at.to_string()).as_deref(), Ok(expected));
        };
        check("9464", "127.0.0.1:9464");
        check("0.0.0.0:9464", "0.0.0.0:9464");
        check("[::1]:9464", "[::1]:9464");
        for bad in ["", "0", "70000", "localhost:1", "1.2.3.4", "1.2.3.4:0"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_counters_are_told() {
        let status = |line: &str| reply(line, || "counted".to_owned());
        assert_eq!(status("GET /metrics HTTP/1.1"), ("200 OK", "counted".to_owned()));
        assert!(status("GET /../secret HTTP/1.1").0.starts_with("404"));
        assert!(status("POST /metrics HTTP/1.1").0.starts_with("405"));
        assert!(status("\u{16}\u{3}").0.starts_with("405"));
    }

    /// Over a real socket; the server is not there, so all that is told is that.
    #[test]
    fn who_says_nothing_keeps_nobody_waiting_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = PathBuf::from("/nowhere/server.sock");
        serve(listener, Told { job: "j".into(), node: 3, host: "h".into(), socket }).unwrap();
        let silent = TcpStream::connect(address).unwrap();
        let mut asking = TcpStream::connect(address).unwrap();
        asking.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut told = String::new();
        asking.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
        assert!(told.ends_with("hayase_up{job=\"j\",node=\"3\",host=\"h\"} 0\n"), "{told}");
        drop(silent);
    }
}
