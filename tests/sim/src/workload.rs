//! What programs do: each workload is a few files, tasks on every node, and what must be true of
//! what they saw.

pub(crate) mod appends;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod registers;
pub(crate) mod small_writes;
pub(crate) mod synced;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use tokio::time::Instant;

use crate::check::linear::{Specification, Verdict};
use crate::history::History;
use crate::job::Job;
use crate::kind::Kind;
use crate::mount::{EIO, Failure, Seat};
use crate::random::Random;

/// How often what must not stay undone is tried, each half second: longer than nodes are cut off, one
/// after the other.
const INSIST_TIMES: usize = 400;

/// No call takes longer, whatever the network does (I11 of the protocol page).
const CALL_MAX: Duration = Duration::from_secs(200);

/// Once a node has been declared lost, who asks for something of it is told so within this.
const LOST_WAIT: Duration = Duration::from_secs(1);

/// What the tasks of one run share.
pub(crate) struct World {
    pub(crate) seats: Vec<Rc<Seat>>,
    job: Rc<Job>,
    kind: Kind,
    harsh: bool,
    violations: RefCell<Vec<String>>,
    values: Cell<u64>,
    /// Every answer, in order, as one number: two runs of a seed have the same.
    trace: Cell<u64>,
    calls: Cell<u64>,
    unknown: Cell<u64>,
    undecided: Cell<u64>,
    refused: Cell<u64>,
}

impl World {
    pub(crate) fn new(job: &Rc<Job>, kind: Kind, harsh: bool) -> Rc<Self> {
        Rc::new(Self {
            seats: (0..job.servers()).map(|node| Seat::new(job, node)).collect(),
            job: Rc::clone(job),
            kind,
            harsh,
            violations: RefCell::default(),
            values: Cell::new(0),
            trace: Cell::new(0),
            calls: Cell::new(0),
            unknown: Cell::new(0),
            undecided: Cell::new(0),
            refused: Cell::new(0),
        })
    }

    /// A value that was never written.
    pub(crate) fn new_value(&self) -> u64 {
        self.values.set(self.values.get() + 1);
        self.values.get()
    }

    pub(crate) fn violated(&self, what: impl Into<String>) {
        self.violations.borrow_mut().push(what.into());
    }

    /// Whether a plain object would have answered as in a history.
    pub(crate) fn check<S: Specification>(&self, what: &str, history: &History<S>, object: &S) {
        self.were_refused(what, history.refused());
        match history.judge(object) {
            (Verdict::Explained, _) => {}
            (Verdict::Impossible, story) => self.violated(format!("{what}\n{story}")),
            (Verdict::Undecided, _) => self.undecided.set(self.undecided.get() + 1),
        }
    }

    /// So many writes were acknowledged and not taken in the end, of mounts that live.
    pub(crate) fn were_refused(&self, what: &str, writes: u64) {
        if writes > 0 && !self.kind.may_fail("gathered", self.harsh) {
            self.violated(format!("{what} {writes} gathered writes were lost, and no node was"));
        }
        self.refused.set(self.refused.get() + writes);
    }

    /// The same of all.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Histories that no search decided.
    pub(crate) fn undecided(&self) -> u64 {
        self.undecided.get()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Times that servers were started.
    pub(crate) fn lives(&self) -> u64 {
        self.job.lives()
    }

    /// The life of the home of an inode, where that knows who has what open.
    pub(crate) fn life_of_home(&self, ino: InodeId) -> Option<u64> {
        self.job.life_up(ino.home().0)
    }

    /// Whether the server of an inode is gone for good.
    pub(crate) fn is_lost(&self, ino: InodeId) -> bool {
        self.job.is_gone(ino.home().0)
    }

    /// Whether any server is.
    pub(crate) fn has_losses(&self) -> bool {
        (0..self.job.servers()).any(|server| self.job.is_gone(server))
    }

    /// A mount that still works.
    pub(crate) fn survivor(&self) -> &Rc<Seat> {
        let living = self.seats.iter().find(|seat| !seat.is_gone());
        living.expect("server 0 is never lost")
    }

    /// A little time between calls.
    pub(crate) async fn pause(&self, random: &Random) {
        tokio::time::sleep(random.time(self.kind.pause())).await;
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    /// Trace, calls, calls whose outcome nobody knows.
    pub(crate) fn sums(&self) -> (u64, u64, u64) {
        (self.trace.get(), self.calls.get(), self.unknown.get())
    }

    /// Waits for a call, and writes down that it was answered.
    pub(crate) async fn call<T: std::fmt::Debug>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let answer = match tokio::time::timeout(CALL_MAX, call).await {
            Ok(answer) => answer,
            Err(_) => {
                self.violated(format!("{what}: no answer in {CALL_MAX:?}"));
                Err(Failure::Gone)
            }
        };
        self.calls.set(self.calls.get() + 1);
        if let Err(failure) = &answer
            && failure.is_unknown()
        {
            self.unknown.set(self.unknown.get() + 1);
            let verb = what.split(' ').next().unwrap_or_default();
            if *failure == Failure::Refused(EIO) && !self.kind.may_fail(verb, self.harsh) {
                self.violated(format!("{what}: EIO, though nothing that it needs was lost"));
            }
        }
        for byte in format!("{what} {answer:?}").bytes() {
            // FNV-1a.
            self.trace.set((self.trace.get() ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        }
        answer
    }

    /// The same until it is answered for certain: for what must not stay undone. `None` when the
    /// inode's home is gone for good.
    pub(crate) async fn insist<T: std::fmt::Debug, F: Future<Output = Result<T, Failure>>>(
        &self,
        what: &str,
        ino: InodeId,
        mut call: impl FnMut() -> F,
    ) -> Option<T> {
        for _ in 0..INSIST_TIMES {
            if self.is_lost(ino) {
                return None;
            }
            match self.call(what, call()).await {
                Ok(done) => return Some(done),
                Err(failure) if failure.is_unknown() => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(failure) => {
                    self.violated(format!("{what}: {failure:?}"));
                    return None;
                }
            }
        }
        self.violated(format!("{what}: never answered for certain"));
        None
    }

    /// A call of something that is lost: EIO, and soon.
    pub(crate) async fn expect_lost<T: std::fmt::Debug>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) {
        let begin = Instant::now();
        let answer = self.call(what, call).await;
        if !matches!(answer, Err(Failure::Refused(EIO))) {
            self.violated(format!("{what} of a lost node: {answer:?}"));
        }
        if begin.elapsed() > LOST_WAIT {
            self.violated(format!("{what} of a lost node took {:?}", begin.elapsed()));
        }
    }
}
