//! Which whole files a power cut can not have changed, as the ledger says it.
//!
//! Programs write the part of a whole file without any server where the kernel lets them, so nobody can note durably that
//! a write is about to come. Noted is the opposite: how the part was when it was made durable
//! ([`Synced`]). After a power cut `hayase resume` sends a part that is still like that, and no other: also new times, set after
//! the sync, count as a change. Storage may take bytes that overwrite others before it takes their time: so an open for
//! writing makes the note go, durably, before it is answered. What a program overwrites in a file that it had open before
//! its last fsync(2) may be there in part, as on a local disk.
//!
//! And of which files the storage has lost bytes: the kernel tells that once, so the ledger keeps it until the file is emptied.

use hayase_layout::InodeId;
use hayase_store::{Part, Synced};
use hayase_wire::message::Refused;

use super::{Cache, ledger_refused};
use crate::convert::part_refused;
use crate::disk::Disk;
use crate::refusals::libc_errno;

impl Cache {
    /// fsync(2) of a whole file: its bytes, its times, which a data-only sync may leave out, and then the ledger, which says
    /// that they are durable. Costs an fsync(2) of the part and two fdatasync(2) of the ledger.
    pub(crate) async fn sync_part(&self, disk: &Disk, part: Part) -> Result<(), Refused> {
        let ino = part.id().ino;
        self.refuse_broken(ino)?;
        let synced = part.clone();
        let work = move || -> Result<Synced, Refused> {
            let before = part.stat().map_err(part_refused)?;
            part.sync(false).map_err(part_refused)?;
            Ok(before.into())
        };
        match disk.run(work).await {
            Ok(synced) => self.is_synced(ino, synced)?,
            Err(refused) => {
                self.update(ino, |record| record.is_broken |= synced.has_failed())?;
                return Err(refused);
            }
        }
        let ledger = super::ledger_sync(self)?;
        disk.run(move || ledger.sync().map_err(ledger_refused)).await
    }

    /// `EIO` for a file of which the storage has lost bytes, also where it told that before this server was started.
    pub(crate) fn refuse_broken(&self, ino: InodeId) -> Result<(), Refused> {
        match self.record(ino).is_some_and(|record| record.is_broken) {
            true => Err(broken()),
            false => Ok(()),
        }
    }

    /// Its part was made durable, and the tier does not have it yet.
    pub(super) fn is_known_synced(&self, ino: InodeId) -> bool {
        self.record(ino).is_some_and(|record| record.synced.is_some() && !record.state.is_safe())
    }

    /// Also of a file that the tier has as it is: after a rename it may have to come there once more.
    fn is_synced(&self, ino: InodeId, synced: Synced) -> Result<(), Refused> {
        self.update(ino, |record| record.synced = Some(synced))
    }
}

/// Of a file that is not what its programs wrote.
pub(crate) fn broken() -> Refused {
    let why = "the node's storage has lost bytes of it: write all of it again";
    Refused::because(libc_errno::EIO, why)
}
