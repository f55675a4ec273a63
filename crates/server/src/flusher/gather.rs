//! The bytes of one file: out of its part, into a new version in the tier.
//!
//! Here: blocking calls, for a thread that may wait. Not here: whether the part stood still meanwhile.

use hayase_layout::LocalOffset;
use hayase_store::{LedgerRecord, Part, PartStat, Time};
use hayase_tier::{Attributes, Key, Precondition, Tier, TierError, Upload};
use hayase_wire::message::Refused;

use crate::cache::{system_time, tier_refused, time_of, version_of};
use crate::convert::part_refused;
use crate::limits::FLUSH_BYTES;

/// A version that is on its way, and of what.
pub(crate) struct Sent {
    upload: Box<dyn Upload>,
    /// The part before the first byte was read.
    pub(crate) stat: PartStat,
}

/// What became of a version.
pub(crate) enum Committed {
    /// It is durable, and this is it.
    Durable(hayase_store::TierVersion),
    /// The tier has one that we do not know: it was not touched.
    Conflict,
}

/// Sends all bytes of `part` to `key`, where they are not seen before [`commit`]. Reads and writes
/// [`FLUSH_BYTES`] at a time, from multiples of it.
pub(crate) fn send(
    tier: &dyn Tier,
    part: &Part,
    key: &Key,
    mode: u32,
    counted: &dyn Fn(u64),
) -> Result<Sent, Refused> {
    let stat = part.stat().map_err(part_refused)?;
    let attributes = Attributes { mode: Some(mode), mtime: Some(system_time(stat.mtime)) };
    let failed = |error: TierError| tier_refused(&error);
    let mut upload = tier.begin(key, attributes).map_err(failed)?;
    let mut buffer = vec![0; FLUSH_BYTES.min(stat.size.max(1)) as usize];
    let mut done = 0;
    while done < stat.size {
        let want = (stat.size - done).min(FLUSH_BYTES) as usize;
        let read = part.read_at(LocalOffset(done), &mut buffer[..want]).map_err(part_refused)?;
        if read == 0 {
            break; // It became shorter: whoever compares it finds out.
        }
        upload.write_at(done, &buffer[..read]).map_err(failed)?;
        done += read as u64;
        counted(read as u64);
    }
    Ok(Sent { upload, stat })
}

/// Makes what was sent the tier's version, in the place of the one that `record` knows.
pub(crate) fn commit(
    tier: &dyn Tier,
    key: &Key,
    record: &LedgerRecord,
    sent: Sent,
) -> Result<Committed, TierError> {
    let found = match tier.stat(key) {
        Ok(meta) => Some(meta),
        Err(TierError::Missing { .. }) => None,
        Err(error) => return Err(error),
    };
    let is_ours = found.is_some_and(|meta| {
        let known = record.version.is_some_and(|version| version.identity == meta.identity);
        // A crash hid how the last flush ended: it had ended well.
        known || record.sent == Some((meta.size.get(), time_of(meta.mtime)))
    });
    let precondition = match found {
        Some(_) if !is_ours => return Ok(Committed::Conflict),
        Some(_) => Precondition::Any,
        None => absent(tier, sent.stat.size),
    };
    match sent.upload.commit(precondition) {
        Ok(meta) => {
            // Some tiers tell the identity only when they are asked.
            let meta = tier.stat(key).unwrap_or(meta);
            Ok(Committed::Durable(version_of(&meta)))
        }
        Err(TierError::Exists { .. }) => Ok(Committed::Conflict),
        Err(error) => Err(error),
    }
}

/// Where nothing is, nothing that comes meanwhile is replaced, if the tier can promise that.
fn absent(tier: &dyn Tier, size: u64) -> Precondition {
    match tier.capabilities().absent_max {
        Some(most) if size <= most.get() => Precondition::Absent,
        _ => Precondition::Any,
    }
}

/// Size and time by which a version that was sent is known again.
pub(crate) fn mark_of(stat: &PartStat) -> (u64, Time) {
    (stat.size, stat.mtime)
}
