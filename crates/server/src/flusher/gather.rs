//! The bytes of one file: from where they lie ([`super::source`]) into a new version in the tier.
//!
//! Here: blocking calls, for a thread that may wait. Not here: whether the part stood still meanwhile.
//!
//! The checksum of a version is that of the bytes as they were read here, before the tier saw them: what
//! the kernel writes into a part itself passes no server.

use hayase_layout::Acl;
use hayase_layout::acl::{ACCESS_NAME, is_acl};
use hayase_store::{LedgerRecord, PartStat, Time};
use hayase_tier::{
    Attributes, Key, ObjectMeta, Precondition, Tier, TierError, Upload, Xattrs, if_there,
};
use hayase_wire::message::Refused;
use xxhash_rust::xxh3::Xxh3;

use super::source::PartSource;
use crate::cache::object_moves::as_told_now;
use crate::cache::{system_time, tier_refused, time_of, version_of};
use crate::limits::FLUSH_BYTES;

/// A version that is on its way, and of what.
pub(crate) struct Sent {
    upload: Box<dyn Upload>,
    /// What was sent, as it was before the first byte was read.
    pub(crate) stat: PartStat,
    /// XXH3 (64 bits) of all bytes that were sent.
    pub(crate) checksum: u64,
}

/// What became of a version.
pub(crate) enum Committed {
    /// It is durable, and this is it.
    Durable(hayase_store::TierVersion),
    /// The tier has one that we do not know: it was not touched.
    Conflict,
}

/// A version that is being sent.
pub(crate) struct Sending {
    upload: Box<dyn Upload>,
    stat: PartStat,
    checksum: Xxh3,
    done: u64,
}

impl Sending {
    /// Begins a version with the size and times of `stat`, which is not seen before [`commit`].
    pub(crate) fn begin(
        tier: &dyn Tier,
        key: &Key,
        stat: PartStat,
        mode: u32,
    ) -> Result<Self, Refused> {
        let attributes = Attributes { mode: Some(mode), mtime: Some(system_time(stat.mtime)) };
        let upload = tier.begin(key, attributes).map_err(|error| tier_refused(&error))?;
        Ok(Self { upload, stat, checksum: Xxh3::new(), done: 0 })
    }

    /// Sends the next bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.checksum.update(bytes);
        self.upload.write_at(self.done, bytes).map_err(|error| tier_refused(&error))?;
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// How many are to come.
    pub(crate) fn left(&self) -> u64 {
        self.stat.size - self.done.min(self.stat.size)
    }

    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// All bytes that there were are sent.
    pub(crate) fn end(self) -> Sent {
        Sent { upload: self.upload, stat: self.stat, checksum: self.checksum.digest() }
    }
}

/// The mode that a version of this file is to have, which may come to a tier that keeps no lists.
pub(crate) fn mode_of(tier: &dyn Tier, record: &LedgerRecord) -> u32 {
    let list = record.xattrs.changes.get(ACCESS_NAME).cloned().flatten();
    let list = list.filter(|_| !tier.capabilities().acls);
    let acl = list.and_then(|value| Acl::parse(&value).ok().flatten());
    acl.map_or(record.mode, |acl| acl.mode_alone())
}

/// Sends all bytes of `source` to `key`, where they are not seen before [`commit`]. Reads and writes
/// [`FLUSH_BYTES`] at a time, from multiples of it.
pub(crate) fn send(
    tier: &dyn Tier,
    source: &PartSource,
    key: &Key,
    mode: u32,
    counted: &dyn Fn(u64),
) -> Result<Sent, Refused> {
    let mut sending = Sending::begin(tier, key, source.stat, mode)?;
    let mut buffer = vec![0; FLUSH_BYTES.min(source.stat.size.max(1)) as usize];
    while sending.left() > 0 {
        let want = sending.left().min(FLUSH_BYTES) as usize;
        let read = source.read_at(sending.done(), &mut buffer[..want])?;
        if read == 0 {
            break; // It became shorter: whoever compares it finds out.
        }
        sending.add(&buffer[..read])?;
        counted(read as u64);
    }
    source.check_written()?;
    Ok(sending.end())
}

/// Makes what was sent the tier's version, in the place of the one that `record` knows, with all extended attributes
/// that the file has.
pub(crate) fn commit(
    tier: &dyn Tier,
    key: &Key,
    record: &LedgerRecord,
    mut sent: Sent,
) -> Result<Committed, TierError> {
    let found = if_there(tier.stat_as_written(key))?;
    let is_ours = found.is_some_and(|meta| {
        let known = record.version.is_some_and(|version| version.identity == meta.identity);
        // A crash hid how the last flush ended: it had ended well.
        known || record.sent == Some((meta.size.get(), time_of(meta.mtime)))
    });
    let precondition = match found {
        Some(_) if !is_ours => return Ok(Committed::Conflict),
        Some(ours) => Precondition::Matches(ours.identity),
        None => Precondition::absent(tier, sent.stat.size),
    };
    let keeps = tier.capabilities();
    let below = match found.is_some() && record.has_xattrs_of_version() {
        true if keeps.xattrs || keeps.acls => tier.user_xattrs(key)?,
        _ => Xattrs::new(),
    };
    let mut xattrs = record.xattrs.over(below);
    xattrs.retain(|name, _| keeps.acls || !is_acl(name));
    if !xattrs.is_empty() {
        sent.upload.set_user_xattrs(&xattrs)?;
    }
    let mtime = system_time(sent.stat.mtime);
    match sent.upload.commit(precondition) {
        Ok(meta) => {
            let ours = ObjectMeta { mtime, ..meta };
            let meta = as_told_now(tier, key, ours).unwrap_or(ours);
            Ok(Committed::Durable(version_of(&meta)))
        }
        Err(TierError::Exists { .. } | TierError::Changed { .. }) => Ok(Committed::Conflict),
        Err(error) => Err(error),
    }
}

/// Size and time by which a version that was sent is known again.
pub(crate) fn mark_of(stat: &PartStat) -> (u64, Time) {
    (stat.size, stat.mtime)
}
