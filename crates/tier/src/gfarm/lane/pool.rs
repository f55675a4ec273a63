//! Who asks: several lanes, each call on the one with least to do, none longer than its deadline once its turn has come.
//!
//! Invariants:
//! 1. A lane's lock is held by one call at most, for `patience` and the start of a process at most; no call holds two.
//! 2. After a call that did not end in time, or not well, the lane's process is no more; the next call starts another.
//! 3. A file belongs to the process that opened it, and is lost with it. A process that answers is not ended while it
//!    has one.
//! 4. Where one lane met a break, each other one answers a look before it is given what must not be asked twice: the
//!    servers that one lost have mostly been lost by all, and who did not ask since does not know.
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
/// A process that has files open is asked this often whether its connection carries: libgfarm connects again by itself,
/// and the first answer tells of the old connection.
const LOOKS: usize = 2;

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
    /// It was given to a process; else nothing was done.
    asked: bool,
}

impl Lost {
    fn may_be_asked_again(&self, request: &Request) -> bool {
        self.broken && (!self.asked || request.is_repeatable())
    }
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
    /// Breaks that a lane was the first to meet.
    breaks: AtomicU64,
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
    /// The [`Lanes::breaks`] after which its connection was seen to carry.
    carried: u64,
}

/// Which process of a lane a request is for.
#[derive(Clone, Copy)]
enum Taker {
    Any,
    /// Any whose connection was seen to carry since the last break.
    Sure,
    /// The one that has the file open.
    Holder(u64),
}

impl Taker {
    fn of(request: &Request) -> Self {
        if request.is_repeatable() { Self::Any } else { Self::Sure }
    }
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
        Self { spawn, patience, lanes, breaks: AtomicU64::new(0) }
    }

    /// About names: on any lane, and once more on another one when the connection broke and nothing can
    /// be done twice by that. The bytes behind the answer come with it.
    ///
    /// # Errors
    /// What Gfarm says, or `EIO` when nobody knows.
    pub fn call(&self, request: &Request, bytes: &[u8]) -> Result<(Answer, Vec<u8>), Lost> {
        let lanes = 0..NAME_LANES;
        let first = self.least_busy(lanes.clone());
        let answer = match self.on(first, Taker::of(request), request, bytes) {
            Err(lost) if lost.may_be_asked_again(request) => {
                tracing::info!(%request, %lost, "asked again");
                self.on((first + 1) % NAME_LANES, Taker::Sure, request, bytes)
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
        let opened = match self.open_on(first, Taker::of(request), request) {
            Err(lost) if lost.may_be_asked_again(request) => {
                tracing::info!(%request, %lost, "asked again");
                let next = NAME_LANES + (first + 1 - NAME_LANES) % FILE_LANES;
                self.open_on(next, Taker::Sure, request)
            }
            opened => opened,
        };
        opened.inspect_err(|lost| note(request, lost))
    }

    fn open_on(&self, lane: usize, taker: Taker, request: &Request) -> Result<Opened, Lost> {
        let ((answer, _, descriptor), process) = self.on_process(lane, taker, request, &[])?;
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
        self.on(file.lane, Taker::Holder(file.process), request, bytes)
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
        taker: Taker,
        request: &Request,
        bytes: &[u8],
    ) -> Result<frame::Frame<Answer>, Lost> {
        self.on_process(number, taker, request, bytes).map(|(frame, _)| frame)
    }

    /// One request on one lane; the process that answered.
    fn on_process(
        &self,
        number: usize,
        taker: Taker,
        request: &Request,
        bytes: &[u8],
    ) -> Result<(frame::Frame<Answer>, u64), Lost> {
        let lane = &self.lanes[number];
        let _call = Call::begin(&lane.calls);
        let mut place = lane.running.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now().checked_add(self.patience);
        match taker {
            Taker::Any => {}
            Taker::Sure => self.make_sure(number, &mut place, request, deadline)?,
            Taker::Holder(process) => {
                if place.is_none() || lane.process.load(Ordering::Acquire) != process {
                    let why = "the file was lost with the process that had it open";
                    return Err(unasked(broken(why.to_owned())));
                }
            }
        }
        let frame = self.once(number, &mut place, request, bytes, deadline)?;
        Ok((frame, lane.process.load(Ordering::Acquire)))
    }

    /// Lets the lane look at something when its connection may have broken unnoticed. Then it carries, or it will be
    /// that of a new process.
    fn make_sure(
        &self,
        number: usize,
        place: &mut Option<Running>,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<(), Lost> {
        let look = Request::Stat { path: request.path().to_vec() };
        let mut looks = 0;
        while let Some(running) = place
            && running.carried != self.breaks.load(Ordering::Acquire)
        {
            looks += 1;
            match self.once(number, place, &look, &[], deadline) {
                Err(lost) if lost.broken => {
                    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if is_late || (place.is_some() && looks >= LOOKS) {
                        return Err(unasked(lost));
                    }
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// One request to the process of a lane, or to one that is started for it.
    fn once(
        &self,
        number: usize,
        place: &mut Option<Running>,
        request: &Request,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<frame::Frame<Answer>, Lost> {
        let lane = &self.lanes[number];
        let breaks = self.breaks.load(Ordering::Acquire);
        let running = match &mut *place {
            Some(running) => running,
            none => {
                let started = self.start(breaks);
                let started =
                    started.map_err(|error| unasked(broken(format!("start a lane: {error}"))))?;
                lane.process.fetch_add(1, Ordering::AcqRel);
                none.insert(started)
            }
        };
        let answer = ask(&running.socket, request, bytes, deadline);
        running.note(request, &answer);
        let (answer, ends) = match answer {
            Ok((Answer::Failed { errno, text, broken }, _, _)) => {
                // libgfarm would connect again by itself; where no file is lost by it a new process is surer.
                let ends = broken && running.files.is_empty();
                (Err(Lost { errno, text, broken, asked: true }), ends)
            }
            Ok(frame) => (Ok(frame), false),
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
        match &answer {
            Err(lost) if lost.broken => self.note_break(running.carried),
            // What is asked of an open file goes past the metadata server.
            _ if !request.path().is_empty() => running.carried = breaks,
            _ => {}
        }
        if ends {
            *place = None;
        }
        let files = place.as_ref().map_or(0, |running| running.files.len());
        lane.files.store(files, Ordering::Relaxed);
        answer
    }

    /// One that nobody met before: who was told of the last one and has not asked since only meets that.
    fn note_break(&self, carried: u64) {
        let next = carried + 1;
        let _ = self.breaks.compare_exchange(carried, next, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn start(&self, carried: u64) -> io::Result<Running> {
        let (socket, theirs) = UnixStream::pair()?;
        Ok(Running { child: (self.spawn)(theirs)?, socket, files: HashSet::new(), carried })
    }
}

fn ask(
    socket: &UnixStream,
    request: &Request,
    bytes: &[u8],
    deadline: Option<Instant>,
) -> io::Result<frame::Frame<Answer>> {
    frame::send(socket, request, bytes, None, deadline)?;
    frame::receive(socket, deadline)?.ok_or_else(|| io::Error::other("its process ended"))
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
    Lost { errno: libc::EIO, text, broken: true, asked: true }
}

fn unasked(lost: Lost) -> Lost {
    Lost { asked: false, ..lost }
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
mod tests;
