//! Small writes that a mount of this node gathers, if nobody but it can see the file.

use crate::refusals::not_now;
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{FileRequest, NodeReply, PeerReply};

use super::Served;
use crate::clients::Process;
use crate::node::Node;
use crate::refusals::unexpected;

impl Node {
    /// Asks the home whether a mount may gather; other processes of this node, of which the home does not know, are
    /// looked at here, before and after.
    pub(super) async fn gather_writes(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        at: Option<u64>,
        len: u32,
    ) -> Served {
        let is_alone = || process.mount && self.clients.has_mounts_only();
        let may_gather = || is_alone() && self.clients.takes_gathered(ino);
        if !may_gather() || ino.is_cached() {
            return Err(not_now());
        }
        // Before the home is asked: who begins to look meanwhile has it recalled.
        self.clients.begins_to_gather(ino);
        let answer = match self.rpc.ask(ino.home(), FileRequest::Gather { ino, at, len }).await {
            Ok(PeerReply::Gathering(room)) if may_gather() => {
                return Ok(NodeReply::Gathering(room));
            }
            Ok(PeerReply::Gathering(_)) => not_now(),
            Ok(other) => unexpected(&other),
            Err(refused) => refused,
        };
        self.clients.does_not_gather(ino);
        Err(answer)
    }
}
