//! What programs do: each workload is a few files, tasks on every node, and what must be true of
//! what they saw.

pub(crate) mod appends;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod registers;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use crate::mount::{Failure, Mount};
use crate::random::Random;

/// No call takes longer, whatever the network does (I11 of the protocol page).
const CALL_MAX: Duration = Duration::from_secs(200);

/// Longest pause between two calls of a task.
const PAUSE: Duration = Duration::from_millis(60);

/// What the tasks of one run share.
pub(crate) struct World {
    pub(crate) mounts: Vec<Rc<Mount>>,
    violations: RefCell<Vec<String>>,
    values: Cell<u64>,
    /// Every answer, in order, as one number: two runs of a seed have the same.
    trace: Cell<u64>,
    calls: Cell<u64>,
    unknown: Cell<u64>,
}

impl World {
    pub(crate) fn new(mounts: Vec<Rc<Mount>>) -> Rc<Self> {
        Rc::new(Self {
            mounts,
            violations: RefCell::default(),
            values: Cell::new(0),
            trace: Cell::new(0),
            calls: Cell::new(0),
            unknown: Cell::new(0),
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

    pub(crate) fn check(&self, what: &str, result: Result<(), String>) {
        if let Err(why) = result {
            self.violated(format!("{what}\n{why}"));
        }
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
        if answer.as_ref().is_err_and(Failure::is_unknown) {
            self.unknown.set(self.unknown.get() + 1);
        }
        for byte in format!("{what} {answer:?}").bytes() {
            // FNV-1a.
            self.trace.set((self.trace.get() ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        }
        answer
    }

    /// The same until it is answered for certain: for what must not stay undone.
    pub(crate) async fn insist<T: std::fmt::Debug, F: Future<Output = Result<T, Failure>>>(
        &self,
        what: &str,
        mut call: impl FnMut() -> F,
    ) -> Option<T> {
        for _ in 0..100 {
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
}

/// A little time between calls.
pub(crate) async fn pause(random: &Random) {
    tokio::time::sleep(random.time(PAUSE)).await;
}
