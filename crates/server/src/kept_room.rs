//! Room behind the ends of files: what programs keep there (fallocate(2) with `FALLOC_FL_KEEP_SIZE`), and what was kept
//! for gathering mounts and is to be given back.
//!
//! Both look the same to the file system of the part, and both are given back by one truncate. So where a program keeps
//! room, none is kept for gathering. Source: `docs/design/001-coherence.md`, "Small writes".

use std::cell::RefCell;
use std::collections::HashSet;

use hayase_layout::InodeId;
use hayase_store::PartStat;

/// See the module. What a former life of the server kept is not known.
#[derive(Default)]
pub(crate) struct KeptRoom {
    by_programs: RefCell<HashSet<InodeId>>,
    for_gathering: RefCell<HashSet<InodeId>>,
}

impl KeptRoom {
    /// A program keeps room behind the end of a file.
    pub(crate) fn program_keeps(&self, ino: InodeId) {
        self.by_programs.borrow_mut().insert(ino);
    }

    /// Room is going to be kept for a gathering mount; false where a program keeps some, or may have asked for it before
    /// this life of the server (`may_be_older`).
    pub(crate) fn begin(&self, ino: InodeId, stat: &PartStat, may_be_older: bool) -> bool {
        let is_known = self.for_gathering.borrow().contains(&ino);
        let by_program = self.by_programs.borrow().contains(&ino);
        if by_program || may_be_older && !is_known && is_any_behind_end(stat) {
            return false;
        }
        self.for_gathering.borrow_mut().insert(ino);
        true
    }

    /// Whether room was kept for gathering.
    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.for_gathering.borrow().contains(&ino)
    }

    /// Whether room was kept for gathering that is to be given back now.
    pub(crate) fn take(&self, ino: InodeId) -> bool {
        self.for_gathering.borrow_mut().remove(&ino) && !self.by_programs.borrow().contains(&ino)
    }

    /// The inode is no more.
    pub(crate) fn ended(&self, ino: InodeId) {
        self.for_gathering.borrow_mut().remove(&ino);
        self.by_programs.borrow_mut().remove(&ino);
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
        assert!(kept.begin(ino, &stat(0, 0), false));
        kept.program_keeps(ino);
        assert!(!kept.begin(ino, &stat(0, 0), false));
        assert!(!kept.take(ino), "it is the program's as well");
        kept.ended(ino);
        assert!(kept.begin(ino, &stat(0, 0), false) && kept.take(ino) && !kept.take(ino));
    }

    #[test]
    fn what_a_former_life_may_have_kept_stays() {
        let kept = KeptRoom::default();
        assert!(!kept.begin(InodeId(1), &stat(100, 2048), true));
        assert!(kept.begin(InodeId(2), &stat(5000, 16), true));
        assert!(kept.begin(InodeId(2), &stat(5000, 2048), true), "that is its own");
    }
}
