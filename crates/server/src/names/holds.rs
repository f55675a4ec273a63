//! Names in the hands of an operation, and the right to insert names into a directory.

use hayase_layout::InodeId;
use hayase_store::ops;
use hayase_wire::message::{DirectoryRequest, PeerReply, Place, Refused};

use super::Names;
use crate::convert::meta_refused;
use crate::keyed_lock::KeyGuard;
use crate::limits::NAME_WAIT;
use crate::refusals::{Answer, libc_errno};

impl Names {
    /// Holds a name, once nobody else does.
    pub(crate) async fn hold_name(&self, place: &Place) -> Result<KeyGuard<Place>, Refused> {
        let held = tokio::time::timeout(NAME_WAIT, self.locks.lock(place.clone())).await;
        let why = "an operation has this name in its hands and does not come to its end";
        held.map_err(|_| Refused::because(libc_errno::EIO, why))
    }

    /// Waits for a rename that has this name in its hands.
    pub(crate) async fn wait_for_name(&self, place: &Place) -> Result<(), Refused> {
        if self.locks.is_locked(place) {
            drop(self.hold_name(place).await?);
        }
        Ok(())
    }

    /// Makes sure that entries of `dir` may be inserted here. True until the next `await`.
    pub(crate) async fn hold_dir(&self, dir: InodeId) -> Result<(), Refused> {
        loop {
            self.directories.wait_while_frozen(dir).await;
            if self.directories.holds(dir) {
                return Ok(());
            }
            let known = ops::has_dir_grant(&self.meta.begin(), dir).map_err(meta_refused)?;
            if known {
                self.directories.hold(dir);
                return Ok(());
            }
            let thaws = self.directories.thaws();
            self.rpc.ask(dir.home(), DirectoryRequest::Grant { dir }).await?;
            // A removal that came and went meanwhile took this grant along: ask again.
            if thaws == self.directories.thaws() {
                let mut txn = self.meta.begin();
                ops::grant_dir(&mut txn, dir).map_err(meta_refused)?;
                txn.commit().map_err(meta_refused)?;
                self.directories.hold(dir);
            }
        }
    }

    pub(crate) async fn freeze(&self, dir: InodeId) -> Answer {
        self.directories.freeze(dir);
        let empty = ops::is_empty(&self.meta.begin(), dir);
        match empty.map_err(meta_refused) {
            Ok(true) => Ok(PeerReply::Empty(true)),
            other => {
                self.directories.thaw(dir);
                other.map(PeerReply::Empty)
            }
        }
    }

    /// The removal is over, one way or the other: entries need a new grant of the home first.
    pub(crate) fn thaw(&self, dir: InodeId) -> Answer {
        let mut txn = self.meta.begin();
        ops::revoke_dir_grant(&mut txn, dir).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        self.directories.thaw(dir);
        Ok(PeerReply::Done)
    }
}
