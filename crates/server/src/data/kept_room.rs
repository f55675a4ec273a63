//! Room behind the ends of files: what programs keep there (fallocate(2) with `FALLOC_FL_KEEP_SIZE`), and what was kept
//! for gathering mounts and is to be given back.
//!
//! Both look the same to the file system of the part, and both are given back by one truncate. So where a program keeps
//! room, none is kept for gathering. Source: `docs/design/001-coherence.md`, "Small writes".

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use hayase_layout::InodeId;
use hayase_store::{Part, PartError, PartStat, SetTime, Whence};
use hayase_wire::message::{Refused, Room};

use super::Data;
use crate::convert::part_refused;
use crate::refusals::not_now;

/// `FALLOC_FL_KEEP_SIZE` of fallocate(2).
pub(crate) const KEEP_SIZE: i32 = 1;

/// See the module. What a former life of the server kept is not known.
#[derive(Default)]
pub(crate) struct KeptRoom {
    by_programs: RefCell<HashSet<InodeId>>,
    /// With its end.
    for_gathering: RefCell<HashMap<InodeId, u64>>,
    /// Files of which bytes may lie where those of others do, so that to write them again needs room.
    copied: RefCell<HashSet<InodeId>>,
}

impl KeptRoom {
    /// A program keeps room behind the end of a file.
    pub(crate) fn program_keeps(&self, ino: InodeId) {
        self.by_programs.borrow_mut().insert(ino);
    }

    /// Bytes of one file were copied to the other one by the file system below, which may have shared them.
    pub(crate) fn copied(&self, from: InodeId, to: InodeId) {
        self.copied.borrow_mut().extend([from, to]);
    }

    /// Whether some bytes of a file may lie where those of others do.
    pub(crate) fn may_share_bytes(&self, ino: InodeId) -> bool {
        self.copied.borrow().contains(&ino)
    }

    /// Room up to `end` is going to be kept for a gathering mount; false where a program keeps some, or may have asked
    /// for it before this life of the server (`may_be_older`).
    pub(crate) fn begin(
        &self,
        ino: InodeId,
        end: u64,
        stat: &PartStat,
        may_be_older: bool,
    ) -> bool {
        let mut for_gathering = self.for_gathering.borrow_mut();
        let by_program = self.by_programs.borrow().contains(&ino);
        // Once looked at: what programs keep from then on is known.
        let is_known = for_gathering.contains_key(&ino);
        if by_program || may_be_older && !is_known && is_any_behind_end(stat) {
            return false;
        }
        let kept = for_gathering.entry(ino).or_default();
        *kept = end.max(*kept);
        true
    }

    /// Whether room was kept for gathering.
    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.for_gathering.borrow().contains_key(&ino)
    }

    /// Whether room was kept for gathering that is to be given back now: behind the end of the file, which has `size`
    /// bytes.
    pub(crate) fn take(&self, ino: InodeId, size: u64) -> bool {
        let kept = self.for_gathering.borrow_mut().remove(&ino);
        kept.is_some_and(|end| end > size) && !self.by_programs.borrow().contains(&ino)
    }

    /// The inode is no more.
    pub(crate) fn ended(&self, ino: InodeId) {
        self.for_gathering.borrow_mut().remove(&ino);
        self.by_programs.borrow_mut().remove(&ino);
        self.copied.borrow_mut().remove(&ino);
    }
}

