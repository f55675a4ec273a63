//! In which order the files of a directory came about, for who must not overtake.
//!
//! Programs rely on order: who writes a new checkpoint and then removes the old one must never find the
//! tier without both. So a removal, and a file that was renamed over another, wait until what was
//! written before them in their directory is in the tier. Across directories nothing is promised.
//!
//! Pure: no clock, no files, no I/O. Numbers are of one server and go up. A file has two: its *number*,
//! of when it was first dirty since the tier had it, which it keeps when it is written again or renamed:
//! a removal waits for the files with lower ones. And its *turn*, its number or that of its last rename
//! over another file: such a file waits for those of earlier turns. What a rename takes to a later turn is
//! not waited for by those in between.
//!
//! Nobody waits in a circle, and so nobody waits for ever:
//! * Files wait for files of the same server only, and only for those of an earlier turn. Turns are numbers, each given
//!   once (those that a restart finds plain share 0, and wait for nobody), so of all files that wait the one of the
//!   earliest turn may go.
//! * What the ledger calls `after` is the turn that is known here: [`Order::renamed_over`] makes both, a restart takes
//!   one from the other, and a file that the tier has loses both.
//! * Removals wait for files, and no file waits for a removal: a new file takes over what a tombstone of its name hides.
//! * Who may go does go: the flusher gives no stream to who waits ([`crate::flusher::policy`]), and who fails for good
//!   is not waited for ([`is_waited_for`]), or is tried again and again as the tier's own answer says.
//!
//! Who waits for a file that is removed before the tier has it waits for what was written before that
//! removal: the new checkpoint may itself be an old one by then. [`Order::has_lost`] says so.
//!
//! Source: `docs/guide/cache.md`, "What is flushed, and when".

use std::collections::{BTreeSet, HashMap};

use hayase_layout::InodeId;

use crate::refusals::libc_errno;

/// Removed files that are remembered one by one for each directory; older ones count as one.
const LOST_MAX: usize = 64;

/// Directories that are remembered; beyond, those without a file that the tier does not have are
/// forgotten, and a removal that still waits for a lost file in one of them waits no longer.
const DIRECTORIES_MAX: usize = 65_536;

/// Whether others wait for a file whose last flush failed so. Not where there is no room: removing is how it is
/// made. And not where the bytes were lost in a power cut that no fsync(2) was ahead of: they never come.
pub(crate) fn is_waited_for(errno: i32) -> bool {
    !matches!(errno, libc_errno::ENOSPC | libc_errno::EDQUOT | libc_errno::ENODATA)
}

/// Files that the tier does not have, by directory, in their order.
#[derive(Default)]
pub(crate) struct Order {
    last: u64,
    files: HashMap<InodeId, Place>,
    dirs: HashMap<Box<[u8]>, Directory>,
}

struct Place {
    dir: Box<[u8]>,
    number: u64,
    turn: u64,
}

#[derive(Default)]
struct Directory {
    by_number: BTreeSet<(u64, InodeId)>,
    by_turn: BTreeSet<(u64, InodeId)>,
    /// Of files that were removed before the tier had them: their number, and when that was.
    lost: Vec<(u64, u64)>,
}

impl Order {
    /// What a ledger tells after a restart: files come before all others, renames keep their turns.
    pub(crate) fn restored(&mut self, ino: InodeId, path: &[u8], turn: u64) {
        self.last = self.last.max(turn);
        self.place(ino, directory_of(path), 0, turn);
    }

    /// The tier does not have the file at `path`. What is in the order already keeps its place there.
    pub(crate) fn begun(&mut self, ino: InodeId, path: &[u8]) {
        let dir = directory_of(path);
        let (number, turn) = match self.files.get(&ino) {
            Some(known) if &*known.dir == dir => return,
            Some(known) => (known.number, known.turn),
            None => {
                let number = self.next();
                (number, number)
            }
        };
        self.place(ino, dir, number, turn);
    }

