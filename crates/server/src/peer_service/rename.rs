//! Rename, coordinated by the shard of the new name.
//!
//! Both names are locked in the order of their keys, wherever they live, so two renames never wait
//! for each other. The commit point is the one transaction that binds the new name (and with it
//! unbinds a victim); removing the old name and counting links follow. Both servers remember durably
//! what they have begun: the coordinator, from the commit on, what is to follow (`Rename`), the old
//! name's shard that the name is held (`Prepared`), until it has heard or asked how it went. A directory that changes
//! its parent first takes the job's one rename lock at server 0, so the walk that looks for loops
//! sees a tree that stands still.
//! Source: `docs/design/001-coherence.md`, "Operations over several servers".

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::namespace::{Intent, IntentKind, Txn};
use hayase_store::ops;
use hayase_wire::message::{
    Binding, DirectoryRequest, FileKind, LinkRequest, NameRequest, OnceId, OperationRequest,
    PeerReply, Place, Refused, RenameEnd,
};
use tokio::task::AbortHandle;

use super::Answer;
use crate::convert::meta_refused;
use crate::keyed_lock::{KeyGuard, KeyedLock};
use crate::limits::RENAME_HOLD;
use crate::meta::{binding, record, removal_of_directory};
use crate::node::Node;
use crate::recovery::is_gone;
use crate::refusals::{check_name, libc_errno, unexpected};
use crate::told_renames::Starts;
use crate::uncounted::Uncounted;

/// Server 0 serialises renames of directories between directories.
const REFEREE: ServerId = ServerId(0);

/// The job-wide lock's key at the referee: no directory has this number.
const RENAMES: InodeId = InodeId(0);

/// What this server holds for coordinators, until they finish or [`RENAME_HOLD`] has passed.
#[derive(Default)]
pub(crate) struct RenameHolds {
    held: RefCell<HashMap<Hold, (Held, AbortHandle)>>,
    /// Operations that this server coordinates and has not decided yet.
    undecided: RefCell<HashSet<u64>>,
    /// Committed renames whose inodes may not know of their names yet.
    pub(crate) uncounted: Uncounted,
    /// Committed renames that are being finished.
    pub(crate) finishing: KeyedLock<u64>,
}

/// One operation may hold a name and the job's lock at the same server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hold {
    Name(u64),
    Renames(u64),
}

#[expect(dead_code, reason = "guards are held for their drop")]
enum Held {
    Name(KeyGuard<Place>),
    Renames(KeyGuard<InodeId>),
}

impl RenameHolds {
    fn end(&self, key: Hold) -> bool {
        let ended = self.held.borrow_mut().remove(&key);
        ended.map(|(_, timer)| timer.abort()).is_some()
    }
}

impl Node {
    pub(super) async fn rename(
        self: &Rc<Self>,
        requester: NodeId,
        from: Place,
        to: Place,
        no_replace: bool,
        once: Option<OnceId>,
    ) -> Answer {
        check_name(&to.name)?;
        self.names.may_change(from.parent, requester).await?;
        self.names.may_change(to.parent, requester).await?;
        let op = self.meta.intents.operation_id();
        let (_, moved) = self.names.ask_shard(&from, lookup(&from)).await?;
        let PeerReply::Bound(moved) = moved else { return Err(unexpected(&moved)) };
        if to.parent.is_cached() {
            // The name may be bound in the tier only.
            self.binding(&to).await?;
        }
        let between = moved.kind == FileKind::Directory && from.parent != to.parent;
        if between {
            self.rpc.ask(REFEREE, OperationRequest::RenameLock { op }).await?;
        }
        self.renames.undecided.borrow_mut().insert(op);
        let renamed = self.rename_held((op, once), requester, moved, from, to, no_replace).await;
        self.renames.undecided.borrow_mut().remove(&op);
        if between
            && let Err(error) = self.rpc.ask(REFEREE, OperationRequest::RenameUnlock { op }).await
        {
            tracing::warn!(%error, "the referee will end the rename's lock by itself");
        }
        renamed
    }

