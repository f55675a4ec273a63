//! Requests that execute at most once: the recorded answer instead of a second execution.
//!
//! Not here: the record ([`crate::meta::Answers`]).

use std::future::Future;
use std::rc::Rc;

use hayase_wire::message::{OnceId, PeerReply};

use crate::node::Node;
use crate::refusals::Answer;

impl Node {
    /// Runs `work` unless `once` has happened. `work` records its answer ([`Answers::record`](crate::meta::Answers::record)) in the
    /// transaction that is its commit point. A repetition waits for the first: else it might be refused
    /// by what the first has in its hands, and its process told so of what happens a moment later.
    pub(crate) async fn happen_once(
        self: &Rc<Self>,
        once: Option<OnceId>,
        work: impl Future<Output = Answer>,
    ) -> Answer {
        let Some(key) = once else { return work.await };
        let _running = self.meta.answers.turn(key).await;
        if let Some(answered) = self.meta.answers.answered(once)? {
            return Ok(self.nothing_left_of(answered).await);
        }
        match work.await {
            Ok(done) if !matches!(done, PeerReply::Exists(_)) => Ok(done),
            // Home and shard of a new inode can be one server, where it is made in one step.
            other => Ok(self.meta.answers.answered(once)?.map_or(other, Ok)?),
        }
    }

    /// A sender that asks again takes no link for it: the first answer may have been heard, and a link of that
    /// name made since counts by itself. What is left of the removal is finished here.
    pub(crate) async fn nothing_left_of(self: &Rc<Self>, answered: PeerReply) -> PeerReply {
        match answered {
            PeerReply::Unbound { binding, op } => {
                self.finish_intent(op).await;
                PeerReply::Bound(binding)
            }
            other => other,
        }
    }
}
