//! Processes and the server of their node: blocking channels against the async listener.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hayase_wire::limits::{BODY_BYTES_MAX, MULTIPLEXED_MAX};
use hayase_wire::{Arena, BlockingChannel, NodeChannel, NodeError, NodeListener, Outgoing};

const WAIT: Duration = Duration::from_secs(5);

/// Runs `server` on this thread and `client` on another.
fn run<T: Send>(
    server: impl AsyncFnOnce(NodeListener),
    client: impl FnOnce(&Path) -> T + Send,
) -> T {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async { NodeListener::bind(&path).unwrap() });
    thread::scope(|scope| {
        let client = scope.spawn(|| client(&path));
        runtime.block_on(server(listener));
        client.join().unwrap()
    })
}

/// Answers each message with itself and its descriptor.
async fn echo(listener: NodeListener) {
    let mut channel = listener.accept().await.unwrap();
    loop {
        match channel.recv().await {
            Ok((body, descriptor)) => {
                let descriptor = descriptor.as_ref().map(AsFd::as_fd);
                channel.send(&body, descriptor).await.unwrap();
            }
            Err(NodeError::Closed) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn messages_of_every_length_come_back() {
    run(echo, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        for len in [0, 1, 100, 65_519, 65_520, 65_521, 100_000, BODY_BYTES_MAX, 3] {
            let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let (answer, descriptor) = channel.call(&body, None).unwrap();
            assert!(answer == body && descriptor.is_none(), "{len} bytes");
        }
        let long = vec![0; BODY_BYTES_MAX + 1];
        assert!(matches!(channel.call(&long, None), Err(NodeError::TooLarge { .. })));
        assert!(channel.call(b"still usable", None).is_ok());
    });
}

#[test]
fn descriptors_travel_both_ways() {
    run(echo, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"through the kernel").unwrap();
        for body in [&b"short"[..], &vec![9; BODY_BYTES_MAX]] {
            let (answer, descriptor) = channel.call(body, Some(file.as_fd())).unwrap();
            assert_eq!(answer, body);
            let mut back = File::from(descriptor.unwrap());
            let mut text = String::new();
            back.rewind().unwrap();
            back.read_to_string(&mut text).unwrap();
            assert_eq!(text, "through the kernel");
        }
    });
}

#[test]
#[expect(unsafe_code, reason = "memory that two share")]
fn an_arena_is_handed_over() {
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        let (_, descriptor) = channel.recv().await.unwrap();
        // SAFETY: either side borrows the slot while the other one waits for a message.
        let arena = unsafe { Arena::open(descriptor.unwrap(), 2) }.unwrap();
        channel.send(b"", None).await.unwrap();
        let (body, _) = channel.recv().await.unwrap();
        let mut slot = arena.slot(u32::from(body[0]), 4).unwrap();
        slot.as_mut().reverse();
        channel.send(b"", None).await.unwrap();
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        let arena = Arena::create(2).unwrap();
        // SAFETY: as above.
        channel.call(b"hello", Some(unsafe { arena.descriptor() })).unwrap();
        let mut slot = arena.take();
        slot.as_mut()[..4].copy_from_slice(b"abcd");
        channel.call(&[slot.index() as u8], None).unwrap();
        assert_eq!(&slot.as_ref()[..4], b"dcba");
    });
}

#[test]
fn the_server_asks_and_the_process_answers() {
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        for question in 0..3u8 {
            channel.send(&[question], None).await.unwrap();
            assert_eq!(channel.recv().await.unwrap().0, [question + 100]);
        }
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        for _ in 0..3 {
            let (question, _) = channel.receive().unwrap();
            channel.reply(&[question[0] + 100]).unwrap();
        }
        assert!(matches!(channel.receive(), Err(NodeError::Closed)));
    });
}

#[test]
fn a_callback_thread_is_woken_by_its_closer() {
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        assert!(matches!(channel.recv().await, Err(NodeError::Closed)));
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        let closer = channel.closer().unwrap();
        let waiting = thread::spawn(move || channel.receive().map(|_| ()));
        closer.close();
        assert!(matches!(waiting.join().unwrap(), Err(NodeError::Closed)));
    });
}

#[test]
fn a_silent_server_costs_what_was_allowed() {
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        channel.recv().await.unwrap();
        // No answer; the process leaves.
        assert!(matches!(channel.recv().await, Err(NodeError::Closed)));
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        channel.set_wait(Some(Duration::from_millis(20))).unwrap();
        assert!(matches!(channel.call(b"?", None), Err(NodeError::Timeout { .. })));
        assert!(matches!(channel.call(b"?", None), Err(NodeError::Broken)));
    });
}

#[test]
fn dropped_receives_lose_nothing() {
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while received.len() < 20 {
            tokio::select! {
                biased;
                message = channel.recv() => {
                    received.push(message.unwrap().0);
                    channel.send(b"", None).await.unwrap();
                }
                () = tokio::time::sleep(Duration::from_micros(200)) => {}
            }
        }
        assert!(received.iter().all(|body| body.len() == 200_000));
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        for _ in 0..20 {
            channel.call(&[7; 200_000], None).unwrap();
        }
    });
}

/// What the server says to raw bytes of a process.
fn refused(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = NodeListener::bind(&path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        let mut channel: NodeChannel = listener.accept().await.unwrap();
        let error = channel.recv().await.unwrap_err();
        assert!(matches!(channel.recv().await, Err(NodeError::Broken | NodeError::Closed)));
        error.to_string()
    })
}

