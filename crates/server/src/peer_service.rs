//! What a server does for another node, or for its own: one method per request.
//!
//! Rooms: [`shard`] names, [`rename`], [`inode`] attributes, [`links`]
//! counts of names, [`opens`], [`sizes`] of striped files and appends, [`parts`] bytes, [`gathering`] of small writes,
//! [`recorded`] files, [`durable_files`] of which they are made.

pub(crate) mod durable_files;
pub(crate) mod entrance;
mod gathering;
pub(crate) mod inode;
mod links;
mod locks;
mod once;
mod opens;
mod parts;
mod reclaim;
mod recorded;
pub(crate) mod rename;
pub(crate) mod shard;
pub(crate) mod sizes;
mod xattr;

use crate::rpc::OwnService;
use std::rc::{Rc, Weak};

use hayase_layout::{NodeId, ServerId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{
    CacheRequest, DirectoryRequest, FileRequest, InodeRequest, LinkRequest, LockRequest,
    NameRequest, OnceId, OperationRequest, PartRequest, PeerReply, PeerRequest, Refused,
    ServerRequest,
};

use crate::boxed::Local;
use crate::locks::{LockOwner, Ticket};
use crate::membership::Losses;
use crate::names::Finisher;
use crate::names::kept_names::Here;
use crate::node::Node;
pub(crate) use crate::refusals::Answer;
use crate::refusals::libc_errno;
use crate::request::{Grace, Properties, once_of_name, visit};
use crate::rpc::peers::Served;
use locks::wish_of;

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
        if !self.rpc.grace.is_over() {
            match is.grace {
                Grace::After => self.rpc.grace.over().await,
                Grace::Links => self.rpc.grace.links_known().await,
                Grace::Now => {}
            }
        }
        self.until_handed_on(from, is.looks_at).await;
        Asked { node: self, from }.serve(request, payload).await
    }
}

/// This server as its own rooms know it.
pub(crate) struct Roles {
    pub(crate) me: NodeId,
    pub(crate) node: Weak<Node>,
}

impl Finisher for Roles {
    fn nothing_left_of(&self, answered: PeerReply) -> Local<PeerReply> {
        let node = self.node.upgrade();
        Box::pin(async move {
            match node {
                Some(node) => node.nothing_left_of(answered).await,
                None => PeerReply::Refused(stopped()),
            }
        })
    }
}

impl Losses for Roles {
    fn release(&self, lost: NodeId) {
        let Some(node) = self.node.upgrade() else { return };
        let inos = node.homes.known_to(lost);
        let server = ServerId(lost.0);
        tracing::warn!(%server, inodes = inos.len(), "what a lost node held is released");
        node.home_gone(lost, &inos);
        node.reap_orphans(inos);
        node.release_locks_of(|owner| owner.node == lost);
    }

    fn finish_old_intents(&self) {
        if let Some(node) = self.node.upgrade() {
            node.finish_old_intents();
        }
    }
}

impl OwnService for Roles {
    fn serve(&self, request: PeerRequest) -> Local<Served> {
        match self.node.upgrade() {
            Some(node) => node.serve_here(self.me, request, None),
            None => Box::pin(async { PeerReply::Refused(stopped()).into() }),
        }
    }
}

/// A request of a node that waits for nothing more.
struct Asked {
    node: Rc<Node>,
    from: NodeId,
}

impl Asked {
    async fn serve(self, request: PeerRequest, payload: Option<(BoxBuffer, usize)>) -> Served {
        let answer = match request {
            PeerRequest::Part(request) => return self.serve_parts(request, payload).await,
            PeerRequest::Name(request) => self.serve_names(request).await,
            PeerRequest::Inode(request) => self.serve_inodes(request).await,
            PeerRequest::File(request) => self.serve_files(request).await,
            PeerRequest::Link(request) => self.serve_links(request).await,
            PeerRequest::Lock(request) => self.serve_locks(request).await,
            PeerRequest::Directory(request) => self.serve_directories(request).await,
            PeerRequest::Operation(request) => self.serve_operations(request).await,
            PeerRequest::Cache(request) => self.serve_cache(request).await,
            PeerRequest::Server(request) => self.serve_server(&request),
            PeerRequest::Member(_) => Err(not_of_itself()),
        };
        answer.into()
    }

