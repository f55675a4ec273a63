//! A session against a real socket, behind which the server in memory answers.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, CallbackReply, FileKind, Grants, HandedBack, HandedOver, NewNode, Numbered, OpenKind,
    Opening,
};
use hayase_wire::{NodeChannel, NodeListener, Outgoing};

use super::multiplexed::State;
use super::*;
use crate::limits::MULTIPLEXED_FROM;
use crate::link::Handed;
use crate::testing::server::Parts;
use crate::testing::{FakeServer, new_file};
use crate::volume::Volume;
use crate::{AreaSettings, AreaVolume};

/// Serves `connections` connections of `socket` on a thread, each to its end.
fn serve(socket: PathBuf, server: Arc<FakeServer>, sharing: Arc<AtomicUsize>) -> mpsc::Sender<()> {
    let (stop, stopped) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let listener = NodeListener::bind(&socket).unwrap();
            ready.send(()).unwrap();
            loop {
                let accepted = tokio::time::timeout(Duration::from_millis(20), listener.accept());
                if let Ok(channel) = accepted.await {
                    let (server, sharing) = (Arc::clone(&server), Arc::clone(&sharing));
                    tokio::task::spawn_local(connection(channel.unwrap(), server, sharing));
                }
                if stopped.try_recv() != Err(mpsc::TryRecvError::Empty) {
                    return;
                }
            }
        });
    });
    is_ready.recv().unwrap();
    stop
}

async fn connection(mut channel: NodeChannel, server: Arc<FakeServer>, sharing: Arc<AtomicUsize>) {
    let (hello, descriptor) = channel.recv().await.unwrap();
    let hello: NodeRequest = hayase_wire::decode(&hello).unwrap();
    let NodeRequest::Hello { role, arena_slots, .. } = hello else { panic!("{hello:?}") };
    let welcome = server.call(&hello).unwrap().message;
    channel.send(&hayase_wire::encode(&welcome).unwrap(), None).await.unwrap();
    if role == ClientRole::Callback {
        let recall = Callback::Recall { ino: InodeId(77), bits: Grants::ALL };
        channel.send(&hayase_wire::encode(&recall).unwrap(), None).await.unwrap();
        let (reply, _) = channel.recv().await.unwrap();
        let reply: CallbackReply = hayase_wire::decode(&reply).unwrap();
        assert!(matches!(reply, CallbackReply::Recalled { .. }));
        // Answered: told to the test as a request of its own.
        let _ = server.call(&NodeRequest::Status);
        let _ = channel.recv().await;
        return;
    }
    if role == ClientRole::HandOver {
        assert!(descriptor.is_some(), "the kernel's device comes with the hello");
        return handed_over(channel, server).await;
    }
    if role == ClientRole::Multiplexed {
        sharing.fetch_add(1, Ordering::SeqCst);
        return multiplexed(channel, server).await;
    }
    let memory = descriptor.expect("the arena comes with the hello");
    let arena = memory::of_session_for_tests(memory, arena_slots);
    while let Ok((body, _)) = channel.recv().await {
        let request: NodeRequest = hayase_wire::decode(&body).unwrap();
        let answer = match request {
            NodeRequest::Write { from, .. } | NodeRequest::Append { from, .. } => {
                let slot = arena.slot(from.slot, from.len).unwrap();
                server.call_with(slot.as_ref(), &mut |_| request.clone())
            }
            NodeRequest::Read { into, .. } => {
                let mut slot = arena.slot(into.slot, into.len).unwrap();
                let mut count = 0;
                let read = server.call_into(into.len, &mut |_| request.clone(), &mut |bytes| {
                    slot.as_mut()[..bytes.len()].copy_from_slice(bytes);
                    count = bytes.len() as u32;
                });
                read.map(|()| Reply { message: NodeReply::Count(count), descriptor: None })
            }
            request => server.call(&request),
        };
        let (message, descriptor) = match answer {
            Ok(reply) => (reply.message, reply.descriptor),
            Err(LinkError::Refused(refused)) => (NodeReply::Refused(refused), None),
            Err(other) => panic!("{other}"),
        };
        let body = hayase_wire::encode(&message).unwrap();
        let descriptor = descriptor.as_ref().map(std::os::fd::AsFd::as_fd);
        channel.send(&body, descriptor).await.unwrap();
    }
}

