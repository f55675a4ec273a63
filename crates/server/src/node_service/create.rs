//! A new inode and its name.
//!
//! The inode is made first, at its home, with an intent that it has no name yet; binding the name is
//! the commit point; then the intent goes. Where home and shard are this server, all of it is one
//! transaction.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use hayase_layout::acl::DEFAULT_NAME;
use hayase_layout::placement::{ServerUse, Wish, place};
use hayase_layout::{Acl, Acls, ByteCount, InodeId, Layout, ServerId};
use hayase_store::namespace::Inode;
use hayase_wire::message::{
    Binding, Created, Entry, FileKind, Grants, InodeRequest, LinkRequest, NameRequest, NewNode,
    NodeReply, OnceId, Opened, Opening, ParentPolicy, PeerReply, Place, Refused,
};

use super::NodeAnswer;
use crate::acl::{self, inherit};
use crate::clients::Process;
use crate::convert;
use crate::limits::CREATE_TRIES;
use crate::names::given_up::given_up;
use crate::names::kept_names::Here;
use crate::node::Node;
use crate::refusals::{check_name, libc_errno, unexpected};
use crate::request::Visit;

enum Made {
    New(Entry),
    /// By this very request, which is repeated.
    Before(InodeId),
    Existing(InodeId),
}

impl Node {
    pub(super) async fn create(
        self: &Rc<Self>,
        process: &Rc<Process>,
        node: NewNode,
        once: Option<OnceId>,
    ) -> Result<NodeAnswer, Refused> {
        check_name(&node.name)?;
        self.cache.refuse_name(node.parent, &node.name)?;
        let node = self.know_parent(node).await?;
        self.names.end_sole_maker(node.parent, Some(process.id)).await;
        let (open, parent) = (node.open, node.parent);
        let (mut entry, new) = self.make_or_find(process, &node, once).await?;
        if new {
            self.names.directories.changed_here(parent, self.meta.now());
            // Only the home itself knows when somebody else comes to make names in a directory.
            entry.grants.cache = entry.attr.kind == FileKind::Directory
                && entry.attr.ino.home() == self.me
                && self.names.grant(entry.attr.ino, process);
        }
        let (opened, descriptor) = match open {
            Some(open) if entry.attr.kind == FileKind::Regular => {
                let ino = entry.attr.ino;
                let opened = match new {
                    true => self.open_for(process, ino, open, false).await,
                    false => self.open_old(process, ino, open, false).await,
                };
                let opened = match opened {
                    Err(refused) if new && refused.errno == libc_errno::ESTALE => {
                        self.open_nameless(process, &node, open).await?
                    }
                    other => other?,
                };
                let (opened, descriptor) = opened;
                entry.attr = opened.attr.clone();
                (Some(opened), descriptor)
            }
            _ => (None, None),
        };
        let reply = NodeReply::Created(Box::new(Created { entry, new, opened }));
        Ok(NodeAnswer { descriptor, ..reply.into() })
    }

    /// With the policy and the default list of the directory, which who asks may not know.
    async fn know_parent(self: &Rc<Self>, node: NewNode) -> Result<NewNode, Refused> {
        if node.policy != ParentPolicy::Unknown {
            return Ok(node);
        }
        let (policy, acls) = match node.parent.home() == self.me {
            true => self.meta.inode(node.parent).map(|inode| (inode.policy, inode.acls))?,
            false => {
                self.entry(node.parent).await.map(|found| (found.attr.policy, found.attr.acls))?
            }
        };
        let acls = match acls {
            Some(acls) if acls.in_tier => self.default_list(node.parent).await?,
            acls => acls,
        };
        let node = inherit(node, acls.as_deref());
        Ok(NewNode { policy: ParentPolicy::Known(policy), ..node })
    }