    /// With the job's rename lock held where that is needed.
    async fn rename_held(
        self: &Rc<Self>,
        (op, once): (u64, Option<OnceId>),
        requester: NodeId,
        expected: Binding,
        from: Place,
        to: Place,
        no_replace: bool,
    ) -> Answer {
        let prepare = NameRequest::RenamePrepare { op, place: from.clone(), to: to.clone() };
        let same_name = from == to;
        // In key order, whichever server has the lock.
        let early =
            if !same_name && to < from { Some(self.names.hold_name(&to).await?) } else { None };
        let (old_shard, moved) = match self.names.ask_shard(&from, prepare).await? {
            (old_shard, PeerReply::Bound(moved)) => (old_shard, moved),
            (_, other) => return Err(unexpected(&other)),
        };
        let late = match early {
            Some(_) => Ok(early),
            None if same_name => Ok(None),
            None => self.names.hold_name(&to).await.map(Some),
        };
        let done = match &late {
            Err(refused) => Err(refused.clone()),
            Ok(_) if moved.kind == expected.kind || from.parent == to.parent => {
                self.bind_new_name((op, once), moved, (&from, old_shard), &to, no_replace).await
            }
            // The name changed hands between the first look and the lock.
            Ok(_) => Err(Refused::new(libc_errno::EBUSY)),
        };
        self.renames.undecided.borrow_mut().remove(&op);
        let mut others = Starts::new();
        if let Ok(Outcome::Moved { victim }) = &done {
            others = self.others_in_rename(moved.ino, *victim, old_shard);
            if let Err(refused) = self.rename_durable(&others, requester).await {
                // It is committed all the same: whoever takes the name finishes it first.
                self.renames.uncounted.count_later(to.clone(), op);
                self.finish_later([op]);
                drop(late);
                self.names.inval_name(&to, requester).await;
                return Err(refused);
            }
        }
        // The inode first: it may be looked for under the name that it has here.
        let (counted, end) = match &done {
            Ok(Outcome::Moved { victim }) => {
                let counted = self.count_links((op, requester), moved, *victim, &from, &to).await;
                let is_counted = counted.is_ok();
                (counted, if is_counted { RenameEnd::Counted } else { RenameEnd::Committed })
            }
            _ => (Ok(()), RenameEnd::Undone),
        };
        let (place, ino) = (from.clone(), moved.ino);
        let finish = NameRequest::RenameFinish { op, place, moved: ino, end, requester };
        let finished = self.names.ask_shard(&from, finish).await;
        let reply = match done? {
            Outcome::Nothing => PeerReply::Renamed { moved: moved.ino, replaced: None },
            Outcome::Moved { victim } => {
                // It is committed: what does not succeed now is done later.
                match finished.map(drop).and(counted) {
                    Ok(()) => self.rename_is_told(op, others),
                    Err(error) => {
                        tracing::warn!(op, %error, "a rename is finished later");
                        self.renames.uncounted.count_later(to.clone(), op);
                        self.finish_later([op]);
                    }
                }
                self.names.touch_dir(to.parent);
                // Before kernels are told: one of them may hold its directory for a lookup of this
                // very name, and would wait for itself.
                drop(late);
                self.names.inval_name(&to, requester).await;
                self.names.directories.looked_up(to, requester);
                PeerReply::Renamed { moved: moved.ino, replaced: victim.map(|victim| victim.ino) }
            }
        };
        Ok(reply)
    }

    /// Before anybody acts on a rename that was committed here, and before it is answered: a power cut of this
    /// server alone would else take the new name, while the old one has ended elsewhere and its caller goes on.
    /// Where all of it is here, and the caller's process as well, they go together.
    async fn rename_durable(
        self: &Rc<Self>,
        others: &Starts,
        requester: NodeId,
    ) -> Result<(), Refused> {
        match others.is_empty() && requester == self.node {
            true => Ok(()),
            false => self.meta.durable().await,
        }
    }

