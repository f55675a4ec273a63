//! From an inode of the cache area to its name in the tier.
//!
//! Directories of the area are never renamed, so a path that was found once stays right; a removed
//! directory's number is never used again.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_tier::Key;
use hayase_wire::message::{DirectoryRequest, PeerReply, Place, Refused};

use super::remember;
use crate::boxed::Local;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    /// The path of a directory from the tier's root; empty for the root. Asks the homes of all
    /// directories above when it is not known here.
    pub(crate) fn directory_path(
        self: &Rc<Self>,
        dir: InodeId,
    ) -> Local<Result<Rc<[u8]>, Refused>> {
        let this = Rc::clone(self);
        Box::pin(async move {
            if let Some(known) = this.cache.known_path(dir)? {
                return Ok(known);
            }
            let place = match this.rpc.ask(dir.home(), DirectoryRequest::Name { dir }).await? {
                PeerReply::Named(Some(place)) => place,
                PeerReply::Named(None) => return Err(Refused::new(libc_errno::ESTALE)),
                other => return Err(unexpected(&other)),
            };
            let above = this.directory_path(place.parent).await?;
            let path: Rc<[u8]> = join(&above, &place.name).into();
            remember(&this.cache.need()?.paths, dir, Rc::clone(&path));
            Ok(path)
        })
    }

    /// Makes sure that [`Self::known_path`] knows a directory of the area; true until the next `await`.
    pub(crate) async fn know_path(self: &Rc<Self>, dir: InodeId) -> Result<(), Refused> {
        match dir.is_cached() {
            true => self.directory_path(dir).await.map(drop),
            false => Ok(()),
        }
    }

    /// The path of a name in the area.
    pub(crate) async fn tier_path_of(self: &Rc<Self>, place: &Place) -> Result<Vec<u8>, Refused> {
        Ok(join(&self.directory_path(place.parent).await?, &place.name))
    }
}

/// `name` in the directory `above`.
pub(crate) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() {
        return name.to_vec();
    }
    [above, b"/", name].concat()
}

/// A path as the tier takes it.
pub(crate) fn key(path: &[u8]) -> Result<Key, Refused> {
    Key::new(path).map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))
}
