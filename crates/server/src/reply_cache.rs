//! Answers kept to be given again: a request id executes at most once.
//!
//! A sender repeats a request under the same id when its connection broke. The first arrival runs
//! it; a repetition waits for that run and gets its answer. Kept per incarnation of the sender, the
//! last [`REPLIES_KEPT`] of them; a repetition older than that is refused, never run again.
//! In memory only: what must not happen twice across restarts carries a name of its own (`answers`).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::PeerReply;
use tokio::sync::OnceCell;

use crate::limits::REPLIES_KEPT;

/// One incarnation of a sender.
pub(crate) type Sender = (ServerId, u64);

#[derive(Default)]
struct Kept {
    replies: BTreeMap<u64, Rc<OnceCell<PeerReply>>>,
    /// Ids up to this one have been forgotten.
    forgotten: u64,
}

/// All senders' last answers.
#[derive(Default)]
pub(crate) struct ReplyCache {
    senders: RefCell<HashMap<Sender, Kept>>,
}

impl ReplyCache {
    /// Runs `work` unless `id` was seen; `None` when it was seen too long ago to know its answer.
    pub(crate) async fn once(
        &self,
        sender: Sender,
        id: u64,
        work: impl Future<Output = PeerReply>,
    ) -> Option<PeerReply> {
        let cell = self.cell(sender, id)?;
        Some(cell.get_or_init(|| work).await.clone())
    }

    fn cell(&self, sender: Sender, id: u64) -> Option<Rc<OnceCell<PeerReply>>> {
        let mut senders = self.senders.borrow_mut();
        if !senders.contains_key(&sender) {
            // A new incarnation: the old one's requests are over.
            senders.retain(|(server, _), _| *server != sender.0);
        }
        let kept = senders.entry(sender).or_default();
        if let Some(cell) = kept.replies.get(&id) {
            return Some(Rc::clone(cell));
        }
        if id <= kept.forgotten {
            return None;
        }
        let cell = Rc::new(OnceCell::new());
        kept.replies.insert(id, Rc::clone(&cell));
        while kept.replies.len() > REPLIES_KEPT {
            if let Some((oldest, _)) = kept.replies.pop_first() {
                kept.forgotten = kept.forgotten.max(oldest);
            }
        }
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SENDER: Sender = (ServerId(1), 7);

    #[tokio::test(flavor = "current_thread")]
    async fn a_repetition_gets_the_first_answer() {
        let cache = ReplyCache::default();
        let runs = Cell::new(0);
        let work = || async {
            runs.set(runs.get() + 1);
            PeerReply::Count(runs.get())
        };
        assert_eq!(cache.once(SENDER, 1, work()).await, Some(PeerReply::Count(1)));
        assert_eq!(cache.once(SENDER, 1, work()).await, Some(PeerReply::Count(1)));
        assert_eq!(cache.once((ServerId(1), 8), 1, work()).await, Some(PeerReply::Count(2)));
        assert_eq!(runs.get(), 2);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_too_old_is_refused_not_repeated() {
        let cache = ReplyCache::default();
        for id in 1..=REPLIES_KEPT as u64 + 1 {
            cache.once(SENDER, id, async { PeerReply::Done }).await;
        }
        assert_eq!(cache.once(SENDER, 1, async { PeerReply::Done }).await, None);
        assert_eq!(cache.once(SENDER, 2, async { PeerReply::Pong }).await, Some(PeerReply::Done));
    }
}
