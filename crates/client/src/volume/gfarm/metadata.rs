//! What the metadata server is asked, and what is remembered of its answers.

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Answer, Lanes, Request, Stat, Time};
use hayase_wire::message::Refused;

use super::listings::Listings;
use super::look_ahead::LookAhead;
use super::nodes::{Node, Nodes};
use super::refused;
use super::shown::shown;
use crate::grants::{Moments, Stamp};
use crate::volume::Found;

/// One for all parts of a volume.
pub(super) struct Metadata {
    lanes: Lanes,
    nodes: Nodes,
    listings: Listings,
    look_ahead: LookAhead,
    /// Answers may be kept for a while; opens look whether they still hold.
    stamp: Stamp,
}

impl Metadata {
    /// Of the directory `path`, whose attributes are `root`.
    pub(super) fn new(lanes: Lanes, path: &[u8], root: Stat) -> Self {
        Self {
            lanes,
            nodes: Nodes::new(path, root),
            listings: Listings::default(),
            look_ahead: LookAhead::default(),
            stamp: Moments::default().now(),
        }
    }

    pub(super) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    pub(super) fn listings(&self) -> &Listings {
        &self.listings
    }

    pub(super) fn look_ahead(&self) -> &LookAhead {
        &self.look_ahead
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// A request without an answer.
    pub(super) fn done(&self, request: &Request) -> Result<(), Refused> {
        self.lanes.call(request, &[]).map(drop).map_err(refused)
    }

    pub(super) fn bytes(&self, request: &Request) -> Result<Vec<u8>, Refused> {
        self.lanes.call(request, &[]).map(|(_, bytes)| bytes).map_err(refused)
    }

    pub(super) fn stat(&self, path: Vec<u8>) -> Result<Stat, Refused> {
        match self.lanes.call(&Request::Stat { path }, &[]).map_err(refused)? {
            (Answer::Stat(stat), _) => Ok(stat),
            _ => Err(Refused::because(libc::EIO, "no attributes came")),
        }
    }

    pub(super) fn found(&self, node: &Node) -> Found {
        Found { attr: shown(node.ino, &node.lock()), stamp: self.stamp }
    }

    /// Where it is, and what is there; `ESTALE` when that is something else. What is done by this path hits another
    /// file only when another host puts it there between the two.
    pub(super) fn look_at(&self, node: &Node) -> Result<(Vec<u8>, Stat), Refused> {
        let path = self.nodes.path(node.ino)?;
        let stat = self.stat(path.clone()).map_err(|why| self.gone(why))?;
        match stat.ino == node.gfarm {
            true => Ok((path, stat)),
            false => Err(self.replaced("another host put another file there")),
        }
    }

    pub(super) fn own_path(&self, node: &Node) -> Result<Vec<u8>, Refused> {
        self.look_at(node).map(|(path, _)| path)
    }

    /// As the directory is at some moment during the call; `most` names of it.
    pub(super) fn entries(
        &self,
        dir: InodeId,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, Stat)>, Refused> {
        let request = Request::List { path: self.nodes.path(dir)?, most };
        match self.lanes.call(&request, &[]).map_err(refused)? {
            (Answer::Entries(entries), _) => Ok(entries),
            _ => Err(Refused::because(libc::EIO, "no entries came")),
        }
    }

    /// Of an inode whose name is gone, on another host: the kernel looks the name up again, and gets what is
    /// true then.
    pub(super) fn gone(&self, why: Refused) -> Refused {
        if why.errno != libc::ENOENT {
            return why;
        }
        self.look_ahead.changed();
        Refused { errno: libc::ESTALE, ..why }
    }

    /// Another host put something else under the name of an inode: the same.
    pub(super) fn replaced(&self, why: &str) -> Refused {
        self.look_ahead.changed();
        Refused::because(libc::ESTALE, why)
    }

    pub(super) fn names_changed(&self, directories: &[InodeId]) {
        for dir in directories {
            self.listings.changed(*dir);
            if let Ok(dir) = self.nodes.get(*dir) {
                dir.lock().changed();
            }
        }
        self.look_ahead.changed();
    }

    /// A new file in `dir`, which has changed at the same moment, by the metadata server's clock.
    pub(super) fn file_was_made(&self, dir: InodeId, when: Time) {
        self.listings.changed(dir);
        if let Ok(dir) = self.nodes.get(dir) {
            dir.lock().file_was_made(when);
        }
        self.look_ahead.changed();
    }
}
