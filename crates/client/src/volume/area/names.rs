//! Names.

use std::sync::Arc;
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::{Entry, Grants, Name, NewNode, NodeReply, NodeRequest, Refused};

use super::attributes::Attributes;
use super::gathering::Gatherer;
use super::known::{Asked, Known, wall_clock};
use super::opens::Opens;
use super::requests::Requests;
use crate::grants::Stamp;
use crate::link::{HandOver, Handed, LinkError};
use crate::made_names::{self, Change, MadeNames};
use crate::volume::{Awaited, Found, Listed, Told};

/// Looks names up, and changes them.
pub(super) struct Names {
    pub(super) known: Arc<Known>,
    pub(super) requests: Requests,
    pub(super) made: Arc<MadeNames>,
    pub(super) opens: Arc<Opens>,
    pub(super) gatherer: Arc<Gatherer>,
    pub(super) attributes: Arc<Attributes>,
}

impl Names {
    pub(super) fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        match self.made.find(parent, name) {
            made_names::Known::Absent => return Err(Refused::new(libc::ENOENT)),
            made_names::Known::Bound(ino) => match self.attributes.attributes_of_named(ino) {
                // It ended meanwhile, by somebody else's deed.
                Err(refused) if refused.errno == libc::ESTALE => {}
                found => return found,
            },
            made_names::Known::Nothing => {}
        }
        self.attributes
            .told_of_file(self.known.removals().concern_files(), || self.ask_name(parent, name))
    }

    fn ask_name(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        let (asked, gathers) = (self.known.asked(), self.gatherer.is_any());
        match self.requests.call(&NodeRequest::Lookup { parent, name: name.to_vec() })?.message {
            NodeReply::Entry(entry)
                if gathers && self.gatherer.may_lack_gathered(entry.attr.ino, asked) =>
            {
                self.gatherer.hand_on_untold(entry.attr.ino)?;
                self.attributes.ask_attributes(entry.attr.ino)
            }
            NodeReply::Entry(entry) => Ok(self.known.found(asked, entry.attr, entry.grants)),
            other => Err(LinkError::unexpected("Lookup", &other).into()),
        }
    }

    pub(super) fn make(&self, mut node: NewNode) -> Result<Found, Refused> {
        let parent = node.parent;
        node.exclusive = true;
        node.open = None;
        let name = node.name.clone();
        self.made.add(parent, &name);
        let (asked, before) = (self.known.asked(), wall_clock());
        let answer = self.requests.call(&NodeRequest::Create(node));
        self.known.entries_changed(parent, before);
        match answer?.message {
            NodeReply::Created(created) => {
                let Entry { attr, grants } = created.entry;
                self.made.bound(parent, &name, attr.ino);
                self.know_names(asked, attr.ino, grants);
                Ok(self.known.found(asked, attr, grants))
            }
            other => Err(LinkError::unexpected("Create", &other).into()),
        }
    }

    /// A new directory that this mount may know all names of, unless that was taken back meanwhile.
    fn know_names(&self, asked: Asked, dir: InodeId, grants: Grants) {
        if !grants.cache {
            return;
        }
        let shard = self.known.table().lock(dir);
        if shard.stamps.may_keep(dir, asked.stamp) {
            self.made.begin(dir);
        }
    }

    pub(super) fn link_name(
        &self,
        ino: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> Result<Found, Refused> {
        self.gatherer.hand_on_untold(ino)?;
        self.made.add(parent, name);
        let (asked, before) = (self.known.asked(), wall_clock());
        let answer = self.requests.call(&NodeRequest::Link { ino, parent, name: name.to_vec() });
        self.known.entries_changed(parent, before);
        match answer.map(|reply| reply.message) {
            Ok(NodeReply::Entry(Entry { attr, grants }) | NodeReply::Attr { attr, grants }) => {
                self.made.bound(parent, name, ino);
                Ok(self.known.learn_changed(asked, attr, grants))
            }
            Ok(other) => {
                self.known.changed(ino);
                Err(LinkError::unexpected("Link", &other).into())
            }
            Err(refused) => {
                self.known.changed(ino);
                Err(refused)
            }
        }
    }

    pub(super) fn remove(
        &self,
        parent: InodeId,
        name: &[u8],
        directory: bool,
    ) -> Result<(), Refused> {
        let change = self.made.unsure(parent, name);
        let request = NodeRequest::Remove { parent, name: name.to_vec(), directory };
        let before = wall_clock();
        let answer = self.requests.link().call(&request).map(|reply| reply.message);
        self.known.entries_changed(parent, before);
        self.removal_answered(parent, name, change, answer)
    }

    fn removal_answered(
        &self,
        parent: InodeId,
        name: &[u8],
        change: Change,
        answer: Result<NodeReply, LinkError>,
    ) -> Result<(), Refused> {
        match answer? {
            NodeReply::Removed { ino } => {
                self.removed(parent, name, change, ino);
                Ok(())
            }
            other => Err(LinkError::unexpected("Remove", &other).into()),
        }
    }

    /// A name of `ino` is gone.
    fn removed(&self, parent: InodeId, name: &[u8], change: Change, ino: InodeId) {
        self.made.removed(parent, name, change);
        self.made.end(ino);
        self.unnamed(ino);
    }

    pub(super) fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        let (source, target) = (from.0, to.0);
        self.made.unsure(from.0, &from.1);
        self.made.add(to.0, &to.1);
        let before = wall_clock();
        let answer = self.requests.call(&NodeRequest::Rename { from, to, no_replace, exchange });
        self.known.entries_changed(source, before);
        self.known.entries_changed(target, before);
        match answer?.message {
            NodeReply::Renamed { moved, replaced } => {
                self.known.changed(moved);
                if let Some(replaced) = replaced {
                    self.unnamed(replaced);
                }
                Ok(())
            }
            other => Err(LinkError::unexpected("Rename", &other).into()),
        }
    }

    /// An inode lost a name by this node's deed: what lingers of it must not keep its bytes.
    fn unnamed(&self, ino: InodeId) {
        let mut shard = self.known.table().lock(ino);
        self.known.stamp(&mut shard, ino);
        shard.attributes.remove(ino);
        if let Some(node) = shard.nodes.get_mut(&ino) {
            node.open.unnamed(Instant::now());
        }
        self.opens.queue(&mut shard, ino);
    }

    pub(super) fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        let (asked, gathers) = (self.known.asked(), self.gatherer.is_any());
        let request = NodeRequest::ReadDir { dir, cookie, bytes, plus };
        let entries = match self.requests.call(&request)?.message {
            NodeReply::Entries(entries) => entries,
            other => return Err(LinkError::unexpected("ReadDir", &other).into()),
        };
        let listed = |mut entry: hayase_wire::message::DirEntry| {
            if gathers && self.gatherer.may_lack_gathered(entry.ino, asked) {
                entry.entry = None; // To be asked for alone, when all is handed on.
            }
            let stamp = match &mut entry.entry {
                Some(known) => self.known.learn(asked, &mut known.attr, known.grants),
                None => Stamp::NEVER,
            };
            Listed { entry, stamp }
        };
        Ok(entries.into_iter().map(listed).collect())
    }

    /// As [`crate::Volume::hand_over_removal`].
    pub(super) fn hand_over_removal(
        self: &Arc<Self>,
        parent: InodeId,
        name: &[u8],
        Awaited { unique, answer }: Awaited,
    ) {
        let change = self.made.unsure(parent, name);
        self.known.removals().begin(parent);
        // Before it happens: the kernel may ask for the directory before this process hears of it.
        self.known.entries_changed(parent, wall_clock());
        let request = NodeRequest::Remove { parent, name: name.to_vec(), directory: false };
        let (this, name) = (Arc::clone(self), name.to_vec());
        let end = move |handed| {
            let told = match handed {
                Handed::Told(ino) => {
                    this.removed(parent, &name, change, ino);
                    Told::ByServer
                }
                Handed::Answered(answer) => {
                    Told::Nothing(this.removal_answered(parent, &name, change, answer))
                }
                Handed::NotTaken => Told::NotTaken,
            };
            // What the directory looked like may have been asked for before it happened.
            this.known.stamp(&mut this.known.table().lock(parent), parent);
            this.known.removals().end(parent);
            answer(told);
        };
        self.requests.link().hand_over(HandOver { unique, request, end: Box::new(end) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayase_wire::message::{FileKind, ParentPolicy, TimeSpec};

    use super::*;
    use crate::link::Link;
    use crate::testing::FakeServer;
    use crate::testing::server::Parts;
    use crate::volume::Volume;
    use crate::{AreaSettings, AreaVolume};

    fn new_node(parent: InodeId, name: &str, kind: FileKind) -> NewNode {
        NewNode {
            parent,
            name: name.into(),
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            policy: ParentPolicy::Unknown,
            acls: None,
            exclusive: true,
            open: None,
        }
    }

    /// What is estimated until the home is asked again must not be newer than what it says then.
    #[test]
    fn times_of_a_directory_do_not_go_back_when_the_home_is_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let server = Arc::new(FakeServer::new(directory.path().to_owned(), Parts::Here));
        let link = Arc::clone(&server) as Arc<dyn Link>;
        let volume = AreaVolume::new(link, AreaSettings::mount()).unwrap();
        let dir = volume.make(new_node(InodeId::ROOT, "dir", FileKind::Directory)).unwrap().attr;
        let other = volume.make(new_node(InodeId::ROOT, "other", FileKind::Directory)).unwrap();
        let mut told = (dir.mtime, dir.ctime);
        let mut check = |what: &str| {
            let estimated = volume.attributes(dir.ino).unwrap().attr;
            let answer = server.call(&NodeRequest::GetAttr { ino: dir.ino }).unwrap().message;
            let NodeReply::Attr { attr: known, .. } = answer else { panic!("{answer:?}") };
            let times = |mtime: TimeSpec, ctime: TimeSpec| [told.0, mtime, ctime].is_sorted();
            assert!(times(estimated.mtime, known.mtime), "{what}: {estimated:?} {known:?}");
            assert!(times(estimated.ctime, known.ctime), "{what}: {estimated:?} {known:?}");
            told = (estimated.mtime, estimated.ctime);
        };
        for round in 0..20 {
            let name = format!("file-{round}");
            let file = volume.make(new_node(dir.ino, &name, FileKind::Fifo)).unwrap();
            check("mknod");
            let (from, to) = ((dir.ino, name.into()), (other.attr.ino, b"moved".to_vec()));
            volume.rename(from, to, false, false).unwrap();
            check("rename");
            volume.link(file.attr.ino, dir.ino, b"linked").unwrap();
            check("link");
            volume.remove(dir.ino, b"linked", false).unwrap();
            check("unlink");
        }
    }
}