    /// Checks everything that can forbid the rename, then binds the new name: the commit point.
    async fn bind_new_name(
        self: &Rc<Self>,
        (op, once): (u64, Option<OnceId>),
        moved: Binding,
        (from, old_shard): (&Place, ServerId),
        to: &Place,
        no_replace: bool,
    ) -> Result<Outcome, Refused> {
        let directory = moved.kind == FileKind::Directory;
        if directory && from.parent != to.parent {
            self.refuse_loop(moved.ino, to.parent).await?;
        }
        self.settle_name(to).await?;
        let victim = self.meta.bound(to)?;
        if let Some(victim) = victim {
            if no_replace {
                return Err(Refused::new(libc_errno::EEXIST));
            }
            if victim.ino == moved.ino {
                return Ok(Outcome::Nothing);
            }
        }
        if to.parent.is_cached() {
            Self::refuse_in_cache(moved, victim)?;
        }
        if let Some(victim) = victim {
            match (directory, victim.kind == FileKind::Directory) {
                (true, false) => return Err(Refused::new(libc_errno::ENOTDIR)),
                (false, true) => return Err(Refused::new(libc_errno::EISDIR)),
                (true, true) => {
                    // Only its name: the rename has not happened yet.
                    self.meta.intents.put(op, removal_of_directory(to, victim, None))?;
                    let request = DirectoryRequest::Remove { dir: victim.ino };
                    if let Err(refused) = self.rpc.ask(victim.ino.home(), request).await {
                        self.finish_later([op]);
                        return Err(refused);
                    }
                }
                (false, false) => {}
            }
        }
        let held = match to.parent.is_cached() {
            true => self.before_rename(moved, victim, from, to).await?,
            false => None,
        };
        let committed = match self.names.hold_dir(to.parent).await {
            Ok(()) => self.commit_rename((op, once), moved, victim, (from, old_shard), to),
            Err(refused) => {
                self.finish_later([op]);
                Err(refused)
            }
        };
        if let (Err(_), Some(undo)) = (&committed, held) {
            self.undo_rename(undo).await;
        }
        committed
    }

    /// The new name is bound, and the old one is not if it is this shard's as well.
    fn commit_rename(
        &self,
        (op, once): (u64, Option<OnceId>),
        moved: Binding,
        victim: Option<Binding>,
        (from, old_shard): (&Place, ServerId),
        to: &Place,
    ) -> Result<Outcome, Refused> {
        tracing::debug!(op, ino = %moved.ino, "rename commits");
        let mut txn = self.meta.begin();
        ops::replace(&mut txn, to.parent, &to.name, record(moved)).map_err(meta_refused)?;
        if old_shard == self.me {
            ops::remove_entry(&mut txn, from.parent, &from.name);
        }
        let what = IntentKind::Rename {
            entry: record(moved),
            from: (from.parent, from.name.clone()),
            to: (to.parent, to.name.clone()),
            victim: victim.map(record),
            time: crate::convert::stored_time(self.meta.now()),
        };
        ops::put_intent(&mut txn, &Intent { id: op, what }).map_err(meta_refused)?;
        let replaced = victim.map(|victim| victim.ino);
        let reply = PeerReply::Renamed { moved: moved.ino, replaced };
        self.meta.answers.record(&mut txn, once, &reply)?;
        txn.commit().map_err(meta_refused)?;
        Ok(Outcome::Moved { victim })
    }

