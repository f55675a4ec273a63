//! The connection that threads of a process share, asked byte by byte.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::cluster::{Cluster, Process, W, eventually, new_node};
use hayase_layout::InodeId;
use hayase_wire::limits::MULTIPLEXED_MAX;
use hayase_wire::message::{
    Access, ClientRole, FileKind, NewNode, NodeReply, NodeRequest, Numbered, OpenKind, Opening,
    PROTOCOL_VERSION, StillOpen,
};
use hayase_wire::{BlockingChannel, NodeError};

const ROOT: InodeId = InodeId::ROOT;
const WAIT: Duration = Duration::from_secs(30);

/// Both ends of a connection that was welcomed.
struct Shared {
    sender: BlockingChannel,
    receiver: BlockingChannel,
}

impl Shared {
    fn connect(cluster: &Cluster) -> Self {
        let mut channel = BlockingChannel::connect(&cluster.socket(0), WAIT).expect("connected");
        let hello = NodeRequest::Hello {
            version: PROTOCOL_VERSION,
            role: ClientRole::Multiplexed,
            process: 1 << 40,
            arena_slots: 0,
            mount: false,
            returning: false,
        };
        channel.call(&hayase_wire::encode(&hello).expect("encodes"), None).expect("a welcome");
        let (sender, mut receiver) = channel.halves().expect("two halves");
        receiver.set_wait(Some(WAIT)).expect("a time to wait");
        Self { sender, receiver }
    }

    fn ask(&mut self, number: u64, message: NodeRequest) -> Result<(), NodeError> {
        self.sender.tell(&hayase_wire::encode(&Numbered { number, message }).expect("encodes"))
    }

    /// The next answer.
    fn hear(&mut self) -> Result<(u64, NodeReply), NodeError> {
        let (body, _) = self.receiver.receive()?;
        let answer: Numbered<NodeReply> = hayase_wire::decode(&body).expect("decodes");
        Ok((answer.number, answer.message))
    }
}

/// A new file that is open. (The areas of these tests count what is written, so they hand out no descriptors.)
fn create(name: &str, number: u64) -> NodeRequest {
    let open = Some(Opening { access: W, kind: OpenKind::Local, number });
    NodeRequest::Create(NewNode { open, ..new_node(ROOT, name, FileKind::Regular) })
}

fn open(ino: InodeId, number: u64) -> NodeRequest {
    let open = Opening { access: W, kind: OpenKind::Remote, number };
    NodeRequest::Open { ino, open, truncate: false }
}

#[test]
fn each_of_many_answers_has_its_number() {
    let cluster = Cluster::up(1);
    let mut shared = Shared::connect(&cluster);
    for round in 0..10 {
        let numbers = (0..MULTIPLEXED_MAX as u64).map(|at| round * 1000 + at);
        for number in numbers.clone() {
            let request = match number % 2 {
                0 => create(&number.to_string(), number),
                _ => NodeRequest::Lookup { parent: ROOT, name: number.to_string().into() },
            };
            shared.ask(number, request).expect("sent");
        }
        let mut heard = Vec::new();
        for _ in numbers.clone() {
            let (number, reply) = shared.hear().expect("an answer");
            match (number % 2, reply) {
                (0, NodeReply::Created(created)) => assert!(created.new),
                (1, NodeReply::Refused(refused)) => assert_eq!(refused.errno, 2),
                other => panic!("{other:?}"),
            }
            heard.push(number);
        }
        heard.sort_unstable();
        assert!(heard.into_iter().eq(numbers));
    }
}

/// A file of another node's mount, which gives it back when it is told to.
fn held_elsewhere(cluster: &Cluster) -> (InodeId, Process, mpsc::Sender<()>) {
    let (give_back, told) = mpsc::channel();
    let mut mount = cluster.mount_answering(1, move || {
        told.recv().expect("the test goes on");
        StillOpen { access: Access::default(), as_of: u64::MAX }
    });
    let ino = cluster.process(0).create(ROOT, "held", FileKind::Regular).expect("made").ino;
    mount.open(ino, W).expect("opened");
    (ino, mount, give_back)
}

