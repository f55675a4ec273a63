//! A line to a store that is as slow as it is told: a round trip, limits of each connection and of all
//! together, and a number of requests a second above which the store refuses.
//!
//! Two threads for each connection, one for each direction, and each direction has the limits for itself. The round
//! trip is paid once for each request, before it goes on. Requests are understood as far as needed to refuse one:
//! a head, and a body of the length that it tells; a client that sends a request before it has the answer
//! to the last one is not understood.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// What is read and paced at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Longest head of a request.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Bytes that may pass at once after a pause, in seconds of their rate.
const BURST: f64 = 0.02;

/// The same of requests, which stores count over some time.
const REQUESTS_BURST: f64 = 0.25;

/// What a store says that is asked too often.
const SLOW_DOWN: &str = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>";

/// How the line is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) round_trip: Duration,
    /// Bytes per second of one connection, in each direction.
    pub(super) connection: f64,
    /// Bytes per second of all together, in each direction.
    pub(super) total: f64,
    /// Requests per second, infinite where nobody counts; what comes above is refused.
    pub(super) requests: f64,
}

/// A rate that is kept: the time until which everything is given away.
#[derive(Debug)]
struct Pace(Instant);

impl Pace {
    /// Takes `amount`; when it may be used.
    fn take(&mut self, amount: f64, rate: f64) -> Instant {
        self.forgive(BURST);
        self.0 += Duration::from_secs_f64(amount / rate);
        self.0
    }

    /// Takes `amount` unless that is too much now.
    fn try_take(&mut self, amount: f64, rate: f64) -> bool {
        self.forgive(REQUESTS_BURST);
        let may = self.0 <= Instant::now() && rate > 0.0;
        if may {
            self.0 += Duration::from_secs_f64(amount / rate);
        }
        may
    }

    fn forgive(&mut self, burst: f64) {
        let now = Instant::now();
        let oldest = now.checked_sub(Duration::from_secs_f64(burst)).unwrap_or(now);
        self.0 = self.0.max(oldest);
    }
}

