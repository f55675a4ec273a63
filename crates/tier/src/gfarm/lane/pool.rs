//! Who asks: several lanes, each call on the one with least to do, none longer than its deadline once its turn has come.
//!
//! Invariants:
//! 1. A lane's lock is held by one call at most, for `patience` and the start of a process at most; no call holds two.
//! 2. After a call that did not end in time, or not well, the lane's process is no more; the next call starts another.
//! 3. A file belongs to the process that opened it, and is lost with it. A process that answers is not ended while it
//!    has one.
//!
//! Calls of one lane wait in line, behind each for as long as it holds the lock. Those of a file that was lost end at
//! once when their turn comes.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Request, Stat, frame};

/// Processes for names and attributes: two, so that one goes on while the other waits.
const NAME_LANES: usize = 2;
/// Processes for open files; a file stays with one.
const FILE_LANES: usize = 6;

/// Starts a process that calls [`super::serve`] with this socket.
pub type Spawn = Box<dyn Fn(UnixStream) -> io::Result<Child> + Send + Sync>;

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Lost {
    /// For the kernel.
    pub errno: i32,
    /// For people.
    pub text: String,
    /// The connection, or the process: what was asked may have been done or not.
    pub broken: bool,
}

/// An open file, on its lane; the default is one that no lane has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    lane: usize,
    process: u64,
    file: u64,
}

/// What an open is told.
#[derive(Debug)]
pub struct Opened {
    /// Give it back with [`Lanes::close`].
    pub file: FileId,
    /// As the metadata server sees it after the open.
    pub stat: Stat,
    /// Of the plain file on this host, when the bytes lie here.
    pub descriptor: Option<OwnedFd>,
}

/// The lanes of one mount.
pub struct Lanes {
    spawn: Spawn,
    patience: Duration,
    lanes: Vec<Lane>,
}

#[derive(Default)]
struct Lane {
    /// Calls under way and in line.
    calls: AtomicUsize,
    /// Files that are open there, for a look without the lock.
    files: AtomicUsize,
    /// Counts its processes.
    process: AtomicU64,
    running: Mutex<Option<Running>>,
}

struct Running {
    socket: UnixStream,
    child: Child,
    /// Open there, by its own numbers.
    files: HashSet<u64>,
}

