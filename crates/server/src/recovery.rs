//! What a crash left half done is put right: intents, and inodes that lost their last name.
//!
//! An operation over several servers leaves an intent in the transaction of each step that needs
//! another one to follow. Whoever carries the operation out drops it; who finds it later (a server
//! that starts, or one whose peer was started anew) finishes or undoes the operation. Each step does
//! nothing the second time, so finishing twice, or beside a slow first, is harmless; the count of a link is taken
//! in the commit that ends its intent, since the name may be linked again meanwhile.
//!
//! | intent | at | says | finished by |
//! |---|---|---|---|
//! | Create | home | the inode may have no name | asking the shard: never named, it goes |
//! | Link | home | a counted name may not be bound | asking the shard: never bound, it is not counted |
//! | Remove | shard | a name is gone, its inode may not know | `LinkDecLate` |
//! | RemoveDirectory | shard | a directory is being removed | asking its home: once it is gone, it loses its name |
//! | Prepared | shard of the old name | it is held for a rename | asking the coordinator how it went |
//! | Rename | shard of the new name | it is bound: the commit | counting links, unbinding the old name |
//! | Renamed | shard of the old name | it is unbound, its inode may not know | the coordinator, or asking it |
//!
//! What was undone is remembered at the shard: an insert that comes late is refused (`given_up`).

use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::namespace::{EntryRecord, FileKind, Intent, IntentKind};
use hayase_store::ops;
use hayase_wire::message::{
    DirectoryRequest, LinkRequest, NameRequest, OnceId, PeerReply, Place, Refused, RenameEnd,
};

use crate::boxed::Local;
use crate::convert::meta_refused;
use crate::meta::binding;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};
use crate::told_renames::Starts;

/// Orphans looked at in one transaction.
const PAGE: usize = 1024;

impl Node {
    /// Names that a rename has in its hands: nobody gets them before it is known how it went, or before
    /// what it bound knows its name. Before anybody is served.
    pub(crate) async fn hold_prepared_names(self: &Rc<Self>) {
        for intent in self.meta.intents.all() {
            match intent.what {
                IntentKind::Prepared { from: (parent, name), .. } => {
                    self.hold_prepared(intent.id, Place { parent, name }).await;
                }
                IntentKind::Rename { to: (parent, name), .. } => {
                    self.renames.uncounted.count_later(Place { parent, name }, intent.id);
                }
                _ => {}
            }
        }
    }

