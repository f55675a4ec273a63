//! What every transport must do, as one suite that all of them pass.
//!
//! Run inside a `LocalSet`, with an address to listen at; panics where a transport fails. Each
//! check connects anew. Not here: what sessions add ([`crate::session`]).

use std::time::Duration;

use super::{Address, Connection, FrameReceiver, FrameSender, Listener, Transport, TransportError};
use crate::buffer::{BoxBuffer, Loan};
use crate::header::{FrameKind, HEADER_BYTES, Header, TAG_BYTES};
use crate::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Nothing here takes nearly as long, unless it hangs, also on a machine under load.
const WAIT: Duration = Duration::from_secs(300);
/// Long enough for a thing to happen that must not.
const PAUSE: Duration = Duration::from_millis(30);
/// More than any transport may keep for a receiver that does not read.
const UNREAD_MAX: usize = 64;

/// Runs all checks. `listen_at` is free, and `nowhere` an address of this transport where nobody
/// listens.
pub async fn run(transport: &dyn Transport, listen_at: &Address, nowhere: &Address) {
    run_with(transport, listen_at, nowhere, &|len| Box::new(vec![0; len])).await;
}

/// The same with payloads in buffers of at least `len` bytes that `buffers` gives.
pub async fn run_with(
    transport: &dyn Transport,
    listen_at: &Address,
    nowhere: &Address,
    buffers: &dyn Fn(usize) -> BoxBuffer,
) {
    let suite = Suite { transport, listen_at, buffers };
    let checks = async {
        suite.frames_arrive_whole_both_ways().await;
        suite.frames_arrive_in_order().await;
        suite.both_sides_may_send_at_once().await;
        suite.a_closed_connection_ends_after_its_last_frame().await;
        suite.a_frame_that_was_cut_is_an_error().await;
        suite.sending_to_nobody_fails().await;
        suite.senders_wait_for_receivers().await;
        suite.waits_may_be_dropped().await;
        suite.an_address_has_one_listener().await;
        suite.connecting_to_nobody_fails(nowhere).await;
        suite.other_kinds_of_address_are_refused().await;
    };
    tokio::time::timeout(WAIT, checks).await.expect("the transport hangs");
}

struct Suite<'a> {
    transport: &'a dyn Transport,
    listen_at: &'a Address,
    buffers: &'a dyn Fn(usize) -> BoxBuffer,
}

fn header(number: u64, body: usize, payload: usize) -> [u8; HEADER_BYTES] {
    Header {
        kind: FrameKind::Request,
        sealed: false,
        body_len: body as u32,
        payload_len: payload as u32,
        request_id: number,
        counter: number,
        payload_code: [0; 16],
        tag: [0; TAG_BYTES],
    }
    .to_bytes()
}

/// Bytes that differ from frame to frame and from place to place.
fn pattern(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 31 + number * 7 + (at as u64 >> 8)) as u8).collect()
}

/// Some payloads are borrowed, most are lent.
fn is_borrowed(number: u64) -> bool {
    number.is_multiple_of(4)
}

