//! Gathering in front of a server in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    Access, Callback, CallbackReply, Grants, MetaChange, NodeRequest, OpenKind, Opening, Refused,
};
use proptest::prelude::*;

use crate::limits::{GATHER_AFTER, GATHER_FILES_MAX, GATHER_RECALL_WAIT, GATHER_WAIT};
use crate::open_file::Serving;
use crate::testing::server::Parts;
use crate::testing::{FakeServer, new_file};
use crate::volume::{FileOpen, OpenWish, Volume};
use crate::{AreaSettings, AreaVolume, Link};

const BOTH: Access = Access { read: true, write: true };

struct Mounted {
    server: Arc<FakeServer>,
    volume: AreaVolume,
    ino: InodeId,
    _parts: tempfile::TempDir,
}

impl Mounted {
    /// With a file, open for reading and writing by messages.
    fn new() -> Self {
        let parts = tempfile::tempdir().unwrap();
        let server = Arc::new(FakeServer::new(parts.path().to_owned(), Parts::Elsewhere));
        let link: Arc<dyn Link> = Arc::clone(&server) as _;
        let volume = AreaVolume::new(link, AreaSettings::mount()).unwrap();
        volume.answer_callbacks();
        server.call(&NodeRequest::Create(new_file("file"))).unwrap();
        let ino = server.inode_of("file").unwrap();
        let mounted = Self { server, volume, ino, _parts: parts };
        mounted.open(ino);
        mounted
    }

