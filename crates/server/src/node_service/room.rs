//! Room on all servers: for where a new file goes, and for `df`.

use std::rc::Rc;

use hayase_wire::message::{PeerReply, ServerRequest};

use crate::data::usage::Table;
use crate::node::Node;

impl Node {
    /// The room of every living server with storage, at most [`crate::limits::PEER_USAGE_FRESH`] old.
    pub(crate) async fn usage_of_all(self: &Rc<Self>) -> Table {
        if self.servers == 1 {
            return vec![(self.me, self.data.usage.here())];
        }
        if let Some(known) = self.data.usage.known() {
            return known;
        }
        let servers = self.groups.servers().iter();
        let questions: Vec<_> = servers
            .map(|&server| {
                (server, tokio::task::spawn_local(self.rpc.ask(server, ServerRequest::StatFs)))
            })
            .collect();
        let mut known = Vec::new();
        for (server, question) in questions {
            if let Ok(Ok(PeerReply::StatFs(usage))) = question.await {
                known.push((server, usage));
            }
        }
        self.data.usage.learned(&known);
        known
    }
}