impl Suite<'_> {
    async fn send(
        &self,
        sender: &mut dyn FrameSender,
        number: u64,
        body: usize,
        payload: usize,
    ) -> Result<(), TransportError> {
        let header = header(number, body, payload);
        let mut loan = Loan::new((self.buffers)(payload), payload);
        let bytes = loan.bytes_mut().expect("nobody holds it");
        bytes.copy_from_slice(&pattern(number + 1, payload));
        match is_borrowed(number) {
            true => sender.send(&header, &pattern(number, body), bytes).await,
            false => sender.send_lent(&header, &pattern(number, body), &loan).await,
        }
    }

    /// Receives one frame and checks it.
    async fn receive(
        &self,
        receiver: &mut dyn FrameReceiver,
        number: u64,
        body: usize,
        payload: usize,
    ) {
        let bytes = receiver.header().await.expect("a header").expect("not the end");
        assert_eq!(bytes, header(number, body, payload), "header of frame {number}");
        let mut received = vec![0; body];
        if body > 0 {
            receiver.body(&mut received).await.expect("a body");
        }
        assert!(received == pattern(number, body), "body of frame {number}");
        let mut loan = Loan::new((self.buffers)(payload), payload);
        let mut filled = 0;
        while filled < payload {
            let count = match (is_borrowed(number), loan.bytes_mut()) {
                (true, Some(bytes)) => receiver.payload(&mut bytes[filled..]).await,
                _ => receiver.payload_lent(&mut loan, filled).await,
            };
            let count = count.expect("a payload");
            assert!(count > 0 && count <= payload - filled, "at least a byte, at most the room");
            filled += count;
        }
        assert!(loan.bytes() == pattern(number + 1, payload), "payload of frame {number}");
    }

    async fn listen(&self) -> Box<dyn Listener> {
        self.transport.listen(self.listen_at).await.expect("listen")
    }

    /// The connecting and the accepting end; the listener is gone.
    async fn pair(&self) -> (Connection, Connection) {
        let mut listener = self.listen().await;
        let address = listener.address();
        let (near, far) = tokio::join!(self.transport.connect(&address), listener.accept());
        let pair = (near.expect("connect"), far.expect("accept"));
        drop(listener);
        self.clean_up();
        pair
    }

    /// A socket file outlives its listener.
    fn clean_up(&self) {
        if let Address::Unix(path) = self.listen_at {
            std::fs::remove_file(path).expect("the socket file is there");
        }
    }

    async fn frames_arrive_whole_both_ways(&self) {
        let (mut near, mut far) = self.pair().await;
        let bodies = [0, 1, 63, 4000, 5000, BODY_BYTES_MAX];
        let payloads = [0, 1, 4096, 100_000, PAYLOAD_BYTES_MAX];
        let mut number = 0;
        for body in bodies {
            for payload in payloads {
                number += 1;
                let (sent, ()) = tokio::join!(
                    self.send(&mut *near.sender, number, body, payload),
                    self.receive(&mut *far.receiver, number, body, payload)
                );
                sent.expect("send");
                let (sent, ()) = tokio::join!(
                    self.send(&mut *far.sender, number, body, payload),
                    self.receive(&mut *near.receiver, number, body, payload)
                );
                sent.expect("send back");
            }
        }
    }

    async fn frames_arrive_in_order(&self) {
        const FRAMES: u64 = 300;
        let (mut near, mut far) = self.pair().await;
        let shape = |number: u64| ((number * 37 % 600) as usize, (number % 7 * 900) as usize);
        let sending = async {
            for number in 0..FRAMES {
                let (body, payload) = shape(number);
                self.send(&mut *near.sender, number, body, payload).await.expect("send");
            }
        };
        let receiving = async {
            for number in 0..FRAMES {
                let (body, payload) = shape(number);
                self.receive(&mut *far.receiver, number, body, payload).await;
            }
        };
        tokio::join!(sending, receiving);
    }

    async fn both_sides_may_send_at_once(&self) {
        const FRAMES: u64 = 24;
        let (near, far) = self.pair().await;
        let run = async |connection: Connection| {
            let Connection { mut sender, mut receiver, .. } = connection;
            let sending = async {
                for number in 0..FRAMES {
                    self.send(&mut *sender, number, 10, PAYLOAD_BYTES_MAX).await.expect("send");
                }
            };
            let receiving = async {
                for number in 0..FRAMES {
                    self.receive(&mut *receiver, number, 10, PAYLOAD_BYTES_MAX).await;
                }
            };
            tokio::join!(sending, receiving);
        };
        tokio::join!(run(near), run(far));
    }

    async fn a_closed_connection_ends_after_its_last_frame(&self) {
        let (mut near, mut far) = self.pair().await;
        self.send(&mut *near.sender, 1, 9, 9).await.expect("send");
        drop(near);
        self.receive(&mut *far.receiver, 1, 9, 9).await;
        assert!(far.receiver.header().await.expect("a clean end").is_none());
    }

    async fn a_frame_that_was_cut_is_an_error(&self) {
        let (mut near, mut far) = self.pair().await;
        near.sender.send(&header(1, 100, 0), &[], &[]).await.expect("send");
        drop(near);
        far.receiver.header().await.expect("a header").expect("not the end");
        let cut = far.receiver.body(&mut [0; 100]).await;
        assert!(matches!(cut, Err(TransportError::Truncated { .. })), "{cut:?}");

        let (mut near, mut far) = self.pair().await;
        near.sender.send(&header(2, 1, 100), b"x", &[1; 40]).await.expect("send");
        drop(near);
        far.receiver.header().await.expect("a header").expect("not the end");
        far.receiver.body(&mut [0]).await.expect("a body");
        let (mut left, mut payload) = (40, [0; 100]);
        while left > 0 {
            left -= far.receiver.payload(&mut payload).await.expect("what was sent");
        }
        let cut = far.receiver.payload(&mut payload).await;
        assert!(matches!(cut, Err(TransportError::Truncated { .. })), "{cut:?}");
    }

    async fn sending_to_nobody_fails(&self) {
        let (mut near, far) = self.pair().await;
        drop(far);
        for _ in 0..UNREAD_MAX {
            if self.send(&mut *near.sender, 1, 0, PAYLOAD_BYTES_MAX).await.is_err() {
                return;
            }
        }
        panic!("the peer is gone, and sending goes on");
    }

    async fn senders_wait_for_receivers(&self) {
        let (mut near, mut far) = self.pair().await;
        let sending = async {
            for number in 0..UNREAD_MAX as u64 {
                self.send(&mut *near.sender, number, 0, PAYLOAD_BYTES_MAX).await.expect("send");
            }
        };
        tokio::pin!(sending);
        let stalled = tokio::time::timeout(PAUSE * 5, &mut sending).await.is_err();
        assert!(stalled, "{UNREAD_MAX} frames of 1 MiB were taken though nobody reads them");
        let receiving = async {
            for number in 0..UNREAD_MAX as u64 {
                self.receive(&mut *far.receiver, number, 0, PAYLOAD_BYTES_MAX).await;
            }
        };
        tokio::join!(sending, receiving);
    }

    async fn waits_may_be_dropped(&self) {
        let mut listener = self.listen().await;
        let address = listener.address();
        assert!(tokio::time::timeout(PAUSE, listener.accept()).await.is_err());
        let mut near = self.transport.connect(&address).await.expect("connect");
        let mut far = listener.accept().await.expect("accept");
        assert!(tokio::time::timeout(PAUSE, far.receiver.header()).await.is_err());
        self.send(&mut *near.sender, 5, 30, 30).await.expect("send");
        self.receive(&mut *far.receiver, 5, 30, 30).await;
        drop(listener);
        self.clean_up();
    }

    async fn an_address_has_one_listener(&self) {
        let listener = self.listen().await;
        let second = self.transport.listen(&listener.address()).await.map(|_| ());
        assert!(matches!(second, Err(TransportError::InUse { .. })), "{second:?}");
        drop(listener);
        self.clean_up();
    }

    async fn connecting_to_nobody_fails(&self, nowhere: &Address) {
        let nobody = self.transport.connect(nowhere).await;
        assert!(matches!(nobody, Err(TransportError::Connect { .. })), "{nobody:?}");
    }

    async fn other_kinds_of_address_are_refused(&self) {
        let others = ["tcp:127.0.0.1:1", "unix:/nowhere", "memory:nobody"];
        let mut foreign = 0;
        for other in others {
            let other = other.parse().expect("an address");
            if std::mem::discriminant(&other) == std::mem::discriminant(self.listen_at) {
                continue;
            }
            let connected = self.transport.connect(&other).await.map(|_| ());
            assert!(matches!(connected, Err(TransportError::Foreign { .. })), "{connected:?}");
            let listening = self.transport.listen(&other).await.map(|_| ());
            assert!(matches!(listening, Err(TransportError::Foreign { .. })), "{listening:?}");
            foreign += 1;
        }
        assert_eq!(foreign, 2);
    }
}
