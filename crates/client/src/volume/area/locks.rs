//! Locks: who may hold some, and who waits for one.
//!
//! A waiting process costs no thread here, only an entry; the server calls its ticket. While there
//! are any, one thread looks each second whether a signal is pending for who waits: the kernel of a
//! mount whose library does not know of interrupts lets nobody go before the answer.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::lock_ranges::{HeldRange, LockRanges};
use hayase_wire::message::{
    HeldLock, Lock, LockAnswer, LockRange, NodeReply, NodeRequest, Refused,
};

use super::{Area, LinkError, LockTold};
use crate::limits::{LOCK_WAITERS_MAX, SIGNAL_LOOK};
use crate::signals::{Waiter, look_at};

/// Locks of the processes above this volume.
#[derive(Default)]
pub(super) struct AreaLocks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Who has asked for a lock and not given up all since, and what of it was granted: told again to
    /// a server that was started anew.
    owners: HashMap<(InodeId, u64), LockRanges>,
    waiting: HashMap<u64, Waiting>,
    last_ticket: u64,
    stopped: bool,
}

struct Waiting {
    ino: InodeId,
    lock: Lock,
    /// The thread that waits.
    thread: u32,
    told: LockTold,
}

impl std::fmt::Debug for AreaLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AreaLocks").finish_non_exhaustive()
    }
}

impl AreaLocks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn may_hold(&self, ino: InodeId, owner: u64) -> bool {
        self.lock().owners.contains_key(&(ino, owner))
    }

    fn take(&self, ticket: u64) -> Option<Waiting> {
        self.lock().waiting.remove(&ticket)
    }

    /// Ends a wait, if it has not ended yet.
    fn tell(&self, ticket: u64, result: Result<(), Refused>) {
        if let Some(waiting) = self.take(ticket) {
            (waiting.told)(result);
        }
    }

    /// What is held, and then what is waited for.
    pub(super) fn held(&self) -> Vec<HeldLock> {
        let state = self.lock();
        let held = state.owners.iter().flat_map(|((ino, owner), ranges)| {
            ranges.iter().map(move |HeldRange { range, kind, pid }| {
                let lock = Lock { owner: *owner, kind: *kind, range: *range, pid: *pid };
                HeldLock { ino: *ino, process: 0, lock, ticket: None }
            })
        });
        let waiting = state.waiting.iter().map(|(ticket, waiting)| {
            let Waiting { ino, lock, .. } = waiting;
            HeldLock { ino: *ino, process: 0, lock: *lock, ticket: Some(*ticket) }
        });
        held.chain(waiting).collect()
    }

    /// Nobody will ever grant these.
    pub(super) fn end_waits(&self, is_meant: impl Fn(InodeId) -> bool) {
        let tickets: Vec<u64> = {
            let state = self.lock();
            let meant = state.waiting.iter().filter(|(_, waiting)| is_meant(waiting.ino));
            meant.map(|(ticket, _)| *ticket).collect()
        };
        for ticket in tickets {
            self.tell(ticket, Err(Refused::because(libc::EIO, "the node of this file is lost")));
        }
    }

    fn book(&self, ino: InodeId, lock: &Lock) {
        let mut state = self.lock();
        let ranges = state.owners.entry((ino, lock.owner)).or_default();
        ranges.set(lock.range, lock.kind, lock.pid);
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// A number for one more who waits; gives `told` back when there are too many.
    fn begin(
        &self,
        (ino, lock): (InodeId, Lock),
        thread: u32,
        told: LockTold,
    ) -> Result<u64, LockTold> {
        let mut state = self.lock();
        if state.waiting.len() >= LOCK_WAITERS_MAX {
            return Err(told);
        }
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.waiting.insert(ticket, Waiting { ino, lock, thread, told });
        if state.waiting.len() == 1 {
            self.changed.notify_one();
        }
        Ok(ticket)
    }

    /// Sleeps while nobody waits, then [`SIGNAL_LOOK`]; who waits, `None` when it is over.
    fn next_look(&self) -> Option<Vec<(u64, InodeId, u32)>> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let state = self.changed.wait_timeout_while(state, SIGNAL_LOOK, |state| !state.stopped);
        let (state, _) = state.unwrap_or_else(PoisonError::into_inner);
        let waiting = |(ticket, wait): (&u64, &Waiting)| (*ticket, wait.ino, wait.thread);
        (!state.stopped).then(|| state.waiting.iter().map(waiting).collect())
    }
}

impl Area {
    pub(super) fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        self.locks.lock().owners.entry((ino, lock.owner)).or_default();
        let Some(thread) = waiter else {
            let answer = self.ask_lock(ino, lock, None);
            if answer.is_ok() {
                self.locks.book(ino, &lock);
            }
            return told(answer.map(drop));
        };
        // Before it is asked: the ticket may be called before the answer is here.
        let ticket = match self.locks.begin((ino, lock), thread, told) {
            Ok(ticket) => ticket,
            Err(told) => return told(Err(Refused::new(libc::ENOLCK))),
        };
        match self.ask_lock(ino, lock, Some(ticket)) {
            Ok(LockAnswer::Waits) => {}
            Ok(LockAnswer::Granted) => self.granted(ticket),
            Err(refused) => self.locks.tell(ticket, Err(refused)),
        }
    }

    /// The ticket is called. Who was killed meanwhile may have closed its files already, and nobody
    /// would ever give up its lock.
    pub(super) fn granted(&self, ticket: u64) {
        let Some(Waiting { ino, lock, thread, told }) = self.locks.take(ticket) else { return };
        if look_at(thread) != Waiter::Gone {
            self.locks.book(ino, &lock);
            return told(Ok(()));
        }
        if let Err(error) = self.unlock(ino, lock.owner, lock.range) {
            tracing::warn!(%ino, %error, "the lock of a killed process was not given up");
        }
        told(Err(Refused::new(libc::EINTR)));
    }

    fn ask_lock(
        &self,
        ino: InodeId,
        lock: Lock,
        ticket: Option<u64>,
    ) -> Result<LockAnswer, Refused> {
        match self.call(&NodeRequest::Lock { ino, lock, ticket })?.message {
            NodeReply::Locked(answer) => Ok(answer),
            other => Err(LinkError::unexpected("Lock", &other).into()),
        }
    }

    pub(super) fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        if range == LockRange::ALL {
            // First: what is asked for meanwhile is booked anew.
            self.locks.lock().owners.remove(&(ino, owner));
        } else if let Some(ranges) = self.locks.lock().owners.get_mut(&(ino, owner)) {
            ranges.clear(range);
        }
        self.call_done("Unlock", &NodeRequest::Unlock { ino, owner, range })
    }

    /// Body of the thread that looks after who waits.
    pub(super) fn look_after_waiters(&self) {
        while let Some(waiting) = self.locks.next_look() {
            for (ticket, ino, thread) in waiting {
                if look_at(thread) != Waiter::There {
                    self.cancel(ino, ticket);
                }
            }
        }
    }

    /// Granted before it could be cancelled, it is held: the ticket is being called.
    fn cancel(&self, ino: InodeId, ticket: u64) {
        let answer = self.call(&NodeRequest::CancelLock { ino, ticket });
        match answer.map(|reply| reply.message) {
            Ok(NodeReply::Cancelled(true)) => {
                self.locks.tell(ticket, Err(Refused::new(libc::EINTR)));
            }
            Ok(NodeReply::Cancelled(false)) => {}
            Ok(other) => tracing::error!(?other, "CancelLock answered by something else"),
            Err(refused) => self.locks.tell(ticket, Err(refused)),
        }
    }
}