    /// The file is renamed over another one, to `path`. Its turn from here on.
    pub(crate) fn renamed_over(&mut self, ino: InodeId, path: &[u8]) -> u64 {
        let turn = self.next();
        let number = self.files.get(&ino).map_or(turn, |known| known.number);
        self.place(ino, directory_of(path), number, turn);
        turn
    }

    fn place(&mut self, ino: InodeId, dir: &[u8], number: u64, turn: u64) {
        self.ended(ino);
        let files = self.dirs.entry(dir.into()).or_default();
        files.by_number.insert((number, ino));
        files.by_turn.insert((turn, ino));
        self.files.insert(ino, Place { dir: dir.into(), number, turn });
    }

    /// The tier has it.
    pub(crate) fn ended(&mut self, ino: InodeId) {
        let Some(Place { dir, number, turn }) = self.files.remove(&ino) else { return };
        if let Some(files) = self.dirs.get_mut(&dir) {
            files.by_number.remove(&(number, ino));
            files.by_turn.remove(&(turn, ino));
            if files.by_number.is_empty() && files.lost.is_empty() {
                self.dirs.remove(&dir);
            }
        }
    }

    /// It was removed, or another one took its name, before the tier had it.
    pub(crate) fn lost(&mut self, ino: InodeId) {
        let Some(Place { dir, number, .. }) = self.files.get(&ino) else { return };
        let (dir, number, at) = (dir.clone(), *number, self.last + 1);
        self.last = at;
        if self.dirs.len() >= DIRECTORIES_MAX {
            self.dirs.retain(|_, files| !files.by_number.is_empty());
        }
        let lost = &mut self.dirs.entry(dir).or_default().lost;
        if lost.len() >= LOST_MAX {
            let least = lost.iter().map(|(number, _)| *number).min().unwrap_or(number);
            let last = lost.last().map_or(at, |(_, at)| *at);
            *lost = vec![(least, last)];
        }
        lost.push((number, at));
        self.ended(ino);
    }

    /// A number that comes after everything so far.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// For a removal: the files of `dir` that were there before `number`.
    pub(crate) fn before(&self, dir: &[u8], number: u64) -> impl Iterator<Item = InodeId> {
        let files = self.dirs.get(dir).into_iter();
        files.flat_map(move |files| up_to(&files.by_number, number))
    }

    /// Whether one of the files that were before `number` was removed since, and the tier never had it.
    pub(crate) fn has_lost(&self, dir: &[u8], number: u64) -> bool {
        let lost = self.dirs.get(dir).map_or(&[][..], |files| &files.lost);
        lost.iter().rev().take_while(|(_, at)| *at > number).any(|(file, _)| *file < number)
    }

    /// For a file: those of `dir` whose turn is earlier than `turn`.
    pub(crate) fn ahead(&self, dir: &[u8], turn: u64) -> impl Iterator<Item = InodeId> {
        let files = self.dirs.get(dir).into_iter();
        files.flat_map(move |files| up_to(&files.by_turn, turn))
    }
}

fn up_to(files: &BTreeSet<(u64, InodeId)>, number: u64) -> impl Iterator<Item = InodeId> {
    files.range(..(number, InodeId(0))).map(|(_, ino)| *ino)
}

