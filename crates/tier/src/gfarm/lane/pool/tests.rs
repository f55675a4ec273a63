//! Lanes whose processes a test plays.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::gfarm::lane::Kind;

/// Never runs out.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a process does with a request.
enum Does {
    Answers(Answer),
    /// It goes on to wait for the next one.
    Nothing,
    Ends,
}

/// Lanes whose processes do nothing; a thread of ours answers in their place.
fn lanes(patience: Duration, does: impl Fn(&Request) -> Does + Send + Sync + 'static) -> Lanes {
    let does = Arc::new(does);
    lanes_of(patience, move || {
        let does = Arc::clone(&does);
        move |request| does(request)
    })
}

/// The same with something of its own in each process.
fn lanes_of<Process: FnMut(&Request) -> Does + Send + 'static>(
    patience: Duration,
    process: impl Fn() -> Process + Send + Sync + 'static,
) -> Lanes {
    let spawn = move |socket: UnixStream| {
        let mut does = process();
        std::thread::spawn(move || {
            while let Ok(Some((request, bytes, _))) = frame::receive(&socket, None) {
                match does(&request) {
                    Does::Answers(answer) => {
                        frame::send(&socket, &answer, &bytes, None, None).unwrap();
                    }
                    Does::Nothing => {}
                    Does::Ends => return,
                }
            }
        });
        Command::new("sleep").arg("100").stdin(Stdio::null()).spawn()
    };
    Lanes::new(Box::new(spawn), patience)
}

fn path(path: &str) -> Request {
    Request::RemoveDirectory { path: path.into() }
}

fn open(path: &str, truncate: bool) -> Request {
    Request::Open { path: path.into(), write: true, truncate }
}

/// As the name says.
fn by_name(request: &Request) -> Does {
    let (Request::RemoveDirectory { path } | Request::Open { path, .. }) = request else {
        return Does::Answers(Answer::Done);
    };
    let failed = |broken| Answer::Failed { errno: libc::EIO, text: "as told".into(), broken };
    match path.as_slice() {
        b"/silent" => Does::Nothing,
        b"/ends" => Does::Ends,
        b"/refused" => Does::Answers(failed(false)),
        b"/broken" => Does::Answers(failed(true)),
        b"/file" => Does::Answers(Answer::Opened { file: 1, stat: STAT }),
        _ => Does::Answers(Answer::Done),
    }
}

const STAT: Stat = Stat {
    ino: 2,
    generation: 1,
    kind: Kind::File,
    mode: 0o644,
    nlink: 1,
    uid: 0,
    gid: 0,
    size: 0,
    atime: (0, 0),
    mtime: (0, 0),
    ctime: (0, 0),
};

