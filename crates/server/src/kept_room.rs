//! Room behind the ends of files: what programs keep there (fallocate(2) with `FALLOC_FL_KEEP_SIZE`), and what was kept
//! for gathering mounts and is to be given back.
//!
//! Both look the same to the file system of the part, and both are given back by one truncate. So where a program keeps
//! room, none is kept for gathering. Source: `docs/design/001-coherence.md`, "Small writes".

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use hayase_layout::InodeId;
use hayase_store::PartStat;

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
