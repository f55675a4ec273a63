//! Small writes that a mount of this node gathers, if nobody but it can see the file.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{FileRequest, NodeReply, PeerReply, Refused};

use super::Served;
use crate::clients::Process;
use crate::node::{Node, libc_errno, unexpected};

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
        let answer = match self.ask(ino.home(), FileRequest::Gather { ino, at, len }).await {
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

/// What was gathered is not written any more: the mount tells who wrote it.
pub(crate) fn too_late() -> Refused {
    let why = "others were let at this file when its mount did not answer";
    Refused::because(libc_errno::ESTALE, why)
}

/// Each write is to be sent at once.
pub(crate) fn not_now() -> Refused {
    Refused::because(libc_errno::EAGAIN, "others may look at this file")
}
