//! All bytes of a file that lies in several parts, in their order, to the tier.

use hayase_layout::LocalOffset;
use hayase_store::{Part, PartStat};
use hayase_tier::{Key, Tier};
use hayase_wire::message::Refused;

use crate::convert::part_refused;
use crate::flusher::gather::{Sending, Sent};
use crate::limits::FLUSH_BYTES;

/// Sends as many bytes as `stat` says, [`FLUSH_BYTES`] at a time: `read` fills what begins at an offset.
pub(super) fn send_all(
    tier: &dyn Tier,
    key: &Key,
    stat: PartStat,
    mode: u32,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Refused>,
) -> Result<Sent, Refused> {
    let mut sending = Sending::begin(tier, key, stat, mode)?;
    let mut bytes = vec![0; FLUSH_BYTES.min(stat.size) as usize];
    while sending.left() > 0 {
        let len = sending.left().min(FLUSH_BYTES) as usize;
        read(sending.done(), &mut bytes[..len])?;
        sending.add(&bytes[..len])?;
    }
    Ok(sending.end())
}

/// How many bytes a part has from `start` on; fewer than asked for only at its end.
pub(super) fn read_up_to(part: &Part, start: u64, target: &mut [u8]) -> Result<usize, Refused> {
    let mut done = 0;
    while done < target.len() {
        let at = LocalOffset(start + done as u64);
        match part.read_at(at, &mut target[done..]).map_err(part_refused)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}
