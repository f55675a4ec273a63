//! A server proves in every life that it is the one that began the job, and no other process of the job can.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{FileKind, MemberRequest, MembersNow, PeerReply, PeerRequest};
use hayase_wire::transport::{TcpTransport, Transport};
use hayase_wire::{
    BoxBuffer, CallError, Connector, Credentials, KnownServers, Member, PeerIdentity, PeerLink,
    Response, ServerKey, Service, members, serve_listener,
};
use tokio::task::LocalSet;

use crate::cluster::{Cluster, RW, eventually};
use crate::starting::lost;

const WAIT: Duration = Duration::from_secs(2);

fn published(cluster: &Cluster, server: u16) -> Member {
    let found = members::published(cluster.job_dir(), ServerId(server), cluster.secret());
    found.expect("it is readable").expect("it was published")
}

fn known(cluster: &Cluster) -> Arc<KnownServers> {
    let sealed = members::read(cluster.job_dir(), cluster.secret());
    Arc::new(sealed.expect("it is readable").expect("it is sealed").known())
}

/// Of any process that knows the secret of the job and says that it is this server.
fn posing_as(cluster: &Cluster, server: u16) -> Credentials {
    Credentials {
        secret: cluster.secret().clone(),
        me: PeerIdentity { server: ServerId(server), start_id: u64::MAX },
        key: ServerKey::generate().expect("randomness"),
        known: known(cluster),
        encrypt: false,
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(LocalSet::new().run_until(test))
}

/// What `server` answers to a request of `from`.
fn ask(
    cluster: &Cluster,
    from: Credentials,
    server: u16,
    request: &PeerRequest,
) -> Result<PeerReply, CallError> {
    let member = published(cluster, server);
    let request = hayase_wire::encode(request).expect("it encodes");
    run(async {
        let connector = Connector::new(Rc::new(TcpTransport::new()), from);
        let link = PeerLink::new(connector, member.server, member.addresses);
        let answer = link.call(request, None, None, WAIT).await?;
        Ok(hayase_wire::decode(&answer.body).expect("it decodes"))
    })
}

#[test]
fn a_server_keeps_its_key_when_it_is_started_again() {
    let mut cluster = Cluster::up_in_memory(2);
    let mut on_1 = cluster.process(1);
    let made = on_1.create(InodeId::ROOT, "of-1", FileKind::Regular).expect("made");
    on_1.open(made.ino, RW).expect("opened");
    on_1.write(made.ino, 0, b"bytes").expect("written");
    let (key, entry) = (fs::read(cluster.key_file(1)).expect("it is kept"), published(&cluster, 1));
    let mode = fs::metadata(cluster.key_file(1)).expect("it is there").mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_ne!(published(&cluster, 0).key, entry.key, "each has its own");

    cluster.restart(1);
    assert_eq!(fs::read(cluster.key_file(1)).expect("it is kept"), key);
    let again = published(&cluster, 1);
    assert!(again.start_id != entry.start_id && again.key == entry.key, "{again:?}");
    assert_eq!(cluster.process(0).attr(made.ino).expect("it is reached").size, 5);
    cluster.restart(0);
    assert_eq!(cluster.process(0).attr(made.ino).expect("it is reached").size, 5);
}

#[test]
fn a_server_that_ended_before_the_others_came_keeps_its_key() {
    let mut cluster = Cluster::down(3);
    let why = cluster.refused_alone(1, 3);
    assert!(why.contains("server 0 did not seal the list"), "{why}");
    let key = published(&cluster, 1).key;
    let why = cluster.refused_alone(0, 3);
    assert!(why.contains("server 2 not there"), "{why}");
    cluster.rise(3);
    assert_eq!(known(&cluster).get(ServerId(1)).expect("a member").key, key);
    let made = cluster.process(1).create(InodeId::ROOT, "of-1", FileKind::Regular).expect("made");
    for node in [0, 2] {
        cluster.process(node).attr(made.ino).expect("it is reached");
    }
}

/// Where its host has a job directory of its own.
#[test]
fn a_server_that_sees_no_other_entry_is_started_again() {
    let mut cluster = Cluster::up_in_memory(2);
    let made = cluster.process(0).create(InodeId::ROOT, "of-0", FileKind::Regular).expect("made");
    let of_0 = members::published_path(cluster.job_dir(), ServerId(0));
    fs::remove_file(of_0).expect("it was there");
    cluster.restart(1);
    cluster.process(1).attr(made.ino).expect("it is reached");
}

#[test]
fn a_server_without_the_storage_that_it_began_with_does_not_return() {
    let mut cluster = Cluster::up_in_memory(2);
    cluster.kill(1);
    let (file, before) = (cluster.key_file(1), published(&cluster, 1));
    let entry = members::published_path(cluster.job_dir(), ServerId(1));
    let says = |why: &str, path: &std::path::Path| {
        let expected = format!(
            "{} has another key for server 1 on host n1 than the storage of that server",
            path.display()
        );
        assert!(why.ends_with(&expected), "{why}");
    };
    fs::remove_file(&file).expect("it was there");
    says(&cluster.refused(1, 2), &entry);
    assert!(!file.exists(), "no other key was made");
    ServerKey::make(&file).expect("made");
    says(&cluster.refused(1, 2), &entry);
    // The list of the job knows it as well.
    fs::remove_file(&entry).expect("it was there");
    says(&cluster.refused(1, 2), &members::sealed_path(cluster.job_dir()));
    assert!(!entry.exists(), "the other key was not published");
    members::publish(cluster.job_dir(), &before, cluster.secret()).expect("published");
}

/// By a process that knows the secret and can write to the directory.
#[test]
fn a_key_that_was_changed_in_the_job_directory_is_named() {
    let mut cluster = Cluster::up_in_memory(2);
    let (genuine, dir) = (published(&cluster, 1), cluster.job_dir().to_owned());
    let key = ServerKey::generate().expect("randomness").public();
    let changed = Member { key, ..genuine.clone() };
    cluster.kill(0);
    let says = |why: &str, path: &std::path::Path| {
        let expected = format!(
            "{} has another key for server 1 on host n1 than the first list of this job",
            path.display()
        );
        assert!(why.ends_with(&expected), "{why}");
    };
    members::publish(&dir, &changed, cluster.secret()).expect("published");
    let sealing = members::seal(&dir, 2, cluster.secret(), WAIT);
    run(sealing).expect("sealed");
    says(&cluster.refused(0, 2), &members::sealed_path(&dir));
    cluster.kill(1);
    let why = cluster.refused(1, 2);
    assert!(why.contains("server 1 on host n1 than the storage of that server"), "{why}");
}

/// What any process of the job can write into the directory, and what a disk does to it.
#[test]
fn an_entry_of_another_server_that_was_damaged_or_changed_ends_nobody() {
    let mut cluster = Cluster::up_in_memory(3);
    let made = cluster.process(1).create(InodeId::ROOT, "of-1", FileKind::Regular).expect("made");
    let key = ServerKey::generate().expect("randomness").public();
    let changed = Member { key, ..published(&cluster, 1) };
    members::publish(cluster.job_dir(), &changed, cluster.secret()).expect("published");
    let damaged = members::published_path(cluster.job_dir(), ServerId(2));
    fs::write(damaged, b"half an ent").expect("written");
    cluster.restart(0);
    cluster.process(0).attr(made.ino).expect("it is reached");
    cluster.process(2).attr(made.ino).expect("it is reached");
}

#[test]
fn a_list_of_more_or_fewer_servers_than_the_job_has_is_refused() {
    let mut cluster = Cluster::up_in_memory(2);
    let dir = cluster.job_dir().to_owned();
    let third = Member { server: ServerId(2), ..published(&cluster, 1) };
    members::publish(&dir, &third, cluster.secret()).expect("published");
    cluster.kill(0);
    cluster.kill(1);
    for listed in [3, 1] {
        let sealing = members::seal(&dir, listed, cluster.secret(), WAIT);
        run(sealing).expect("sealed");
        let path = members::sealed_path(&dir);
        let expected = format!("{} lists {listed} servers, and this job has 2", path.display());
        for server in [0, 1] {
            let why = cluster.refused(server, 2);
            assert!(why.ends_with(&expected), "{why}");
        }
    }
}

/// It would begin the job again, with a root directory in which nothing is.
#[test]
fn a_server_whose_names_alone_are_gone_does_not_return() {
    let mut cluster = Cluster::up_in_memory(2);
    let sealed = members::sealed_path(cluster.job_dir());
    let list = fs::read(&sealed).expect("it is sealed");
    for server in [0, 1] {
        cluster.kill_and_forget_names(server);
        let why = cluster.refused(server, 2);
        let expected = format!(
            "{} was sealed when server {server} on host n{server} had begun the job, and its names of then are not in",
            sealed.display()
        );
        assert!(why.contains(&expected), "{why}");
        assert_eq!(fs::read(&sealed).expect("it is there"), list, "it is sealed once");
    }
}

/// It was killed between the two, or the file was damaged and removed.
#[test]
fn a_restart_waits_for_room_for_the_keys_of_the_others() {
    let mut cluster = Cluster::up_in_memory(2);
    cluster.kill(1);
    let file = cluster.known_file(1);
    let known = fs::read(&file).expect("it is kept");
    fs::remove_file(&file).expect("it was there");
    // The first time that it is written the disk is full.
    let temporary = file.with_extension(format!("json.{}", std::process::id()));
    symlink("/dev/full", &temporary).expect("linked");
    cluster.restart(1);
    assert_eq!(fs::read(&file).expect("it is kept"), known);
    assert!(fs::symlink_metadata(&temporary).is_err(), "it was tried with the full disk");
}

/// Answers the same to all that it is asked as a server, and counts.
struct Answering {
    asked: Cell<usize>,
    reply: PeerReply,
}

impl Answering {
    fn with(reply: PeerReply) -> Rc<Self> {
        Rc::new(Self { asked: Cell::new(0), reply })
    }
}

impl Service for Answering {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        _from: PeerIdentity,
        _request_id: u64,
        _body: Vec<u8>,
        _payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        self.asked.set(self.asked.get() + 1);
        Response::new(hayase_wire::encode(&self.reply).expect("it encodes"))
    }
}