    fn open(&self, ino: InodeId) -> FileOpen {
        let wish =
            OpenWish { access: BOTH, truncate: false, serving: Serving::Messages, uncached: false };
        self.volume.open(ino, wish).unwrap()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Refused> {
        assert_eq!(self.volume.write(self.ino, offset, data)? as usize, data.len());
        Ok(())
    }

    /// Small writes, one behind the other, until some are gathered; tells where the next one goes.
    fn gather(&self) -> u64 {
        let end = u64::from(GATHER_AFTER + 5) * 100;
        (0..end / 100).for_each(|at| self.write(at * 100, &[7; 100]).unwrap());
        assert!(self.volume.gathers_now());
        assert!(self.stored() < end, "some are not there yet");
        end
    }

    fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>, Refused> {
        let mut bytes = Vec::new();
        self.volume.read(self.ino, offset, len, &mut |read| bytes = read.to_vec())?;
        Ok(bytes)
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + 10 * GATHER_WAIT;
        while !is_so(self) {
            assert!(Instant::now() < until, "{what}: it never came");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Length of the file as the server knows it.
    fn stored(&self) -> u64 {
        let reply = self.server.call(&NodeRequest::GetAttr { ino: self.ino }).unwrap();
        match reply.message {
            hayase_wire::message::NodeReply::Attr { attr, .. } => attr.size,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_small_writes_are_few_requests() {
    let mounted = Mounted::new();
    for at in 0..512_u64 {
        mounted.write(at * 4096, &[at as u8; 4096]).unwrap();
    }
    let count = |request| mounted.server.count(request);
    assert_eq!((count("Write"), count("Gather"), count("WriteGathered")), (3, 2, 2));
    assert_eq!(mounted.stored(), 2 << 20);
    for at in [0, 5, 255, 256, 511] {
        assert_eq!(mounted.read(at * 4096, 4096).unwrap(), [at as u8; 4096], "block {at}");
    }
}

/// What is done with a file that has bytes gathered.
type Touch = fn(&Mounted);

#[test]
fn whatever_is_done_with_the_file_finds_them() {
    let touches: [(&str, Touch); 10] = [
        ("stat", |m| assert_eq!(m.volume.attributes(m.ino).unwrap().attr.size, 800)),
        ("lookup", |m| {
            assert_eq!(m.volume.lookup(InodeId::ROOT, b"file").unwrap().attr.size, 800);
        }),
        ("link", |m| {
            assert_eq!(m.volume.link(m.ino, InodeId::ROOT, b"other").unwrap().attr.size, 800);
        }),
        ("read", |m| assert_eq!(m.read(700, 200).unwrap(), [7; 100])),
        ("fsync", |m| m.volume.sync(m.ino, true).unwrap()),
        ("append and read", |m| {
            m.volume.append(m.ino, b"end").unwrap();
            assert_eq!(m.read(798, 100).unwrap(), [7, 7, b'e', b'n', b'd']);
        }),
        ("truncate", |m| {
            let change = MetaChange { size: Some(750), ..MetaChange::default() };
            m.volume.set_attributes(m.ino, &change).unwrap();
            assert_eq!(m.read(700, 100).unwrap(), [7; 50]);
        }),
        ("copy", |m| {
            assert_eq!(m.volume.copy_range((m.ino, 0), (m.ino, 2000), 800).unwrap(), 800);
        }),
        ("seek", |m| assert_eq!(m.volume.seek(m.ino, 799, 3).unwrap(), 799)),
        ("close", |m| m.volume.release(m.ino, BOTH)),
    ];
    for (name, touch) in touches {
        let mounted = Mounted::new();
        assert_eq!(mounted.gather(), 800);
        touch(&mounted);
        assert!(!mounted.volume.gathers_now(), "{name}");
        assert!(mounted.stored() >= 750, "{name}");
    }
}

#[test]
fn many_small_appends_are_few_requests() {
    let mounted = Mounted::new();
    for at in 0..2000_u64 {
        assert_eq!(mounted.volume.append(mounted.ino, &[at as u8; 1000]).unwrap(), 1000);
    }
    let count = |request| mounted.server.count(request);
    assert_eq!((count("Append"), count("Gather"), count("WriteGathered")), (3, 2, 1));
    for at in [0, 3, 1046, 1047, 1999] {
        assert_eq!(mounted.read(at * 1000, 1000).unwrap(), [at as u8; 1000], "record {at}");
    }
}

/// A write that is under way may move the end: an append beside it is sent.
#[test]
fn the_end_is_not_taken_for_known_beside_a_write_under_way() {
    let mounted = Mounted::new();
    for _ in 0..GATHER_AFTER {
        mounted.volume.append(mounted.ino, &[1; 100]).unwrap();
    }
    let file = mounted.volume.gatherer.before_moving_end(mounted.ino).unwrap();
    mounted.volume.append(mounted.ino, &[2; 100]).unwrap();
    assert_eq!(mounted.server.count("Gather"), 0);
    drop(file);
    for _ in 0..2 * GATHER_AFTER + 1 {
        mounted.volume.append(mounted.ino, &[3; 100]).unwrap();
    }
    assert_eq!(mounted.server.count("Gather"), 1);
}

#[test]
fn listings_tell_no_old_sizes() {
    let mounted = Mounted::new();
    mounted.server.call(&NodeRequest::Create(new_file("other"))).unwrap();
    let told = || -> Vec<InodeId> {
        let listed = mounted.volume.list(InodeId::ROOT, 0, 4096, true).unwrap();
        listed.iter().filter_map(|listed| Some(listed.entry.entry.as_ref()?.attr.ino)).collect()
    };
    let other = mounted.server.inode_of("other").unwrap();
    mounted.gather();
    assert_eq!(told(), [other], "of the others they are at hand");
    mounted.volume.sync(mounted.ino, true).unwrap();
    assert_eq!(told().len(), 2);
}

#[test]
fn a_recall_is_answered_when_all_is_there() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.server.recall(mounted.ino, Grants::ALL);
    assert_eq!(mounted.stored(), end);

    // Where another node writes it nothing is gathered.
    mounted.server.open_elsewhere(mounted.ino);
    for at in 0..100 {
        mounted.write(at * 100, &[8; 100]).unwrap();
        assert!(!mounted.volume.gatherer.is_any());
    }
}

#[test]
fn nothing_stays_here_for_long() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.wait_for("all is there", |m| m.stored() == end);
}

#[test]
fn a_home_that_hangs_holds_up_no_other() {
    let mounted = Mounted::new();
    let homes = [ServerId(1), ServerId(2)];
    let files = homes.map(|home| {
        mounted.server.make_at(home);
        let name = format!("at {}", home.0);
        mounted.server.call(&NodeRequest::Create(new_file(&name))).unwrap();
        let ino = mounted.server.inode_of(&name).unwrap();
        mounted.open(ino);
        ino
    });
    let gather = |ino| {
        (0..8).for_each(|at| assert_eq!(mounted.volume.write(ino, at * 100, &[7; 100]), Ok(100)));
        assert!(mounted.volume.gatherer.file_gathering(ino).unwrap().may_have_window());
    };
    mounted.server.hang(Some(homes[0]));
    gather(files[0]);
    mounted.wait_for("it hangs", |m| m.server.count("WriteGathered") == 1);
    gather(files[1]);
    mounted.wait_for("the other does not", |m| m.server.count("WriteGathered") == 2);
    mounted.server.hang(None);
    mounted.wait_for("all is there", |m| !m.volume.gathers_now());
}

#[test]
fn what_is_left_goes_with_the_volume() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    let Mounted { server, volume, ino, _parts } = mounted;
    drop(volume);
    let attr = server.call(&NodeRequest::GetAttr { ino }).unwrap().message;
    assert!(matches!(attr, hayase_wire::message::NodeReply::Attr { attr, .. } if attr.size == end));
}

#[test]
fn bytes_that_come_too_late_are_an_error_until_the_file_is_closed() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.server.set_gathering(true, Some(libc::ESTALE));
    let lost = |result: Result<(), Refused>| assert_eq!(result.unwrap_err().errno, libc::EIO);
    lost(mounted.volume.sync(mounted.ino, true));
    lost(mounted.volume.sync(mounted.ino, true));
    lost(mounted.write(end, b"more"));
    lost(mounted.read(0, 1).map(drop));
    mounted.volume.release(mounted.ino, BOTH);

    mounted.server.set_gathering(true, None);
    mounted.open(mounted.ino);
    mounted.write(0, b"again").unwrap();
    mounted.volume.sync(mounted.ino, true).unwrap();
}

#[test]
fn what_the_home_does_not_take_now_is_kept_and_tried_again() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.server.set_gathering(true, Some(libc::ETIMEDOUT));
    let refused = |result: Result<(), Refused>| {
        assert_eq!(result.unwrap_err().errno, libc::ETIMEDOUT);
    };
    refused(mounted.volume.sync(mounted.ino, true));
    refused(mounted.write(end, b"more"));
    refused(mounted.volume.append(mounted.ino, b"more").map(drop));
    refused(mounted.read(0, 1).map(drop));
    refused(mounted.volume.attributes(mounted.ino).map(drop));
    refused(mounted.volume.lookup(InodeId::ROOT, b"file").map(drop));

    mounted.server.set_gathering(true, None);
    assert_eq!(mounted.volume.attributes(mounted.ino).unwrap().attr.size, end);
    assert_eq!(mounted.read(0, 4096).unwrap(), [7; 800]);
    assert!(!mounted.volume.gatherer.is_any());
    mounted.write(end, b"more").unwrap();
    mounted.volume.sync(mounted.ino, true).unwrap();
}

#[test]
fn an_error_after_some_bytes_of_a_write_is_a_short_count() {
    let mounted = Mounted::new();
    mounted.gather();
    // The window ends at a MiB; a write goes over it when the home takes nothing.
    let end = (1_u64 << 20) - 50;
    for at in (800..end as usize).step_by(100_000) {
        mounted.write(at as u64, &vec![7; 100_000.min(end as usize - at)]).unwrap();
    }
    mounted.server.set_gathering(true, Some(libc::EIO));
    assert_eq!(mounted.volume.write(mounted.ino, end, &[8; 100]).unwrap(), 50);
    assert_eq!(mounted.write(end + 50, &[8; 50]).unwrap_err().errno, libc::EIO);
    mounted.server.set_gathering(true, None);
    mounted.write(end + 50, &[9; 50]).unwrap();
    assert_eq!(mounted.read(end - 1, 200).unwrap(), [&[7][..], &[8; 50], &[9; 50]].concat());
}

#[test]
fn what_is_kept_goes_by_itself() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.server.set_gathering(true, Some(libc::EIO));
    mounted.wait_for("it is tried again", |m| m.server.count("WriteGathered") >= 3);
    assert!(mounted.stored() < end);
    mounted.server.set_gathering(true, None);
    mounted.wait_for("it is handed on", |m| m.stored() == end);
}

