//! Intents whose operation is done, dropped with others a little later: at this server in one
//! transaction, at each other server with one message. Nobody waits for it, and one that is never
//! told is found done by a restart (`recovery`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_store::namespace::NamespaceError;
use hayase_store::ops;
use hayase_wire::message::OperationRequest;

use crate::limits::{INTENTS_AT_ONCE, INTENTS_DELAY};
use crate::node::Node;

/// What is to be dropped where.
#[derive(Default)]
pub(crate) struct FinishedIntents {
    at: RefCell<BTreeMap<ServerId, Vec<u64>>>,
}

impl FinishedIntents {
    /// True for the first since the last [`Self::take`].
    fn push(&self, server: ServerId, op: u64) -> bool {
        let mut at = self.at.borrow_mut();
        let is_first = at.is_empty();
        at.entry(server).or_default().push(op);
        is_first
    }

    fn take(&self) -> BTreeMap<ServerId, Vec<u64>> {
        self.at.take()
    }
}

impl Node {
    /// What the intent `op` at `server` speaks of is done.
    pub(crate) fn finished(self: &Rc<Self>, server: ServerId, op: u64) {
        if self.finished_intents.push(server, op) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(INTENTS_DELAY).await;
                this.drop_finished().await;
            });
        }
    }

    async fn drop_finished(self: &Rc<Self>) {
        for (server, ops) in self.finished_intents.take() {
            if server == self.me {
                self.drop_intents_here(&ops);
                continue;
            }
            for ops in ops.chunks(INTENTS_AT_ONCE) {
                let told = self.rpc.ask(server, OperationRequest::Finished { ops: ops.to_vec() });
                tokio::task::spawn_local(async move {
                    if let Err(error) = told.await {
                        tracing::debug!(%server, %error, "intents that are done stay until a restart");
                    }
                });
            }
        }
    }

    /// Another server says that these are done.
    pub(crate) fn drop_intents_here(&self, ops: &[u64]) {
        if let Err(error) = self.drop_intents(ops) {
            tracing::warn!(%error, "intents that are done stay until the next start");
        }
    }

    pub(crate) fn drop_intents(&self, ids: &[u64]) -> Result<(), NamespaceError> {
        let mut txn = self.meta.begin();
        for id in ids {
            ops::drop_intent(&mut txn, *id)?;
        }
        txn.commit()?;
        self.link_takers.end(ids);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_by_server_until_taken() {
        let finished = FinishedIntents::default();
        let (one, two) = (ServerId(1), ServerId(2));
        assert!(finished.push(one, 7));
        assert!(!finished.push(two, 8));
        assert!(!finished.push(one, 9));
        assert_eq!(finished.take(), BTreeMap::from([(one, vec![7, 9]), (two, vec![8])]));
        assert!(finished.push(one, 10));
    }
}