impl Data {
    /// Room for a window that ends at a multiple of `len`, or has that length if it begins at the end of the file. Where
    /// there is none, or no telling, each write finds that out for itself. Nobody writes the part meanwhile.
    pub(crate) async fn keep_room(
        &self,
        part: &Part,
        at: Option<u64>,
        len: u64,
    ) -> Result<Room, Refused> {
        let ino = part.id().ino;
        let stat = part.stat().map_err(part_refused)?;
        let offset = at.unwrap_or(stat.size);
        let room = at.map_or(len, |at| len - at % len);
        let end = offset.checked_add(room).ok_or_else(not_now)?;
        let in_place = self.area.overwrites_in_place() && !self.kept_room.may_share_bytes(ino);
        let is_older = self.incarnation > 1;
        if offset < stat.size && !in_place || !self.kept_room.begin(ino, end, &stat, is_older) {
            return Err(not_now());
        }
        let (part, size) = (part.clone(), stat.size);
        let work = move || {
            if has_hole(&part, offset, end.min(size)).map_err(part_refused)? {
                return Err(not_now());
            }
            match end > size {
                true => part.allocate(KEEP_SIZE, offset.max(size), end - offset.max(size)),
                false => Ok(()),
            }
            .map_err(|_| not_now())
        };
        let kept = self.disk.run(work).await;
        self.usage.changed();
        kept.map(|()| Room { offset, len: room as u32, size }).map_err(|_| not_now())
    }

    /// What was kept behind the end of a part, if anything is left of it. Nobody writes it meanwhile: the end would be
    /// another one; and where a program of this node has its descriptor, it stays.
    pub(crate) async fn give_back_room(&self, part: &Part) {
        let ino = part.id().ino;
        let is_left = part.stat().is_ok_and(|stat| self.kept_room.take(ino, stat.size));
        if !is_left {
            return;
        }
        let part = part.clone();
        let work = move || {
            let stat = part.stat().map_err(part_refused)?;
            part.truncate(stat.size).map_err(part_refused)?;
            // That is no change of the file.
            let time = |time| Some(SetTime::To(time));
            part.set_times(time(stat.atime), time(stat.mtime)).map_err(part_refused)
        };
        if let Err(error) = self.disk.run(work).await {
            tracing::warn!(%ino, %error, "room behind the end of a file could not be given back");
        }
        self.usage.changed();
    }
}

/// Whether some of these bytes, all of them in the file, are not there.
fn has_hole(part: &Part, start: u64, end: u64) -> Result<bool, PartError> {
    let is_before_end = |hole: u64| hole < end;
    Ok(start < end && part.seek(start, Whence::Hole)?.is_some_and(is_before_end))
}

/// More blocks than its bytes need. (Of a file with holes that is not always seen.)
fn is_any_behind_end(stat: &PartStat) -> bool {
    const BLOCK: u64 = 4096;
    stat.blocks.saturating_mul(512) > stat.size.div_ceil(BLOCK).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use hayase_store::Time;

    use super::*;

    fn stat(size: u64, blocks: u64) -> PartStat {
        let time = Time { seconds: 0, nanos: 0 };
        PartStat { size, blocks, atime: time, mtime: time, ctime: time }
    }

    #[test]
    fn none_is_kept_beside_a_programs() {
        let (kept, ino) = (KeptRoom::default(), InodeId(7));
        assert!(kept.begin(ino, 100, &stat(0, 0), false));
        kept.program_keeps(ino);
        assert!(!kept.begin(ino, 100, &stat(0, 0), false));
        assert!(!kept.take(ino, 0), "it is the program's as well");
        kept.ended(ino);
        assert!(kept.begin(ino, 100, &stat(0, 0), false));
        assert!(kept.take(ino, 0) && !kept.take(ino, 0));
    }

    #[test]
    fn what_was_used_is_not_given_back() {
        let (kept, ino) = (KeptRoom::default(), InodeId(7));
        assert!(kept.begin(ino, 100, &stat(0, 0), false));
        assert!(kept.has(ino) && !kept.take(ino, 100) && !kept.has(ino));
        assert!(kept.begin(ino, 200, &stat(100, 8), false));
        assert!(kept.begin(ino, 150, &stat(100, 8), false));
        assert!(kept.take(ino, 150), "the earlier one was longer");
    }

    #[test]
    fn what_a_former_life_may_have_kept_stays() {
        let kept = KeptRoom::default();
        assert!(!kept.begin(InodeId(1), 4096, &stat(100, 2048), true));
        assert!(kept.begin(InodeId(2), 9000, &stat(5000, 16), true));
        assert!(kept.begin(InodeId(2), 9000, &stat(5000, 2048), true), "that is its own");
    }
}
