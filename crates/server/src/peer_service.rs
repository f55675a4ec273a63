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
use hayase_wire::message::{
    CacheRequest, DirectoryRequest, FileRequest, InodeRequest, LinkRequest, LockRequest,
    NameRequest, OnceId, OperationRequest, PartRequest, PeerReply, PeerRequest, Refused,
    ServerRequest,
};

use crate::kept_names::Here;
use crate::locks::{LockOwner, Ticket};
use crate::node::{Local, Node, libc_errno};
use crate::peers::Served;
use crate::request::{Grace, Properties, once_of_name, visit};
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
        let is = Properties::of(&request);
        if !self.grace.is_over() {
            match is.grace {
                Grace::After => self.grace.over().await,
                Grace::Links => self.grace.links_known().await,
                Grace::Now => {}
            }
        }
        self.until_handed_on(from, is.looks_at).await;
        let answer = match request {
            PeerRequest::Part(request) => return self.serve_parts(from, request, payload).await,
            PeerRequest::Name(request) => self.serve_names(from, request).await,
            PeerRequest::Inode(request) => self.serve_inodes(from, request).await,
            PeerRequest::File(request) => self.serve_files(from, request).await,
            PeerRequest::Link(request) => self.serve_links(request).await,
            PeerRequest::Lock(request) => self.serve_locks(from, request).await,
            PeerRequest::Directory(request) => self.serve_directories(from, request).await,
            PeerRequest::Operation(request) => self.serve_operations(request).await,
            PeerRequest::Cache(request) => self.serve_cache(from, request).await,
            PeerRequest::Server(request) => self.serve_server(&request),
            PeerRequest::Member(_) => Err(not_of_itself()),
        };
        answer.into()
    }

    async fn serve_parts(
        self: &Rc<Self>,
        from: NodeId,
        request: PartRequest,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Served {
        use PartRequest as R;
        let answer = match request {
            R::Read { part, offset, len } => return self.read_part(part, offset, len).await,
            R::Write { part, offset, trunc_epoch } => match payload {
                Some(bytes) => self.write_part(part, offset, trunc_epoch, bytes).await,
                None => Err(no_payload()),
            },
            R::WriteGathered { part, offset, trunc_epoch, after } => match payload {
                Some(bytes) => {
                    let place = (part, offset, trunc_epoch);
                    self.write_gathered_part(from, place, bytes, after).await
                }
                None => Err(no_payload()),
            },
            R::Append { ino } => match payload {
                Some(bytes) => self.append_whole(ino, from, bytes).await,
                None => Err(no_payload()),
            },
            R::Truncate { part, len, trunc_epoch } => {
                self.truncate_part(part, len, trunc_epoch).await
            }
            R::Sync { part, data_only } => self.sync_part(part, data_only).await,
            R::Remove { part } => self.remove_part(part),
            R::SyncFiles { inos, only_look } => self.sync_files(inos, only_look).await,
            R::Blocks { part } => self.part_blocks(part),
        };
        answer.into()
    }

    fn serve_server(self: &Rc<Self>, request: &ServerRequest) -> Answer {
        use ServerRequest as R;
        match request {
            R::Ping => Ok(PeerReply::Pong),
            R::ProcessGone { process } => {
                self.forget_answers(*process);
                Ok(PeerReply::Done)
            }
            R::StatFs => Ok(PeerReply::StatFs(self.usage_here())),
            R::Status => Ok(PeerReply::Status(Box::new(self.status()))),
        }
    }

    async fn serve_names(self: &Rc<Self>, from: NodeId, request: NameRequest) -> Answer {
        use NameRequest as R;
        let _user = match visit(&request) {
            Some((place, visit)) => match self.enter_names(place, visit, from).await? {
                Here::Yes(user) => user,
                Here::No => return self.name_went(once_of_name(&request)).await,
            },
            None => None,
        };
        match request {
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
            R::Rename { from: old, to, no_replace, once } => {
                self.happen_once(once, self.rename(from, old, to, no_replace, once)).await
            }
            R::RenamePrepare { op, place, to } => self.rename_prepare(op, place, to).await,
            R::RenameFinish { op, place, moved, end, requester } => {
                self.rename_finish(op, place, moved, end, requester).await
            }
            R::RenameOutcome { op, .. } => self.rename_outcome(op).await,
            R::List { dir, cookie, bytes, all: true } => self.list_all(dir, cookie, bytes).await,
            R::List { dir, cookie, bytes, all: false } => self.shard_list(dir, cookie, bytes),
            R::TakeNames { dir, attempt, first, names, given_up } => {
                self.take_names(dir, (attempt, first), names, &given_up).await
            }
            R::SyncNames { bound } => self.sync_names(bound).await,
            R::DirFreeze { dir } => self.shard_freeze(dir).await,
            R::DirThaw { dir } => self.shard_thaw(dir),
            R::InvalName(place) => Ok(self.forget_name(place).await),
        }
    }

    /// The name is at its shard. What was done to it before it went there is answered here.
    async fn name_went(self: &Rc<Self>, once: Option<OnceId>) -> Answer {
        match self.answered(once)? {
            Some(answered) => Ok(self.nothing_left_of(answered).await),
            None => Ok(PeerReply::Spread),
        }
    }

    async fn serve_operations(self: &Rc<Self>, request: OperationRequest) -> Answer {
        use OperationRequest as R;
        match request {
            R::HasName { ino, place } => self.has_name(ino, &place),
            R::IsSpokenOf { ino, by_renames } => {
                Ok(PeerReply::Outcome(Some(self.is_spoken_of(ino, by_renames))))
            }
            R::Settle { op } => self.settle(op).await.map(|()| PeerReply::Done),
            R::Finished { ops } => {
                self.drop_intents_here(&ops);
                Ok(PeerReply::Done)
            }
            R::RenameLock { op } => Ok(self.rename_lock(op).await),
            R::RenameUnlock { op } => Ok(self.rename_unlock(op)),
        }
    }

    async fn serve_directories(self: &Rc<Self>, from: NodeId, request: DirectoryRequest) -> Answer {
        use DirectoryRequest as R;
        match request {
            R::Grant { dir } => self.dir_grant(from, dir).await,
            R::Free { dir } => {
                self.end_sole_maker(dir, None).await;
                self.sole_makers.set_free(dir);
                Ok(PeerReply::Done)
            }
            R::Shards { dir } => self.dir_shards(dir).await,
            R::Touch(touched) => self.dir_touch(&touched),
            R::Parent { dir } => self.dir_parent(dir),
            R::Name { dir } => self.dir_name(dir),
            R::Remove { dir } => self.dir_remove(dir).await,
        }
    }

    async fn serve_inodes(self: &Rc<Self>, from: NodeId, request: InodeRequest) -> Answer {
        use InodeRequest as R;
        match request {
            R::Create { node, layout } => {
                self.names_disk.keep_up().await;
                self.names_disk.have_numbers(1).await?;
                self.know_path(node.parent).await?;
                self.create_inode(&node, layout, from)
            }
            R::Drop { ino } => self.drop_inode(ino),
            R::GetAttr { ino } => {
                self.settled(ino).await;
                self.get_attr(from, ino)
            }
            R::GetAttrMany(inos) => Ok(self.get_attr_many(from, &inos).await),
            R::SetAttr { ino, change } => self.set_attr(from, ino, change).await,
            R::ReadLink { ino } => self.read_link(ino),
            R::Open { ino, open, truncate } => self.open_inode(from, ino, open, truncate).await,
            R::Close(closes) => self.close_inodes(from, &closes).await,
            R::Overtaken { ino } => {
                self.settled(ino).await;
                self.turns.overtaken(ino);
                self.get_attr(from, ino)
            }
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
            R::WhichAreGone(inos) => self.which_are_gone(inos).await,
        }
    }

    async fn serve_links(self: &Rc<Self>, request: LinkRequest) -> Answer {
        use LinkRequest as R;
        match request {
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
        }
    }

    async fn serve_locks(self: &Rc<Self>, from: NodeId, request: LockRequest) -> Answer {
        use LockRequest as R;
        let owner = |process, id| LockOwner { node: from, process, id };
        match request {
            R::Lock { ino, process, lock, ticket } => {
                self.wait_for_locks().await?;
                self.lock_here(ino, wish_of(from, process, lock), ticket)
            }
            R::Unlock { ino, process, owner: id, range } => {
                Ok(self.unlock_here(ino, owner(process, id), range))
            }
            R::Test { ino, process, lock } => {
                Ok(self.test_lock_here(ino, &wish_of(from, process, lock)))
            }
            R::Cancel { ino, process, ticket: number } => {
                Ok(self.cancel_lock_here(ino, Ticket { node: from, process, number }))
            }
            R::Release { process } => Ok(self.release_locks_here(from, process)),
            R::Granted { process, ticket } => {
                self.lock_granted(process, ticket).await;
                Ok(PeerReply::Done)
            }
        }
    }

    async fn serve_files(self: &Rc<Self>, from: NodeId, request: FileRequest) -> Answer {
        use FileRequest as R;
        match request {
            R::Extend { ino, end, trunc_epoch } => self.extend(ino, end, trunc_epoch).await,
            R::SizeOf { ino } => self.size_of(ino).await,
            R::Gather { ino, at, len } => self.let_gather(from, ino, at, len).await,
            R::AppendReserve { ino, len } => self.append_reserve(ino, len).await,
            R::AppendCommit { ino, offset, len, trunc_epoch } => {
                self.append_commit(ino, offset, len, trunc_epoch).await
            }
            R::Allocate { ino, mode, offset, len } => {
                self.allocate(from, ino, mode, offset, len).await
            }
            R::Seek { ino, offset, whence } => self.seek(ino, offset, whence).await,
            R::Recorded { ino, step } => self.recorded_step(ino, step).await,
            R::RecordedIndex { ino, from } => self.recorded_index(ino, from).await,
        }
    }

    async fn serve_cache(self: &Rc<Self>, from: NodeId, request: CacheRequest) -> Answer {
        use CacheRequest as R;
        match request {
            R::Import { dir, entries, age } => self.import_entries(dir, entries, age).await,
            R::Forget { place, ino } => self.forget_imported(from, place, ino).await,
            R::Check { ino } => self.check_in_tier(ino).await,
            R::Hold { ino } => self.hold_cached(ino).await,
            R::Move { ino, is_over, over, follows, undo } => {
                self.move_cached(ino, (is_over, over, follows), undo).await
            }
            R::Unlink { ino } => self.unlink_cached(ino),
            R::Bury { place, ino, shown } => self.bury(&place, (ino, shown), true).await,
            R::StillNamed { ino, path, shown } => self.still_named(ino, &path, shown).await,
            R::Tombstones { place, ino } => self.tombstones(&place, ino).await,
            R::Replaced { place, tombstones } => {
                self.tombstones_replaced(&place, &tombstones).await
            }
            R::Clear { dir } => self.clear_directory(dir).await,
            R::Claims { path, except } => self.claims(&path, except).await,
            R::TakeBack { place, gone, ino } => self.give_name_back(&place, gone, ino).await,
            R::Settled { path, before, with_open } => self.has_settled(&path, before, with_open),
            R::Fetch { ino } => self.fetch_all(ino).await,
            R::Flush { ino } => Ok(PeerReply::Flushed(self.flush_now(ino).await?)),
            R::Sync { ino, round } => self.sync_now(ino, round).await,
            R::Evict { ino } => self.evict(ino).await,
        }
    }
}

fn no_payload() -> Refused {
    Refused::because(libc_errno::EPROTO, "the bytes of the request are missing")
}

/// What [`crate::peers`] answers, since it depends on the incarnation that asks.
fn not_of_itself() -> Refused {
    tracing::error!("a server asked itself about its own membership");
    Refused::new(libc_errno::EPROTO)
}