#[test]
fn garbage_is_refused() {
    const WHAT: &str = "message of this node's socket: ";
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), format!("{WHAT}it does not start as one"));
    assert_eq!(
        refused(b"HYND\x05\0\0\0\0\0\0\0\0\0\0\0abc"),
        format!("{WHAT}it ends in the middle")
    );
    assert_eq!(
        refused(b"HYND\xff\xff\xff\xff\0\0\0\0\0\0\0\0"),
        format!("{WHAT}it announces more bytes than allowed")
    );
    assert_eq!(
        refused(b"HYND\x01\0\0\0\x01\0\0\0\0\0\0\0a"),
        format!("{WHAT}its descriptor is missing or unannounced")
    );
}

#[test]
fn sockets_are_taken_over_only_from_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let first = NodeListener::bind(&path).unwrap();
    assert!(matches!(NodeListener::bind(&path), Err(NodeError::InUse { .. })));
    assert!(first.path().exists());
    drop(first);
    assert!(!path.exists(), "the socket goes with its listener");

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left over by a server that was killed");
    drop(NodeListener::bind(&path).unwrap());

    std::fs::write(&path, b"no socket").unwrap();
    assert!(matches!(NodeListener::bind(&path), Err(NodeError::InUse { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"no socket");

    let missing = BlockingChannel::connect(&dir.path().join("x"), WAIT).map(|_| ()).unwrap_err();
    assert!(matches!(missing, NodeError::Connect { .. }) && missing.help().is_some());
}

#[test]
fn paths_may_be_longer_than_the_kernel_takes() {
    let dir = tempfile::tempdir().unwrap();
    let deep: PathBuf = dir.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("server.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async { NodeListener::bind(&path).unwrap() });
    let _channel = BlockingChannel::connect(&path, WAIT).unwrap();
    runtime.block_on(async {
        let channel = listener.accept().await.unwrap();
        let peer = channel.peer_credentials();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid, std::process::id() as i32);
        assert!(matches!(NodeListener::bind(&path), Err(NodeError::InUse { .. })));
    });
}

/// Messages that do not wait for one another's answers, and are told of in another order.
#[test]
fn halves_of_a_channel_pass_each_other() {
    const MESSAGES: u8 = 200;
    let server = async |listener: NodeListener| {
        let mut channel = listener.accept().await.unwrap();
        let (hello, _) = channel.recv().await.unwrap();
        channel.send(&hello, None).await.unwrap();
        let (mut channel, mut sender) = channel.pipelined().unwrap();
        let mut heard = Vec::new();
        for _ in 0..MESSAGES {
            heard.push(channel.recv().await.unwrap().0);
        }
        for body in heard.iter().rev() {
            sender.send(body).await.unwrap();
        }
        assert!(matches!(channel.recv().await, Err(NodeError::Closed)));
    };
    run(server, |path| {
        let mut channel = BlockingChannel::connect(path, WAIT).unwrap();
        assert_eq!(channel.call(b"hello", None).unwrap().0, b"hello");
        let closer = channel.closer().unwrap();
        let (mut sender, mut receiver) = channel.halves().unwrap();
        for number in 0..MESSAGES {
            sender.tell(&vec![number; 1 + usize::from(number) * 37]).unwrap();
        }
        for number in (0..MESSAGES).rev() {
            assert_eq!(receiver.receive().unwrap().0, vec![number; 1 + usize::from(number) * 37]);
        }
        closer.close();
        assert!(receiver.receive().is_err());
    });
}

/// Messages of one `sendmsg`, some longer than the kernel's buffers, each third with a file that holds
/// its number.
#[test]
fn messages_leave_together_with_their_descriptors() {
    const ROUNDS: usize = 20;
    let body = |round: usize, number: usize| vec![number as u8; 1 + number * round * 40];
    let server = async |listener: NodeListener| {
        let (mut channel, mut sender) = listener.accept().await.unwrap().pipelined().unwrap();
        channel.recv().await.unwrap();
        let mut outgoing = Outgoing::default();
        let long = vec![0; BODY_BYTES_MAX + 1];
        assert!(matches!(outgoing.add(&long, None), Err(NodeError::TooLarge { .. })));
        for round in 0..ROUNDS {
            for number in 0..MULTIPLEXED_MAX {
                let file = (number % 3 == 0).then(|| {
                    let mut file = tempfile::tempfile().unwrap();
                    file.write_all(&[number as u8]).unwrap();
                    file.into()
                });
                outgoing.add(&body(round, number), file).unwrap();
            }
            sender.send_all(&outgoing).await.unwrap();
            outgoing.clear();
        }
        assert!(matches!(channel.recv().await, Err(NodeError::Closed)));
    };
    run(server, |path| {
        let channel = BlockingChannel::connect(path, WAIT).unwrap();
        let (mut sender, mut receiver) = channel.halves().unwrap();
        sender.tell(b"begin").unwrap();
        for round in 0..ROUNDS {
            for number in 0..MULTIPLEXED_MAX {
                let (found, file) = receiver.receive_ref().unwrap();
                assert!(found == body(round, number), "message {number} of round {round}");
                assert_eq!(file.is_some(), number % 3 == 0);
                if let Some(mut file) = file.map(File::from) {
                    let mut content = Vec::new();
                    file.rewind().unwrap();
                    file.read_to_end(&mut content).unwrap();
                    assert_eq!(content, [number as u8]);
                }
            }
        }
    });
}
