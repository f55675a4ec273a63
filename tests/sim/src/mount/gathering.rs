//! Small writes that the mount gathers while its node alone has their file open.
//!
//! The same rules as `hayase_client::volume::area` (`gathering`), which threads and a window of 1 MiB keep out of a
//! simulation: a window here is a few values, one behind the other, and a write asks for one by chance and not when
//! some came before it. What became of each value that was taken is told by its [`Fate`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::{Gathered, NodeReply, NodeRequest, Room};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use super::{EIO, Failure, Mount, VALUE_BYTES};
use crate::random::Random;

/// Values of one window, at most; windows of writes with a place end at multiples of it.
const WINDOW: usize = 4;

/// As `GATHER_WAIT` of `hayase_client::limits`.
const WAIT: Duration = Duration::from_secs(1);

/// As `GATHER_ANSWER_WAIT` there.
const ANSWER_WAIT: Duration = Duration::from_millis(50);

/// Of 100 writes outside of a window.
const ASKING: u64 = 60;

const EAGAIN: i32 = 11;

/// Others were let at the file: what was gathered comes too late.
const ESTALE: i32 = 116;

/// What became of a value that a mount has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The mount has it, or it is on its way.
    Kept,
    /// Its home has it.
    Written,
    /// It was handed on, and not taken: perhaps it happened all the same.
    Refused,
    /// The mount died before it was told of it.
    Killed,
}

/// That of one value.
#[derive(Clone, Debug)]
pub(crate) struct Fate(Rc<Cell<Outcome>>);

impl Fate {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self(Rc::new(Cell::new(outcome)))
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.0.get()
    }

    /// Whether it may be lost although it was acknowledged.
    pub(crate) fn may_be_lost(&self) -> bool {
        matches!(self.outcome(), Outcome::Refused | Outcome::Killed)
    }
}

/// What was taken and not handed on.
struct Window {
    /// No other one of the mount has it.
    number: u64,
    start: u64,
    values: Vec<u64>,
    /// For so many is room at the home.
    room: usize,
    /// Length of the file when room was kept, if nothing moves it.
    size: Option<u64>,
    written: Instant,
    fates: Vec<Fate>,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + (self.values.len() * VALUE_BYTES) as u64
    }

    fn is_full(&self) -> bool {
        self.values.len() == self.room
    }

    /// Which of its values is written `at` an offset, or appended; `None` when none is.
    fn place(&self, at: Option<u64>) -> Option<usize> {
        let at = match at {
            Some(at) => at,
            None => self.size.filter(|size| self.end() >= *size).map(|_| self.end())?,
        };
        let from_start = at.checked_sub(self.start)?;
        let place = from_start as usize / VALUE_BYTES;
        let is_whole = from_start.is_multiple_of(VALUE_BYTES as u64);
        (is_whole && place <= self.values.len() && place < self.room).then_some(place)
    }

    fn take(&mut self, place: usize, value: u64) -> (Fate, u64) {
        match self.values.get_mut(place) {
            Some(covered) => *covered = value,
            None => self.values.push(value),
        }
        self.written = Instant::now();
        let fate = Fate::new(Outcome::Kept);
        self.fates.push(fate.clone());
        (fate, self.start + (place * VALUE_BYTES) as u64)
    }

    fn became(&self, outcome: Outcome) {
        self.fates.iter().for_each(|fate| fate.0.set(outcome));
    }
}

/// Of one file.
#[derive(Default)]
struct FileGathering {
    window: Mutex<Option<Window>>,
    /// Calls under way that may move the end of the file.
    moving_end: Rc<Cell<u32>>,
    /// The home may have forgotten it, or given up: nothing more is taken into the window that is there.
    is_void: Cell<bool>,
}

/// Of all files of a mount.
#[derive(Default)]
pub(super) struct Gathering {
    /// Which writes ask; `None`: none do.
    asks: Option<Random>,
    files: RefCell<BTreeMap<InodeId, Rc<FileGathering>>>,
    /// Calls under way that set the length of any file.
    cuts: Rc<Cell<u32>>,
}