    async fn serve_parts(
        &self,
        request: PartRequest,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Served {
        use PartRequest as R;
        let (node, from) = (&self.node, self.from);
        let answer = match request {
            R::Read { part, offset, len } => return node.read_part(part, offset, len).await,
            R::Write { part, offset, trunc_epoch } => match payload {
                Some(bytes) => node.write_part(part, offset, trunc_epoch, bytes).await,
                None => Err(no_payload()),
            },
            R::WriteGathered { part, offset, trunc_epoch, after } => match payload {
                Some(bytes) => {
                    let place = (part, offset, trunc_epoch);
                    node.write_gathered_part(from, place, bytes, after).await
                }
                None => Err(no_payload()),
            },
            R::Append { ino } => match payload {
                Some(bytes) => node.data.append(ino, bytes).await,
                None => Err(no_payload()),
            },
            R::Truncate { part, len, trunc_epoch } => {
                node.data.truncate(part, len, trunc_epoch).await
            }
            R::Sync { part, data_only } => node.data.sync(part, data_only).await,
            R::Remove { part } => node.data.remove(part),
            R::SyncFiles { inos, only_look } => node.sync_files(inos, only_look).await,
            R::Blocks { part } => node.data.blocks(part),
        };
        answer.into()
    }

    fn serve_server(&self, request: &ServerRequest) -> Answer {
        use ServerRequest as R;
        let node = &self.node;
        match request {
            R::Ping => Ok(PeerReply::Pong),
            R::ProcessGone { process } => {
                node.meta.answers.forget(*process);
                Ok(PeerReply::Done)
            }
            R::StatFs => Ok(PeerReply::StatFs(node.data.usage.here())),
            R::Status => Ok(PeerReply::Status(Box::new(node.status()))),
        }
    }

    async fn serve_names(&self, request: NameRequest) -> Answer {
        use NameRequest as R;
        let (node, from) = (&self.node, self.from);
        let _user = match visit(&request) {
            Some((place, visit)) => match node.names.enter(place, visit, from).await? {
                Here::Yes(user) => user,
                Here::No => return self.name_went(once_of_name(&request)).await,
            },
            None => None,
        };
        match request {
            R::Lookup(place) => node.shard_lookup(from, place).await,
            R::Insert { place, binding, op, once } => {
                node.happen_once(once, node.shard_insert(from, place, (binding, op), once)).await
            }
            R::GiveUpInsert { place, ino, op } => node.names.give_up_insert(place, ino, op).await,
            R::Answered { once } => {
                let unknown = || Refused::new(libc_errno::ENODATA);
                node.meta.answers.answered(Some(once))?.ok_or_else(unknown)
            }
            R::Remove { place, directory, once } => {
                node.happen_once(once, node.shard_remove(from, place, directory, once)).await
            }
            R::Rename { from: old, to, no_replace, once } => {
                node.happen_once(once, node.rename(from, old, to, no_replace, once)).await
            }
            R::RenamePrepare { op, place, to } => node.rename_prepare(op, place, to).await,
            R::RenameFinish { op, place, moved, end, requester } => {
                node.rename_finish(op, place, moved, end, requester).await
            }
            R::RenameOutcome { op, .. } => node.rename_outcome(op).await,
            R::List { dir, cookie, bytes, all: true } => {
                node.names.list_all(dir, cookie, bytes).await
            }
            R::List { dir, cookie, bytes, all: false } => node.meta.list(dir, cookie, bytes),
            R::TakeNames { dir, attempt, first, names, given_up } => {
                node.names.take_names(dir, (attempt, first), names, &given_up).await
            }
            R::SyncNames { bound } => node.names.sync_names(bound).await,
            R::DirFreeze { dir } => node.names.freeze(dir).await,
            R::DirThaw { dir } => node.names.thaw(dir),
            R::InvalName(place) => Ok(node.forget_name(place).await),
        }
    }

    /// The name is at its shard. What was done to it before it went there is answered here.
    async fn name_went(&self, once: Option<OnceId>) -> Answer {
        let node = &self.node;
        match node.meta.answers.answered(once)? {
            Some(answered) => Ok(node.nothing_left_of(answered).await),
            None => Ok(PeerReply::Spread),
        }
    }

    async fn serve_operations(&self, request: OperationRequest) -> Answer {
        use OperationRequest as R;
        let node = &self.node;
        match request {
            R::HasName { ino, place } => node.meta.has_name(ino, &place),
            R::IsSpokenOf { ino, by_renames } => {
                Ok(PeerReply::Outcome(Some(node.meta.intents.is_spoken_of(ino, by_renames))))
            }
            R::Settle { op } => node.settle(op).await.map(|()| PeerReply::Done),
            R::Finished { ops } => {
                node.drop_intents_here(&ops);
                Ok(PeerReply::Done)
            }
            R::RenameLock { op } => Ok(node.rename_lock(op).await),
            R::RenameUnlock { op } => Ok(node.rename_unlock(op)),
        }
    }

    async fn serve_directories(&self, request: DirectoryRequest) -> Answer {
        use DirectoryRequest as R;
        let (node, from) = (&self.node, self.from);
        match request {
            R::Grant { dir } => node.names.dir_grant(from, dir).await,
            R::Free { dir } => {
                node.names.end_sole_maker(dir, None).await;
                node.names.sole_makers.set_free(dir);
                Ok(PeerReply::Done)
            }
            R::Shards { dir } => node.names.dir_shards(dir).await,
            R::Touch(touched) => node.names.dir_touch(&touched),
            R::Parent { dir } => node.meta.dir_parent(dir),
            R::Name { dir } => node.meta.dir_name(dir),
            R::Remove { dir } => node.names.dir_remove(dir).await,
        }
    }

    async fn serve_inodes(&self, request: InodeRequest) -> Answer {
        use InodeRequest as R;
        let (node, from) = (&self.node, self.from);
        match request {
            R::Create { node: new, layout } => {
                node.meta.disk.keep_up().await;
                node.meta.disk.have_numbers(1).await?;
                node.know_path(new.parent).await?;
                node.create_inode(&new, layout, from)
            }
            R::Drop { ino } => node.drop_inode(ino),
            R::GetAttr { ino } => {
                node.settled(ino).await;
                node.get_attr(from, ino)
            }
            R::GetAttrMany(inos) => Ok(node.get_attr_many(from, &inos).await),
            R::SetAttr { ino, change } => node.set_attr(from, ino, change).await,
            R::ReadLink { ino } => node.meta.read_link(ino),
            R::Open { ino, open, truncate } => node.open_inode(from, ino, open, truncate).await,
            R::Close(closes) => node.close_inodes(from, &closes).await,
            R::Overtaken { ino } => {
                node.settled(ino).await;
                node.turns.overtaken(ino);
                node.get_attr(from, ino)
            }
            R::Recall { ino, bits } => {
                // A mount that has not come back since this server was restarted may have files open, and have gathered
                // something.
                node.rpc.grace.own_known().await;
                let (still_open, gave_back) = node.clients.recall(ino, bits).await;
                Ok(PeerReply::Recalled { still_open, gave_back })
            }
            R::GetXattr { ino, name } => node.get_xattr(ino, &name).await,
            R::SetXattr { ino, name, value, mode, once } => {
                let set = node.set_xattr(from, ino, &name, (value, mode), once);
                node.happen_once(once, set).await
            }
            R::ListXattr { ino } => node.list_xattr(ino).await,
            R::RemoveXattr { ino, name, once } => {
                node.happen_once(once, node.remove_xattr(from, ino, &name, once)).await
            }
            R::Fsync { ino, data_only } => node.fsync(ino, data_only).await,
            R::Explain { ino } => node.explain(ino).await,
            R::WhichAreGone(inos) => node.meta.which_are_gone(inos).await,
        }
    }

    async fn serve_links(&self, request: LinkRequest) -> Answer {
        use LinkRequest as R;
        let node = &self.node;
        match request {
            R::LinkInc { ino, place, requester, op } => {
                node.link_inc(ino, place, requester, op).await
            }
            R::LinkDec { ino, place, requester, replaced } => {
                node.link_dec(ino, place, requester, replaced).await
            }
            R::LinkDecLate { ino, place, requester } => {
                node.link_dec_late(ino, place, requester).await
            }
            R::UndoLink { ino, place, requester, op } => {
                node.undo_link((ino, op), &place, requester).await.map(|()| PeerReply::Done)
            }
            R::Relink { ino, op, from: old, to, requester } => {
                node.relink((ino, op), old, to, requester).await
            }
        }
    }

    async fn serve_locks(&self, request: LockRequest) -> Answer {
        use LockRequest as R;
        let (node, from) = (&self.node, self.from);
        let owner = |process, id| LockOwner { node: from, process, id };
        match request {
            R::Lock { ino, process, lock, ticket } => {
                node.wait_for_locks().await?;
                node.lock_here(ino, wish_of(from, process, lock), ticket)
            }
            R::Unlock { ino, process, owner: id, range } => {
                Ok(node.unlock_here(ino, owner(process, id), range))
            }
            R::Test { ino, process, lock } => {
                Ok(node.test_lock_here(ino, &wish_of(from, process, lock)))
            }
            R::Cancel { ino, process, ticket: number } => {
                Ok(node.cancel_lock_here(ino, Ticket { node: from, process, number }))
            }
            R::Release { process } => Ok(node.release_locks_here(from, process)),
            R::Granted { process, ticket } => {
                node.clients.lock_granted(process, ticket).await;
                Ok(PeerReply::Done)
            }
        }
    }

    async fn serve_files(&self, request: FileRequest) -> Answer {
        use FileRequest as R;
        let (node, from) = (&self.node, self.from);
        match request {
            R::Extend { ino, end, trunc_epoch } => node.extend(ino, end, trunc_epoch).await,
            R::SizeOf { ino } => node.size_of(ino).await,
            R::Gather { ino, at, len } => node.let_gather(from, ino, at, len).await,
            R::AppendReserve { ino, len } => node.append_reserve(ino, len).await,
            R::AppendCommit { ino, offset, len, trunc_epoch } => {
                node.append_commit(ino, offset, len, trunc_epoch).await
            }
            R::Allocate { ino, mode, offset, len } => {
                node.allocate(from, ino, mode, offset, len).await
            }
            R::Seek { ino, offset, whence } => node.seek(ino, offset, whence).await,
            R::Recorded { ino, step } => node.recorded_step(ino, step).await,
            R::RecordedIndex { ino, from } => node.recorded_index(ino, from).await,
        }
    }

    async fn serve_cache(&self, request: CacheRequest) -> Answer {
        use CacheRequest as R;
        let (node, from) = (&self.node, self.from);
        match request {
            R::Import { dir, entries, age } => node.import_entries(dir, entries, age).await,
            R::Forget { place, ino } => node.forget_imported(from, place, ino).await,
            R::Check { ino } => node.cache.check(ino).await,
            R::Hold { ino } => node.cache.hold(ino).await,
            R::Move { ino, is_over, over, follows, undo } => {
                node.move_cached(ino, (is_over, over, follows), undo).await
            }
            R::Unlink { ino } => node.cache.unlink(ino),
            R::Bury { place, ino, shown } => node.bury(&place, (ino, shown), true).await,
            R::StillNamed { ino, path, shown } => node.cache.still_named(ino, &path, shown).await,
            R::Tombstones { place, ino } => node.tombstones(&place, ino).await,
            R::Replaced { place, tombstones } => {
                node.tombstones_replaced(&place, &tombstones).await
            }
            R::Clear { dir } => node.clear_directory(dir).await,
            R::Claims { path, except } => node.cache.claims(&path, except).await,
            R::TakeBack { place, gone, ino } => node.give_name_back(&place, gone, ino).await,
            R::Settled { path, before, with_open } => node.has_settled(&path, before, with_open),
            R::Fetch { ino } => node.fetch_all(ino).await,
            R::Flush { ino } => Ok(PeerReply::Flushed(node.flush_now(ino).await?)),
            R::Sync { ino, round } => node.sync_now(ino, round).await,
            R::Evict { ino } => node.evict(ino).await,
        }
    }
}

fn stopped() -> Refused {
    Refused::because(libc_errno::EIO, "this server has stopped")
}

fn no_payload() -> Refused {
    Refused::because(libc_errno::EPROTO, "the bytes of the request are missing")
}

/// What [`crate::rpc::peers`] answers, since it depends on the incarnation that asks.
fn not_of_itself() -> Refused {
    tracing::error!("a server asked itself about its own membership");
    Refused::new(libc_errno::EPROTO)
}