#[test]
fn a_member_in_the_place_of_a_dead_server_is_asked_nothing_and_delays_no_loss() {
    let mut cluster = Cluster::up_in_memory(3);
    // Server 0 misses nobody whom it has never heard, and a server that was started again asks others only when it has.
    cluster.restart(1);
    eventually("server 0 hears server 1", || cluster.process(1).attr(InodeId::ROOT).is_ok());
    let (posing, address) = (posing_as(&cluster, 1), published(&cluster, 1).addresses.remove(0));
    let mut on_0 = cluster.process(0);
    cluster.kill(1);
    run(async {
        let listener = TcpTransport::new().listen(&address).await.expect("its port is free");
        let counting = Answering::with(PeerReply::Pong);
        let serving =
            tokio::task::spawn_local(serve_listener(listener, posing, Rc::clone(&counting)));
        let declared = std::thread::spawn(move || {
            eventually("server 1 is lost", || lost(&mut on_0) == [1]);
        });
        while !declared.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        declared.join().expect("it was declared lost");
        assert_eq!(counting.asked.get(), 0, "nobody takes it for server 1");
        serving.abort();
    });
}

/// By the order of two losses, not by time: nobody is at the port of the server that died later.
#[test]
fn a_loss_with_a_member_at_the_port_of_the_dead_server_is_declared_as_soon_as_without() {
    let mut cluster = Cluster::up_in_memory(3);
    for server in [1, 2] {
        cluster.restart(server);
        eventually("server 0 hears it", || cluster.process(server).attr(InodeId::ROOT).is_ok());
    }
    let (posing, address) = (posing_as(&cluster, 1), published(&cluster, 1).addresses.remove(0));
    let mut on_0 = cluster.process(0);
    cluster.kill(1);
    run(async {
        let listener = TcpTransport::new().listen(&address).await.expect("its port is free");
        let answering = Answering::with(PeerReply::Pong);
        let serving = tokio::task::spawn_local(serve_listener(listener, posing, answering));
        let declared = std::thread::spawn(move || {
            cluster.kill(2);
            let mut seen = Vec::new();
            eventually("server 2 is lost", || {
                seen = lost(&mut on_0);
                seen.contains(&2)
            });
            (seen, cluster)
        });
        while !declared.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (mut seen, _cluster) = declared.join().expect("it was declared lost");
        seen.sort_unstable();
        assert_eq!(seen, [1, 2], "the one that died first is not lost later");
        serving.abort();
    });
}

