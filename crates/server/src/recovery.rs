//! What a server puts right when it starts: orphans and inodes that never got their name.
//!
//! Runs before anybody is served, over what the name space says alone. Opens held before a restart
//! are not reclaimed yet, so a file that was removed while open ends here.

use std::rc::Rc;

use hayase_store::namespace::ops::{self, IntentKind};
use hayase_wire::message::{Binding, PeerReply, PeerRequest, Place};

use crate::node::Node;

/// Orphans looked at in one transaction.
const PAGE: usize = 1024;

impl Node {
    /// Collects what a crash left; failures are logged and met again at the next start.
    pub(crate) async fn recover(self: &Rc<Self>) {
        self.collect_orphans().await;
        let intents = ops::intents(&self.names.begin());
        match intents {
            Ok(intents) => {
                for intent in intents {
                    self.finish(intent.id, intent.what).await;
                }
            }
            Err(error) => tracing::error!(%error, "unfinished operations could not be read"),
        }
    }

    async fn collect_orphans(self: &Rc<Self>) {
        loop {
            let orphans = ops::orphans(&self.names.begin(), PAGE);
            let orphans = match orphans {
                Ok(orphans) => orphans,
                Err(error) => {
                    tracing::error!(%error, "orphans could not be read");
                    return;
                }
            };
            for ino in &orphans {
                self.reap_orphans([*ino]);
            }
            if orphans.len() < PAGE {
                return;
            }
        }
    }

    /// An inode whose creation did not finish: its shard knows whether it has its name.
    async fn finish(self: &Rc<Self>, id: u64, what: IntentKind) {
        let IntentKind::Create { ino, parent, name } = what else {
            tracing::warn!(id, ?what, "an operation over several servers was not finished");
            return;
        };
        let place = Place { parent, name };
        let shard = self.shard_of(place.parent, &place.name);
        let request = match self.ask(shard, PeerRequest::Lookup(place)).await {
            Ok(PeerReply::Bound(Binding { ino: bound, .. })) if bound == ino => {
                PeerRequest::InodeNamed { ino }
            }
            Ok(_) => PeerRequest::DropInode { ino },
            Err(refused) if refused.errno == crate::node::libc_errno::ENOENT => {
                PeerRequest::DropInode { ino }
            }
            Err(error) => {
                tracing::warn!(%ino, %error, "its shard could not be asked for its name");
                return;
            }
        };
        if let Err(error) = self.ask(self.me, request).await {
            tracing::error!(%ino, %error, "an unfinished creation could not be put right");
        }
    }
}
