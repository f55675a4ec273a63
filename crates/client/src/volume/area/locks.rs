//! Locks: who may hold some, and who waits for one.
//!
//! A waiting process costs no thread here, only an entry; the server calls its ticket. While there
//! are any, one thread looks each second whether a signal is pending for who waits: the kernel of a
//! mount whose library does not know of interrupts lets nobody go before the answer.
//!
//! A wish whose answer was lost may wait at its home all the same. Who wished it is told so, and the
//! wish stays in the table until the home has said what became of it: a lock that is granted to
//! nobody would be held for ever.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::lock_ranges::{HeldRange, LockRanges};
use hayase_wire::message::{
    HeldLock, Lock, LockAnswer, LockHeld, LockRange, NodeReply, NodeRequest, Refused,
};

use super::requests::Requests;
use crate::limits::{LOCK_WAITERS_MAX, SIGNAL_LOOK};
use crate::link::LinkError;
use crate::signals::{Waiter, look_at};
use crate::volume::LockTold;

/// Locks of the processes above this volume.
#[derive(Default)]
struct LockTable {
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
    /// `None` once it was told that nobody knows.
    told: Option<LockTold>,
}

impl std::fmt::Debug for LockTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockTable").finish_non_exhaustive()
    }
}

impl LockTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_hold(&self, ino: InodeId, owner: u64) -> bool {
        self.lock().owners.contains_key(&(ino, owner))
    }

    fn take(&self, ticket: u64) -> Option<Waiting> {
        self.lock().waiting.remove(&ticket)
    }

    /// A wish that nobody waits for any more.
    fn take_given_up(&self, ticket: u64) -> Option<Waiting> {
        let mut state = self.lock();
        let is_given_up = state.waiting.get(&ticket)?.told.is_none();
        is_given_up.then(|| state.waiting.remove(&ticket)).flatten()
    }

    /// Ends a wait, if it has not ended yet.
    fn tell(&self, ticket: u64, result: Result<(), Refused>) {
        if let Some(told) = self.take(ticket).and_then(|waiting| waiting.told) {
            told(result);
        }
    }

    /// Ends a wait whose wish may still be at its home.
    fn give_up(&self, ticket: u64, refused: Refused) {
        let told = self.lock().waiting.get_mut(&ticket).and_then(|waiting| waiting.told.take());
        if let Some(told) = told {
            told(Err(refused));
        }
    }

    /// What is held, and then what is waited for.
    fn held(&self) -> Vec<HeldLock> {
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
    fn end_waits(&self, is_meant: impl Fn(InodeId) -> bool) {
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

    fn stop(&self) {
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
        state.waiting.insert(ticket, Waiting { ino, lock, thread, told: Some(told) });
        if state.waiting.len() == 1 {
            self.changed.notify_one();
        }
        Ok(ticket)
    }

    /// Sleeps while nobody waits, then [`SIGNAL_LOOK`]; who waits (without a thread: who was told
    /// that nobody knows), `None` when it is over.
    fn next_look(&self) -> Option<Vec<(u64, InodeId, Option<u32>)>> {
        let mut state = self.lock();
        while state.waiting.is_empty() && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let state = self.changed.wait_timeout_while(state, SIGNAL_LOOK, |state| !state.stopped);
        let (state, _) = state.unwrap_or_else(PoisonError::into_inner);
        let waiting = |(ticket, wait): (&u64, &Waiting)| {
            (*ticket, wait.ino, wait.told.is_some().then_some(wait.thread))
        };
        (!state.stopped).then(|| state.waiting.iter().map(waiting).collect())
    }
}

/// Asks for locks, and gives them back.
pub(super) struct Locks {
    requests: Requests,
    table: LockTable,
}

impl Locks {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests, table: LockTable::default() }
    }

    /// As [`crate::Volume::may_hold_locks`].
    pub(super) fn may_hold(&self, ino: InodeId, owner: u64) -> bool {
        self.table.may_hold(ino, owner)
    }

    /// What is held, and then what is waited for.
    pub(super) fn held(&self) -> Vec<HeldLock> {
        self.table.held()
    }

    /// Nobody will ever grant these.
    pub(super) fn end_waits(&self, is_meant: impl Fn(InodeId) -> bool) {
        self.table.end_waits(is_meant);
    }

    /// Ends the thread that looks after waiters.
    pub(super) fn stop(&self) {
        self.table.stop();
    }

    /// The lock that is in the way of `lock`, if there is one.
    pub(super) fn test(&self, ino: InodeId, lock: Lock) -> Result<Option<LockHeld>, Refused> {
        match self.requests.call(&NodeRequest::TestLock { ino, lock })?.message {
            NodeReply::LockHeld(held) => Ok(held),
            other => Err(LinkError::unexpected("TestLock", &other).into()),
        }
    }

    pub(super) fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        self.table.lock().owners.entry((ino, lock.owner)).or_default();
        let Some(thread) = waiter else {
            let answer = self.ask_lock(ino, lock, None);
            if answer.is_ok() {
                self.table.book(ino, &lock);
            }
            return told(answer.map(drop));
        };
        // Before it is asked: the ticket may be called before the answer is here.
        let ticket = match self.table.begin((ino, lock), thread, told) {
            Ok(ticket) => ticket,
            Err(told) => return told(Err(Refused::new(libc::ENOLCK))),
        };
        match self.ask_lock(ino, lock, Some(ticket)) {
            Ok(LockAnswer::Waits) => {}
            Ok(LockAnswer::Granted) => self.granted(ticket),
            Err(refused) if refused.errno == libc::EIO => self.table.give_up(ticket, refused),
            Err(refused) => self.table.tell(ticket, Err(refused)),
        }
    }

    /// The ticket is called. Who was killed meanwhile may have closed its files already, and nobody
    /// would ever give up its lock.
    pub(super) fn granted(&self, ticket: u64) {
        let Some(Waiting { ino, lock, thread, told }) = self.table.take(ticket) else { return };
        let Some(told) = told else { return self.granted_to_nobody(ino, &lock) };
        if look_at(thread) != Waiter::Gone {
            self.table.book(ino, &lock);
            return told(Ok(()));
        }
        if let Err(error) = self.unlock(ino, lock.owner, lock.range) {
            tracing::warn!(%ino, %error, "the lock of a killed process was not given up");
        }
        told(Err(Refused::new(libc::EINTR)));
    }

    /// Gives a lock back, unless its owner may hold others of the file and gives up all at once.
    fn granted_to_nobody(&self, ino: InodeId, lock: &Lock) {
        if !self.table.may_hold(ino, lock.owner)
            && let Err(error) = self.unlock(ino, lock.owner, lock.range)
        {
            tracing::warn!(%ino, %error, "a lock that nobody waits for was not given up");
        }
    }

    fn ask_lock(
        &self,
        ino: InodeId,
        lock: Lock,
        ticket: Option<u64>,
    ) -> Result<LockAnswer, Refused> {
        match self.requests.call(&NodeRequest::Lock { ino, lock, ticket })?.message {
            NodeReply::Locked(answer) => Ok(answer),
            other => Err(LinkError::unexpected("Lock", &other).into()),
        }
    }

    pub(super) fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        if range == LockRange::ALL {
            // First: what is asked for meanwhile is booked anew.
            self.table.lock().owners.remove(&(ino, owner));
        } else if let Some(ranges) = self.table.lock().owners.get_mut(&(ino, owner)) {
            ranges.clear(range);
        }
        self.requests.call_done("Unlock", &NodeRequest::Unlock { ino, owner, range })
    }

    /// Body of the thread that looks after who waits.
    pub(super) fn look_after_waiters(&self) {
        while let Some(waiting) = self.table.next_look() {
            for (ticket, ino, thread) in waiting {
                if thread.is_none_or(|thread| look_at(thread) != Waiter::There) {
                    self.cancel(ino, ticket);
                }
            }
        }
    }

    /// Granted before it could be cancelled, it is held: the ticket is being called, or was when
    /// nobody knew.
    fn cancel(&self, ino: InodeId, ticket: u64) {
        let answer = self.requests.call(&NodeRequest::CancelLock { ino, ticket });
        match answer.map(|reply| reply.message) {
            Ok(NodeReply::Cancelled(true)) => {
                self.table.tell(ticket, Err(Refused::new(libc::EINTR)));
            }
            Ok(NodeReply::Cancelled(false)) => {
                if let Some(Waiting { ino, lock, .. }) = self.table.take_given_up(ticket) {
                    self.granted_to_nobody(ino, &lock);
                }
            }
            Ok(other) => tracing::error!(?other, "CancelLock answered by something else"),
            Err(refused) => self.table.give_up(ticket, refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use hayase_wire::message::LockKind;

    use super::*;
    use crate::testing::server::Parts;
    use crate::testing::{FakeServer, new_file};
    use crate::volume::Volume;
    use crate::{AreaSettings, AreaVolume, Link};

    const OWNER: u64 = 7;

    fn locked(volume: &AreaVolume, ino: InodeId) -> Result<(), Refused> {
        let lock = Lock { owner: OWNER, kind: LockKind::Exclusive, range: LockRange::ALL, pid: 1 };
        let (tell, told) = mpsc::channel();
        let me = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let told_once = move |result| tell.send(result).unwrap();
        volume.lock(ino, lock, Some(me), Box::new(told_once));
        told.recv().unwrap()
    }

    /// Found by the simulation: the home granted a wish after its asker had been told `EIO` and had
    /// closed the file; the lock was held for ever.
    #[test]
    fn a_lock_granted_after_its_answer_was_lost_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let server = Arc::new(FakeServer::new(directory.path().to_owned(), Parts::Here));
        let link: Arc<dyn Link> = Arc::clone(&server) as _;
        let volume = AreaVolume::new(link, AreaSettings::mount()).unwrap();
        server.call(&NodeRequest::Create(new_file("file"))).unwrap();
        let ino = server.inode_of("file").unwrap();

        server.lose_answers(Some("Lock"));
        assert_eq!(locked(&volume, ino).unwrap_err().errno, libc::EIO);
        volume.unlock(ino, OWNER, LockRange::ALL).unwrap();
        let unlocked = server.count("Unlock");
        volume.locks.granted(1);
        assert_eq!(server.count("Unlock"), unlocked + 1, "nobody waits for it");
        assert_eq!(server.locks(ino), 0);
    }
}