/// Server 0 alone declares losses: what another one says ends nobody.
#[test]
fn a_server_that_another_one_calls_lost_asks_server_0_and_serves_on() {
    let mut cluster = Cluster::up_in_memory(3);
    let made = cluster.process(1).create(InodeId::ROOT, "of-1", FileKind::Regular).expect("made");
    let key = ServerKey::read(&cluster.key_file(1)).expect("readable").expect("it is there");
    let lying = Credentials { key, ..posing_as(&cluster, 1) };
    let address = published(&cluster, 1).addresses.remove(0);
    cluster.kill(1);
    run(async {
        let listener = TcpTransport::new().listen(&address).await.expect("its port is free");
        let answering = Answering::with(PeerReply::Dead);
        let counting = Rc::clone(&answering);
        let serving = tokio::task::spawn_local(serve_listener(listener, lying, answering));
        let asked = std::thread::spawn(move || {
            for node in [0, 2] {
                let mut process = cluster.process(node);
                for _ in 0..10 {
                    process.attr(made.ino).expect_err("server 1 serves nothing");
                }
                process
                    .create(InodeId::ROOT, &format!("of-{node}"), FileKind::Regular)
                    .expect("its own server serves");
            }
            cluster
        });
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let cluster = asked.join().expect("both serve on");
        assert!(counting.asked.get() > 0, "it was asked");
        for node in [0, 2] {
            cluster.process(node).attr(InodeId::ROOT).expect("it serves on");
        }
        serving.abort();
    });
}

