//! Requests that happen once: each is recorded, with its answer, in the transaction in which it
//! happens. Repeated, on whichever way and after whichever restart, it gets that answer.
//!
//! Needed where a second execution would fail or do more: names bound and unbound, attributes that
//! must or must not be there. All else is harmless twice by construction (`docs/design/001-coherence.md`,
//! "Requests that arrive twice").
//! Source: RFC 8881, 2.10.6 (exactly-once semantics of NFSv4.1 sessions).

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use hayase_store::Namespace;
use hayase_store::namespace::{NamespaceError, Txn};
use hayase_store::ops::{self, Answer as Kept, AnswerSlot};
use hayase_wire::message::{OnceId, PeerReply, Refused};

use crate::convert::meta_refused;
use crate::keyed_lock::{KeyGuard, KeyedLock};
use crate::refusals::libc_errno;

/// Which answers there are: the store is asked only for those that it has.
pub(crate) struct Answers {
    store: Arc<Namespace>,
    last: RefCell<HashMap<AnswerSlot, u64>>,
    /// Held while one is carried out.
    running: KeyedLock<OnceId>,
}

impl Answers {
    /// What the store holds from before a restart.
    pub(crate) fn load(store: &Arc<Namespace>) -> Result<Self, NamespaceError> {
        let last = ops::answers(&store.begin())?.into_iter().collect();
        let store = Arc::clone(store);
        Ok(Self { store, last: RefCell::new(last), running: KeyedLock::new() })
    }

    /// Waits until nobody else carries this request out, and keeps others away until the result is dropped.
    pub(crate) async fn turn(&self, once: OnceId) -> KeyGuard<OnceId> {
        self.running.lock(once).await
    }

    /// The answer that was recorded, if the request has happened.
    pub(crate) fn answered(&self, once: Option<OnceId>) -> Result<Option<PeerReply>, Refused> {
        let Some(once) = once.filter(|once| self.has(*once)) else { return Ok(None) };
        let kept = ops::answer(&self.store.begin(), slot_of(once)).map_err(meta_refused)?;
        let Some(kept) = kept.filter(|kept| kept.number == once.number) else { return Ok(None) };
        let unreadable = |error: hayase_wire::CodecError| {
            Refused::because(libc_errno::EIO, format!("a recorded answer: {error}"))
        };
        hayase_wire::decode(&kept.reply).map(Some).map_err(unreadable)
    }

    /// Records the answer in the transaction in which the request happens; refused when it has
    /// happened before.
    pub(crate) fn record(
        &self,
        txn: &mut Txn<'_>,
        once: Option<OnceId>,
        reply: &PeerReply,
    ) -> Result<(), Refused> {
        let Some(once) = once else { return Ok(()) };
        let (slot, number) = (slot_of(once), once.number);
        if self.has(once)
            && ops::answer(txn, slot).map_err(meta_refused)?.is_some_and(|a| a.number == number)
        {
            return Err(Refused::because(libc_errno::EIO, "it has happened already"));
        }
        let reply = hayase_wire::encode(reply)
            .map_err(|error| Refused::because(libc_errno::EIO, error.to_string()))?;
        ops::put_answer(txn, slot, &Kept { number, reply });
        // Before the commit, which may fail: then the store says that it has not happened.
        self.last.borrow_mut().insert(slot, number);
        Ok(())
    }

    /// A process is gone: it repeats nothing any more.
    pub(crate) fn forget(&self, process: u64) {
        let mut last = self.last.borrow_mut();
        let known = last.len();
        last.retain(|slot, _| slot.process != process);
        if last.len() == known {
            return;
        }
        let mut txn = self.store.begin();
        let dropped = ops::drop_answers(&mut txn, process).and_then(|()| txn.commit());
        if let Err(error) = dropped {
            tracing::warn!(%error, "answers to a process that is gone stay");
        }
    }

    fn has(&self, once: OnceId) -> bool {
        self.last.borrow().get(&slot_of(once)) == Some(&once.number)
    }
}

fn slot_of(once: OnceId) -> AnswerSlot {
    AnswerSlot { process: once.process, slot: once.slot }
}
