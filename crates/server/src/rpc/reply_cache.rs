//! The reply cache: a request id executes at most once.
//!
//! A sender repeats a request under the same id when its connection broke. The first arrival runs
//! it; a repetition waits for that run and gets its answer. Kept is the last request of each credit of
//! the sender, as NFSv4.1 keeps one of each slot: no earlier one of that credit can come again, so
//! nothing that may be repeated is ever forgotten, be it under way for hours. An id that is older than
//! the last one of its credit was given up by its sender, and is not run.
//! In memory only: what must not happen twice across restarts carries a name of its own (`answers`).
//! Source: RFC 8881, section 2.10.6.1.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::PeerReply;
use hayase_wire::{PeerIdentity, RequestId};
use tokio::sync::OnceCell;

type Reply = Rc<OnceCell<PeerReply>>;

/// What one incarnation of a sender asked last, by credit.
struct Asked {
    start_id: u64,
    last: BTreeMap<u8, (RequestId, Reply)>,
}

/// All senders' last answers.
#[derive(Default)]
pub(crate) struct ReplyCache {
    senders: RefCell<HashMap<ServerId, Asked>>,
}

impl ReplyCache {
    /// Runs `work` unless `id` was seen; `None` when its sender waits for no answer any more.
    pub(crate) async fn once(
        &self,
        sender: PeerIdentity,
        id: RequestId,
        work: impl Future<Output = PeerReply>,
    ) -> Option<PeerReply> {
        let reply = self.reply(sender, id)?;
        Some(reply.get_or_init(|| work).await.clone())
    }

    fn reply(
        &self,
        PeerIdentity { server, start_id }: PeerIdentity,
        id: RequestId,
    ) -> Option<Reply> {
        let mut senders = self.senders.borrow_mut();
        let new = || Asked { start_id, last: BTreeMap::new() };
        let asked = senders.entry(server).or_insert_with(new);
        if start_id < asked.start_id {
            return None; // It has ended.
        }
        if start_id > asked.start_id {
            *asked = new();
        }
        match asked.last.get(&id.credit()) {
            Some((last, reply)) if *last == id => return Some(Rc::clone(reply)),
            Some((last, _)) if *last > id => return None,
            _ => {}
        }
        let reply = Reply::default();
        asked.last.insert(id.credit(), (id, Rc::clone(&reply)));
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hayase_wire::limits::CREDITS_PER_LINK;
    use tokio::sync::oneshot;

    use super::*;

    fn sender(start_id: u64) -> PeerIdentity {
        PeerIdentity { server: ServerId(1), start_id }
    }

    async fn done(cache: &ReplyCache, id: RequestId) -> Option<PeerReply> {
        cache.once(sender(7), id, async { PeerReply::Done }).await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_repetition_gets_the_first_answer() {
        let cache = ReplyCache::default();
        let runs = Cell::new(0);
        let work = || async {
            runs.set(runs.get() + 1);
            PeerReply::Count(runs.get())
        };
        let id = RequestId::new(1, 0);
        assert_eq!(cache.once(sender(7), id, work()).await, Some(PeerReply::Count(1)));
        assert_eq!(cache.once(sender(7), id, work()).await, Some(PeerReply::Count(1)));
        assert_eq!(cache.once(sender(8), id, work()).await, Some(PeerReply::Count(2)));
        assert_eq!(cache.once(sender(7), id, work()).await, None, "of an earlier life");
        assert_eq!(cache.once(sender(8), id, work()).await, Some(PeerReply::Count(2)));
        assert_eq!(runs.get(), 2);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_comes_behind_thousands_of_others_is_run() {
        let cache = ReplyCache::default();
        // Drawn first, and long on its way.
        let late = RequestId::new(1, 16);
        for number in 2..5000 {
            let id = RequestId::new(number, number as u8 % 16);
            assert_eq!(done(&cache, id).await, Some(PeerReply::Done));
        }
        assert_eq!(done(&cache, late).await, Some(PeerReply::Done));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_repetition_of_what_is_under_way_waits_for_it_whatever_was_asked_since() {
        let cache = ReplyCache::default();
        let (id, (end, ended)) = (RequestId::new(1, 31), oneshot::channel());
        let work = async move { PeerReply::Count(ended.await.unwrap()) };
        let repeated = async {
            for number in 2..5000 {
                done(&cache, RequestId::new(number, number as u8 % 31)).await.unwrap();
            }
            let again = cache.once(sender(7), id, async { PeerReply::Done });
            tokio::join!(again, async { end.send(3).unwrap() }).0
        };
        let (first, again) = tokio::join!(cache.once(sender(7), id, work), repeated);
        assert_eq!((first, again), (Some(PeerReply::Count(3)), Some(PeerReply::Count(3))));
        let senders = cache.senders.borrow();
        assert!(senders.values().all(|asked| asked.last.len() <= CREDITS_PER_LINK));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_its_sender_gave_up_is_not_run() {
        let cache = ReplyCache::default();
        assert!(done(&cache, RequestId::new(2, 4)).await.is_some());
        assert_eq!(done(&cache, RequestId::new(1, 4)).await, None);
        assert!(done(&cache, RequestId::new(1, 5)).await.is_some(), "another credit");
    }
}