#[test]
fn a_call_that_does_not_end_holds_up_no_other() {
    let (end, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let lanes = Arc::new(lanes(PATIENCE, move |request| match *request == path("/held") {
        true => {
            let _ = held.lock().unwrap().recv();
            Does::Ends
        }
        false => by_name(request),
    }));
    let call = std::thread::spawn({
        let lanes = Arc::clone(&lanes);
        move || lanes.call(&path("/held"), &[])
    });
    while lanes.lanes[0].calls.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    for _ in 0..100 {
        assert_eq!(lanes.call(&path("/quick"), b"x").unwrap(), (Answer::Done, b"x".to_vec()));
    }
    assert!(!call.is_finished(), "the others did not wait for it");
    drop(end);
    let lost = call.join().unwrap().unwrap_err();
    assert_eq!((lost.errno, lost.broken), (libc::EIO, true));
    // Its lane has a new process.
    assert_eq!(lanes.on(0, Taker::Any, &path("/quick"), &[]).unwrap().0, Answer::Done);
    assert_eq!(lanes.lanes[0].process.load(Ordering::Relaxed), 2);
}

#[test]
fn a_silent_process_is_ended() {
    let lanes = lanes(Duration::from_millis(200), by_name);
    let lost = lanes.on(0, Taker::Any, &path("/silent"), &[]).unwrap_err();
    assert_eq!((lost.errno, lost.broken), (libc::ETIMEDOUT, true));
    assert!(lanes.lanes[0].running.lock().unwrap().is_none());
}

#[test]
fn files_are_lost_with_their_process() {
    let lanes = lanes(PATIENCE, by_name);
    let file = lanes.open_on(3, Taker::Any, &open("/file", false)).unwrap().file;
    assert_eq!(file, FileId { lane: 3, process: 1, file: 1 });
    assert!(lanes.sync(file).is_ok());
    assert!(lanes.on(3, Taker::Any, &path("/ends"), &[]).is_err());
    let lost = lanes.sync(file).unwrap_err();
    assert!(lost.broken && lost.text.contains("was lost"), "{lost}");
    assert!(lanes.sync(FileId { process: 2, ..file }).is_err(), "none was started for a file");
}

#[test]
fn a_process_that_answers_is_not_ended_while_it_has_files() {
    let lanes = lanes(PATIENCE, by_name);
    let open_on_3 =
        |path| lanes.open_on(3, Taker::Any, &open(path, false)).map(|opened| opened.file);
    let files = || lanes.lanes[3].files.load(Ordering::Relaxed);
    let before = open_on_3("/file").unwrap();
    assert!(lanes.on(3, Taker::Any, &path("/ends"), &[]).is_err());
    assert_eq!(files(), 0);
    let file = open_on_3("/file").unwrap();
    assert_eq!(file, FileId { process: 2, ..before });
    assert!(lanes.close(before, None).is_err(), "it was lost");
    assert_eq!(files(), 1);
    open_on_3("/broken").unwrap_err();
    lanes.sync(file).unwrap();
    lanes.close(file, None).unwrap();
    assert_eq!(files(), 0);
    open_on_3("/broken").unwrap_err();
    assert!(lanes.lanes[3].running.lock().unwrap().is_none(), "nothing was lost by it");
}

#[test]
fn what_broke_is_asked_once_more_if_it_may() {
    let lanes = lanes(PATIENCE, by_name);
    let processes = || {
        let count = |lane: &Lane| lane.process.load(Ordering::Relaxed);
        lanes.lanes.iter().map(count).collect::<Vec<_>>()
    };
    lanes.open(&open("/refused", false)).unwrap_err();
    assert_eq!(processes(), [0, 0, 1, 0, 0, 0, 0, 0], "an answer is an answer");
    lanes.open(&open("/broken", true)).unwrap_err();
    assert_eq!(processes(), [0, 0, 1, 0, 0, 0, 0, 0], "it may have been emptied");
    lanes.open(&open("/broken", false)).unwrap_err();
    assert_eq!(processes(), [0, 0, 2, 1, 0, 0, 0, 0], "on a new one, then on another");
}

/// A metadata server that is started anew now and then, or away; what its clients asked for.
#[derive(Default)]
struct Server {
    starts: AtomicU64,
    is_away: AtomicBool,
    looks: AtomicUsize,
    /// Given to a connection of before, though it must not be repeated.
    spoilt: AtomicUsize,
}

impl Server {
    /// A client that connected before `connected` became old, and connects again after it was told.
    fn answers(&self, connected: &mut u64, request: &Request) -> Does {
        let is_look = matches!(request, Request::Stat { .. });
        self.looks.fetch_add(usize::from(is_look), Ordering::Relaxed);
        let starts = self.starts.load(Ordering::Relaxed);
        let is_old = std::mem::replace(connected, starts) != starts;
        if !is_old && !self.is_away.load(Ordering::Relaxed) {
            return by_name(request);
        }
        self.spoilt.fetch_add(usize::from(!request.is_repeatable()), Ordering::Relaxed);
        by_name(&path("/broken"))
    }
}

/// All lanes in use, and lane 3 with an open file.
fn lanes_to(server: &Arc<Server>) -> Lanes {
    let server = Arc::clone(server);
    let lanes = lanes_of(PATIENCE, move || {
        let server = Arc::clone(&server);
        let mut connected = server.starts.load(Ordering::Relaxed);
        move |request| server.answers(&mut connected, request)
    });
    for lane in 0..lanes.lanes.len() {
        lanes.on(lane, Taker::Sure, &path("/quick"), &[]).unwrap();
    }
    lanes.open_on(3, Taker::Any, &open("/file", false)).unwrap();
    lanes
}

#[test]
fn after_a_break_every_lane_looks_before_what_must_not_be_repeated() {
    let server = Arc::new(Server::default());
    let lanes = lanes_to(&server);
    let all_asked = || {
        for lane in 0..lanes.lanes.len() {
            lanes.on(lane, Taker::of(&path("/quick")), &path("/quick"), &[]).unwrap();
        }
    };
    all_asked();
    assert_eq!(server.looks.load(Ordering::Relaxed), 0, "nothing broke");
    for start in 1..=3 {
        server.starts.store(start, Ordering::Relaxed);
        server.looks.store(0, Ordering::Relaxed);
        // The one that meets it, and the one that is asked instead.
        lanes.call(&Request::Stat { path: b"/seen".to_vec() }, &[]).unwrap();
        all_asked();
        let looks = server.looks.load(Ordering::Relaxed);
        assert_eq!(looks, 3 + 5 + 2, "the two for names, those without files once, lane 3 twice");
        all_asked();
        assert_eq!(server.looks.load(Ordering::Relaxed), looks, "it is known now");
    }
    assert_eq!(server.spoilt.load(Ordering::Relaxed), 0);
    assert_eq!(lanes.lanes[3].files.load(Ordering::Relaxed), 1, "its process was kept");
}

#[test]
fn what_no_process_was_given_may_be_asked_elsewhere() {
    let server = Arc::new(Server::default());
    let lanes = lanes_to(&server);
    lanes.on(0, Taker::Any, &path("/broken"), &[]).unwrap_err();
    server.is_away.store(true, Ordering::Relaxed);
    let make = path("/made");
    let lost = lanes.on(3, Taker::of(&make), &make, &[]).unwrap_err();
    assert!(lost.broken && lost.may_be_asked_again(&make), "{lost:?}");
    assert_eq!(server.spoilt.load(Ordering::Relaxed), 0);
    // A new process has nothing to compare with: it is given the request.
    let lost = lanes.on(0, Taker::of(&make), &make, &[]).unwrap_err();
    assert!(lost.broken && !lost.may_be_asked_again(&make), "{lost:?}");
    server.is_away.store(false, Ordering::Relaxed);
    lanes.on(3, Taker::of(&make), &make, &[]).unwrap();
}