    /// `EINVAL` when `into` is `moved` or lies below it.
    async fn refuse_loop(self: &Rc<Self>, moved: InodeId, into: InodeId) -> Result<(), Refused> {
        let mut at = into;
        loop {
            if at == moved {
                return Err(Refused::new(libc_errno::EINVAL));
            }
            match self.rpc.ask(at.home(), DirectoryRequest::Parent { dir: at }).await? {
                PeerReply::Parent(Some(parent)) => at = parent,
                PeerReply::Parent(None) => return Ok(()),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// The moved inode is told of its name, the victim that it has one less. A victim whose home does not
    /// take that is told later: it stands in nobody's way.
    pub(crate) async fn count_links(
        self: &Rc<Self>,
        (op, requester): (u64, NodeId),
        moved: Binding,
        victim: Option<Binding>,
        from: &Place,
        to: &Place,
    ) -> Result<(), Refused> {
        let (ino, old, new) = (moved.ino, from.clone(), to.clone());
        let relink = LinkRequest::Relink { ino, op, from: old, to: new, requester };
        unless_gone(self.rpc.ask(ino.home(), relink).await)?;
        let Some(victim) = victim.filter(|victim| victim.kind != FileKind::Directory) else {
            return Ok(());
        };
        let (ino, place) = (victim.ino, to.clone());
        let unlink = LinkRequest::LinkDec { ino, place, requester, replaced: true };
        if let Err(error) = unless_gone(self.rpc.ask(ino.home(), unlink).await) {
            tracing::warn!(%ino, %error, "failed to tell the home which file a rename replaced: repeated later");
            let later = self.meta.intents.operation_id();
            self.meta.intents.put(later, self.meta.removal_of(to, victim))?;
            self.finish_later([later]);
        }
        Ok(())
    }

    /// Before a name is taken from what a rename has bound it to: what it stands for must know that it
    /// has this name, or would keep it for ever. The caller holds the name.
    pub(crate) async fn settle_name(self: &Rc<Self>, place: &Place) -> Result<(), Refused> {
        for op in self.renames.uncounted.of(place) {
            self.settle(op).await?;
        }
        Ok(())
    }

    /// At the old name's shard: holds the name until [`Self::rename_finish`]. After [`RENAME_HOLD`]
    /// the coordinator is asked how it went.
    pub(super) async fn rename_prepare(
        self: &Rc<Self>,
        op: u64,
        place: Place,
        to: Place,
    ) -> Answer {
        let prepared = ops::intent(&self.meta.begin(), op).map_err(meta_refused)?;
        if let Some(IntentKind::Prepared { entry, .. }) = prepared {
            // Asked again after a restart, which has found it and holds the name.
            return Ok(PeerReply::Bound(binding(&entry)));
        }
        let guard = self.names.hold_name(&place).await?;
        self.settle_name(&place).await?;
        let Some(found) = self.meta.bound(&place)? else {
            return Err(Refused::new(libc_errno::ENOENT));
        };
        let (entry, from) = (record(found), (place.parent, place.name));
        self.meta
            .intents
            .put(op, IntentKind::Prepared { entry, from, to: (to.parent, to.name) })?;
        self.hold(Hold::Name(op), Held::Name(guard));
        Ok(PeerReply::Bound(found))
    }

    /// After a restart: a name whose rename was prepared here is held until its coordinator was
    /// asked. Before anybody else can have it.
    pub(crate) async fn hold_prepared(self: &Rc<Self>, op: u64, place: Place) {
        let guard = self.names.locks.lock(place).await;
        self.hold(Hold::Name(op), Held::Name(guard));
    }

    /// As the coordinator: whether the new name is bound. One that this incarnation has not begun,
    /// and that left no intent, never was.
    pub(super) async fn rename_outcome(self: &Rc<Self>, op: u64) -> Answer {
        if self.renames.undecided.borrow().contains(&op) {
            return Ok(PeerReply::Outcome(None));
        }
        let intent = ops::intent(&self.meta.begin(), op).map_err(meta_refused)?;
        let committed = matches!(intent, Some(IntentKind::Rename { .. }));
        if committed {
            // Who asks is going to unbind the old name.
            self.meta.durable().await?;
        }
        Ok(PeerReply::Outcome(Some(committed)))
    }

    pub(super) async fn rename_finish(
        self: &Rc<Self>,
        op: u64,
        place: Place,
        moved: InodeId,
        end: RenameEnd,
        requester: NodeId,
    ) -> Answer {
        let is_left = self.is_left_to_unbind(op, &place, moved, end).await?;
        tracing::debug!(op, %moved, ?end, unbinds = is_left.is_some(), "rename finishes");
        let mut txn = self.meta.begin();
        if is_left.is_some() {
            ops::remove_entry(&mut txn, place.parent, &place.name);
        }
        self.end_intent_in(&mut txn, op, end)?;
        txn.commit().map_err(meta_refused)?;
        if end != RenameEnd::Undone {
            self.names.touch_dir(place.parent);
        }
        let is_first = self.renames.end(Hold::Name(op)) || is_left.is_some();
        drop(is_left);
        if is_first && end != RenameEnd::Undone {
            self.names.inval_name(&place, requester).await;
        }
        Ok(PeerReply::Done)
    }

    /// `None` when the old name of a rename that went well is unbound already, by the commit itself or
    /// because this is said twice: bound again since, it may stand for the same file.
    async fn is_left_to_unbind(
        self: &Rc<Self>,
        op: u64,
        place: &Place,
        moved: InodeId,
        end: RenameEnd,
    ) -> Result<Option<LeftToUnbind>, Refused> {
        if end == RenameEnd::Undone {
            return Ok(None);
        }
        match ops::intent(&self.meta.begin(), op).map_err(meta_refused)? {
            Some(IntentKind::Prepared { .. }) => return Ok(Some(LeftToUnbind::Prepared)),
            // Names that were spread come from a server that may have lost power.
            None if self.incarnation > 1 || self.names.may_be_kept(place.parent) => {}
            _ => return Ok(None),
        }
        if self.meta.bound(place)?.is_none_or(|found| found.ino != moved) {
            return Ok(None);
        }
        // A power cut may have taken the memory of the preparation.
        let held = self.names.hold_name(place).await?;
        let is_target = |intent: &Intent| {
            matches!(&intent.what, IntentKind::Rename { to, .. }
                if to.0 == place.parent && to.1 == place.name)
                && !self.told_renames.has(intent.id)
        };
        if self.meta.bound(place)?.is_none_or(|found| found.ino != moved)
            || self.meta.intents.all().iter().any(is_target)
        {
            return Ok(None);
        }
        let asked = OperationRequest::HasName { ino: moved, place: place.clone() };
        match self.rpc.ask(moved.home(), asked).await {
            Ok(PeerReply::Outcome(Some(false))) => Ok(Some(LeftToUnbind::Forgotten(held))),
            Ok(_) => Ok(None),
            Err(refused) if is_gone(&refused) => Ok(Some(LeftToUnbind::Forgotten(held))),
            Err(refused) => Err(refused),
        }
    }

    /// What is remembered at the old name's shard, once it has heard of a rename's end. Where this server
    /// coordinates the rename as well, the intent speaks of what follows, and stays.
    fn end_intent_in(
        self: &Rc<Self>,
        txn: &mut Txn<'_>,
        op: u64,
        end: RenameEnd,
    ) -> Result<(), Refused> {
        match (ops::intent(txn, op).map_err(meta_refused)?, end) {
            (Some(IntentKind::Prepared { entry, from, to }), RenameEnd::Committed) => {
                let what = IntentKind::Renamed { entry, from, to };
                ops::put_intent(txn, &Intent { id: op, what }).map_err(meta_refused)?;
                self.finish_later([op]);
            }
            (Some(IntentKind::Renamed { .. }), RenameEnd::Committed) => {}
            (Some(IntentKind::Prepared { .. } | IntentKind::Renamed { .. }), _) => {
                ops::drop_intent(txn, op).map_err(meta_refused)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn rename_lock(self: &Rc<Self>, op: u64) -> PeerReply {
        let guard = self.inode_locks.lock(RENAMES).await;
        self.hold(Hold::Renames(op), Held::Renames(guard));
        PeerReply::Done
    }

    pub(super) fn rename_unlock(&self, op: u64) -> PeerReply {
        self.renames.end(Hold::Renames(op));
        PeerReply::Done
    }

    /// A coordinator that never finishes holds a name for a while only.
    fn hold(self: &Rc<Self>, key: Hold, held: Held) {
        let this = Rc::clone(self);
        let timer = tokio::task::spawn_local(async move {
            tokio::time::sleep(RENAME_HOLD).await;
            match key {
                // In a task of its own: the end of the hold ends this one.
                Hold::Name(op) => {
                    let finish = async move { this.finish_intent(op).await };
                    tokio::task::spawn_local(finish);
                }
                Hold::Renames(_) => {
                    this.renames.end(key);
                    tracing::warn!(?key, "a rename did not finish in time: the next may begin");
                }
            }
        });
        self.renames.held.borrow_mut().insert(key, (held, timer.abort_handle()));
    }
}

/// What was removed since needs no counting.
fn unless_gone(counted: Result<PeerReply, Refused>) -> Result<(), Refused> {
    match counted {
        Ok(_) => Ok(()),
        Err(refused) if is_gone(&refused) => Ok(()),
        Err(refused) => Err(refused),
    }
}

/// An old name that a rename has not unbound yet.
enum LeftToUnbind {
    /// Held since it was prepared.
    Prepared,
    /// It was prepared, and a power cut has taken the memory of it.
    #[expect(dead_code, reason = "held for its drop")]
    Forgotten(KeyGuard<Place>),
}

/// What became of a rename.
enum Outcome {
    /// Both names are links to the same file already.
    Nothing,
    Moved {
        victim: Option<Binding>,
    },
}

fn lookup(place: &Place) -> NameRequest {
    NameRequest::Lookup(place.clone())
}