#[test]
fn a_close_waits_for_what_is_kept() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    mounted.server.set_gathering(true, Some(libc::EIO));
    mounted.volume.release(mounted.ino, BOTH);
    let writers = |m: &Mounted| m.volume.known.local_use(m.ino).writers;
    assert_eq!(writers(&mounted), 1);
    mounted.server.set_gathering(true, None);
    mounted.wait_for("it is closed", |m| writers(m) == 0);
    assert_eq!(mounted.stored(), end);
    mounted.wait_for("the home knows", |m| m.server.count("Close") > 0);
    assert_eq!(mounted.server.opens(mounted.ino), Access { read: true, write: false });
}

/// Asks as a server does, for so long.
fn gave_back(mounted: &Mounted, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let recall = Callback::Recall { ino: mounted.ino, bits: Grants::ALL };
        match mounted.server.ask(recall) {
            Some(CallbackReply::Recalled { gave_back: true, .. }) => return true,
            _ if Instant::now() > until => return false,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_recall_waits_a_little_for_a_home_that_does_not_take_what_was_gathered() {
    for takes_it in [true, false] {
        let mounted = Mounted::new();
        let end = mounted.gather();
        mounted.server.set_gathering(true, Some(libc::EIO));
        std::thread::scope(|scope| {
            let recall = scope.spawn(|| gave_back(&mounted, GATHER_RECALL_WAIT + GATHER_WAIT));
            if takes_it {
                mounted.wait_for("it is tried", |m| m.server.count("WriteGathered") > 1);
                mounted.server.set_gathering(true, None);
            }
            assert_eq!(recall.join().unwrap(), takes_it);
        });
        assert_eq!(mounted.volume.gatherer.is_any(), !takes_it, "it is kept");
        assert_eq!(mounted.stored() == end, takes_it);
        mounted.server.set_gathering(true, None);
        mounted.volume.sync(mounted.ino, true).unwrap();
        assert_eq!(mounted.stored(), end);
    }
}

/// One that takes back attributes only waits for nothing.
#[test]
fn what_is_gathered_stays_when_only_attributes_are_taken_back() {
    let mounted = Mounted::new();
    mounted.gather();
    mounted.server.set_gathering(true, Some(libc::EIO));
    mounted.server.recall(mounted.ino, Grants { cache: false, attr: true });
    assert!(mounted.volume.gatherer.is_any());
    assert_eq!(mounted.server.count("WriteGathered"), 0);
    mounted.server.set_gathering(true, None);
}

#[test]
fn a_home_that_may_have_forgotten_is_given_no_more_than_there_is() {
    let mounted = Mounted::new();
    let end = mounted.gather();
    let home = ServerId(mounted.ino.home().0);
    mounted.server.ask(Callback::HomeLost { home });
    let handed_on = mounted.server.count("WriteGathered");
    mounted.write(end, &[9; 100]).unwrap();
    assert_eq!(mounted.server.count("WriteGathered"), handed_on + 1);
    assert_eq!(mounted.stored(), end + 100, "and what follows is sent");
}

#[test]
fn only_so_many_files_are_gathered_at_once() {
    let mounted = Mounted::new();
    let files: Vec<_> = (0..GATHER_FILES_MAX + 3)
        .map(|number| {
            let name = format!("file{number}");
            mounted.server.call(&NodeRequest::Create(new_file(&name))).unwrap();
            let ino = mounted.server.inode_of(&name).unwrap();
            mounted.open(ino);
            ino
        })
        .collect();
    for at in 0..u64::from(GATHER_AFTER) + 2 {
        for ino in &files {
            assert_eq!(mounted.volume.write(*ino, at * 10, &[1; 10]).unwrap(), 10);
        }
    }
    assert_eq!(mounted.server.count("Gather"), GATHER_FILES_MAX as u64);
}

#[test]
fn a_program_gathers_nothing() {
    let parts = tempfile::tempdir().unwrap();
    let server = Arc::new(FakeServer::new(parts.path().to_owned(), Parts::Elsewhere));
    let link: Arc<dyn Link> = Arc::clone(&server) as _;
    let volume = AreaVolume::new(link, AreaSettings::program()).unwrap();
    let open = Opening { access: BOTH, kind: OpenKind::Remote, number: 1 };
    let mut node = new_file("file");
    node.open = Some(open);
    let wish =
        OpenWish { access: BOTH, truncate: false, serving: Serving::Messages, uncached: false };
    let (found, _) = volume.create(node, wish).unwrap();
    for at in 0..100 {
        volume.write(found.attr.ino, at * 10, &[1; 10]).unwrap();
    }
    assert_eq!(server.count("Gather"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any calls, beside a plain file.
    #[test]
    fn a_file_is_as_if_nothing_were_gathered(
        steps in prop::collection::vec((0..16_u8, any::<u16>(), any::<u8>()), 1..150),
    ) {
        let mounted = Mounted::new();
        let (mut plain, mut next) = (Vec::<u8>::new(), 0_u64);
        let put = |plain: &mut Vec<u8>, at: u64, data: &[u8]| {
            let end = at as usize + data.len();
            plain.resize(plain.len().max(end), 0);
            plain[at as usize..end].copy_from_slice(data);
        };
        for (kind, place, byte) in steps {
            let small = vec![byte; usize::from(place) % 700 + 1];
            match kind {
                0 => next = u64::from(place) * 3,
                1 => next = next.saturating_sub(u64::from(place) % 300),
                2 => {
                    let large = vec![byte; (128 << 10) + usize::from(place)];
                    mounted.write(next, &large).unwrap();
                    put(&mut plain, next, &large);
                    next += large.len() as u64;
                }
                3 => {
                    let size = mounted.volume.attributes(mounted.ino).unwrap().attr.size;
                    prop_assert_eq!(size, plain.len() as u64);
                }
                4 => {
                    let read = mounted.read(u64::from(place) * 2, 5000).unwrap();
                    let start = (usize::from(place) * 2).min(plain.len());
                    prop_assert!(read == plain[start..(start + 5000).min(plain.len())]);
                }
                5 => {
                    let size = u64::from(place) * 2;
                    let change = MetaChange { size: Some(size), ..MetaChange::default() };
                    mounted.volume.set_attributes(mounted.ino, &change).unwrap();
                    plain.resize(size as usize, 0);
                }
                6 | 9 | 10 => {
                    mounted.volume.append(mounted.ino, &small).unwrap();
                    plain.extend_from_slice(&small);
                }
                7 => {
                    mounted.server.recall(mounted.ino, Grants::ALL);
                    prop_assert_eq!(mounted.stored(), plain.len() as u64);
                }
                8 => {
                    mounted.volume.release(mounted.ino, BOTH);
                    prop_assert_eq!(mounted.stored(), plain.len() as u64);
                    mounted.open(mounted.ino);
                }
                _ => {
                    mounted.write(next, &small).unwrap();
                    put(&mut plain, next, &small);
                    next += small.len() as u64;
                }
            }
        }
        mounted.volume.sync(mounted.ino, true).unwrap();
        let stored = mounted.read(0, plain.len() as u32 + 1).unwrap();
        prop_assert!(stored == plain);
    }
}