impl Running {
    fn note(&mut self, request: &Request, answer: &io::Result<frame::Frame<Answer>>) {
        match (request, answer) {
            // Also when it says that it failed.
            (Request::Close { file, .. }, _) => drop(self.files.remove(file)),
            (_, Ok((Answer::Opened { file, .. }, ..))) => drop(self.files.insert(*file)),
            _ => {}
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends with its socket, but not while it waits for a server; nothing of it is kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Lanes {
    /// No process is started before it is needed. A call takes no longer than `patience` once its turn on a lane has
    /// come; one that is asked again has a turn on two lanes.
    pub fn new(spawn: Spawn, patience: Duration) -> Self {
        let lanes = (0..NAME_LANES + FILE_LANES).map(|_| Lane::default()).collect();
        Self { spawn, patience, lanes }
    }

    /// About names: on any lane, and once more on another one when the connection broke and nothing can
    /// be done twice by that. The bytes behind the answer come with it.
    ///
    /// # Errors
    /// What Gfarm says, or `EIO` when nobody knows.
    pub fn call(&self, request: &Request, bytes: &[u8]) -> Result<(Answer, Vec<u8>), Lost> {
        let lanes = 0..NAME_LANES;
        let first = self.least_busy(lanes.clone());
        let answer = match self.on(first, None, request, bytes) {
            Err(lost) if lost.broken && request.is_repeatable() => {
                tracing::info!(%request, %lost, "asked again");
                self.on((first + 1) % NAME_LANES, None, request, bytes)
            }
            answer => answer,
        };
        answer.map(|(answer, bytes, _)| (answer, bytes)).inspect_err(|lost| note(request, lost))
    }

    /// [`Request::Create`] and [`Request::Open`].
    ///
    /// # Errors
    /// As [`Lanes::call`].
    pub fn open(&self, request: &Request) -> Result<Opened, Lost> {
        let lanes = NAME_LANES..NAME_LANES + FILE_LANES;
        let first = self.least_busy(lanes.clone());
        let opened = match self.open_on(first, request) {
            Err(lost) if lost.broken && request.is_repeatable() => {
                tracing::info!(%request, %lost, "asked again");
                let next = NAME_LANES + (first + 1 - NAME_LANES) % FILE_LANES;
                self.open_on(next, request)
            }
            opened => opened,
        };
        opened.inspect_err(|lost| note(request, lost))
    }

    fn open_on(&self, lane: usize, request: &Request) -> Result<Opened, Lost> {
        let ((answer, _, descriptor), process) = self.on_process(lane, None, request, &[])?;
        let Answer::Opened { file, stat } = answer else { return Err(nonsense()) };
        Ok(Opened { file: FileId { lane, process, file }, stat, descriptor })
    }

    /// Fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// As [`Lanes::call`]; `broken` too when the file was lost with its process.
    pub fn read(&self, file: FileId, offset: u64, len: u32) -> Result<Vec<u8>, Lost> {
        let request = Request::Read { file: file.file, offset, len };
        self.on_file(file, &request, &[]).map(|(_, bytes, _)| bytes)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// As [`Lanes::read`].
    pub fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Result<(), Lost> {
        self.on_file(file, &Request::Write { file: file.file, offset }, data).map(drop)
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As [`Lanes::read`].
    pub fn truncate(&self, file: FileId, len: u64) -> Result<(), Lost> {
        self.on_file(file, &Request::Truncate { file: file.file, len }, &[]).map(drop)
    }

    /// Until the host that serves it has the bytes on its storage.
    ///
    /// # Errors
    /// As [`Lanes::read`].
    pub fn sync(&self, file: FileId) -> Result<(), Lost> {
        self.on_file(file, &Request::Sync { file: file.file }, &[]).map(drop)
    }

    /// The metadata server knows size and time when it returns. `len`: see [`Request::Close`].
    ///
    /// # Errors
    /// As [`Lanes::read`]; the file is closed all the same.
    pub fn close(&self, file: FileId, len: Option<u64>) -> Result<(), Lost> {
        self.on_file(file, &Request::Close { file: file.file, len }, &[]).map(drop)
    }

    fn on_file(
        &self,
        file: FileId,
        request: &Request,
        bytes: &[u8],
    ) -> Result<frame::Frame<Answer>, Lost> {
        self.on(file.lane, Some(file.process), request, bytes)
            .inspect_err(|lost| note(request, lost))
    }

    fn least_busy(&self, mut lanes: std::ops::Range<usize>) -> usize {
        let first = lanes.start;
        let load = |lane: &usize| {
            let lane = &self.lanes[*lane];
            (lane.calls.load(Ordering::Relaxed), lane.files.load(Ordering::Relaxed))
        };
        lanes.by_ref().min_by_key(load).unwrap_or(first)
    }

    fn on(
        &self,
        number: usize,
        process: Option<u64>,
        request: &Request,
        bytes: &[u8],
    ) -> Result<frame::Frame<Answer>, Lost> {
        self.on_process(number, process, request, bytes).map(|(frame, _)| frame)
    }

    /// One request on one lane, of one process if it is said; the process that answered.
    fn on_process(
        &self,
        number: usize,
        process: Option<u64>,
        request: &Request,
        bytes: &[u8],
    ) -> Result<(frame::Frame<Answer>, u64), Lost> {
        let lane = &self.lanes[number];
        let _call = Call::begin(&lane.calls);
        let mut place = lane.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = process
            && (place.is_none() || lane.process.load(Ordering::Acquire) != process)
        {
            return Err(broken("the file was lost with the process that had it open".to_owned()));
        }
        let running = match &mut *place {
            Some(running) => running,
            none => {
                let started = self.start();
                let started = started.map_err(|error| broken(format!("start a lane: {error}")))?;
                lane.process.fetch_add(1, Ordering::AcqRel);
                none.insert(started)
            }
        };
        let answer = self.ask(&running.socket, request, bytes);
        running.note(request, &answer);
        let (answer, ends) = match answer {
            Ok((Answer::Failed { errno, text, broken }, _, _)) => {
                // libgfarm would connect again by itself; where no file is lost by it a new process is surer.
                let ends = broken && running.files.is_empty();
                (Err(Lost { errno, text, broken }), ends)
            }
            Ok(frame) => (Ok((frame, lane.process.load(Ordering::Acquire))), false),
            Err(error) => {
                tracing::warn!(lane = number, %request, %error, "a lane did not answer: it is ended");
                let errno = match error.kind() {
                    io::ErrorKind::TimedOut => libc::ETIMEDOUT,
                    _ => libc::EIO,
                };
                let why = format!("Gfarm's library does not answer: {error}");
                (Err(Lost { errno, ..broken(why) }), true)
            }
        };
        if ends {
            *place = None;
        }
        let files = place.as_ref().map_or(0, |running| running.files.len());
        lane.files.store(files, Ordering::Relaxed);
        answer
    }

    fn start(&self) -> io::Result<Running> {
        let (socket, theirs) = UnixStream::pair()?;
        Ok(Running { child: (self.spawn)(theirs)?, socket, files: HashSet::new() })
    }

    fn ask(
        &self,
        socket: &UnixStream,
        request: &Request,
        bytes: &[u8],
    ) -> io::Result<frame::Frame<Answer>> {
        let deadline = Instant::now().checked_add(self.patience);
        frame::send(socket, request, bytes, None, deadline)?;
        frame::receive(socket, deadline)?.ok_or_else(|| io::Error::other("its process ended"))
    }
}

/// Counts while it lives.
struct Call<'a>(&'a AtomicUsize);

impl<'a> Call<'a> {
    fn begin(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn broken(text: String) -> Lost {
    Lost { errno: libc::EIO, text, broken: true }
}

fn nonsense() -> Lost {
    broken("the answer fits no question".to_owned())
}

/// What a program can not be expected to expect.
fn note(request: &Request, lost: &Lost) {
    if lost.broken || lost.errno == libc::EIO {
        tracing::warn!(%request, %lost, errno = lost.errno, "a call of Gfarm failed");
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;

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
        let spawn = move |socket: UnixStream| {
            let does = Arc::clone(&does);
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
        assert_eq!(lanes.on(0, None, &path("/quick"), &[]).unwrap().0, Answer::Done);
        assert_eq!(lanes.lanes[0].process.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_silent_process_is_ended() {
        let lanes = lanes(Duration::from_millis(200), by_name);
        let lost = lanes.on(0, None, &path("/silent"), &[]).unwrap_err();
        assert_eq!((lost.errno, lost.broken), (libc::ETIMEDOUT, true));
        assert!(lanes.lanes[0].running.lock().unwrap().is_none());
    }

    #[test]
    fn files_are_lost_with_their_process() {
        let lanes = lanes(PATIENCE, by_name);
        let file = lanes.open_on(3, &open("/file", false)).unwrap().file;
        assert_eq!(file, FileId { lane: 3, process: 1, file: 1 });
        assert!(lanes.sync(file).is_ok());
        assert!(lanes.on(3, None, &path("/ends"), &[]).is_err());
        let lost = lanes.sync(file).unwrap_err();
        assert!(lost.broken && lost.text.contains("was lost"), "{lost}");
        assert!(lanes.sync(FileId { process: 2, ..file }).is_err(), "none was started for a file");
    }

    #[test]
    fn a_process_that_answers_is_not_ended_while_it_has_files() {
        let lanes = lanes(PATIENCE, by_name);
        let open_on_3 = |path| lanes.open_on(3, &open(path, false)).map(|opened| opened.file);
        let files = || lanes.lanes[3].files.load(Ordering::Relaxed);
        let before = open_on_3("/file").unwrap();
        assert!(lanes.on(3, None, &path("/ends"), &[]).is_err());
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
}
