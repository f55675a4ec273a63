//! Names and attributes, for a process of this node: asks shard and home, and puts answers together.

use std::collections::BTreeSet;
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    Attr, Binding, Entry, FileKind, Grants, InodeRequest, LinkRequest, MetaChange, Name,
    NameRequest, NodeReply, OnceId, OperationRequest, PeerReply, Place, Refused,
};

use super::{NodeAnswer, Rest, Served};
use crate::clients::Process;
use crate::home::ATTR;
use crate::limits::{CREATE_TRIES, LOOKUP_RETRIES};
use crate::names::given_up::given_up;
use crate::names::kept_names::Here;
use crate::node::Node;
use crate::refusals::{check_name, libc_errno, unexpected};
use crate::request::Visit;

impl Node {
    /// Attributes from the home, with what this node knows better.
    pub(crate) async fn entry(self: &Rc<Self>, ino: InodeId) -> Result<Entry, Refused> {
        match self.rpc.ask(ino.home(), InodeRequest::GetAttr { ino }).await? {
            PeerReply::Attr { attr, grants } => Ok(self.received(attr, grants)),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn received(&self, mut attr: Attr, grants: Grants) -> Entry {
        if attr.kind == FileKind::Directory
            && let Some(at) = self.names.directories.change_here(attr.ino, self.meta.now())
            && at > attr.mtime
        {
            // The home has not been told yet; this node's own processes must not notice.
            (attr.mtime, attr.ctime) = (at, attr.ctime.max(at));
        }
        if attr.kind == FileKind::Regular {
            self.files.learn(&attr);
        }
        Entry { attr, grants }
    }

    pub(super) async fn lookup(self: &Rc<Self>, parent: InodeId, name: Name) -> Served {
        if name.len() > 255 {
            return Err(Refused::new(libc_errno::ENAMETOOLONG));
        }
        if self.cache.get().is_some() && parent == InodeId::ROOT && name == crate::cache::CACHE_NAME
        {
            return Ok(NodeReply::Entry(self.entry(InodeId::CACHE_ROOT).await?));
        }
        let place = Place { parent, name };
        let mut gone = None;
        for _ in 0..LOOKUP_RETRIES {
            let bound =
                match self.names.ask_shard(&place, NameRequest::Lookup(place.clone())).await? {
                    (_, PeerReply::Bound(binding)) => binding,
                    (_, other) => return Err(unexpected(&other)),
                };
            if !self.is_as_in_tier(&place, bound).await? {
                continue;
            }
            let bound = bound.ino;
            if gone == Some(bound) {
                return Err(Refused::new(libc_errno::ENOENT));
            }
            match self.entry(bound).await {
                Ok(entry) => return Ok(NodeReply::Entry(entry)),
                // Removed between the two questions, or replaced: then the name is another's now.
                Err(refused) if refused.errno == libc_errno::ESTALE => gone = Some(bound),
                Err(refused) => return Err(refused),
            }
        }
        Err(Refused::new(libc_errno::ESTALE))
    }

    pub(super) async fn get_attributes(self: &Rc<Self>, ino: InodeId) -> Served {
        let Entry { attr, grants } = self.entry(ino).await?;
        Ok(NodeReply::Attr { attr, grants })
    }

    pub(super) async fn set_attributes(
        self: &Rc<Self>,
        ino: InodeId,
        change: MetaChange,
    ) -> Served {
        if change.policy.is_some() && ino.owner().is_some() {
            let why = "a private tree is on one server: its files have no stripes";
            return Err(Refused::because(libc_errno::EOPNOTSUPP, why));
        }
        if let Some(Some(policy)) = change.policy {
            policy
                .check(self.groups.count())
                .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
        }
        if ino.is_cached() && change.size.is_some_and(|size| size > 0) {
            self.fetch_for_writing(ino).await?;
        }
        let mut answer = self.rpc.ask(ino.home(), InodeRequest::SetAttr { ino, change }).await;
        // Cut to nothing while it was being fetched.
        while ino.is_cached()
            && answer.as_ref().is_err_and(|refused| refused.errno == libc_errno::EAGAIN)
        {
            self.fetch_for_writing(ino).await?;
            answer = self.rpc.ask(ino.home(), InodeRequest::SetAttr { ino, change }).await;
        }
        if answer == Ok(PeerReply::Stale) {
            self.make_whole_at_home(ino, change.size).await?;
            answer = self.rpc.ask(ino.home(), InodeRequest::SetAttr { ino, change }).await;
        }
        match answer? {
            PeerReply::Attr { attr, grants } => {
                if change.mtime.is_some() {
                    self.names.directories.time_is_set_here(ino);
                }
                let Entry { attr, grants } = self.received(attr, grants);
                Ok(NodeReply::Attr { attr, grants })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn link(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        (parent, name): (InodeId, Name),
        once: Option<OnceId>,
    ) -> Served {
        check_name(&name)?;
        check_tree(ino, parent)?;
        self.cache.refuse_name(parent, &name)?;
        if ino.is_cached() || parent.is_cached() {
            let why = "the cache area has no hard links";
            return Err(Refused::because(libc_errno::EPERM, why));
        }
        self.names.end_sole_maker(parent, Some(process.id)).await;
        let place = Place { parent, name };
        for attempt in 0..CREATE_TRIES {
            // The same when it is asked again: the home knows that this name is ours.
            let op = once.map_or_else(
                || self.meta.intents.operation_id(),
                |once| link_operation(once, attempt),
            );
            if let Some(linked) = self.link_as(op, ino, place.clone(), once).await? {
                return Ok(linked);
            }
        }
        Err(given_up())
    }

    /// Counted by the home, then bound by the shard. `None`: the home did not wait for the name.
    async fn link_as(
        self: &Rc<Self>,
        op: u64,
        ino: InodeId,
        place: Place,
        once: Option<OnceId>,
    ) -> Result<Option<NodeReply>, Refused> {
        let (parent, requester) = (place.parent, self.node);
        let counted = LinkRequest::LinkInc { ino, place: place.clone(), requester, op };
        let (attr, grants) = match self.rpc.ask(ino.home(), counted).await {
            Ok(PeerReply::Attr { attr, grants }) => (attr, grants),
            Ok(other) => return Err(unexpected(&other)),
            Err(refused) => {
                return self.linked_before(ino, &place, once, refused).await.map(Some);
            }
        };
        let binding = Binding { ino, kind: attr.kind };
        let insert = NameRequest::Insert { place: place.clone(), binding, op, once };
        let inserted = self.names.ask_shard(&place, insert).await.map(|(_, reply)| reply);
        match inserted {
            Ok(PeerReply::Bound(_)) => {
                self.finished(ino.home(), op);
                self.names.directories.changed_here(parent, self.meta.now());
                Ok(Some(NodeReply::Entry(self.received(attr, grants))))
            }
            // Whether it is bound is not known: the intent lets the home find out.
            Err(refused) if refused.errno == libc_errno::EIO => Err(refused),
            // Only the home that gave it up knows whether the count is another's by now.
            Ok(PeerReply::Stale) => {
                self.rpc.ask(ino.home(), OperationRequest::Settle { op }).await?;
                Ok(None)
            }
            other => {
                let undo = LinkRequest::UndoLink { ino, place, requester, op };
                self.rpc.ask(ino.home(), undo).await?;
                match other? {
                    PeerReply::Exists(_) => Err(Refused::new(libc_errno::EEXIST)),
                    other => Err(unexpected(&other)),
                }
            }
        }
    }

    /// The home counts the name already: because this very request happened before?
    async fn linked_before(
        self: &Rc<Self>,
        ino: InodeId,
        place: &Place,
        once: Option<OnceId>,
        refused: Refused,
    ) -> Served {
        let Some(once) = once.filter(|_| refused.errno == libc_errno::EEXIST) else {
            return Err(refused);
        };
        // At the home of the directory, if its names were spread since.
        let shard = self.names.shard_by_hash(place.parent, &place.name);
        for shard in BTreeSet::from([shard, place.parent.home()]) {
            if let Ok(PeerReply::Bound(_)) =
                self.rpc.ask(shard, NameRequest::Answered { once }).await
            {
                return Ok(NodeReply::Entry(self.entry(ino).await?));
            }
        }
        Err(refused)
    }

    /// `process`: whose deed it is; none for the server's own.
    pub(crate) async fn remove(
        self: &Rc<Self>,
        process: Option<&Process>,
        parent: InodeId,
        name: Name,
        directory: bool,
        once: Option<OnceId>,
    ) -> Result<NodeAnswer, Refused> {
        let place = Place { parent, name };
        self.cache.refuse_name(parent, &place.name)?;
        if parent.is_cached() {
            self.before_remove(&place, directory).await?;
        }
        self.names.end_sole_maker(parent, process.map(|process| process.id)).await;
        let (shard, removed) = self.remove_at_shard(&place, directory, once).await?;
        let (ino, rest) = match removed {
            PeerReply::Bound(binding) => (binding.ino, None),
            PeerReply::Unbound { binding: Binding { ino, .. }, op } => {
                (ino, self.take_removed_link(ino, place, (shard, op)).await)
            }
            other => return Err(unexpected(&other)),
        };
        self.names.directories.changed_here(parent, self.meta.now());
        Ok(NodeAnswer { rest, ..NodeReply::Removed { ino }.into() })
    }

    /// The name is gone; `op` lets its shard take the link later, should we not. At this home the
    /// others have given back what they know of the inode when this returns, and the link is the rest.
    async fn take_removed_link(
        self: &Rc<Self>,
        ino: InodeId,
        place: Place,
        (shard, op): (ServerId, u64),
    ) -> Option<Rest> {
        let requester = self.node;
        let taken_later = move |error| tracing::warn!(%ino, %error, "a link is taken later");
        if ino.home() != self.me || ino.is_cached() || !self.rpc.grace.is_over() {
            let unlink = LinkRequest::LinkDec { ino, place, requester, replaced: false };
            match self.rpc.ask(ino.home(), unlink).await {
                Ok(_) => self.finished(shard, op),
                Err(error) => taken_later(error),
            }
            return None;
        }
        let (this, change) = (Rc::clone(self), self.home_change(ino, requester, ATTR).await);
        Some(Box::new(move || {
            match this.unlink_in(this.meta.begin(), ino, &place, requester, false) {
                Ok(()) => this.finished(shard, op),
                Err(error) => taken_later(error),
            }
            drop(change);
        }))
    }

    /// Asks the shard; where that is this server, without the box that any request has room in.
    async fn remove_at_shard(
        self: &Rc<Self>,
        place: &Place,
        directory: bool,
        once: Option<OnceId>,
    ) -> Result<(ServerId, PeerReply), Refused> {
        let place_of = || place.clone();
        if self.rpc.grace.is_over()
            && self.names.shard_of(place.parent, &place.name) == self.me
            && let Here::Yes(_user) = self.names.enter(place, Visit::Ends, self.node).await?
        {
            self.clients.remembers_answer(self.me, once);
            let removal = self.shard_remove(self.node, place_of(), directory, once);
            return Ok((self.me, self.happen_once(once, removal).await?));
        }
        self.names
            .ask_shard(place, NameRequest::Remove { place: place_of(), directory, once })
            .await
    }

    pub(super) async fn move_name(
        self: &Rc<Self>,
        process: &Process,
        (from, to): ((InodeId, Name), (InodeId, Name)),
        no_replace: bool,
        exchange: bool,
        once: Option<OnceId>,
    ) -> Served {
        if exchange {
            return Err(Refused::because(libc_errno::EINVAL, "RENAME_EXCHANGE is not offered"));
        }
        check_tree(from.0, to.0)?;
        self.names.end_sole_maker(from.0, Some(process.id)).await;
        self.names.end_sole_maker(to.0, Some(process.id)).await;
        let from = Place { parent: from.0, name: from.1 };
        let to = Place { parent: to.0, name: to.1 };
        self.cache.refuse_name(from.parent, &from.name)?;
        self.cache.refuse_name(to.parent, &to.name)?;
        if from.parent.is_cached() != to.parent.is_cached() {
            return Err(Refused::new(libc_errno::EXDEV));
        }
        let parents = (from.parent, to.parent);
        let rename = NameRequest::Rename { from, to: to.clone(), no_replace, once };
        match self.names.ask_shard(&to, rename).await? {
            (_, PeerReply::Renamed { moved, replaced }) => {
                let now = self.meta.now();
                self.names.directories.changed_here(parents.0, now);
                self.names.directories.changed_here(parents.1, now);
                Ok(NodeReply::Renamed { moved, replaced })
            }
            (_, other) => Err(unexpected(&other)),
        }
    }
}

/// Names do not cross from `shared` into a private tree, or out of it: as between two mounts.
fn check_tree(of: InodeId, into: InodeId) -> Result<(), Refused> {
    match of.owner() == into.owner() {
        true => Ok(()),
        false => Err(Refused::new(libc_errno::EXDEV)),
    }
}

/// The operation of a link that happens once: the same for each repetition (splitmix64), another for
/// each attempt that the home gave up.
fn link_operation(once: OnceId, attempt: usize) -> u64 {
    let mix = |number: u64| {
        let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    };
    let place = mix(once.process.wrapping_add(u64::from(once.slot)));
    let number = mix(place.wrapping_add(once.number)).wrapping_add(attempt as u64);
    mix(number) | 1 << 47 // unlike any inode
}
