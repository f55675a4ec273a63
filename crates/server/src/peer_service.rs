//! What a server does for another node, or for its own: one method per request.
//!
//! Rooms: [`shard`] names, [`rename`], [`directory`] homes of directories, [`inode`] attributes, [`links`]
//! counts of names, [`opens`], [`sizes`] of striped files and appends, [`parts`] bytes, [`gathering`] of small writes,
//! [`recorded`] files, [`durable_files`] of which they are made.

pub(crate) mod directory;
pub(crate) mod durable_files;
mod gathering;
pub(crate) mod inode;
mod links;
mod locks;
mod opens;
mod parts;
mod recorded;
pub(crate) mod rename;
pub(crate) mod shard;
pub(crate) mod sizes;
mod xattr;

use std::rc::Rc;

use hayase_layout::NodeId;
use hayase_wire::BoxBuffer;
use hayase_wire::message::{OnceId, PeerReply, PeerRequest, Refused};

use crate::grace::{is_served_in_grace, tells_links};
use crate::kept_names::{Here, Visit};
use crate::locks::{LockOwner, Ticket};
use crate::node::{Local, Node, libc_errno};
use crate::peers::Served;
use locks::wish_of;

pub(crate) type Answer = Result<PeerReply, Refused>;

impl Node {
    /// Serves a request of `from`. Boxed: a role here may ask another role here.
    pub(crate) fn serve_here(
        self: Rc<Self>,
        from: NodeId,
        request: PeerRequest,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Local<Served> {
        Box::pin(self.serve_in_place(from, request, payload))
    }

    /// The same for who has the room for it: some kilobytes, those of the largest request.
    pub(crate) async fn serve_in_place(
        self: Rc<Self>,
        from: NodeId,
        request: PeerRequest,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Served {
        if !self.grace.is_over() {
            match () {
                () if !is_served_in_grace(&request) => self.grace.over().await,
                () if tells_links(&request) => self.grace.links_known().await,
                () => {}
            }
        }
        self.until_handed_on(from, &request).await;
        match request {
            PeerRequest::Read { part, offset, len } => self.read_part(part, offset, len).await,
            PeerRequest::Write { part, offset, trunc_epoch } => match payload {
                Some(bytes) => self.write_part(part, offset, trunc_epoch, bytes).await.into(),
                None => no_payload(),
            },
            PeerRequest::WriteGathered { part, offset, trunc_epoch, after } => match payload {
                Some(bytes) => {
                    let place = (part, offset, trunc_epoch);
                    self.write_gathered_part(from, place, bytes, after).await.into()
                }
                None => no_payload(),
            },
            PeerRequest::Append { ino } => match payload {
                Some(bytes) => self.append_whole(ino, from, bytes).await.into(),
                None => no_payload(),
            },
            other => self.serve_names_and_inodes(from, other).await.into(),
        }
    }

    async fn serve_names_and_inodes(self: Rc<Self>, from: NodeId, request: PeerRequest) -> Answer {
        use PeerRequest as R;
        let _user = match request.name() {
            Some(place) => match self.enter_names(place, Visit::of(&request), from).await? {
                Here::Yes(user) => user,
                Here::No => return self.name_went(request.once()).await,
            },
            None => None,
        };
        match request {
            R::Ping => Ok(PeerReply::Pong),
            R::Lookup(place) => self.shard_lookup(from, place).await,
            R::Insert { place, binding, op, once } => {
                self.happen_once(once, self.shard_insert(from, place, (binding, op), once)).await
            }
            R::GiveUpInsert { place, ino, op } => self.give_up_insert(place, ino, op).await,
            R::Answered { once } => {
                let unknown = || Refused::new(libc_errno::ENODATA);
                self.answered(Some(once))?.ok_or_else(unknown)
            }
            R::Remove { place, directory, once } => {
                self.happen_once(once, self.shard_remove(from, place, directory, once)).await
            }
            R::List { dir, cookie, bytes, all: true } => self.list_all(dir, cookie, bytes).await,
            R::List { dir, cookie, bytes, all: false } => self.shard_list(dir, cookie, bytes),
            R::TakeNames { dir, attempt, first, names, given_up } => {
                self.take_names(dir, (attempt, first), names, &given_up).await
            }
            R::SyncNames { bound } => self.sync_names(bound).await,
            R::DirFreeze { dir } => self.shard_freeze(dir).await,
            R::DirThaw { dir } => self.shard_thaw(dir),
            R::InvalName(place) => Ok(self.forget_name(place).await),
            R::Rename { from: old, to, no_replace, once } => {
                self.happen_once(once, self.rename(from, old, to, no_replace, once)).await
            }
            R::RenamePrepare { op, place, to } => self.rename_prepare(op, place, to).await,
            R::RenameFinish { op, place, moved, end, requester } => {
                self.rename_finish(op, place, moved, end, requester).await
            }
            R::RenameOutcome { op, .. } => self.rename_outcome(op).await,
            R::IsSpokenOf { ino, by_renames } => {
                Ok(PeerReply::Outcome(Some(self.is_spoken_of(ino, by_renames))))
            }
            R::HasName { ino, place } => self.has_name(ino, &place),
            R::SettleIntent { op } => self.settle(op).await.map(|()| PeerReply::Done),
            R::Finished { ops } => {
                self.drop_intents_here(&ops);
                Ok(PeerReply::Done)
            }
            R::RenameLock { op } => Ok(self.rename_lock(op).await),
            R::RenameUnlock { op } => Ok(self.rename_unlock(op)),
            R::DirGrant { dir } => self.dir_grant(from, dir).await,
            R::DirFree { dir } => {
                self.end_sole_maker(dir, None).await;
                self.sole_makers.set_free(dir);
                Ok(PeerReply::Done)
            }
            R::DirShards { dir } => self.dir_shards(dir).await,
            R::DirTouch(touched) => self.dir_touch(&touched),
            R::DirParent { dir } => self.dir_parent(dir),
            R::DirName { dir } => self.dir_name(dir),
            R::DirRemove { dir } => self.dir_remove(dir).await,
            other => self.serve_inodes(from, other).await,
        }
    }

    /// The name is at its shard. What was done to it before it went there is answered here.
    async fn name_went(self: &Rc<Self>, once: Option<OnceId>) -> Answer {
        match self.answered(once)? {
            Some(answered) => Ok(self.nothing_left_of(answered).await),
            None => Ok(PeerReply::Spread),
        }
    }

    async fn serve_inodes(self: Rc<Self>, from: NodeId, request: PeerRequest) -> Answer {
        use PeerRequest as R;
        match request {
            R::CreateInode { node, layout } => {
                self.names_disk.keep_up().await;
                self.names_disk.have_numbers(1).await?;
                self.know_path(node.parent).await?;
                self.create_inode(&node, layout, from)
            }
            R::DropInode { ino } => self.drop_inode(ino),
            R::GetAttr { ino } => {
                self.settled(ino).await;
                self.get_attr(from, ino)
            }
            R::Overtaken { ino } => {
                self.settled(ino).await;
                self.turns.overtaken(ino);
                self.get_attr(from, ino)
            }
            R::GetAttrMany(inos) => Ok(self.get_attr_many(from, &inos).await),
            R::SetAttr { ino, change } => self.set_attr(from, ino, change).await,
            R::LinkInc { ino, place, requester, op } => {
                self.link_inc(ino, place, requester, op).await
            }
            R::LinkDec { ino, place, requester, replaced } => {
                self.link_dec(ino, place, requester, replaced).await
            }
            R::LinkDecLate { ino, place, requester } => {
                self.link_dec_late(ino, place, requester).await
            }
            R::UndoLink { ino, place, requester, op } => {
                self.undo_link((ino, op), &place, requester).await.map(|()| PeerReply::Done)
            }
            R::Relink { ino, op, from: old, to, requester } => {
                self.relink((ino, op), old, to, requester).await
            }
            R::ReadLink { ino } => self.read_link(ino),
            R::Open { ino, open, truncate } => self.open_inode(from, ino, open, truncate).await,
            R::Close(closes) => self.close_inodes(from, &closes).await,
            R::Recall { ino, bits } => {
                // A mount that has not come back since this server was restarted may have files open, and have gathered
                // something.
                self.grace.own_known().await;
                let (still_open, gave_back) = self.recall_here(ino, bits).await;
                Ok(PeerReply::Recalled { still_open, gave_back })
            }
            R::GetXattr { ino, name } => self.get_xattr(ino, &name).await,
            R::SetXattr { ino, name, value, mode, once } => {
                let set = self.set_xattr(from, ino, &name, (value, mode), once);
                self.happen_once(once, set).await
            }
            R::ListXattr { ino } => self.list_xattr(ino).await,
            R::RemoveXattr { ino, name, once } => {
                self.happen_once(once, self.remove_xattr(from, ino, &name, once)).await
            }
            R::Fsync { ino, data_only } => self.fsync(ino, data_only).await,
            R::Explain { ino } => self.explain(ino).await,
            other => self.serve_cache(from, other).await,
        }
    }

    async fn serve_cache(self: Rc<Self>, from: NodeId, request: PeerRequest) -> Answer {
        use PeerRequest as R;
        match request {
            R::CacheImport { dir, entries, age } => self.import_entries(dir, entries, age).await,
            R::CacheForget { place, ino } => self.forget_imported(from, place, ino).await,
            R::CacheCheck { ino } => self.check_in_tier(ino).await,
            R::CacheHold { ino } => self.hold_cached(ino).await,
            R::CacheMove { ino, is_over, over, follows, undo } => {
                self.move_cached(ino, (is_over, over, follows), undo).await
            }
            R::CacheUnlink { ino } => self.unlink_cached(ino),
            R::CacheBury { place, ino, shown } => self.bury(&place, (ino, shown), true).await,
            R::CacheStillNamed { ino, path, shown } => self.still_named(ino, &path, shown).await,
            R::CacheTombstones { place, ino } => self.tombstones(&place, ino).await,
            R::CacheReplaced { place, tombstones } => {
                self.tombstones_replaced(&place, &tombstones).await
            }
            R::CacheTakeBack { place, gone, ino } => self.give_name_back(&place, gone, ino).await,
            R::CacheClaims { path, except } => self.claims(&path, except).await,
            R::CacheClear { dir } => self.clear_directory(dir).await,
            R::CacheSettled { path, before, with_open } => {
                self.has_settled(&path, before, with_open)
            }
            R::CacheFetch { ino } => self.fetch_all(ino).await,
            R::CacheFlush { ino } => Ok(PeerReply::Flushed(self.flush_now(ino).await?)),
            R::CacheSync { ino, round } => self.sync_now(ino, round).await,
            R::CacheEvict { ino } => self.evict(ino).await,
            other => self.serve_locks(from, other).await,
        }
    }

    async fn serve_locks(self: Rc<Self>, from: NodeId, request: PeerRequest) -> Answer {
        use PeerRequest as R;
        let owner = |process, id| LockOwner { node: from, process, id };
        match request {
            R::Lock { ino, process, lock, ticket } => {
                self.wait_for_locks().await?;
                self.lock_here(ino, wish_of(from, process, lock), ticket)
            }
            R::Unlock { ino, process, owner: id, range } => {
                Ok(self.unlock_here(ino, owner(process, id), range))
            }
            R::TestLock { ino, process, lock } => {
                Ok(self.test_lock_here(ino, &wish_of(from, process, lock)))
            }
            R::CancelLock { ino, process, ticket: number } => {
                Ok(self.cancel_lock_here(ino, Ticket { node: from, process, number }))
            }
            R::ReleaseLocks { process } => Ok(self.release_locks_here(from, process)),
            R::LockGranted { process, ticket } => {
                self.lock_granted(process, ticket).await;
                Ok(PeerReply::Done)
            }
            other => self.serve_bytes(from, other).await,
        }
    }

    async fn serve_bytes(self: Rc<Self>, from: NodeId, request: PeerRequest) -> Answer {
        use PeerRequest as R;
        match request {
            R::Extend { ino, end, trunc_epoch } => self.extend(ino, end, trunc_epoch).await,
            R::SizeOf { ino } => self.size_of(ino).await,
            R::AppendReserve { ino, len } => self.append_reserve(ino, len).await,
            R::AppendCommit { ino, offset, len, trunc_epoch } => {
                self.append_commit(ino, offset, len, trunc_epoch).await
            }
            R::Allocate { ino, mode, offset, len } => {
                self.allocate(from, ino, mode, offset, len).await
            }
            R::Gather { ino, at, len } => self.let_gather(from, ino, at, len).await,
            R::Recorded { ino, step } => self.recorded_step(ino, step).await,
            R::RecordedIndex { ino, from } => self.recorded_index(ino, from).await,
            R::Seek { ino, offset, whence } => self.seek(ino, offset, whence).await,
            R::PartTruncate { part, len, trunc_epoch } => {
                self.truncate_part(part, len, trunc_epoch).await
            }
            R::PartSync { part, data_only } => self.sync_part(part, data_only).await,
            R::PartRemove { part } => self.remove_part(part),
            R::SyncFiles { inos, only_look } => self.sync_files(inos, only_look).await,
            R::PartBlocks { part } => self.part_blocks(part),
            R::ProcessGone { process } => {
                self.forget_answers(process);
                Ok(PeerReply::Done)
            }
            R::WhichAreGone(inos) => self.which_are_gone(inos).await,
            R::StatFs => Ok(PeerReply::StatFs(self.usage_here())),
            R::Status => Ok(PeerReply::Status(Box::new(self.status()))),
            other => {
                tracing::error!(?other, "a request without its payload, or one that nobody serves");
                Err(Refused::new(libc_errno::EPROTO))
            }
        }
    }
}

fn no_payload() -> Served {
    let why = "the bytes of the request are missing";
    PeerReply::Refused(Refused::because(libc_errno::EPROTO, why)).into()
}
