//! Which whole files a power cut can not have changed, as the ledger says it.
//!
//! Programs write the part of a whole file without any server where the kernel lets them, so nobody can note durably that
//! a write is about to come. Noted is the opposite: how the part was when it was made durable
//! ([`Synced`]). After a power cut `hayase resume` sends a part that is still like that, and no other: also new times, set after
//! the sync, count as a change. Storage may take bytes that overwrite others before it takes their time: so an open for
//! writing makes the note go, durably, before it is answered. What a program overwrites in a file that it had open before
//! its last fsync(2) may be there in part, as on a local disk.

use hayase_layout::InodeId;
use hayase_store::{Part, Synced};
use hayase_wire::message::Refused;

use super::{Cache, ledger_refused};
use crate::convert::part_refused;
use crate::disk::Disk;

impl Cache {
    /// fsync(2) of a whole file: its bytes, its times, which a data-only sync may leave out, and then the ledger, which says
    /// that they are durable. Costs an fsync(2) of the part and two fdatasync(2) of the ledger.
    pub(crate) async fn sync_part(&self, disk: &Disk, part: Part) -> Result<(), Refused> {
        let ino = part.id().ino;
        let work = move || -> Result<Synced, Refused> {
            let before = part.stat().map_err(part_refused)?;
            part.sync(false).map_err(part_refused)?;
            Ok(before.into())
        };
        let synced = disk.run(work).await?;
        self.is_synced(ino, synced)?;
        let ledger = self.ledger_sync();
        disk.run(move || ledger.sync().map_err(ledger_refused)).await
    }

    /// Its part was made durable, and the tier does not have it yet.
    pub(super) fn is_known_synced(&self, ino: InodeId) -> bool {
        self.record(ino).is_some_and(|record| record.synced.is_some() && !record.state.is_safe())
    }

    /// Of a file that the tier has as it is nothing needs to be known.
    fn is_synced(&self, ino: InodeId, synced: Synced) -> Result<(), Refused> {
        self.update(ino, |record| {
            if !record.state.is_safe() {
                record.synced = Some(synced);
            }
        })
    }
}