#[derive(Debug)]
struct Line {
    store: SocketAddr,
    conditions: Mutex<Conditions>,
    /// Of all connections, to the store and from it.
    forth: Mutex<Pace>,
    back: Mutex<Pace>,
    accepted: Mutex<Pace>,
    passed: AtomicU64,
    asked: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// A line that is open as long as this value; connections end with their clients.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    line: Arc<Line>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// A line to `store` on a port of loopback.
    pub(super) fn start(store: SocketAddr, conditions: Conditions) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("listen")?;
        let address = listener.local_addr()?;
        let line = Arc::new(Line {
            store,
            conditions: Mutex::new(conditions),
            forth: Mutex::new(Pace(Instant::now())),
            back: Mutex::new(Pace(Instant::now())),
            accepted: Mutex::new(Pace(Instant::now())),
            passed: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&line);
        let accept = move || {
            for client in listener.incoming() {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // One that can not be served is closed: its client finds out.
                let _ = client.and_then(|client| of_thread.serve(client));
            }
        };
        let thread = Some(thread::Builder::new().name("proxy".into()).spawn(accept)?);
        Ok(Self { address, line, thread })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on.
    pub(super) fn set(&self, conditions: Conditions) {
        *self.line.conditions.lock().unwrap_or_else(PoisonError::into_inner) = conditions;
    }

    /// Requests are refused above some number a second.
    pub(super) fn is_counted(&self) -> bool {
        self.line.conditions().requests.is_finite()
    }

    /// Bytes of answers and of the bodies of requests so far.
    pub(super) fn passed(&self) -> u64 {
        self.line.passed.load(Ordering::Relaxed)
    }

    /// Requests so far, those that were refused among them.
    pub(super) fn asked(&self) -> u64 {
        self.line.asked.load(Ordering::Relaxed)
    }

    /// Requests that were refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.line.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.line.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for clients.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Line {
    fn conditions(&self) -> Conditions {
        *self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let store = TcpStream::connect(self.store)?;
        client.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let (line, to_client, from_store) =
            (Arc::clone(self), client.try_clone()?, store.try_clone()?);
        let back = move || {
            let _ = line.answers(&from_store, &to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        };
        thread::Builder::new().name("proxy-back".into()).spawn(back)?;
        let line = Arc::clone(self);
        let forth = move || {
            let _ = line.requests(&client, &store);
            let _ = store.shutdown(Shutdown::Both);
        };
        thread::Builder::new().name("proxy-forth".into()).spawn(forth)?;
        Ok(())
    }

    fn requests(&self, mut client: &TcpStream, mut store: &TcpStream) -> io::Result<()> {
        let (mut reader, mut own) = (BufReader::new(client), Pace(Instant::now()));
        while let Some((head, body)) = read_head(&mut reader)? {
            thread::sleep(self.conditions().round_trip);
            let rate = self.conditions().requests;
            let may =
                self.accepted.lock().unwrap_or_else(PoisonError::into_inner).try_take(1.0, rate);
            self.asked.fetch_add(1, Ordering::Relaxed);
            let mut body = (&mut reader).take(body);
            if may {
                store.write_all(&head)?;
                self.carry(&mut body, &mut store, (&mut own, &self.forth))?;
            } else {
                io::copy(&mut body, &mut io::sink())?;
                self.refused.fetch_add(1, Ordering::Relaxed);
                let len = SLOW_DOWN.len();
                let head = format!("HTTP/1.1 503 Slow Down\r\nContent-Length: {len}\r\n\r\n");
                client.write_all((head + SLOW_DOWN).as_bytes())?;
            }
        }
        Ok(())
    }

    fn answers(&self, mut store: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
        self.carry(&mut store, &mut client, (&mut Pace(Instant::now()), &self.back))
    }

    /// Carries what comes to its end, as fast as a connection and all together may.
    fn carry(
        &self,
        from: &mut impl Read,
        to: &mut impl Write,
        (own, all): (&mut Pace, &Mutex<Pace>),
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut piece)?;
            if count == 0 {
                return Ok(());
            }
            let Conditions { connection, total, .. } = self.conditions();
            let bytes = count as f64;
            let of_all = all.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, total);
            let at = of_all.max(own.take(bytes, connection));
            thread::sleep(at.saturating_duration_since(Instant::now()));
            to.write_all(&piece[..count])?;
            self.passed.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

/// Head of the next request and length of its body; `None` at the end.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<(Vec<u8>, u64)>> {
    let (mut head, mut body) = (Vec::new(), 0);
    let mut reader = reader.take(HEAD_BYTES_MAX);
    loop {
        let start = head.len();
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        let line = head[start..].trim_ascii();
        if line.is_empty() {
            return Ok(Some((head, body)));
        }
        if let Some((name, value)) = line.split_at_checked(15)
            && name.eq_ignore_ascii_case(b"content-length:")
        {
            let value = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
            body = value.ok_or_else(|| io::Error::other("a body without a length"))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that answers every request with 100,000 bytes.
    fn store() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut reader = BufReader::new(&stream);
                    while let Ok(Some((_, body))) = read_head(&mut reader) {
                        io::copy(&mut (&mut reader).take(body), &mut io::sink()).unwrap();
                        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
                        (&stream).write_all(head.as_bytes()).unwrap();
                        (&stream).write_all(&[7; 100_000]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn ask(stream: &mut BufReader<TcpStream>, body: &str) -> Vec<u8> {
        let head = format!("PUT / HTTP/1.1\r\nCONTENT-LENGTH: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let (mut answer, len) = read_head(stream).unwrap().unwrap();
        stream.take(len).read_to_end(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_pass_late_and_paced_or_are_refused() {
        let open = Conditions {
            round_trip: Duration::from_millis(20),
            connection: 1e6,
            total: 1e9,
            requests: 1e6,
        };
        let proxy = Proxy::start(store(), open).unwrap();
        let mut stream = BufReader::new(TcpStream::connect(proxy.address).unwrap());
        let begin = Instant::now();
        assert!(ask(&mut stream, "").ends_with(&[7; 1000]));
        assert!(ask(&mut stream, "some").ends_with(&[7; 1000]));
        // Twice 20 ms and 200,000 bytes at a million a second, less what may pass at once.
        assert!(begin.elapsed() > Duration::from_millis(200), "{:?}", begin.elapsed());
        // The last bytes are counted after they were sent.
        while proxy.passed() <= 200_000 && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(proxy.passed() > 200_000, "{} bytes passed", proxy.passed());
        assert_eq!(proxy.refused(), 0);
        let (begin, passed) = (Instant::now(), proxy.passed());
        assert!(ask(&mut stream, &"b".repeat(100_000)).ends_with(&[7; 1000]));
        // The body and then the answer at that rate.
        assert!(begin.elapsed() > Duration::from_millis(160), "{:?}", begin.elapsed());
        assert!(proxy.passed() >= passed + 100_000, "bodies are counted");
        proxy.set(Conditions { requests: 0.0, ..open });
        let refused = String::from_utf8(ask(&mut stream, "more")).unwrap();
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.ends_with(SLOW_DOWN), "{refused}");
        proxy.set(open);
        assert!(ask(&mut stream, "").starts_with(b"HTTP/1.1 200 "));
        assert_eq!((proxy.asked(), proxy.refused()), (5, 1));
    }
}
