//! Which files can not be reached because a node is lost, by path, for people.
//!
//! A server knows the names of its shard, whose inodes tell their homes, and the layouts of its own
//! inodes. Names of the lost node's own shard nobody knows.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use hayase_layout::{InodeId, Layout};
use hayase_store::ops;
use hayase_wire::message::{DirectoryRequest, Name, PeerReply, Place, Refused};

use crate::convert::meta_refused;
use crate::limits::LOST_PATHS_BYTES_MAX;
use crate::node::Node;
use crate::refusals::unexpected;

/// Records looked at before others have their turn.
const PAGE: usize = 512;

/// Directories above one name; beyond it something is wrong.
const DEPTH_MAX: usize = 512;

impl Node {
    /// At most `max` paths, and how many files there are. Reads all names and inodes of this server.
    pub(crate) async fn lost_files(
        self: &Rc<Self>,
        max: usize,
    ) -> Result<(Vec<Name>, u64), Refused> {
        if self.rpc.membership.lost().is_empty() {
            return Ok((Vec::new(), 0));
        }
        let mut places = BTreeSet::new();
        self.lost_names(&mut places).await?;
        self.lost_parts(&mut places).await?;
        let total = places.len() as u64;
        let (mut paths, mut known, mut bytes) = (Vec::new(), HashMap::new(), 0);
        for place in places.into_iter().take(max) {
            let path = self.path_of(place, &mut known).await;
            bytes += path.len() + 8;
            if bytes > LOST_PATHS_BYTES_MAX {
                break;
            }
            paths.push(path);
        }
        Ok((paths, total))
    }

    /// Names here whose inodes have a lost home.
    async fn lost_names(&self, places: &mut BTreeSet<Place>) -> Result<(), Refused> {
        let mut after = Vec::new();
        loop {
            let page = ops::all_entries(&self.meta.begin(), &after, PAGE).map_err(meta_refused)?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(&last.key);
            for found in page {
                if self.rpc.membership.is_server_lost(found.entry.ino.home()) {
                    places.insert(Place { parent: found.parent, name: found.name });
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Files of this home with parts on lost nodes.
    async fn lost_parts(&self, places: &mut BTreeSet<Place>) -> Result<(), Refused> {
        let mut after = None;
        loop {
            let page = ops::inodes(&self.meta.begin(), after, PAGE).map_err(meta_refused)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.ino);
            for inode in page {
                let Layout::Striped { servers, .. } = &inode.layout else { continue };
                if servers.iter().any(|server| self.rpc.membership.is_server_lost(*server)) {
                    places.extend(inode.name.map(|(parent, name)| Place { parent, name }));
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// From the root of the area, as far as the directories above can be asked.
    async fn path_of(
        self: &Rc<Self>,
        place: Place,
        known: &mut HashMap<InodeId, Option<Place>>,
    ) -> Name {
        let (mut parts, mut at) = (vec![place.name], place.parent);
        while at != InodeId::ROOT && parts.len() < DEPTH_MAX {
            if let Some(owner) =
                at.owner().filter(|node| InodeId::private_root(at.home(), *node) == at)
            {
                parts.push(format!("(local of node {owner})").into_bytes());
                break;
            }
            let above = match known.get(&at) {
                Some(above) => above.clone(),
                None => {
                    let above = self.name_of_directory(at).await.unwrap_or_default();
                    known.insert(at, above.clone());
                    above
                }
            };
            let Some(Place { parent, name }) = above else {
                parts.push(format!("(directory {at})").into_bytes());
                break;
            };
            parts.push(name);
            at = parent;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    async fn name_of_directory(self: &Rc<Self>, dir: InodeId) -> Result<Option<Place>, Refused> {
        match self.rpc.ask(dir.home(), DirectoryRequest::Name { dir }).await? {
            PeerReply::Named(name) => Ok(name),
            other => Err(unexpected(&other)),
        }
    }
}