#[test]
fn one_that_waits_holds_nobody_up() {
    let cluster = Cluster::up(2);
    let (ino, _mount, give_back) = held_elsewhere(&cluster);
    let mut shared = Shared::connect(&cluster);
    shared.ask(1, open(ino, 1)).expect("sent");
    for number in 2..100 {
        shared.ask(number, NodeRequest::GetAttr { ino: ROOT }).expect("sent");
        assert_eq!(shared.hear().expect("an answer").0, number);
    }
    give_back.send(()).expect("the mount waits");
    let (number, reply) = shared.hear().expect("an answer");
    assert!(number == 1 && matches!(reply, NodeReply::Opened(_)), "{reply:?}");
}

/// Else what is asked again on another connection could be overtaken by the first request.
#[test]
fn the_next_connection_begins_when_the_last_is_done() {
    let cluster = Cluster::up(2);
    let (ino, mut mount, give_back) = held_elsewhere(&cluster);
    let mut shared = Shared::connect(&cluster);
    shared.ask(1, open(ino, 1)).expect("sent");
    eventually("the mount is recalled", || mount.recalls.load(Ordering::Relaxed) > 0);
    drop(shared);
    let welcomed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let next = Shared::connect(&cluster);
            welcomed.store(true, Ordering::Relaxed);
            next
        });
        // Time enough, were it welcomed at once.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!welcomed.load(Ordering::Relaxed), "the open is not done");
        assert!(mount.attr(ROOT).is_ok(), "others are served");
        give_back.send(()).expect("the mount waits");
        let mut next = next.join().expect("no panic");
        next.ask(1, NodeRequest::GetAttr { ino }).expect("sent");
        assert!(matches!(next.hear().expect("an answer"), (1, NodeReply::Attr { .. })));
    });
}

#[test]
fn removals_are_finished() {
    let cluster = Cluster::up(1);
    let mut shared = Shared::connect(&cluster);
    let mut process = cluster.process(0);
    let ino = process.create(ROOT, "first", FileKind::Regular).expect("made").ino;
    for number in 0..8 {
        let name = format!("{number}").into_bytes();
        process.ask(&NodeRequest::Link { ino, parent: ROOT, name }).expect("linked");
    }
    for number in 0..8 {
        let name = format!("{number}").into_bytes();
        let remove = NodeRequest::Remove { parent: ROOT, name, directory: false };
        shared.ask(number, remove).expect("sent");
    }
    for _ in 0..8 {
        let (_, reply) = shared.hear().expect("an answer");
        assert!(matches!(reply, NodeReply::Removed { .. }), "{reply:?}");
    }
    assert_eq!(process.attr(ino).expect("it has a name").nlink, 1);
}

#[test]
fn more_than_may_wait_are_not_served() {
    let cluster = Cluster::up(2);
    let (ino, _mount, give_back) = held_elsewhere(&cluster);
    let mut shared = Shared::connect(&cluster);
    for number in 0..=MULTIPLEXED_MAX as u64 {
        shared.ask(number, open(ino, number + 1)).expect("sent");
    }
    give_back.send(()).expect("the mount waits");
    // What it asked within bounds may be answered before the connection ends.
    let ended = std::iter::from_fn(|| Some(shared.hear())).find_map(Result::err);
    assert!(matches!(ended, Some(NodeError::Closed)), "{ended:?}");
    assert!(cluster.process(0).attr(ino).is_ok(), "others are served");
}

#[test]
fn what_can_not_be_read_ends_the_connection() {
    let cluster = Cluster::up(1);
    let mut shared = Shared::connect(&cluster);
    shared.sender.tell(b"\xff").expect("sent");
    assert!(matches!(shared.hear(), Err(NodeError::Closed)));
}

#[test]
fn what_a_process_that_left_had_open_is_closed() {
    let cluster = Cluster::up(1);
    let mut shared = Shared::connect(&cluster);
    for number in 0..MULTIPLEXED_MAX as u64 {
        shared.ask(number, create(&format!("f{number}"), number)).expect("sent");
    }
    let (first, _) = shared.hear().expect("an answer");
    assert!(first < MULTIPLEXED_MAX as u64);
    // The others may be under way.
    drop(shared);
    let mut process = cluster.process(0);
    eventually("the files are made", || process.names(ROOT).len() == MULTIPLEXED_MAX);
    for name in process.names(ROOT) {
        process.remove(ROOT, &name, false).expect("removed");
    }
    let parts = cluster.parts(0);
    eventually("no part is left", || parts.list().expect("a list").is_empty());
}
