//! Directories in memory: which of their entries this server may hold, which are frozen while a
//! removal asks whether they are empty, who looked names up, and whose times are to be told.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use hayase_layout::{InodeId, NodeId};
use hayase_wire::message::{Place, TimeSpec};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{NAME_GRANT, NAMES_SWEEP_STEP};

/// Grants of directories' homes, kept in memory beside the store.
const HELD_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Directories {
    held: RefCell<HashSet<InodeId>>,
    frozen: RefCell<HashSet<InodeId>>,
    thawed: Notify,
    thaws: Cell<u64>,
    lookups: RefCell<HashMap<Place, Vec<(NodeId, Instant)>>>,
    sweep_at: Cell<usize>,
    /// Directories whose names were handed over to this shard, and in which attempt.
    attempts: RefCell<HashMap<InodeId, u64>>,
    /// Times that their home has not been told yet.
    touched: RefCell<HashMap<InodeId, TimeSpec>>,
    /// What this node's own processes changed lately: they see it at once.
    changed_here: RefCell<HashMap<InodeId, TimeSpec>>,
    /// As their home: when somebody last said what their time of modification is to be.
    times_set: RefCell<HashMap<InodeId, TimeSpec>>,
}

impl Directories {
    pub(crate) fn holds(&self, dir: InodeId) -> bool {
        self.held.borrow().contains(&dir)
    }

    pub(crate) fn hold(&self, dir: InodeId) {
        let mut held = self.held.borrow_mut();
        if held.len() >= HELD_MAX {
            held.clear(); // the store still knows
        }
        held.insert(dir);
    }

    pub(crate) fn freeze(&self, dir: InodeId) {
        self.frozen.borrow_mut().insert(dir);
    }

    /// Entries may come again, with a new grant.
    pub(crate) fn thaw(&self, dir: InodeId) {
        self.held.borrow_mut().remove(&dir);
        self.frozen.borrow_mut().remove(&dir);
        self.thaws.set(self.thaws.get() + 1);
        self.thawed.notify_waiters();
    }

    /// Changes with every thaw.
    pub(crate) fn thaws(&self) -> u64 {
        self.thaws.get()
    }

    pub(crate) async fn wait_while_frozen(&self, dir: InodeId) {
        loop {
            let thawed = self.thawed.notified();
            if !self.frozen.borrow().contains(&dir) {
                return;
            }
            thawed.await;
        }
    }

    /// `node` knows this name now, for [`NAME_GRANT`].
    pub(crate) fn looked_up(&self, place: Place, node: NodeId) {
        let now = Instant::now();
        let mut lookups = self.lookups.borrow_mut();
        if lookups.len() >= self.sweep_at.get().max(NAMES_SWEEP_STEP) {
            lookups.retain(|_, nodes| nodes.iter().any(|(_, at)| now - *at < NAME_GRANT));
            self.sweep_at.set(lookups.len() + NAMES_SWEEP_STEP);
        }
        let nodes = lookups.entry(place).or_default();
        nodes.retain(|(known, _)| *known != node);
        nodes.push((node, now));
    }

    /// The name is gone; the nodes that may still know it.
    pub(crate) fn forget_name(&self, place: &Place) -> Vec<NodeId> {
        let nodes = self.lookups.borrow_mut().remove(place).unwrap_or_default();
        let fresh = nodes.into_iter().filter(|(_, at)| at.elapsed() < NAME_GRANT);
        fresh.map(|(node, _)| node).collect()
    }

    /// Nodes that know this name, and are told of its end.
    pub(crate) fn known_by(&self, place: &Place) -> Vec<NodeId> {
        let lookups = self.lookups.borrow();
        let nodes = lookups.get(place).into_iter().flatten();
        nodes.filter(|(_, at)| at.elapsed() < NAME_GRANT).map(|(node, _)| *node).collect()
    }

    /// As a shard that is handed names: whether the home has not begun anew since.
    pub(crate) fn is_latest_attempt(&self, dir: InodeId, attempt: u64) -> bool {
        let mut attempts = self.attempts.borrow_mut();
        if attempts.len() >= HELD_MAX {
            attempts.clear(); // those are long over
        }
        let latest = attempts.entry(dir).or_insert(attempt);
        *latest = attempt.max(*latest);
        *latest == attempt
    }

    /// Books a time to be told; true when nothing was waiting to be told before.
    pub(crate) fn touch(&self, dir: InodeId, now: TimeSpec) -> bool {
        let mut touched = self.touched.borrow_mut();
        let first = touched.is_empty();
        touched.insert(dir, now);
        first
    }

    pub(crate) fn take_touched(&self) -> Vec<(InodeId, TimeSpec)> {
        self.touched.borrow_mut().drain().collect()
    }

    /// A process of this node changed `dir` now.
    pub(crate) fn changed_here(&self, dir: InodeId, now: TimeSpec) {
        keep_lately(&mut self.changed_here.borrow_mut(), dir, now);
    }

    /// When a process of this node last changed `dir`, if that may be news to its home.
    pub(crate) fn change_here(&self, dir: InodeId, now: TimeSpec) -> Option<TimeSpec> {
        self.changed_here.borrow().get(&dir).copied().filter(|at| is_lately(*at, now))
    }

    /// A process of this node says what the time of `dir` is to be: what was changed before counts no more.
    pub(crate) fn time_is_set_here(&self, dir: InodeId) {
        self.changed_here.borrow_mut().remove(&dir);
    }

    /// Its home was told that.
    pub(crate) fn time_is_set(&self, dir: InodeId, now: TimeSpec) {
        keep_lately(&mut self.times_set.borrow_mut(), dir, now);
    }

    /// A change at this time, which is told later, is one from before the time of `dir` was set.
    pub(crate) fn is_before_set(&self, dir: InodeId, at: TimeSpec) -> bool {
        self.times_set.borrow().get(&dir).is_some_and(|set| at <= *set)
    }
}

/// Long after a change its home was told.
fn is_lately(at: TimeSpec, now: TimeSpec) -> bool {
    now.seconds - at.seconds < 2
}

fn keep_lately(times: &mut HashMap<InodeId, TimeSpec>, dir: InodeId, now: TimeSpec) {
    if times.len() >= NAMES_SWEEP_STEP {
        times.retain(|_, at| is_lately(*at, now));
    }
    times.insert(dir, now);
}