    /// Collects what a crash left, once it is known who has what open; failures are logged and tried
    /// again.
    pub(crate) async fn recover(self: &Rc<Self>) {
        self.collect_orphans().await;
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(error) = this.collect_containers().await {
                tracing::warn!(%error, "containers of files that are gone stay until the next start");
            }
        });
        let left: Vec<u64> = self.meta.intents.all().into_iter().map(|intent| intent.id).collect();
        if !left.is_empty() {
            tracing::info!(intents = left.len(), "operations that a crash interrupted");
        }
        for id in left {
            // Not waited for: it may need a server that does not answer.
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.finish_intent(id).await });
        }
    }

    /// A server was started anew: what it had begun here nobody finishes unless we do.
    pub(crate) fn finish_old_intents(self: &Rc<Self>) {
        let ids: Vec<u64> = self.meta.intents.all().into_iter().map(|intent| intent.id).collect();
        self.finish_later(ids);
    }

    /// Finishes or undoes one operation if it is still there; tried again, each time after twice that,
    /// while a server that is needed does not answer.
    pub(crate) async fn finish_intent(self: &Rc<Self>, id: u64) {
        match self.try_to_finish(id).await {
            Ok(true) => {}
            Ok(false) => self.finish_later([id]),
            Err(error) => {
                tracing::warn!(id, %error, "an interrupted operation cannot be finished yet");
                let this = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(this.intent_age).await;
                    this.finish_later([id]);
                });
            }
        }
    }

    /// False when it is not decided yet.
    async fn try_to_finish(self: &Rc<Self>, id: u64) -> Result<bool, Refused> {
        let Some(what) = ops::intent(&self.meta.begin(), id).map_err(meta_refused)? else {
            return Ok(true);
        };
        match what {
            IntentKind::Create { ino, parent, name } => {
                if !self.finish_create(ino, Place { parent, name }).await? {
                    return Ok(false);
                }
            }
            IntentKind::Link { ino, parent, name } => {
                if !self.finish_link(id, ino, Place { parent, name }).await? {
                    return Ok(false);
                }
            }
            IntentKind::Remove { entry, parent, name, .. } => {
                if !self.finish_remove(entry, Place { parent, name }).await? {
                    return Ok(false);
                }
            }
            IntentKind::RemoveDirectory { entry, parent, name, once } => {
                let once = once.map(|(process, slot, number)| OnceId { process, slot, number });
                self.finish_remove_directory(entry, Place { parent, name }, once).await?;
            }
            IntentKind::Rename { entry, from, to, victim, .. } => {
                let place = |(parent, name)| Place { parent, name };
                match self.finish_rename(id, entry, victim, place(from), place(to)).await? {
                    Finished::Nothing => {}
                    Finished::Later => return Ok(false),
                    Finished::Before => return Ok(true),
                    Finished::Told(others) => {
                        self.renames.uncounted.counted(id);
                        // It drops the intent when they keep that.
                        self.rename_is_told(id, others);
                        return Ok(true);
                    }
                }
            }
            IntentKind::Prepared { entry, from: (parent, name), to } => {
                let to = Place { parent: to.0, name: to.1 };
                // It drops the intent itself, together with the name.
                return self.finish_prepared(id, entry, Place { parent, name }, to).await;
            }
            IntentKind::Renamed { to, .. } => {
                match self.outcome_of_rename(id, Place { parent: to.0, name: to.1 }).await? {
                    // Nothing of it is left there.
                    Some(false) => {}
                    Some(true) | None => return Ok(false),
                }
            }
        }
        self.drop_intents(&[id]).map_err(meta_refused)?;
        self.renames.uncounted.counted(id);
        Ok(true)
    }

    /// Whether operation `op` has ever bound a name to this inode, says the shard; if not, it never will.
    async fn was_bound(
        self: &Rc<Self>,
        place: Place,
        ino: InodeId,
        op: u64,
    ) -> Result<bool, Refused> {
        let asked = NameRequest::GiveUpInsert { place: place.clone(), ino, op };
        match self.names.ask_shard(&place, asked).await? {
            (_, PeerReply::Outcome(Some(bound))) => Ok(bound),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Whether a rename of this inode was committed somewhere, and it may not know: a power cut of its home takes
    /// what it was told.
    async fn is_being_renamed(self: &Rc<Self>, ino: InodeId) -> Result<bool, Refused> {
        if ino.is_cached() {
            // The ledger has a rename durably before it is answered ([`Self::was_renamed`]). And what was never
            // named must end soon: else it comes to the tier.
            return Ok(false);
        }
        Ok(self.meta.intents.is_spoken_of(ino, true)
            || self.is_spoken_of_elsewhere(ino, true).await?)
    }

    /// False when it is not decided yet.
    async fn finish_create(self: &Rc<Self>, ino: InodeId, place: Place) -> Result<bool, Refused> {
        // Renamed or linked since, also while its shard is asked, it has another name than the one it
        // was made for; removed, none.
        let made_for = [(place.parent, place.name.clone())];
        let names = || ops::names_of(&self.meta.begin(), ino).map_err(meta_refused);
        if self.meta.inode(ino).is_err_and(|refused| is_gone(&refused))
            || names()? != made_for
            || self.was_renamed(ino, &place).await?
            || self.was_bound(place.clone(), ino, ino.0).await?
            || names()? != made_for
        {
            return Ok(true);
        }
        if self.is_being_renamed(ino).await? {
            return Ok(false);
        }
        if names()? != made_for {
            return Ok(true); // It was told meanwhile.
        }
        match self.meta.inode(ino)?.kind {
            FileKind::Directory => self.drop_inode(ino).map(|_| true),
            // Bound, and replaced since by a rename that has not told it: it may be open.
            _ => self.take_link(ino, place).await,
        }
    }

    /// False when it is not decided yet.
    async fn finish_link(
        self: &Rc<Self>,
        op: u64,
        ino: InodeId,
        place: Place,
    ) -> Result<bool, Refused> {
        if self.was_bound(place.clone(), ino, op).await? {
            return Ok(true);
        }
        if self.is_being_renamed(ino).await? {
            return Ok(false);
        }
        match self.undo_link((ino, op), &place, self.node).await {
            Err(refused) if !is_gone(&refused) => Err(refused),
            _ => Ok(true),
        }
    }

    /// False when it is not decided yet.
    async fn finish_remove(
        self: &Rc<Self>,
        entry: EntryRecord,
        place: Place,
    ) -> Result<bool, Refused> {
        let ino = entry.ino;
        let _held = self.names.locks.lock(place.clone()).await;
        // Bound again, the link is the new name's.
        match self.meta.bound(&place)?.is_some_and(|found| found.ino == ino) {
            true => Ok(true),
            false => self.take_link(ino, place).await,
        }
    }

    async fn finish_remove_directory(
        self: &Rc<Self>,
        entry: EntryRecord,
        place: Place,
        once: Option<OnceId>,
    ) -> Result<(), Refused> {
        let ino = entry.ino;
        let _held = self.names.locks.lock(place.clone()).await;
        match self.rpc.ask(ino.home(), DirectoryRequest::Parent { dir: ino }).await {
            Ok(_) => return Ok(()),
            Err(refused) if is_gone(&refused) => {}
            Err(refused) => return Err(refused),
        }
        if self.meta.bound(&place)?.is_none_or(|found| found.ino != ino) {
            return Ok(());
        }
        let mut txn = self.meta.begin();
        ops::remove_entry(&mut txn, place.parent, &place.name);
        // Whoever asked for it may ask again.
        self.meta.answers.record(&mut txn, once, &PeerReply::Bound(binding(&entry)))?;
        txn.commit().map_err(meta_refused)
    }

    /// One at a time: told again after the next rename has told it otherwise, an inode would take a
    /// name back. So nobody takes the new name meanwhile, and it waits for a rename that has it in hand: that was
    /// prepared when the inode knew of this one.
    async fn finish_rename(
        self: &Rc<Self>,
        op: u64,
        moved: EntryRecord,
        victim: Option<EntryRecord>,
        from: Place,
        to: Place,
    ) -> Result<Finished, Refused> {
        let _finishing = self.renames.finishing.lock(op).await;
        if self.told_renames.has(op) {
            return Ok(Finished::Before);
        }
        let is_left = ops::intent(&self.meta.begin(), op).map_err(meta_refused)?.is_some();
        // A name that a rename has bound is not another's before the rename is finished.
        if !is_left || self.meta.bound(&to)?.is_none_or(|found| found.ino != moved.ino) {
            return Ok(Finished::Nothing);
        }
        let has_it_in_hand = |intent: &Intent| {
            matches!(&intent.what, IntentKind::Prepared { from: (parent, name), .. }
                if *parent == to.parent && *name == to.name)
        };
        if self.meta.intents.all().iter().any(has_it_in_hand) {
            return Ok(Finished::Later);
        }
        self.renames.uncounted.count_later(to.clone(), op);
        let requester = self.node;
        let (binds, victim) = (binding(&moved), victim.as_ref().map(binding));
        let old_shard = self.names.shard_of(from.parent, &from.name);
        let mut others = self.others_in_rename(moved.ino, victim, old_shard);
        self.meta.durable().await?;
        self.count_links((op, requester), binds, victim, &from, &to).await?;
        let (place, end) = (from.clone(), RenameEnd::Counted);
        let finish = NameRequest::RenameFinish { op, place, moved: moved.ino, end, requester };
        let (old_shard, _) = self.names.ask_shard(&from, finish).await?;
        if old_shard != self.me {
            others.entry(old_shard).or_insert(None);
        }
        Ok(Finished::Told(others))
    }

    /// Finishes or undoes an operation now: somebody needs to know how it went.
    pub(crate) async fn settle(self: &Rc<Self>, op: u64) -> Result<(), Refused> {
        // Boxed: finishing a rename asks this server too.
        let finishing: Local<_> = {
            let this = Rc::clone(self);
            Box::pin(async move { this.try_to_finish(op).await })
        };
        finishing.await.map(drop)
    }

    /// A server was started anew: of a rename that it coordinated and did not commit it knows nothing
    /// any more, and a name that is held for it need not be.
    pub(crate) fn finish_prepared_for(self: &Rc<Self>, coordinator: ServerId) {
        for intent in self.meta.intents.all() {
            if let IntentKind::Prepared { to: (parent, name), .. } = &intent.what
                // This server may not know where the names of that directory are.
                && [parent.home(), self.names.shard_by_hash(*parent, name)].contains(&coordinator)
            {
                let this = Rc::clone(self);
                tokio::task::spawn_local(async move { this.finish_intent(intent.id).await });
            }
        }
    }

    async fn finish_prepared(
        self: &Rc<Self>,
        op: u64,
        moved: EntryRecord,
        place: Place,
        to: Place,
    ) -> Result<bool, Refused> {
        let end = match self.outcome_of_rename(op, to).await? {
            Some(true) => RenameEnd::Committed,
            Some(false) => RenameEnd::Undone,
            None => return Ok(false),
        };
        let (requester, moved) = (self.node, moved.ino);
        let finish = NameRequest::RenameFinish { op, place, moved, end, requester };
        self.rpc.ask(self.me, finish).await.map(|_| true)
    }

    /// Whether a rename was committed and is not finished, says its coordinator; `None`: not yet decided.
    async fn outcome_of_rename(
        self: &Rc<Self>,
        op: u64,
        to: Place,
    ) -> Result<Option<bool>, Refused> {
        let asked = NameRequest::RenameOutcome { op, to: to.clone() };
        match self.names.ask_shard(&to, asked).await? {
            (_, PeerReply::Outcome(outcome)) => Ok(outcome),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// False when the home does not know yet whether it is the link that is meant.
    async fn take_link(self: &Rc<Self>, ino: InodeId, place: Place) -> Result<bool, Refused> {
        let requester = self.node;
        let unlink = LinkRequest::LinkDecLate { ino, place, requester };
        match self.rpc.ask(ino.home(), unlink).await {
            Ok(PeerReply::Stale) => Ok(false),
            Ok(_) => Ok(true),
            Err(refused) if is_gone(&refused) => Ok(true),
            Err(refused) => Err(refused),
        }
    }

    async fn collect_orphans(self: &Rc<Self>) {
        let mut seen = std::collections::HashSet::new();
        loop {
            let orphans = ops::orphans(&self.meta.begin(), PAGE + seen.len());
            let orphans = match orphans {
                Ok(orphans) => orphans,
                Err(error) => {
                    tracing::error!(%error, "orphans could not be read");
                    return;
                }
            };
            // Those that are open stay.
            let new: Vec<_> = orphans.into_iter().filter(|ino| seen.insert(*ino)).collect();
            if new.is_empty() {
                return;
            }
            self.reap_orphans(new);
            tokio::task::yield_now().await;
        }
    }
}

/// What became of a rename that somebody finishes.
enum Finished {
    /// It has nothing to tell any more.
    Nothing,
    /// Its new name is in hand of another rename.
    Later,
    /// All were told meanwhile.
    Before,
    /// These were told.
    Told(Starts),
}

/// The inode, or the directory, is not there any more.
pub(crate) fn is_gone(refused: &Refused) -> bool {
    matches!(refused.errno, libc_errno::ENOENT | libc_errno::ESTALE)
}
