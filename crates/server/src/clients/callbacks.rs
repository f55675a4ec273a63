//! What the processes of this node are asked and told: callbacks to mounts.

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    Callback, CallbackReply, Close, Grants, HeldLock, Holding, NodeReply, OnceId, Refused,
    StillOpen,
};

use super::{Clients, Process};
use crate::limits::{RECALL_AGAIN, RECALL_DEADLINE};
use crate::refusals::libc_errno;

impl Clients {
    /// As the node: gives back what its mounts hold; returns what the node still has open, and whether they all did.
    pub(crate) async fn recall(&self, ino: InodeId, bits: Grants) -> (StillOpen, bool) {
        let mut all_gave_back = true;
        for mount in self.mounts() {
            let (still_open, gave_back) = mount.take_back(ino, bits).await;
            if let Some(still_open) = still_open {
                let (access, as_of) = (mount.no_longer_open(ino, still_open), still_open.as_of);
                self.closed(&mount, Close { ino, access, as_of });
            }
            all_gave_back &= gave_back;
        }
        (self.still_open(ino), all_gave_back)
    }

    /// As the node: makes its mounts forget a name.
    pub(crate) async fn forget_name(&self, parent: InodeId, name: Vec<u8>) {
        for mount in self.mounts() {
            let busy = mount.removing.has(parent);
            let callback = Callback::InvalName { parent, name: name.clone(), busy };
            if mount.call(&callback).await.is_none() {
                tracing::debug!("a mount that is gone knows no names");
            }
        }
    }

    /// A home may have forgotten what it granted: nothing of it is used any more when this returns.
    pub(crate) async fn home_lost(&self, home: ServerId) {
        for mount in self.mounts() {
            let lost = Callback::HomeLost { home };
            match tokio::time::timeout(RECALL_DEADLINE, mount.call(&lost)).await {
                Ok(Some(CallbackReply::Told)) => {}
                other => tracing::warn!(%home, ?other, "a mount did not give back in time"),
            }
        }
    }

    /// What this node has locked at a home. Not asked together with giving back: that may wait for a
    /// write that waits for the home, and locks that are not told are lost.
    ///
    /// # Errors
    /// `EIO` when a mount that is there does not say.
    pub(crate) async fn locks_at(&self, home: ServerId) -> Result<Vec<HeldLock>, Refused> {
        let mut locks = Vec::new();
        for mount in self.mounts() {
            let asked = Callback::LocksAt { home };
            match tokio::time::timeout(RECALL_DEADLINE, mount.call(&asked)).await {
                Ok(Some(CallbackReply::Holds { locks: held })) => {
                    let process = mount.id;
                    locks.extend(held.into_iter().map(|held| HeldLock { process, ..held }));
                }
                // Gone, and its locks with it.
                Ok(None) => {}
                other => {
                    tracing::warn!(%home, ?other, "a mount did not say what it has locked");
                    let why = "a mount of this node did not say what it has locked";
                    return Err(Refused::because(libc_errno::EIO, why));
                }
            }
        }
        Ok(locks)
    }

    /// A home is lost: processes that wait for a lock there wait in vain.
    pub(crate) async fn tell_home_dead(&self, home: ServerId) {
        for mount in self.mounts() {
            if mount.call(&Callback::HomeDead { home }).await.is_none() {
                tracing::debug!("a mount that is gone waits for nothing");
            }
        }
    }

    /// Something that processes of this node held could not be given back.
    pub(crate) async fn tell_lost(&self, inodes: Vec<InodeId>) {
        if inodes.is_empty() {
            return;
        }
        tracing::warn!(inodes = inodes.len(), "opens or locks were lost");
        for mount in self.mounts() {
            mount.lost.borrow_mut().extend(&inodes);
            for inodes in inodes.chunks(Holding::BATCH) {
                let lost = Callback::Lost { inodes: inodes.to_vec() };
                if mount.call(&lost).await.is_none() {
                    tracing::debug!("a mount that is gone has lost everything");
                }
            }
        }
    }

    /// Tells a process of this node that a lock it waits for is held. One that is gone has told,
    /// or will tell, the homes so itself.
    pub(crate) async fn lock_granted(&self, process: u64, ticket: u64) {
        let Some(process) = self.find(process) else { return };
        match process.call(&Callback::LockGranted { ticket }).await {
            Some(CallbackReply::Told) => {}
            other => tracing::debug!(?other, "a process that is gone waits for no lock"),
        }
    }

    /// `server` may remember an answer to this request of a process of this node.
    pub(crate) fn remembers_answer(&self, server: ServerId, once: Option<OnceId>) {
        if let Some(process) = once.and_then(|once| self.find(once.process)) {
            process.once_at.borrow_mut().insert(server);
        }
    }

    /// What nobody on this node has open for writing nobody here may write: the home has not made
    /// others give back their caches.
    pub(crate) fn check_writable(&self, process: &Process, ino: InodeId) -> Result<(), Refused> {
        if process.lost.borrow().contains(&ino) {
            let why = "an open or a lock of this file was lost; close it and open it again";
            return Err(Refused::because(libc_errno::EIO, why));
        }
        match self.open_here(ino).write {
            true => Ok(()),
            false => Err(Refused::because(libc_errno::EBADF, "not open for writing on this node")),
        }
    }

    /// What `process` may keep of an answer, at most: a program nothing, a mount nothing of what a
    /// program of this node writes.
    pub(crate) fn limit_grants(&self, process: &Process, reply: &mut NodeReply) {
        let limit = |ino: InodeId, grants: &mut Grants| {
            if !process.mount || self.written_by_programs.has(ino) {
                *grants = Grants::NONE;
            }
        };
        match reply {
            NodeReply::Entry(entry) => limit(entry.attr.ino, &mut entry.grants),
            NodeReply::Attr { attr, grants } => limit(attr.ino, grants),
            NodeReply::Created(created) => {
                limit(created.entry.attr.ino, &mut created.entry.grants);
                if let Some(opened) = &mut created.opened {
                    limit(opened.attr.ino, &mut opened.grants);
                }
            }
            NodeReply::Opened(opened) => limit(opened.attr.ino, &mut opened.grants),
            NodeReply::Entries(entries) => {
                for entry in entries.iter_mut().filter_map(|entry| entry.entry.as_mut()) {
                    limit(entry.attr.ino, &mut entry.grants);
                }
            }
            _ => {}
        }
    }
}

impl Process {
    /// What a mount still has open when it has given back, and whether it has. While what it has gathered is on its way it
    /// is asked again: its threads that answer are few, and wait for nothing long.
    pub(crate) async fn take_back(&self, ino: InodeId, bits: Grants) -> (Option<StillOpen>, bool) {
        let recall = Callback::Recall { ino, bits };
        let mut last = None;
        let ask = async {
            loop {
                match self.call(&recall).await {
                    Some(CallbackReply::Recalled { still_open, gave_back }) => {
                        last = Some(still_open);
                        if gave_back {
                            return true;
                        }
                        tokio::time::sleep(RECALL_AGAIN).await;
                    }
                    None => {
                        tracing::debug!(%ino, "a mount that is gone was not asked");
                        return true;
                    }
                    Some(other) => {
                        tracing::warn!(%ino, ?other, "a mount answered a recall with something else");
                        return false;
                    }
                }
            }
        };
        let gave_back = tokio::time::timeout(RECALL_DEADLINE, ask).await.unwrap_or(false);
        if !gave_back {
            tracing::warn!(%ino, "a mount did not give back in time");
        }
        (last, gave_back)
    }
}