/// A call that may move the end of a file, until it is dropped.
pub(super) struct UnderWay(Rc<Cell<u32>>);

impl UnderWay {
    fn begin(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Gathering {
    pub(super) fn new(asks: Option<Random>) -> Self {
        Self { asks, ..Self::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.asks.is_some()
    }

    fn get(&self, ino: InodeId) -> Option<Rc<FileGathering>> {
        self.files.borrow().get(&ino).cloned()
    }

    /// Nothing more is taken into the windows of these.
    pub(super) fn is_void(&self, is_meant: impl Fn(InodeId) -> bool) {
        let files = self.files.borrow();
        let meant = files.iter().filter(|(ino, _)| is_meant(**ino));
        meant.for_each(|(_, file)| file.is_void.set(true));
    }

    /// The process is killed. (What is on its way learns of it there.)
    pub(super) fn dies(&self) {
        for file in self.files.borrow().values() {
            if let Ok(mut window) = file.window.try_lock()
                && let Some(window) = window.take()
            {
                window.became(Outcome::Killed);
            }
        }
    }

    /// A call that sets the length of a file begins.
    pub(super) fn cuts(&self) -> UnderWay {
        UnderWay::begin(&self.cuts)
    }
}

/// What became of a write.
pub(super) enum Taken {
    /// It is gathered, for this offset.
    All(Fate, u64),
    /// It is to be sent, with this in hand.
    ToSend(Option<UnderWay>),
}

impl Mount {
    /// Takes a value where it may be gathered: for an offset, or for the end of the file.
    pub(super) async fn gather(
        &self,
        ino: InodeId,
        at: Option<u64>,
        value: u64,
    ) -> Result<Taken, Failure> {
        let Some(file) = self.gathering_of(ino) else { return Ok(Taken::ToSend(None)) };
        let gathering = &self.kept.gathering;
        let mut window = file.window.lock().await;
        let mut may_ask = gathering.asks.as_ref().is_some_and(|asks| asks.chance(ASKING));
        loop {
            if self.is_dead() {
                return Err(Failure::Gone);
            }
            let Some(open) = &mut *window else {
                if !std::mem::take(&mut may_ask) {
                    return Ok(Taken::ToSend(Some(UnderWay::begin(&file.moving_end))));
                }
                *window = self.begin_window(ino, &file, at).await;
                continue;
            };
            match open.place(at).filter(|_| !file.is_void.get()) {
                Some(place) => {
                    let (fate, offset) = open.take(place, value);
                    if open.is_full() {
                        self.end_window(ino, &file, &mut window).await?;
                    }
                    return Ok(Taken::All(fate, offset));
                }
                None => self.end_window(ino, &file, &mut window).await?,
            }
        }
    }

    /// Of a file that is open here for writing; not in the cache area, and not of one that lies in stripes.
    fn gathering_of(&self, ino: InodeId) -> Option<Rc<FileGathering>> {
        let is_plain = self.kept.of(ino, |file| file.writers > 0 && !file.is_striped);
        if !self.kept.gathering.is_on() || !is_plain || ino.is_cached() {
            return None;
        }
        Some(Rc::clone(self.kept.gathering.files.borrow_mut().entry(ino).or_default()))
    }

    /// Asks for room; under the file's lock.
    async fn begin_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        at: Option<u64>,
    ) -> Option<Window> {
        file.is_void.set(false);
        let gathering = &self.kept.gathering;
        // Before the home is asked: what is not under way now waits for the file's lock.
        let knows_end = file.moving_end.get() == 0 && gathering.cuts.get() == 0;
        if !knows_end && at.is_none() {
            return None;
        }
        let len = (WINDOW * VALUE_BYTES) as u32;
        let room = match self.ask(NodeRequest::Gather { ino, at, len }).await {
            Ok(NodeReply::Gathering(room)) => room,
            Ok(other) => panic!("{other:?} to a wish to gather"),
            Err(Failure::Gone | Failure::Refused(EAGAIN | EIO)) => return None,
            Err(other) => {
                self.complain(format!("Gather {ino}: {other:?}"));
                return None;
            }
        };
        // What was granted may have ended before the answer was here.
        let is_meant = at.is_none_or(|at| at == room.offset);
        if file.is_void.get() || !is_meant {
            return None;
        }
        let number = self.link.job().begins_window();
        if let Some(this) = self.me.upgrade() {
            self.begin(async move { this.hand_on_late(ino, number).await });
        }
        let Room { offset: start, len, size } = room;
        Some(Window {
            number,
            start,
            values: Vec::new(),
            room: len as usize / VALUE_BYTES,
            size: knows_end.then_some(size),
            written: Instant::now(),
            fates: Vec::new(),
        })
    }

    /// What was gathered goes to the home; under the file's lock.
    async fn end_window(
        &self,
        ino: InodeId,
        file: &FileGathering,
        window: &mut Option<Window>,
    ) -> Result<(), Failure> {
        let Some(window) = window.take() else { return Ok(()) };
        file.is_void.set(false);
        let result = self.send_window(ino, &window).await;
        match result {
            Ok(()) => window.became(Outcome::Written),
            Err(Failure::Gone) => window.became(Outcome::Killed),
            Err(Failure::Refused(errno)) => {
                if errno != EIO && errno != ESTALE {
                    self.complain(format!("gathered bytes of {ino} were refused with {errno}"));
                }
                window.became(Outcome::Refused);
                self.kept.not_given_back(&[ino]);
                return Err(Failure::Refused(EIO));
            }
        }
        result
    }

    async fn send_window(&self, ino: InodeId, window: &Window) -> Result<(), Failure> {
        if window.values.is_empty() {
            return Ok(());
        }
        let (offset, is_last) = (window.start, !window.is_full());
        let after = Gathered { age: window.written.elapsed(), is_last };
        let with = |from| NodeRequest::WriteGathered { ino, offset, from, after };
        self.send_values(&window.values, with).await.map(drop)
    }

    /// What was gathered of a file is at its home when this returns.
    pub(super) async fn hand_on(&self, ino: InodeId) -> Result<(), Failure> {
        match self.kept.gathering.get(ino) {
            Some(file) => {
                let mut window = file.window.lock().await;
                self.end_window(ino, &file, &mut window).await
            }
            None => Ok(()),
        }
    }

    /// The same for who is not told.
    pub(super) async fn hand_on_untold(&self, ino: InodeId) {
        let _told = self.hand_on(ino).await;
    }

    /// Whether what was gathered of a file is at its home, or known to be lost; what takes long goes on by itself, and the
    /// server asks again.
    pub(super) async fn hand_on_recalled(&self, ino: InodeId) -> bool {
        let Some(this) = self.me.upgrade() else { return false };
        let (ended, handed_on) = oneshot::channel();
        self.begin(async move {
            this.hand_on_untold(ino).await;
            // The server may have stopped to wait.
            let _unheard = ended.send(());
        });
        tokio::time::timeout(ANSWER_WAIT, handed_on).await.is_ok_and(|ended| ended.is_ok())
    }

    /// A window is handed on when it has waited for long.
    async fn hand_on_late(&self, ino: InodeId, number: u64) {
        tokio::time::sleep(WAIT).await;
        let Some(file) = self.kept.gathering.get(ino) else { return };
        let mut window = file.window.lock().await;
        if window.as_ref().is_some_and(|window| window.number == number) {
            let _told = self.end_window(ino, &file, &mut window).await;
        }
    }

    /// Something that a server must not say.
    fn complain(&self, what: String) {
        self.link.job().complain(what);
    }
}
