//! What clients did and saw, and when: the only thing that checkers look at.

use std::cell::{Cell, RefCell};

use crate::check::linear::{Call, Specification, Verdict, judge};

/// Calls on one object.
pub(crate) struct History<S: Specification> {
    calls: RefCell<Vec<Call<S::Step>>>,
    clock: Cell<u64>,
}

impl<S: Specification> Default for History<S> {
    fn default() -> Self {
        Self { calls: RefCell::default(), clock: Cell::new(0) }
    }
}

impl<S: Specification> History<S> {
    /// The order of events of one thread is their time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// A call that was answered.
    pub(crate) fn answered(&self, begin: u64, step: S::Step) {
        let end = Some(self.tick());
        self.calls.borrow_mut().push(Call { begin, end, step });
    }

    /// A call that may have happened, now or later, or never.
    pub(crate) fn unknown(&self, begin: u64, step: S::Step) {
        self.calls.borrow_mut().push(Call { begin, end: None, step });
    }

    /// Whether there is an order of all calls that explains every answer; with the story when there
    /// is none.
    pub(crate) fn judge(&self, specification: &S) -> (Verdict, String) {
        let calls = self.calls.borrow();
        match judge(specification, &calls) {
            Verdict::Impossible => (Verdict::Impossible, self.told()),
            verdict => (verdict, String::new()),
        }
    }

    /// For a person who looks for the reason.
    fn told(&self) -> String {
        let mut calls: Vec<_> = self.calls.borrow().iter().cloned().collect();
        calls.sort_by_key(|call| call.begin);
        let line = |call: &Call<S::Step>| {
            let end = call.end.map_or("?".to_owned(), |end| end.to_string());
            format!("  {:>5}-{end:<5} {:?}", call.begin, call.step)
        };
        calls.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