/// Tells of removals two by two, the later one first; leaves without a word when one is of a directory.
async fn handed_over(channel: NodeChannel, server: Arc<FakeServer>) {
    let (mut channel, mut sender) = channel.pipelined().unwrap();
    let mut told = Vec::new();
    while let Ok((body, _)) = channel.recv().await {
        let HandedOver { unique, request } = hayase_wire::decode(&body).unwrap();
        let mut back = HandedBack::default();
        match server.call(&request) {
            Ok(Reply { message: NodeReply::Removed { ino }, .. }) => told.push((unique, ino)),
            Ok(reply) => back.answers.push((unique, reply.message)),
            Err(LinkError::Refused(refused)) if refused.errno == libc::EISDIR => return,
            Err(LinkError::Refused(refused)) => {
                back.answers.push((unique, NodeReply::Refused(refused)));
            }
            Err(other) => panic!("{other}"),
        }
        if told.len() == 2 {
            told.reverse();
            back.told = std::mem::take(&mut told);
        }
        if back != HandedBack::default() {
            sender.send(&hayase_wire::encode(&back).unwrap()).await.unwrap();
        }
    }
}

/// Answers all that came in a moment at once, the last first; leaves without a word when one removes a
/// directory.
async fn multiplexed(channel: NodeChannel, server: Arc<FakeServer>) {
    let (mut channel, mut sender) = channel.pipelined().unwrap();
    loop {
        let Ok(mut next) = channel.recv().await else { return };
        let mut requests = Vec::new();
        loop {
            requests.push(hayase_wire::decode::<Numbered<NodeRequest>>(&next.0).unwrap());
            let more = tokio::time::timeout(Duration::from_millis(2), channel.recv()).await;
            match more {
                Ok(Ok(more)) => next = more,
                Ok(Err(_)) => return,
                Err(_) => break,
            }
        }
        let mut outgoing = Outgoing::default();
        for Numbered { number, message } in requests.into_iter().rev() {
            let (message, descriptor) = match server.call(&message) {
                Ok(reply) => (reply.message, reply.descriptor),
                Err(LinkError::Refused(refused)) if refused.errno == libc::EISDIR => return,
                Err(LinkError::Refused(refused)) => (NodeReply::Refused(refused), None),
                Err(other) => panic!("{other}"),
            };
            let body = hayase_wire::encode(&Numbered { number, message }).unwrap();
            outgoing.add(&body, descriptor).unwrap();
        }
        sender.send_all(&outgoing).await.unwrap();
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    server: Arc<FakeServer>,
    /// Connections that threads shared, so far.
    sharing: Arc<AtomicUsize>,
    stop: Option<mpsc::Sender<()>>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_parts(Parts::Elsewhere)
    }

    fn with_parts(parts: Parts) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Arc::new(FakeServer::new(directory.path().to_owned(), parts));
        let sharing = Arc::default();
        let socket = directory.path().join("socket");
        let stop = serve(socket, Arc::clone(&server), Arc::clone(&sharing));
        Self { directory, server, sharing, stop: Some(stop) }
    }

    fn session(&self, mount: bool) -> Session {
        Session::connect(&self.directory.path().join("socket"), mount).unwrap()
    }

    fn impatient_session(&self) -> Session {
        let socket = self.directory.path().join("socket");
        Session::connect_patiently(&socket, false, Duration::ZERO).unwrap()
    }
}