#[test]
fn a_member_speaks_for_no_other_server() {
    let cluster = Cluster::up_in_memory(3);
    let (mut on_0, mut on_2) = (cluster.process(0), cluster.process(2));
    let beat = PeerRequest::from(MemberRequest::Beat { took: 0 });
    let error = ask(&cluster, posing_as(&cluster, 1), 0, &beat).expect_err("not served");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");

    // Nor does a server that proves itself speak for server 0.
    let key = ServerKey::read(&cluster.key_file(1)).expect("readable").expect("it is there");
    let me = PeerIdentity { server: ServerId(1), start_id: published(&cluster, 1).start_id };
    let genuine = Credentials { key, me, ..posing_as(&cluster, 1) };
    let of_2 = (ServerId(2), published(&cluster, 2).start_id);
    let members = MembersNow { epoch: 9, lost: vec![of_2], ..MembersNow::default() };
    for server in [0, 2] {
        let news = PeerRequest::from(MemberRequest::Members(Box::new(members.clone())));
        let reply = ask(&cluster, genuine.clone(), server, &news).expect("an answer");
        assert!(matches!(reply, PeerReply::Refused(_)), "{reply:?}");
    }
    assert_eq!([lost(&mut on_0), lost(&mut on_2)], [[]; 2] as [[u16; 0]; 2]);
}
