//! How fast calls are: round trips of small ones, bandwidth of 1 MiB ones, beside plain loops.
//!
//! `wire_speed` runs both sides on this machine. For two machines or network namespaces:
//! `wire_speed serve 10.0.0.1:7000` on one, `wire_speed connect 10.0.0.1:7000` on the other.

#![expect(clippy::print_stdout, reason = "it is a program that prints numbers")]
#![expect(clippy::unwrap_used, reason = "a measurement that fails ends")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hayase_layout::ServerId;
use hayase_wire::transport::{TcpTransport, Transport};
use hayase_wire::{
    Address, BlockingChannel, BoxBuffer, Connector, Credentials, KnownServer, NodeListener,
    PeerIdentity, PeerLink, Response, Secret, ServerKey, Service, serve_listener,
};
use tokio::task::LocalSet;

const WAIT: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;
const SMALL_CALLS: usize = 20_000;
const LARGE_CALLS: usize = 4_000;
const SERVER: ServerId = ServerId(1);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let encrypt = arguments.iter().any(|argument| argument == "--encrypt");
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    match words[..] {
        [] => {
            unix();
            let (tell, told) = mpsc::channel();
            let served = "127.0.0.1:0".parse().unwrap();
            thread::spawn(move || serve(served, encrypt, &tell));
            connect(told.recv().unwrap(), encrypt);
        }
        ["serve", at] => serve(at.parse().unwrap(), encrypt, &mpsc::channel().0),
        ["connect", at] => connect(at.parse().unwrap(), encrypt),
        _ => println!("usage: wire_speed [--encrypt] [serve IP:PORT | connect IP:PORT]"),
    }
}

/// Times in order; the middle one, and the one that 99 of 100 do not reach.
fn show_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("{what:<46} p50 {:6.1} us   p99 {:6.1} us", at(0.5), at(0.99));
}

/// Bandwidth, and CPU time of this process (one side or both).
fn show_speed(what: &str, calls: impl FnOnce()) {
    const GIB: f64 = (LARGE_CALLS * MIB) as f64 / (1u64 << 30) as f64;
    let (begin, cpu_begin) = (Instant::now(), cpu_time());
    calls();
    let speed = GIB / begin.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu_begin).as_secs_f64() / GIB;
    println!("{what:<46} {speed:6.2} GiB/s   {cpu:5.2} CPU s/GiB");
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn credentials(server: ServerId, encrypt: bool) -> Credentials {
    let me = PeerIdentity { server, start_id: 1 };
    let key = |server: u16| ServerKey::of(Secret::from_bytes([6 + server as u8; 32]));
    let known = |server| KnownServer { host: "here".to_owned(), key: key(server).public() };
    let known = Arc::new((0..2).map(known).collect());
    let secret = Secret::from_bytes([5; 32]);
    Credentials { secret, me, key: key(server.0), known, encrypt }
}

fn local<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(future))
}

