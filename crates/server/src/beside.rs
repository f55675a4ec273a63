//! Programs that work beside the mounts of their node.
//!
//! The home of an inode knows nodes. What it grants to a node the node's mount keeps; the home does
//! not ask for it back when the same node changes the file, because a mount gives back by itself what it
//! is about to change. A program that uses the client library is another process of that node: it
//! is granted nothing, since nobody can ask it for anything, and what it changes this server takes back
//! from the mounts. While it has a file open for writing, and for a while after, they are granted
//! nothing of that file.
//! Source: `docs/design/001-coherence.md`, "Programs without a mount".

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{Close, Grants, Name, NodeReply, NodeRequest, Refused};
use rustix::io::Errno;

use crate::clients::{Clients, Process};
use crate::home::ATTR;
use crate::limits::INVAL_NAME_WAIT;
use crate::node::Node;

/// Counts a program as a writer of a file until it is dropped.
pub(crate) struct Beside {
    node: Rc<Node>,
    ino: InodeId,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.node.clients.written_by_programs.end(self.ino);
    }
}

/// What a request changes that a mount of the node may remember, bytes of open files aside.
pub(crate) struct Changes {
    ino: Option<(InodeId, Grants)>,
    names: Vec<(InodeId, Name)>,
}

impl Changes {
    /// What a request of a program is going to change; `None` of what changes nothing, and of mounts,
    /// which know what they do.
    pub(crate) fn by(process: &Process, clients: &Clients, request: &NodeRequest) -> Option<Self> {
        if process.mount || !clients.has_mounts() { None } else { Self::of(request) }
    }

    fn of(request: &NodeRequest) -> Option<Self> {
        use NodeRequest as R;
        let (ino, names) = match request {
            R::SetAttr { ino, change } if change.size.is_some() => {
                (Some((*ino, Grants::ALL)), vec![])
            }
            R::SetAttr { ino, .. }
            | R::Link { ino, .. }
            | R::SetXattr { ino, .. }
            | R::RemoveXattr { ino, .. } => (Some((*ino, ATTR)), vec![]),
            R::Remove { parent, name, .. } => (None, vec![(*parent, name.clone())]),
            R::Rename { from, to, .. } => (None, vec![from.clone(), to.clone()]),
            _ => return None,
        };
        Some(Self { ino, names })
    }
}

/// Whether a request shows something of what processes have written, or changes it.
fn looks_at_files(request: &NodeRequest) -> bool {
    use NodeRequest as R;
    !matches!(
        request,
        R::Hello { .. }
            | R::Status
            | R::History
            | R::StatFs
            | R::StatFsOf { .. }
            | R::LostFiles { .. }
            | R::Checksums { .. }
    )
}

impl Node {
    /// A program begins to look at files: the mounts of its node have handed on what they have gathered when this
    /// returns, and gather nothing as long as it is connected. The home sees only that it is the same node.
    pub(crate) async fn looks_beside(self: &Rc<Self>, process: &Process, request: &NodeRequest) {
        if process.mount || process.mounts_handed_on.initialized() || !looks_at_files(request) {
            return;
        }
        process.begins_to_look();
        let hand_on = || async {
            if self.incarnation > 1 {
                // A mount that has not told yet may have begun before this life of the server.
                self.rpc.grace.own_known().await;
            }
            let mut gathered = self.clients.gathered();
            if self.incarnation > 1 {
                gathered.append(&mut self.clients.written_by_mounts());
            }
            let mut recalls = tokio::task::JoinSet::new();
            for ino in gathered {
                let this = Rc::clone(self);
                recalls.spawn_local(async move { this.take_back_here(ino, Grants::ALL).await });
            }
            while recalls.join_next().await.is_some() {}
        };
        process.mounts_handed_on.get_or_init(hand_on).await;
    }

    /// A program is going to open a file and to change it: mounts of this node have given back what
    /// they keep of it, and get nothing of it until it is open and closed again.
    pub(crate) async fn writes_beside(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
    ) -> Option<Beside> {
        if process.mount {
            return None;
        }
        self.clients.written_by_programs.begin(ino);
        let beside = Beside { node: Rc::clone(self), ino };
        self.take_back_or_fence(ino).await;
        Some(beside)
    }

