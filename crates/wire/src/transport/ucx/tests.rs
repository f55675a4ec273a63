//! UCX over its own TCP: the suite of all transports, sessions, and peers that die in the middle.
//!
//! Rooms: [`registered`], the same from and to registered memory.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::ServerId;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet, spawn_local};

use super::*;
use crate::buffer::Loan;
use crate::handshake::{self, Credentials, Lane, LinkId, PeerIdentity, Session};
use crate::header::{FrameKind, HEADER_BYTES};
use crate::keys::{KnownServer, ServerKey};
use crate::secret::Secret;
use crate::transport::conformance;

mod registered;

fn loopback() -> IpAddr {
    "127.0.0.1".parse().unwrap()
}

/// `None`, and says so, where the library is missing: then these tests say nothing.
pub(super) fn transport() -> Option<UcxTransport> {
    match UcxTransport::new(None, &[loopback()]) {
        Ok(transport) => Some(transport),
        Err(error @ UcxError::NotLoaded(_)) => {
            skipped(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn skipped(error: &UcxError) {
    let thread = std::thread::current();
    eprintln!("SKIP {}: {error}; {}", thread.name().unwrap_or("UCX"), error.help());
}

/// Two processes in one: each connection is upgraded as soon as it is there, as a handshake does it.
struct Upgraded {
    connecting: UcxTransport,
    listening: UcxTransport,
}

/// Upgrades while nobody waits: who connects needs the other side for it.
struct UpgradedListener {
    address: Address,
    upgraded: mpsc::Receiver<Result<Connection, TransportError>>,
    accepting: AbortHandle,
}

async fn upgraded(connection: Connection) -> Result<Connection, TransportError> {
    let Connection { mut sender, mut receiver, peer, upgrade } = connection;
    let upgrade = upgrade.expect("offered");
    let mut header = [0; HEADER_BYTES];
    let offer = upgrade.offer();
    header[..8].copy_from_slice(&(offer.len() as u64).to_le_bytes());
    sender.send(&header, &offer, &[]).await?;
    let header = receiver.header().await?.ok_or(TransportError::Truncated { action: "greet" })?;
    let mut theirs = vec![0; u64::from_le_bytes(header[..8].try_into().unwrap()) as usize];
    receiver.body(&mut theirs).await?;
    let (sender, receiver) = upgrade.take(&theirs, sender, receiver)?;
    Ok(Connection { sender, receiver, peer, upgrade: None })
}

impl Transport for Upgraded {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let mut listener = self.listening.listen(at).await?;
            let (address, (to, upgraded_ones)) = (listener.address(), mpsc::channel(8));
            let accepting = spawn_local(async move {
                while let Ok(connection) = listener.accept().await {
                    let _ = to.send(upgraded(connection).await).await;
                }
            });
            let accepting = accepting.abort_handle();
            let listener = UpgradedListener { address, upgraded: upgraded_ones, accepting };
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move { upgraded(self.connecting.connect(to).await?).await })
    }
}

impl Listener for UpgradedListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move { self.upgraded.recv().await.expect("accepts as long as it lives") })
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

impl Drop for UpgradedListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn two() -> Option<Upgraded> {
    Some(Upgraded { connecting: transport()?, listening: transport()? })
}

#[tokio::test]
async fn it_conforms() {
    let Some(transport) = two() else { return };
    let (at, nowhere) = (any_port(), nobodys_port());
    LocalSet::new().run_until(conformance::run(&transport, &at, &nowhere)).await;
}

fn any_port() -> Address {
    "tcp:127.0.0.1:0".parse().unwrap()
}

fn nobodys_port() -> Address {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Address::Tcp(free.local_addr().unwrap())
}

impl UcxTransport {
    fn endpoints(&self) -> usize {
        self.ucx.peers.borrow().worker().endpoints()
    }

    fn inboxes(&self) -> usize {
        self.ucx.peers.borrow().worker().inboxes()
    }

    fn steps(&self) -> u64 {
        self.ucx.peers.borrow().worker().steps()
    }
}

const SERVER: ServerId = ServerId(1);

fn credentials(server: u16) -> Credentials {
    let me = PeerIdentity { server: ServerId(server), start_id: 7 };
    let key = |server: u16| ServerKey::of(Secret::from_bytes([20 + server as u8; 32]));
    let known = |server| KnownServer { host: "here".to_owned(), key: key(server).public() };
    let known = Arc::new((0..2).map(known).collect());
    let secret = Secret::from_bytes([9; 32]);
    Credentials { secret, me, key: key(server), known, encrypt: false }
}

/// A handshake between two transports; both sessions.
async fn sessions(near: &dyn Transport, far: &dyn Transport) -> (Session, Session) {
    let mut listener = far.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let (near, far) = tokio::join!(near.connect(&address), listener.accept());
    let (ours, theirs) = (credentials(0), credentials(SERVER.0));
    let link = LinkId { link: 1, lane: Lane::Bulk };
    let (near, far) = tokio::join!(
        handshake::connect(near.unwrap(), &ours, SERVER, link),
        handshake::accept(far.unwrap(), &theirs)
    );
    (near.unwrap(), far.unwrap())
}

async fn one_frame_each_way(near: &mut Session, far: &mut Session) {
    for (from, to) in [(&mut near.sender, &mut far.receiver), (&mut far.sender, &mut near.receiver)]
    {
        let payload = vec![5; 1 << 20];
        let (sent, ()) = tokio::join!(from.send(FrameKind::Request, 3, b"body", &payload), async {
            let frame = to.next().await.unwrap().unwrap();
            assert_eq!((&frame.body[..], frame.payload_len), (&b"body"[..], payload.len()));
            let mut received = vec![0; payload.len()];
            to.payload(&mut received).await.unwrap();
            assert!(received == payload);
        });
        sent.unwrap();
    }
}

#[tokio::test]
async fn who_has_it_goes_on_over_it_and_the_others_stay() {
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let test = async {
        let (mut near, mut far) = sessions(&one, &other).await;
        one_frame_each_way(&mut near, &mut far).await;
        assert_eq!((one.endpoints(), other.endpoints()), (1, 1));
        // A second connection shares the endpoint.
        let (mut second, mut its_far) = sessions(&one, &other).await;
        one_frame_each_way(&mut second, &mut its_far).await;
        assert_eq!((one.endpoints(), other.endpoints()), (1, 1));
        drop((near, far, second, its_far));
        assert_eq!((one.endpoints(), other.endpoints()), (0, 0));

        let tcp = TcpTransport::new();
        for (near, far) in [(&one as &dyn Transport, &tcp as &dyn Transport), (&tcp, &one)] {
            let (mut near, mut far) = sessions(near, far).await;
            one_frame_each_way(&mut near, &mut far).await;
            assert_eq!(one.endpoints(), 0);
        }
        assert_eq!(one.inboxes(), 0, "those that were not taken up are gone");
    };
    LocalSet::new().run_until(test).await;
}

/// Workers are bounded; what comes after the last one works, over TCP.
#[tokio::test]
async fn after_many_ends_connections_stay_on_tcp() {
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let test = async {
        for round in 0..UCX_WORKERS_MAX + 2 {
            let (mut near, mut far) = sessions(&one, &other).await;
            one_frame_each_way(&mut near, &mut far).await;
            let over = if round < UCX_WORKERS_MAX { Carrier::Ucx } else { Carrier::Stream };
            assert_eq!((near.over, far.over), (over, over), "connection {round}");
            drop((near, far));
            assert_eq!(one.is_used_up(), round + 1 >= UCX_WORKERS_MAX, "after {round}");
        }
    };
    LocalSet::new().run_until(test).await;
}

/// Who can not prove itself is not connected to, wherever it says it is.
#[tokio::test]
async fn strangers_get_no_endpoint() {
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let test = async {
        let mut listener = other.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(one.connect(&address), listener.accept());
        let stranger = Credentials { secret: Secret::from_bytes([8; 32]), ..credentials(0) };
        let member = credentials(SERVER.0);
        let link = LinkId { link: 1, lane: Lane::Bulk };
        let (near, far) = tokio::join!(
            handshake::connect(near.unwrap(), &stranger, SERVER, link),
            handshake::accept(far.unwrap(), &member)
        );
        assert!(near.is_err() && far.is_err());
        assert_eq!((other.endpoints(), other.inboxes()), (0, 0));
    };
    LocalSet::new().run_until(test).await;
}

/// Nothing is done while nothing comes: the thread sleeps.
#[tokio::test]
async fn it_sleeps_when_nothing_comes() {
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let test = async {
        let (mut near, mut far) = sessions(&one, &other).await;
        one_frame_each_way(&mut near, &mut far).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = (one.steps(), other.steps());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = (one.steps(), other.steps());
        assert!(after.0 - before.0 <= 2 && after.1 - before.1 <= 2, "{before:?} {after:?}");
        one_frame_each_way(&mut near, &mut far).await;
    };
    LocalSet::new().run_until(test).await;
}

/// A process with the other end of a connection; killed when dropped.
struct Peer {
    child: Child,
    at: Address,
}

impl Peer {
    /// One that reads `frames` headers, fetches no payload, and then does nothing.
    fn start(frames: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", PEER_TEST, "--nocapture"])
            .env("HAYASE_TEST_FRAMES", frames.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = lines.map_while(Result::ok).find_map(|line| {
            line.split_once("listens at ").map(|(_, at)| at.trim().parse().unwrap())
        });
        Self { child, at: at.expect("says where it listens") }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// All its threads have stopped, not only been told to.
    fn stop(&self) {
        self.signal(Signal::STOP);
        waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED).unwrap();
    }

    async fn connect(&self, transport: &UcxTransport) -> Connection {
        upgraded(transport.connect(&self.at).await.unwrap()).await.unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The test that is the other process where it is told for how many frames: a test program has no other way in.
const PEER_TEST: &str = "transport::ucx::tests::a_silent_peer_can_be_given_up";

async fn peer_process(frames: &str) {
    let transport = transport().expect("the tests checked");
    let serve = async {
        let mut listener = transport.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
        println!("listens at {}", listener.address());
        loop {
            let mut connection = upgraded(listener.accept().await.unwrap()).await.unwrap();
            let frames: u32 = frames.parse().unwrap();
            spawn_local(async move {
                for _ in 0..frames {
                    connection.receiver.header().await.unwrap();
                }
                let header = [1; HEADER_BYTES];
                // Waits for us to fetch it.
                let _ = connection.sender.send(&header, b"", &[7; 1 << 20]).await;
                std::future::pending::<()>().await;
            });
        }
    };
    LocalSet::new().run_until(serve).await;
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_peer_that_is_killed_ends_what_waits_for_it() {
    let Some(transport) = transport() else { return };
    let test = async {
        let (peer, other) = (Peer::start(1), Peer::start(0));
        let mut living = other.connect(&transport).await;
        let Connection { mut sender, mut receiver, .. } = peer.connect(&transport).await;
        let (header, payload) = ([0; HEADER_BYTES], vec![3; 1 << 20]);
        let mut sending = sender.send(&header, b"", &payload);
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut sending).await.is_err());
        peer.signal(Signal::KILL);
        let sent = tokio::time::timeout(SOON, sending).await.expect("not for ever");
        assert!(sent.is_err(), "nobody took it");
        let ended = async {
            // What came before it died may still be read.
            while let Ok(Some(_)) = receiver.header().await {}
        };
        tokio::time::timeout(SOON, ended).await.expect("not for ever");
        drop((sender, receiver));
        // Others are not touched, on the same worker.
        let taken = async {
            assert_eq!(living.receiver.header().await.unwrap(), Some([1; HEADER_BYTES]));
            let mut payload = vec![0; 1 << 20];
            assert_eq!(living.receiver.payload(&mut payload).await.unwrap(), payload.len());
            assert!(payload == [7; 1 << 20]);
        };
        tokio::time::timeout(SOON, taken).await.expect("not for ever");
        // And who is started again is reached again.
        let again = Peer::start(0);
        let mut connection = again.connect(&transport).await;
        let header = tokio::time::timeout(SOON, connection.receiver.header()).await.unwrap();
        assert_eq!(header.unwrap(), Some([1; HEADER_BYTES]));
    };
    LocalSet::new().run_until(test).await;
}

/// The peer takes nothing and says nothing. Giving up lets go of the buffer at once, and a new connection works when
/// the peer does again.
#[tokio::test]
async fn a_silent_peer_can_be_given_up() {
    if let Ok(frames) = std::env::var("HAYASE_TEST_FRAMES") {
        return peer_process(&frames).await;
    }
    let Some(transport) = transport() else { return };
    let test = async {
        let peer = Peer::start(0);
        for sends in [true, false] {
            let Connection { mut sender, mut receiver, .. } = peer.connect(&transport).await;
            assert!(receiver.header().await.unwrap().is_some());
            let wait = Duration::from_millis(300);
            // Its payload is announced behind its header.
            tokio::time::sleep(wait).await;
            peer.stop();
            let began = std::time::Instant::now();
            let mut buffer = vec![3; 1 << 20];
            if sends {
                let sending = sender.send(&[0; HEADER_BYTES], b"", &buffer);
                assert!(tokio::time::timeout(wait, sending).await.is_err());
            } else {
                let fetching = receiver.payload(&mut buffer);
                let fetched = tokio::time::timeout(wait, fetching).await;
                assert!(fetched.is_err(), "{fetched:?}");
            }
            assert!(began.elapsed() < wait * 4, "let go after {:?}", began.elapsed());
            buffer.fill(4);
            peer.signal(Signal::CONT);
            tokio::time::sleep(wait).await;
            assert!(buffer.iter().all(|byte| *byte == 4), "written to after it was given up");
            assert!(sender.send(&[0; HEADER_BYTES], b"", b"").await.is_err());
            drop((sender, receiver));
        }
        let mut connection = peer.connect(&transport).await;
        let mut payload = vec![0; 1 << 20];
        connection.receiver.header().await.unwrap().unwrap();
        let fetched = tokio::time::timeout(SOON, connection.receiver.payload(&mut payload)).await;
        assert_eq!(fetched.expect("not for ever").unwrap(), payload.len());
    };
    LocalSet::new().run_until(test).await;
}

/// A buffer that says when it is freed.
struct Noted(Vec<u8>, std::sync::Arc<std::sync::atomic::AtomicBool>);

impl AsRef<[u8]> for Noted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Noted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.1.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// UCX may use the buffer of a forgotten transfer for as long as the process runs: nobody changes or frees it.
#[tokio::test]
async fn the_buffer_of_a_forgotten_transfer_stays() {
    let Some(pair) = two() else { return };
    let test = async {
        for sends in [true, false] {
            let mut listener = pair.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.address();
            let (near, far) = tokio::join!(pair.connect(&address), listener.accept());
            let (mut near, mut far) = (near.unwrap(), far.unwrap());
            let is_freed = std::sync::Arc::default();
            let buffer = Noted(vec![0; 1 << 20], std::sync::Arc::clone(&is_freed));
            let mut loan = Loan::new(Box::new(buffer), 1 << 20);
            let payload = vec![1; 1 << 20];
            let mut sending = far.sender.send(&[0; HEADER_BYTES], b"", &payload);
            let is_pending = if sends {
                let mut moving = near.sender.send_lent(&[0; HEADER_BYTES], b"", &loan);
                let polled = is_pending_after_a_poll(&mut moving);
                std::mem::forget(moving);
                polled
            } else {
                let head = async {
                    near.receiver.header().await.unwrap().unwrap();
                    // Its payload is announced behind it.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                };
                tokio::select! {
                    () = head => {}
                    sent = &mut sending => panic!("{sent:?}"),
                }
                let mut moving = near.receiver.payload_lent(&mut loan, 0);
                let polled = is_pending_after_a_poll(&mut moving);
                std::mem::forget(moving);
                polled
            };
            assert!(is_pending, "under way");
            assert!(loan.bytes_mut().is_none() && loan.end().is_none());
            assert!(!is_freed.load(std::sync::atomic::Ordering::Relaxed), "UCX may use it");
        }
    };
    LocalSet::new().run_until(test).await;
}

/// Once; whether it has more to do.
fn is_pending_after_a_poll<T>(future: &mut LocalFuture<'_, T>) -> bool {
    future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

/// A connection that is dropped with a payload on its way in either direction is closed for the other side, too.
#[tokio::test]
async fn a_peer_that_gives_up_is_noticed() {
    let Some(pair) = two() else { return };
    let test = async {
        let mut listener = pair.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(pair.connect(&address), listener.accept());
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        let payload = vec![1; 1 << 20];
        let sending = near.sender.send(&[0; HEADER_BYTES], b"", &payload);
        assert!(tokio::time::timeout(Duration::from_millis(100), sending).await.is_err());
        drop(near);
        assert!(far.receiver.header().await.unwrap().is_some());
        let mut room = vec![0; 1 << 20];
        let fetched = tokio::time::timeout(SOON, far.receiver.payload(&mut room)).await;
        assert!(fetched.expect("not for ever").is_err());
    };
    LocalSet::new().run_until(test).await;
}

/// UCX listens on its own port, for anyone.
#[tokio::test]
async fn noise_on_the_port_of_ucx_does_no_harm() {
    use std::io::Write;
    let (Some(one), Some(other)) = (transport(), transport()) else { return };
    let test = async {
        let (mut near, mut far) = sessions(&one, &other).await;
        let mut met = 0;
        for port in own_ports() {
            let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
                continue;
            };
            let noise: Vec<u8> =
                (0..100_000u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
            let _ = stream.write_all(&noise);
            met += 1;
            one_frame_each_way(&mut near, &mut far).await;
        }
        assert!(met >= 2, "the ports of both workers");
    };
    LocalSet::new().run_until(test).await;
}

/// Ports at which this process listens.
fn own_ports() -> Vec<u16> {
    let own: Vec<String> = fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields[3] == "0A" && own.iter().any(|inode| inode == fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok()).flatten()
    };
    table.lines().skip(1).filter_map(port).collect()
}

#[test]
fn only_devices_with_a_working_port_count() {
    let dir = tempfile::tempdir().unwrap();
    assert!(rdma_devices_below(&dir.path().join("none")).is_empty());
    for (device, state) in
        [("mlx5_1", "4: ACTIVE\n"), ("mlx5_0", "1: DOWN\n"), ("rxe0", "4: ACTIVE\n")]
    {
        let port = dir.path().join(device).join("ports/1");
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("state"), state).unwrap();
    }
    let devices = rdma_devices_below(dir.path());
    assert_eq!(devices, ["mlx5_1", "rxe0"]);
    assert_eq!(transports(&devices), "rc,dc,tcp");
    assert_eq!((transports(&devices[1..]), transports(&[])), ("rc,tcp", "tcp"));
}
