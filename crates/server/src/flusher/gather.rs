//! The bytes of one file: out of its part, into a new version in the tier.
//!
//! Here: blocking calls, for a thread that may wait. Not here: whether the part stood still meanwhile.
//!
//! The checksum of a version is that of the bytes as they were read here, before the tier saw them: what
//! the kernel writes into a part itself passes no server.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hayase_layout::{InodeId, LocalOffset};
use hayase_store::{LedgerRecord, Part, PartStat, Parts, Time};
use hayase_tier::{Attributes, Key, ObjectMeta, Precondition, Tier, TierError, Upload, if_there};
use hayase_wire::message::Refused;
use xxhash_rust::xxh3::Xxh3;

use crate::cache::object_moves::as_told_now;
use crate::cache::{system_time, tier_refused, time_of, version_of};
use crate::convert::part_refused;
use crate::limits::FLUSH_BYTES;
use crate::node::libc_errno;
use crate::peer_service::inode::{is_missing, whole_part};

/// Where the bytes of a version come from.
pub(crate) struct Source {
    pub(crate) part: Part,
    /// The part as it was at one moment, while it goes on being written.
    pub(crate) snapshot: Option<File>,
    /// Size and times of what is sent, known before the first byte is read.
    pub(crate) stat: PartStat,
}

impl Source {
    /// A part that nobody should be writing.
    pub(crate) fn still(part: Part) -> Result<Self, Refused> {
        let stat = part.stat().map_err(part_refused)?;
        Ok(Self { part, snapshot: None, stat })
    }

    /// A part that somebody may be writing: frozen where the storage can do that. Costs a write-back of
    /// what the kernel holds of it.
    pub(crate) fn as_it_stands(part: Part) -> Result<Self, Refused> {
        // Before it is frozen: what is written between the two is told as newer, never as sent.
        let stat = part.stat().map_err(part_refused)?;
        let Some(snapshot) = part.snapshot().map_err(part_refused)? else {
            // A page that is dirty already may be written through a mapping without another time.
            part.sync(true).map_err(part_refused)?;
            return Self::still(part);
        };
        let snapshot = File::from(snapshot);
        let size = snapshot.metadata().map_err(|error| io_refused(&error))?.len();
        Ok(Self { part, snapshot: Some(snapshot), stat: PartStat { size, ..stat } })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Refused> {
        match &self.snapshot {
            None => self.part.read_at(LocalOffset(offset), buffer).map_err(part_refused),
            Some(snapshot) => {
                snapshot.read_exact_at(buffer, offset).map_err(|error| io_refused(&error))?;
                Ok(buffer.len())
            }
        }
    }
}

fn io_refused(error: &std::io::Error) -> Refused {
    Refused::because(error.raw_os_error().unwrap_or(libc_errno::EIO), error.to_string())
}

/// The part that holds a file.
pub(crate) fn part_of(parts: &Parts, ino: InodeId) -> Result<Part, Refused> {
    parts.get(whole_part(ino, 0)).map_err(|error| match is_missing(&error) {
        true => {
            let why = "its bytes were lost with the power of the node, before fsync(2)";
            Refused::because(libc_errno::ENODATA, why)
        }
        false => part_refused(error),
    })
}

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

/// Sends all bytes of `source` to `key`, where they are not seen before [`commit`]. Reads and writes
/// [`FLUSH_BYTES`] at a time, from multiples of it.
pub(crate) fn send(
    tier: &dyn Tier,
    source: &Source,
    key: &Key,
    mode: u32,
    counted: &dyn Fn(u64),
) -> Result<Sent, Refused> {
    let stat = source.stat;
    let attributes = Attributes { mode: Some(mode), mtime: Some(system_time(stat.mtime)) };
    let failed = |error: TierError| tier_refused(&error);
    let mut upload = tier.begin(key, attributes).map_err(failed)?;
    let mut buffer = vec![0; FLUSH_BYTES.min(stat.size.max(1)) as usize];
    let mut checksum = Xxh3::new();
    let mut done = 0;
    while done < stat.size {
        let want = (stat.size - done).min(FLUSH_BYTES) as usize;
        let read = source.read_at(done, &mut buffer[..want])?;
        if read == 0 {
            break; // It became shorter: whoever compares it finds out.
        }
        checksum.update(&buffer[..read]);
        upload.write_at(done, &buffer[..read]).map_err(failed)?;
        done += read as u64;
        counted(read as u64);
    }
    Ok(Sent { upload, stat, checksum: checksum.digest() })
}

/// Makes what was sent the tier's version, in the place of the one that `record` knows.
pub(crate) fn commit(
    tier: &dyn Tier,
    key: &Key,
    record: &LedgerRecord,
    sent: Sent,
) -> Result<Committed, TierError> {
    let found = if_there(tier.stat_as_written(key))?;
    let is_ours = found.is_some_and(|meta| {
        let known = record.version.is_some_and(|version| version.identity == meta.identity);
        // A crash hid how the last flush ended: it had ended well.
        known || record.sent == Some((meta.size.get(), time_of(meta.mtime)))
    });
    let precondition = match found {
        Some(_) if !is_ours => return Ok(Committed::Conflict),
        Some(_) => Precondition::Any,
        None => Precondition::absent(tier, sent.stat.size),
    };
    let mtime = system_time(sent.stat.mtime);
    match sent.upload.commit(precondition) {
        Ok(meta) => {
            let ours = ObjectMeta { mtime, ..meta };
            let meta = as_told_now(tier, key, ours).unwrap_or(ours);
            Ok(Committed::Durable(version_of(&meta)))
        }
        Err(TierError::Exists { .. }) => Ok(Committed::Conflict),
        Err(error) => Err(error),
    }
}

/// Size and time by which a version that was sent is known again.
pub(crate) fn mark_of(stat: &PartStat) -> (u64, Time) {
    (stat.size, stat.mtime)
}