    /// A program is going to change bytes by a call without an open: what mounts have gathered does not come after it.
    pub(crate) async fn before_changes_beside(self: &Rc<Self>, changes: &Changes) {
        if let Some((ino, Grants { cache: true, .. })) = changes.ino
            && (self.incarnation > 1 || self.clients.may_gather(ino))
        {
            self.take_back_or_fence(ino).await;
        }
    }

    /// What mounts of this node keep of a file ends. Of one that does not answer nothing more is taken that it has
    /// gathered, and what it has handed on is at the home.
    async fn take_back_or_fence(self: &Rc<Self>, ino: InodeId) {
        if !self.take_back_here(ino, Grants::ALL).await {
            self.clients.take_no_more_gathered(ino);
            self.handing_on.until_settled(ino).await;
        }
    }

    /// The request was carried out, or nobody knows: no mount of this node remembers what was before.
    pub(crate) async fn changed_beside(self: &Rc<Self>, changes: Changes, reply: &NodeReply) {
        let mut inos: Vec<_> = changes.ino.into_iter().collect();
        match reply {
            NodeReply::Refused(refused) if says_that_nothing_happened(refused) => return,
            NodeReply::Removed { ino } => inos.push((*ino, ATTR)),
            NodeReply::Renamed { moved, replaced } => {
                inos.extend(std::iter::once(moved).chain(replaced).map(|ino| (*ino, ATTR)));
            }
            _ => {}
        }
        for (parent, name) in changes.names {
            let forgotten = self.clients.forget_name(parent, name);
            if tokio::time::timeout(INVAL_NAME_WAIT, forgotten).await.is_err() {
                tracing::debug!("a name may be seen up to a second longer by a busy mount");
            }
        }
        for (ino, bits) in inos {
            match bits.cache {
                true => self.take_back_or_fence(ino).await,
                false => drop(self.take_back_here(ino, bits).await),
            }
        }
    }

    /// What a mount of this node keeps ends; the home hears of opens that lingered. False where one did not answer.
    async fn take_back_here(self: &Rc<Self>, ino: InodeId, bits: Grants) -> bool {
        let mut all_gave_back = true;
        for mount in self.clients.mounts() {
            let (still_open, gave_back) = mount.take_back(ino, bits).await;
            all_gave_back &= gave_back;
            let Some(still_open) = still_open else { continue };
            let (access, as_of) = (mount.no_longer_open(ino, still_open), still_open.as_of);
            if access.read || access.write {
                self.close_all(&mount, vec![Close { ino, access, as_of }]).await;
            }
        }
        all_gave_back
    }
}

/// Errors of whoever carries a request out, before it does. Any other one, such as `EIO`, may be of an
/// answer that was lost on its way; one of missing room comes in the middle of a change of size or of a rename in
/// the tier.
fn says_that_nothing_happened(refused: &Refused) -> bool {
    matches!(
        Errno::from_raw_os_error(refused.errno),
        Errno::NOENT
            | Errno::EXIST
            | Errno::ACCESS
            | Errno::PERM
            | Errno::ROFS
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NOTEMPTY
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::XDEV
            | Errno::MLINK
            | Errno::LOOP
            | Errno::NODATA
            | Errno::RANGE
            | Errno::TOOBIG
            | Errno::OPNOTSUPP
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_done_is_no_refusal() {
        let nothing_happened =
            |errno: Errno| says_that_nothing_happened(&Refused::new(errno.raw_os_error()));
        assert!(nothing_happened(Errno::NOENT) && nothing_happened(Errno::NOTEMPTY));
        let lost = [Errno::IO, Errno::TIMEDOUT, Errno::STALE, Errno::AGAIN, Errno::CONNRESET];
        let partly = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];
        for errno in lost.into_iter().chain(partly) {
            assert!(!nothing_happened(errno), "{errno}");
        }
    }
}