    /// Of a directory that was taken from a tier, of whose lists its home does not know yet.
    async fn default_list(self: &Rc<Self>, dir: InodeId) -> Result<Option<Box<Acls>>, Refused> {
        let name = DEFAULT_NAME.to_vec();
        match self.rpc.ask(dir.home(), InodeRequest::GetXattr { ino: dir, name }).await {
            Ok(PeerReply::Value(value)) => {
                let default = Acl::parse(&value).map_err(acl::refused)?;
                Ok(Acls { default, ..Acls::default() }.kept())
            }
            Ok(other) => Err(unexpected(&other)),
            Err(refused) if refused.errno == libc_errno::ENODATA => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// A new file, or the one that has this name. True: it is new.
    async fn make_or_find(
        self: &Rc<Self>,
        process: &Process,
        node: &NewNode,
        once: Option<OnceId>,
    ) -> Result<(Entry, bool), Refused> {
        for _ in 0..CREATE_TRIES {
            let found = match node.parent.is_cached() {
                true => self.before_create(node).await?,
                false => None,
            };
            let made = match found {
                Some(found) => Made::Existing(found.ino),
                None => self.make(process, node.clone(), once).await?,
            };
            let existing = match made {
                Made::New(entry) => return Ok((entry, true)),
                Made::Before(ino) => return Ok((self.made_before(node, ino).await?, true)),
                Made::Existing(_) if node.exclusive => {
                    return Err(Refused::new(libc_errno::EEXIST));
                }
                Made::Existing(ino) => self.entry(ino).await,
            };
            match existing {
                // Removed since its name was looked at.
                Err(refused) if refused.errno == libc_errno::ESTALE => {}
                other => return other.map(|entry| (entry, false)),
            }
        }
        Err(Refused::new(libc_errno::ESTALE))
    }

    /// The request has happened already. What it made may be gone by now, and was there all the same.
    async fn made_before(self: &Rc<Self>, node: &NewNode, ino: InodeId) -> Result<Entry, Refused> {
        match self.entry(ino).await {
            Err(refused) if refused.errno == libc_errno::ESTALE => {
                let inode = Inode { nlink: 0, ..self.meta.new_record(node, Layout::None, ino) };
                Ok(Entry { attr: convert::attr_of_record(&inode), grants: Grants::NONE })
            }
            other => other,
        }
    }

    /// The file of a create that has happened was removed by others before its answer came, and nobody
    /// had it open: a file without a name is what is open then. (Refused, the kernel would make the
    /// name once more, or find what others have made under it since.)
    async fn open_nameless(
        self: &Rc<Self>,
        process: &Rc<Process>,
        node: &NewNode,
        open: Opening,
    ) -> Result<(Opened, Option<OwnedFd>), Refused> {
        if node.parent.is_cached() {
            // What the tier has under the name would have to be told apart: the kernel looks again.
            return Err(Refused::new(libc_errno::ESTALE));
        }
        let (home, layout) = self.place_new(node).await?;
        let request = InodeRequest::Create { node: node.clone(), layout };
        let ino = match self.rpc.ask(home, request).await? {
            PeerReply::Attr { attr, .. } => attr.ino,
            other => return Err(unexpected(&other)),
        };
        // Until it is open and without its name, the intent lets the home collect it.
        let (mut opened, descriptor) = self.open_for(process, ino, open, false).await?;
        let place = Place { parent: node.parent, name: node.name.clone() };
        let requester = self.node;
        let unnamed = LinkRequest::LinkDec { ino, place, requester, replaced: false };
        self.rpc.ask(home, unnamed).await?;
        self.finished(home, ino.0);
        opened.attr.nlink = 0;
        opened.grants = Grants::NONE;
        Ok((opened, descriptor))
    }

    async fn make(
        self: &Rc<Self>,
        process: &Process,
        node: NewNode,
        once: Option<OnceId>,
    ) -> Result<Made, Refused> {
        let (home, layout) = self.place_new(&node).await?;
        let place = Place { parent: node.parent, name: node.name.clone() };
        if home == self.me
            && self.names.shard_of(node.parent, &node.name) == self.me
            && let Here::Yes(_user) = self.names.enter(&place, Visit::Makes, self.node).await?
        {
            process.once_at.borrow_mut().insert(self.me);
            return self.make_here(&node, layout, &place, once).await;
        }
        for _ in 0..CREATE_TRIES {
            let (node, layout) = (node.clone(), layout.clone());
            if let Some(made) = self.make_apart(home, node, layout, once).await? {
                return Ok(made);
            }
        }
        Err(given_up())
    }

    /// The inode at its home, then the name at its shard. `None`: the home did not wait for the name.
    async fn make_apart(
        self: &Rc<Self>,
        home: ServerId,
        node: NewNode,
        layout: Layout,
        once: Option<OnceId>,
    ) -> Result<Option<Made>, Refused> {
        let place = Place { parent: node.parent, name: node.name.clone() };
        let request = InodeRequest::Create { node, layout };
        let (attr, grants) = match self.rpc.ask(home, request).await? {
            PeerReply::Attr { attr, grants } => (attr, grants),
            other => return Err(unexpected(&other)),
        };
        let (ino, binding) = (attr.ino, Binding { ino: attr.ino, kind: attr.kind });
        let insert = NameRequest::Insert { place: place.clone(), binding, op: ino.0, once };
        let named = self.names.ask_shard(&place, insert).await.map(|(_, reply)| reply);
        if named == Ok(PeerReply::Bound(binding)) {
            self.finished(home, ino.0);
            return Ok(Some(Made::New(self.received(attr, grants))));
        }
        // Whether it is bound is not known: the intent lets the home find out.
        if named.as_ref().is_err_and(|refused| refused.errno == libc_errno::EIO) {
            if home == self.me {
                self.finish_later([ino.0]);
            }
            return Err(named.expect_err("just seen"));
        }
        self.rpc.ask(home, InodeRequest::Drop { ino }).await?;
        match named? {
            PeerReply::Exists(binding) => Ok(Some(Made::Existing(binding.ino))),
            PeerReply::Stale => Ok(None),
            // Asked before, by this server's former incarnation.
            PeerReply::Bound(earlier) => Ok(Some(Made::Before(earlier.ino))),
            other => Err(unexpected(&other)),
        }
    }

    /// Home and shard are this server: one transaction.
    async fn make_here(
        self: &Rc<Self>,
        node: &NewNode,
        layout: Layout,
        place: &Place,
        once: Option<OnceId>,
    ) -> Result<Made, Refused> {
        self.meta.disk.keep_up().await;
        self.meta.disk.have_numbers(1).await?;
        self.names.may_change(place.parent, self.node).await?;
        let _held = self.names.hold_name(place).await?;
        self.names.hold_dir(place.parent).await?;
        if let Some(PeerReply::Bound(earlier)) = self.meta.answers.answered(once)? {
            return Ok(Made::Before(earlier.ino));
        }
        if let Some(existing) = self.meta.bound(place)? {
            return Ok(Made::Existing(existing.ino));
        }
        self.know_path(place.parent).await?;
        let inode = self.meta.new_inode(node, layout)?;
        self.store_inode(node, &inode, Some(once))?;
        self.cache.is_there_now(place);
        self.names.directories.looked_up(place.clone(), self.node);
        self.names.touch_dir(place.parent);
        let grants = self.home_attributes(inode.ino, self.node);
        // A file that is opened in the same step is looked at then.
        let attr = match node.open {
            Some(_) if node.kind == FileKind::Regular => convert::attr_of_record(&inode),
            _ => self.attr_of(&inode)?,
        };
        Ok(Made::New(self.received(attr, grants)))
    }

    /// Which server is the home of a new inode, and how its bytes will lie.
    async fn place_new(self: &Rc<Self>, node: &NewNode) -> Result<(ServerId, Layout), Refused> {
        let layout = if node.kind == FileKind::Regular { Layout::Whole } else { Layout::None };
        let own = self.rpc.own_storage();
        if node.parent.owner().is_some() {
            return Ok((node.parent.home(), layout));
        }
        // Without a policy a file of the cache area lies whole on one node: the flusher reads it there.
        let in_one = node.parent.is_cached();
        let policy = node.policy.known();
        let is_roomy = || own == self.me && policy.is_none() && self.data.usage.is_roomy();
        if layout == Layout::None || is_roomy() {
            return Ok((own, layout));
        }
        let table: Vec<_> = self
            .usage_of_all()
            .await
            .into_iter()
            .map(|(server, usage)| ServerUse {
                server,
                total: ByteCount(usage.total),
                free: ByteCount(usage.free),
            })
            .collect();
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        let wish = Wish { local: Some(own), policy, in_one, size: None, turn };
        let decision = place(&wish, &table)
            .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
        match (decision.home(), decision.into_layout()) {
            (Some(home), Some(layout)) => Ok((home, layout)),
            _ => Err(Refused::because(
                libc_errno::ENOSPC,
                "no server has room for a new file: remove files, or start the job with a larger --shared",
            )),
        }
    }
}