fn unix() {
    let dir = std::env::temp_dir().join(format!("wire_speed.{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let path = dir.join("s");
    let (ready, is_ready) = mpsc::channel();
    let server = thread::spawn({
        let path = path.clone();
        move || {
            local(async {
                let listener = NodeListener::bind(&path).unwrap();
                ready.send(()).unwrap();
                let mut channel = listener.accept().await.unwrap();
                while let Ok((body, _)) = channel.recv().await {
                    channel.send(&body, None).await.unwrap();
                }
            });
        }
    });
    is_ready.recv().unwrap();
    let mut channel = BlockingChannel::connect(&path, WAIT).unwrap();
    let times = (0..SMALL_CALLS).map(|_| {
        let begin = Instant::now();
        channel.call_ref(&[1; 64], None).unwrap();
        begin.elapsed()
    });
    show_times("node's socket, 64 B", times.collect());
    drop(channel);
    server.join().unwrap();
    std::fs::remove_dir(&dir).unwrap();
}

/// Keeps its buffers, as a server keeps slots. `read`: answers 1 MiB. Else: answers nothing.
#[derive(Default)]
struct Slots {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer that goes back.
struct Slot {
    bytes: Vec<u8>,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Slots {
    fn take(&self) -> BoxBuffer {
        let bytes = self.free.lock().unwrap().pop().unwrap_or_else(|| vec![0; MIB]);
        Box::new(Slot { bytes, home: self.free.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.home.lock().unwrap().push(std::mem::take(&mut self.bytes));
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Service for Slots {
    async fn buffer(&self, _len: usize) -> BoxBuffer {
        self.take()
    }

    async fn serve(
        self: Rc<Self>,
        _from: PeerIdentity,
        _request_id: u64,
        body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        drop(payload);
        if body.starts_with(b"read") {
            return Response { body, payload: Some((self.take(), MIB)) };
        }
        Response::new(body)
    }
}

fn serve(at: SocketAddr, encrypt: bool, tell: &mpsc::Sender<SocketAddr>) {
    // The plain loops get a port of their own, one above.
    local(async {
        let listener = TcpTransport::new().listen(&Address::Tcp(at)).await.unwrap();
        let Address::Tcp(at) = listener.address() else { unreachable!("of TCP") };
        let plain_at = SocketAddr::new(at.ip(), at.port() + 1);
        let plain = TcpListener::bind(plain_at).unwrap();
        thread::spawn(move || serve_plain(&plain));
        // Fails when nobody wants to know.
        let _ = tell.send(at);
        serve_listener(listener, credentials(SERVER, encrypt), Rc::new(Slots::default())).await;
    });
}

/// Per connection: one byte says what; `w` takes 1 MiB and answers a byte, `r` the other way
/// round, `p` answers 64 bytes with 64 bytes.
fn serve_plain(listener: &TcpListener) {
    let mut buffer = vec![0; MIB];
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut what = [0];
        stream.read_exact(&mut what).unwrap();
        let (take, give) = match what[0] {
            b'w' => (MIB, 1),
            b'r' => (1, MIB),
            _ => (64, 64),
        };
        while stream.read_exact(&mut buffer[..take]).is_ok() {
            stream.write_all(&buffer[..give]).unwrap();
        }
    }
}

fn plain(at: SocketAddr, what: u8, give: usize, take: usize, calls: usize) -> Vec<Duration> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[what]).unwrap();
    let mut buffer = vec![0; MIB];
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let begin = Instant::now();
        stream.write_all(&buffer[..give]).unwrap();
        stream.read_exact(&mut buffer[..take]).unwrap();
        times.push(begin.elapsed());
    }
    times
}

fn connect(at: SocketAddr, encrypt: bool) {
    let plain_at = SocketAddr::new(at.ip(), at.port() + 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = LocalSet::new();
    let connector = Connector::new(Rc::new(TcpTransport::new()), credentials(ServerId(0), encrypt));
    let link = PeerLink::new(connector, SERVER, vec![Address::Tcp(at)]);

    show_times("plain TCP loop, 64 B", plain(plain_at, b'p', 64, 64, SMALL_CALLS));
    let small = async {
        link.call(vec![], None, None, WAIT).await.unwrap();
        let mut times = Vec::new();
        for _ in 0..SMALL_CALLS {
            let begin = Instant::now();
            link.call(vec![1; 64], None, None, WAIT).await.unwrap();
            times.push(begin.elapsed());
        }
        times
    };
    show_times("call, 64 B", tasks.block_on(&runtime, small));

    for round in 1..=2 {
        println!("round {round}:");
        for (word, read, give, take) in [("write", false, MIB, 1), ("read", true, 1, MIB)] {
            show_speed(&format!("  plain TCP loop, {word} 1 MiB"), || {
                plain(plain_at, word.as_bytes()[0], give, take, LARGE_CALLS);
            });
            for flight in [1, 2, 4, 8] {
                show_speed(&format!("  calls, {word} 1 MiB, {flight} in flight"), || {
                    tasks.block_on(&runtime, large(&link, flight, read));
                });
            }
        }
    }
}

async fn large(link: &Rc<PeerLink>, flight: usize, read: bool) {
    let tasks: Vec<_> = (0..flight)
        .map(|_| {
            let link = link.clone();
            tokio::task::spawn_local(async move {
                let mut buffer: BoxBuffer = Box::new(vec![1; MIB]);
                for _ in 0..LARGE_CALLS / flight {
                    buffer = if read {
                        let answer = link.call(b"read".to_vec(), None, Some(buffer), WAIT).await;
                        answer.unwrap().received.unwrap().0
                    } else {
                        let send = Some((buffer, MIB));
                        let answer = link.call(b"write".to_vec(), send, None, WAIT).await;
                        answer.unwrap().sent.unwrap()
                    };
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
