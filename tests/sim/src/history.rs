//! What clients did and saw, and when: the only thing that checkers look at.

use std::cell::{Cell, RefCell};

use crate::check::linear::{Call, Specification, Verdict, judge};
use crate::mount::{Fate, Outcome};

/// Calls on one object.
pub(crate) struct History<S: Specification> {
    calls: RefCell<Vec<Recorded<S::Step>>>,
    looks: RefCell<Vec<Look>>,
    clock: Cell<u64>,
}

struct Recorded<T> {
    call: Call<T>,
    /// Of a write that was answered: on which node, and what became of it.
    acknowledged: Option<(u16, Fate)>,
}

/// A node had to do with the object, and was answered.
struct Look {
    node: u16,
    begin: u64,
    end: u64,
}

impl<S: Specification> Default for History<S> {
    fn default() -> Self {
        Self { calls: RefCell::default(), looks: RefCell::default(), clock: Cell::new(0) }
    }
}

impl<S: Specification> History<S> {
    /// The order of events of one thread is their time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn record(
        &self,
        (begin, end): (u64, Option<u64>),
        step: S::Step,
        acknowledged: Option<(u16, Fate)>,
    ) {
        let call = Call { begin, end, is_optional: false, step };
        self.calls.borrow_mut().push(Recorded { call, acknowledged });
    }

    /// A call that was answered.
    pub(crate) fn answered(&self, begin: u64, step: S::Step) {
        let end = Some(self.tick());
        self.record((begin, end), step, None);
    }

    /// A write of a node that was answered, and that may be lost all the same.
    pub(crate) fn acknowledged(&self, begin: u64, step: S::Step, node: u16, fate: &Fate) {
        let end = Some(self.tick());
        self.record((begin, end), step, Some((node, fate.clone())));
    }

    /// A call that may have happened, now or later, or never.
    pub(crate) fn unknown(&self, begin: u64, step: S::Step) {
        self.record((begin, None), step, None);
    }

    /// An answer to a node for which others had to hand on what they had gathered.
    pub(crate) fn seen_by(&self, node: u16, begin: u64) {
        let end = self.tick();
        self.looks.borrow_mut().push(Look { node, begin, end });
    }

    /// Writes that were acknowledged and not taken, of mounts that live.
    pub(crate) fn refused(&self) -> u64 {
        let is_refused = |(_, fate): &(u16, Fate)| fate.outcome() == Outcome::Refused;
        let calls = self.calls.borrow();
        calls
            .iter()
            .filter(|recorded| recorded.acknowledged.as_ref().is_some_and(is_refused))
            .count() as u64
    }

    /// The calls as checkers look at them. One that was lost is there before any other node was shown the object, or
    /// never.
    fn calls(&self) -> Vec<Call<S::Step>> {
        let looks = self.looks.borrow();
        let mut calls = Vec::new();
        for Recorded { call, acknowledged } in &*self.calls.borrow() {
            let mut call = call.clone();
            if let Some((node, fate)) = acknowledged
                && fate.may_be_lost()
                && let Some(end) = call.end
            {
                let later = looks.iter().filter(|look| look.node != *node && look.begin > end);
                call.end = later.map(|look| look.end).min();
                call.is_optional = true;
            }
            calls.push(call);
        }
        calls
    }

    /// Whether there is an order of all calls that explains every answer; with the story when there
    /// is none.
    pub(crate) fn judge(&self, specification: &S) -> (Verdict, String) {
        let calls = self.calls();
        match judge(specification, &calls) {
            Verdict::Impossible => (Verdict::Impossible, told::<S>(calls)),
            verdict => (verdict, String::new()),
        }
    }
}

/// For a person who looks for the reason.
fn told<S: Specification>(mut calls: Vec<Call<S::Step>>) -> String {
    calls.sort_by_key(|call| call.begin);
    let line = |call: &Call<S::Step>| {
        let end = call.end.map_or("?".to_owned(), |end| end.to_string());
        let lost = if call.is_optional { " (lost, or in time)" } else { "" };
        format!("  {:>5}-{end:<5} {:?}{lost}", call.begin, call.step)
    };
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}