#[test]
fn many_threads_call_with_bytes() {
    let fixture = Fixture::new();
    let session = Arc::new(fixture.session(false));
    let volume = Arc::new(AreaVolume::new(session.clone(), AreaSettings::program()).unwrap());
    let threads: Vec<_> = (0..2 * CHANNELS_MAX)
        .map(|thread| {
            let volume = Arc::clone(&volume);
            std::thread::spawn(move || {
                let ino = volume.make(new_file(&format!("file-{thread}"))).unwrap().attr.ino;
                let bytes = vec![thread as u8; 300_000];
                assert_eq!(volume.write(ino, 5, &bytes).unwrap(), 300_000);
                let mut found = Vec::new();
                volume.read(ino, 5, 1 << 20, &mut |read| found.extend_from_slice(read)).unwrap();
                assert!(found == bytes);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(session.inner.lock().made <= CHANNELS_MAX);
}

/// So many threads run `work`, all at once.
fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    let start = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

/// A file of `len` bytes, which tell it from others; they are written through its descriptor.
fn create_and_write(session: &Session, len: usize) {
    let access = Access { read: true, write: true };
    let open = Opening { access, kind: OpenKind::Local, number: 1 };
    let request = NodeRequest::Create(NewNode { open: Some(open), ..new_file(&len.to_string()) });
    let reply = session.call(&request).unwrap();
    let NodeReply::Created(created) = &reply.message else { panic!("{reply:?}") };
    let part = reply.descriptor.expect("a descriptor of its own");
    assert_eq!(rustix::io::pwrite(&part, &vec![1; len], 0), Ok(len));
    let ino = created.entry.attr.ino;
    match session.call(&NodeRequest::GetAttr { ino }).unwrap().message {
        NodeReply::Attr { attr, .. } => assert_eq!(attr.size, len as u64),
        other => panic!("{other:?}"),
    }
}

/// Until they share one; the first requests find none yet.
fn until_shared(session: &Session) {
    let until = Instant::now() + Duration::from_secs(10);
    while !matches!(*session.inner.multiplexed.lock(), State::Open(_)) {
        assert!(Instant::now() < until, "they share a connection");
        on_threads(16, |_| drop(session.call(&NodeRequest::StatFs)));
    }
}

#[test]
fn many_threads_share_a_connection_and_hear_their_own_answers() {
    let fixture = Fixture::with_parts(Parts::Here);
    let session = fixture.session(false);
    until_shared(&session);
    on_threads(16, |thread| {
        for file in 0..20 {
            create_and_write(&session, 1 + thread * 20 + file);
        }
    });
    assert_eq!(fixture.server.count("Create"), 16 * 20);
    assert_eq!(fixture.sharing.load(Ordering::SeqCst), 1);
}

#[test]
fn few_threads_do_not_share() {
    let fixture = Fixture::new();
    let session = fixture.session(false);
    on_threads(MULTIPLEXED_FROM, |thread| {
        for file in 0..50 {
            session.call(&NodeRequest::Create(new_file(&format!("{thread}-{file}")))).unwrap();
        }
    });
    assert!(matches!(*session.inner.multiplexed.lock(), State::None(None)));
}

#[test]
fn a_mount_does_not_share() {
    let fixture = Fixture::new();
    let session = fixture.session(true);
    on_threads(16, |_| {
        for _ in 0..50 {
            session.call(&NodeRequest::StatFs).unwrap();
        }
    });
    assert!(matches!(*session.inner.multiplexed.lock(), State::None(None)));
}

/// The server leaves at each removal of the directory, with what it answered none of.
#[test]
fn who_shares_a_connection_that_ends_asks_again() {
    let fixture = Fixture::new();
    let session = fixture.session(false);
    let directory = NewNode { kind: FileKind::Directory, ..new_file("directory") };
    session.call(&NodeRequest::Create(directory)).unwrap();
    let remove = |name: &str| {
        let (parent, name) = (InodeId::ROOT, name.into());
        session.call(&NodeRequest::Remove { parent, name, directory: false })
    };
    until_shared(&session);
    on_threads(16, |thread| {
        for file in 0..50 {
            if thread == 0 && file % 10 == 9 {
                let error = remove("directory").unwrap_err();
                assert!(
                    matches!(error, LinkError::Refused(refused) if refused.errno == libc::EISDIR)
                );
            }
            let name = format!("{thread}-{file}");
            let made = session.call(&NodeRequest::Create(new_file(&name)));
            // This server keeps no answers: what is asked again may have happened.
            if let Err(error) = made {
                let LinkError::Refused(refused) = error else { panic!("{error}") };
                assert_eq!(refused.errno, libc::EEXIST);
            }
            assert!(fixture.server.inode_of(&name).is_some());
        }
    });
    until_shared(&session);
    let sharing = fixture.sharing.load(Ordering::SeqCst);
    assert!(sharing > 1, "{sharing} connections were shared");
}

#[test]
fn recalls_are_answered_on_connections_of_their_own() {
    let fixture = Fixture::new();
    let session = Arc::new(fixture.session(true));
    let volume = AreaVolume::new(session, AreaSettings::mount()).unwrap();
    struct Nothing;
    impl crate::KernelCaches for Nothing {
        fn invalidate(&self, _: InodeId, _: crate::volume::Drops) {}
        fn forget_name(&self, _: InodeId, _: &[u8], _: Duration) {}
        fn release_descriptor(&self, _: InodeId) {}
    }
    volume.attach(Arc::new(Nothing));
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while fixture.server.count("other") < CALLBACKS as u64 {
        assert!(std::time::Instant::now() < until, "{}", fixture.server.count("other"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the ends of removals say, in the order in which they come.
fn hand_over(session: &Session, ends: &mpsc::Sender<(u64, Handed)>, unique: u64, name: &str) {
    let (parent, name) = (InodeId::ROOT, name.into());
    let request = NodeRequest::Remove { parent, name, directory: false };
    let ends = ends.clone();
    let end = Box::new(move |handed| ends.send((unique, handed)).unwrap());
    session.hand_over(HandOver { unique, request, end });
}

#[test]
fn the_end_of_what_is_handed_over_is_heard_once() {
    const WAIT: Duration = Duration::from_secs(10);
    let fixture = Fixture::new();
    let session = fixture.session(true);
    let (ends, ended) = mpsc::channel();
    let next = || ended.recv_timeout(WAIT).unwrap();
    hand_over(&session, &ends, 1, "a");
    assert!(matches!(next(), (1, Handed::NotTaken)), "there is no kernel yet");
    let device = rustix::fs::memfd_create("device", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    session.answer_kernel_at(device);
    for name in ["a", "b", "c"] {
        session.call(&NodeRequest::Create(new_file(name))).unwrap();
    }
    let directory = NewNode { kind: FileKind::Directory, ..new_file("directory") };
    session.call(&NodeRequest::Create(directory)).unwrap();
    for (unique, name) in [(2, "a"), (3, "nothing"), (4, "b")] {
        hand_over(&session, &ends, unique, name);
    }
    assert!(
        matches!(next(), (3, Handed::Answered(Err(LinkError::Refused(refused)))) if refused.errno == libc::ENOENT)
    );
    assert!(matches!(next(), (4, Handed::Told(_))));
    assert!(matches!(next(), (2, Handed::Told(_))));
    // The server has done one, of which it has not told, when it leaves at the next.
    hand_over(&session, &ends, 5, "c");
    hand_over(&session, &ends, 6, "directory");
    let mut last = [next(), next()];
    last.sort_by_key(|(unique, _)| *unique);
    let [(5, Handed::Answered(again)), (6, Handed::Answered(other))] = last else {
        panic!("{last:?}");
    };
    // Asked again, as it must be; this server keeps no answers.
    assert!(matches!(again, Err(LinkError::Refused(refused)) if refused.errno == libc::ENOENT));
    assert!(matches!(other, Err(LinkError::Refused(refused)) if refused.errno == libc::EISDIR));
    // The way is found again.
    let until = std::time::Instant::now() + WAIT;
    loop {
        hand_over(&session, &ends, 7, "nothing");
        match next() {
            (7, Handed::NotTaken) => std::thread::sleep(Duration::from_millis(5)),
            (7, Handed::Answered(Err(_))) => break,
            other => panic!("{other:?}"),
        }
        assert!(std::time::Instant::now() < until);
    }
}

#[test]
fn a_server_that_is_gone_is_an_error_and_its_successor_is_found() {
    let mut fixture = Fixture::new();
    let socket = fixture.directory.path().join("socket");
    let (session, patient) = (fixture.impatient_session(), fixture.session(false));
    let ask = || session.call(&NodeRequest::StatFs).map(|reply| reply.message);
    assert!(matches!(ask(), Ok(NodeReply::StatFs(_))));
    drop(fixture.stop.take());
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while ask().is_ok() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = hayase_wire::message::Refused::from(ask().unwrap_err());
    assert_eq!(refused.errno, libc::EIO);
    assert!(refused.why.unwrap().contains("socket"));
    let _ = std::fs::remove_file(&socket);
    let waits = std::thread::spawn(move || patient.call(&NodeRequest::StatFs));
    std::thread::sleep(Duration::from_millis(50));
    let (server, sharing) = (Arc::clone(&fixture.server), Arc::clone(&fixture.sharing));
    fixture.stop = Some(serve(socket, server, sharing));
    assert!(matches!(ask(), Ok(NodeReply::StatFs(_))));
    assert!(waits.join().unwrap().is_ok(), "a call is sent again to the successor");
}

#[test]
fn nobody_listens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nothing");
    let error = Session::connect(&path, false).err().unwrap();
    assert!(error.to_string().contains("nothing"), "{error}");
}