/// The directory of a path; empty for the root.
pub(crate) fn directory_of(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn before(order: &Order, dir: &str, number: u64) -> Vec<u64> {
        order.before(dir.as_bytes(), number).map(|ino| ino.0).collect()
    }

    #[test]
    fn who_comes_later_sees_who_was_before_in_the_same_directory() {
        let mut order = Order::default();
        for (ino, path) in [(1, "d/a"), (2, "d/b"), (3, "other/c"), (4, "top")] {
            order.begun(InodeId(ino), path.as_bytes());
        }
        let removal = order.next();
        order.begun(InodeId(5), b"d/e");
        assert_eq!(before(&order, "d", removal), [1, 2]);
        assert_eq!(before(&order, "", removal), [4]);
        order.ended(InodeId(1));
        assert_eq!(before(&order, "d", removal), [2]);
    }

    #[test]
    fn a_file_that_is_renamed_or_written_again_keeps_its_number() {
        let mut order = Order::default();
        order.begun(InodeId(1), b"d/tmp");
        let removal = order.next();
        order.begun(InodeId(1), b"d/tmp");
        order.renamed_over(InodeId(1), b"d/name");
        assert_eq!(before(&order, "d", removal), [1]);
        order.begun(InodeId(1), b"e/name");
        assert!(before(&order, "d", removal).is_empty());
        assert_eq!(before(&order, "e", removal), [1]);
    }

    #[test]
    fn a_rename_over_waits_for_what_was_before_and_not_for_itself() {
        let mut order = Order::default();
        order.begun(InodeId(1), b"d/pointer.tmp");
        order.begun(InodeId(2), b"d/data");
        let turn = order.renamed_over(InodeId(1), b"d/pointer");
        order.begun(InodeId(3), b"d/later");
        let ahead = |order: &Order| order.ahead(b"d", turn).collect::<Vec<_>>();
        assert_eq!(ahead(&order), [InodeId(2)]);
        order.ended(InodeId(2));
        assert!(ahead(&order).is_empty());
    }

    /// Checkpoint after checkpoint, each removed before the tier has it: the oldest one stays.
    #[test]
    fn who_waits_for_a_lost_file_is_told() {
        let mut order = Order::default();
        order.begun(InodeId(1), b"d/second");
        let removal_of_first = order.next();
        order.begun(InodeId(2), b"d/third");
        assert!(!order.has_lost(b"d", removal_of_first));
        order.lost(InodeId(1));
        assert!(order.has_lost(b"d", removal_of_first) && !order.has_lost(b"e", removal_of_first));
        let again = order.next();
        assert!(!order.has_lost(b"d", again));
        assert_eq!(before(&order, "d", again), [2]);
        // What comes and goes after the question is nothing to it.
        order.begun(InodeId(3), b"d/temporary");
        order.lost(InodeId(3));
        assert!(!order.has_lost(b"d", again));
        for ino in 0..3 * LOST_MAX as u64 {
            order.begun(InodeId(10 + ino), b"d/temporary");
            order.lost(InodeId(10 + ino));
        }
        assert!(order.has_lost(b"d", removal_of_first));
        assert!(order.dirs.values().all(|files| files.lost.len() <= LOST_MAX));
    }

    #[test]
    fn a_restart_puts_everything_before_what_was_renamed() {
        let mut order = Order::default();
        order.restored(InodeId(1), b"d/renamed", 7);
        order.restored(InodeId(2), b"d/plain", 0);
        assert_eq!(order.ahead(b"d", 7).collect::<Vec<_>>(), [InodeId(2)]);
        assert!(order.ahead(b"d", 0).next().is_none());
        assert!(order.next() > 7);
        assert_eq!(before(&order, "d", 1), [1, 2], "a removal waits for all of them");
    }

    proptest! {
        /// As long as something is not in the tier, somebody may go: nobody waits in a circle.
        #[test]
        fn somebody_may_always_go(
            steps in proptest::collection::vec((0..6u64, 0..3u8, 0..4u8), 0..60),
        ) {
            let mut order = Order::default();
            for (ino, dir, what) in steps {
                let (ino, path) = (InodeId(ino), format!("{dir}/f{ino}"));
                match what {
                    0 | 1 => order.begun(ino, path.as_bytes()),
                    2 => order.ended(ino),
                    _ => drop(order.renamed_over(ino, path.as_bytes())),
                }
            }
            while !order.files.is_empty() {
                let free = order.files.iter().find(|(_, file)| {
                    order.ahead(&file.dir, file.turn).next().is_none()
                });
                let free = free.map(|(ino, _)| *ino);
                prop_assert!(free.is_some());
                order.ended(free.expect("just seen"));
            }
            prop_assert!(order.dirs.is_empty());
        }
    }
}
