//! The queue between planning and streams. A large file is cut into parts when its turn comes, so that their size
//! is what is known to be good by then, and stays.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use hayase_tier::Tier;

use super::large::Large;
use super::stretch::stretch_bytes;
use crate::limits::{BATCH_BYTES, PARTS_BYTES_MIN, PIECE_BYTES};
use crate::plan::{Task, Work, pack_bytes};
use crate::source::Origin;

/// What a stream takes from the queue.
pub(super) enum Unit {
    Work(Work),
    Part(Arc<Large>, usize),
}

impl Unit {
    /// Bytes of data that it and what it writes to hold while it is worked on, at most.
    pub(super) fn memory(&self, target: &dyn Tier) -> u64 {
        const PIECE: u64 = PIECE_BYTES as u64;
        const WRITER: u64 = 2 * PIECE;
        let largest =
            |tasks: &[Task]| tasks.iter().map(|task| task.item.bytes()).max().unwrap_or(0);
        match self {
            // With what the open of an object brings.
            Self::Part(large, _) => large.largest_part_bytes() + PIECE,
            // With what a group of files holds that were compressed.
            Self::Work(Work::Copy(tasks)) => stretch_bytes(tasks) + largest(tasks) + PIECE,
            // A file and what zstd makes of it, or entries of the source's packs that lie together.
            Self::Work(Work::Pack(tasks)) => {
                let is_packed = tasks.iter().any(|task| matches!(task.origin, Origin::Row(_)));
                let stretch = if is_packed { BATCH_BYTES } else { 0 };
                let pack = target.upload_memory(pack_bytes(tasks));
                2 * largest(tasks) + stretch + WRITER + pack
            }
            Self::Work(Work::Solo(task) | Work::Loose(task) | Work::Parts(task)) => {
                2 * WRITER + target.upload_memory(task.item.bytes())
            }
        }
    }
}

/// Large files whose parts are handed out in turns, where they come one behind the other. A file is written by one
/// stream at a time: its inode's lock lets no other in. (4 files of 512 MiB from memory to memory, on two cores: 1.00 s
/// in turns of two, 0.83 s of four.)
const FILES_AT_ONCE: usize = 4;
/// And so many bytes of such files: of larger ones the first is whole before the next is begun, as far as a target that
/// becomes full, or a kill, lets it.
const BYTES_AT_ONCE: u64 = 8 << 30;

/// The queue, and how many were taken from it: each unit has its number.
pub(super) struct Units {
    receiver: Receiver<Work>,
    taken: u64,
    /// Files of which parts are left, and the next of each.
    begun: VecDeque<(Arc<Large>, usize)>,
    /// What comes behind them.
    next: Option<Work>,
}

impl Units {
    /// The first unit has the number `taken`.
    pub(super) fn new(receiver: Receiver<Work>, taken: u64) -> Self {
        Self { receiver, taken, begun: VecDeque::new(), next: None }
    }

    /// `None` when there will be no more; `cut` is told whether a file lies beside packs.
    pub(super) fn take(&mut self, cut: impl Fn(Task, bool) -> Large) -> Option<(u64, Unit)> {
        self.begin(cut);
        let unit = match self.begun.pop_front() {
            Some((large, part)) => {
                if part + 1 < large.parts() {
                    self.begun.push_back((Arc::clone(&large), part + 1));
                }
                Unit::Part(large, part)
            }
            None => Unit::Work(self.next.take()?),
        };
        let number = self.taken;
        self.taken += 1;
        Some((number, unit))
    }

    /// Begins large files that are next; waits for what is next only where nothing is begun.
    fn begin(&mut self, cut: impl Fn(Task, bool) -> Large) {
        while self.begun.len() < FILES_AT_ONCE {
            let begun: u64 = self.begun.iter().map(|(large, _)| large.bytes()).sum();
            let next = self.next.take().or_else(|| match self.begun.is_empty() {
                true => self.receiver.recv().ok(),
                false => self.receiver.try_recv().ok(),
            });
            let large = match next {
                Some(work) if !may_join(&work, begun) => {
                    self.next = Some(work);
                    return;
                }
                Some(Work::Loose(task)) if task.item.bytes() >= PARTS_BYTES_MIN => cut(task, true),
                Some(Work::Parts(task)) => cut(task, false),
                other => {
                    self.next = other;
                    return;
                }
            };
            self.begun.push_back((Arc::new(large), 0));
        }
    }
}

/// Beside files of so many bytes. An entry that was compressed lies in memory whole, and is alone.
fn may_join(work: &Work, begun: u64) -> bool {
    let (Work::Loose(task) | Work::Parts(task)) = work else { return true };
    let is_object = matches!(task.origin, Origin::Object(_));
    begun == 0 || (is_object && begun.saturating_add(task.item.bytes()) <= BYTES_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use hayase_tier::{Key, Memory};

    use super::*;
    use crate::compare::Step;
    use crate::item::{Item, Kind};
    use crate::{Mtime, limits::PART_BYTES};

    fn file(name: &str, bytes: u64) -> Task {
        let name = Key::new(name).unwrap();
        let item = Item { name, kind: Kind::File { bytes }, mode: 0o644, mtime: Mtime::EPOCH };
        Task { item, origin: Origin::Object(None), step: Step::Copy }
    }

    #[test]
    fn of_huge_files_the_first_is_done_before_the_next_is_begun() {
        let (sender, receiver) = sync_channel(2);
        for name in ["a", "b"] {
            sender.send(Work::Parts(file(name, 6 << 30))).unwrap();
        }
        drop(sender);
        let mut units = Units::new(receiver, 0);
        let cut = |task, is_loose| Large::new(task, is_loose, 3 << 30);
        let taken = std::iter::from_fn(|| units.take(cut)).map(|(_, unit)| match unit {
            Unit::Part(_, part) => part,
            Unit::Work(_) => usize::MAX,
        });
        assert_eq!(taken.collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn a_file_keeps_the_parts_it_began_with() {
        let (sender, receiver) = sync_channel(8);
        sender.send(Work::Parts(file("a", 3 * PART_BYTES + 1))).unwrap();
        sender.send(Work::Copy(vec![file("b", 1)])).unwrap();
        sender.send(Work::Loose(file("c", 1))).unwrap();
        sender.send(Work::Loose(file("d", 4 * PART_BYTES))).unwrap();
        sender.send(Work::Parts(file("e", 96 * PART_BYTES))).unwrap();
        sender.send(Work::Parts(file("f", 2 * PART_BYTES))).unwrap();
        drop(sender);
        let mut units = Units::new(receiver, 7);
        let mut taken = Vec::new();
        // Another size is set after each unit.
        let mut size = PART_BYTES;
        while let Some((number, unit)) = units.take(|task, loose| Large::new(task, loose, size)) {
            assert_eq!(number, 7 + taken.len() as u64);
            taken.push(match unit {
                Unit::Part(large, part) => (part, large.part_bytes() / PART_BYTES),
                Unit::Work(_) => (usize::MAX, 0),
            });
            size *= 2;
        }
        let whole = (usize::MAX, 0);
        let begin = [(0, 1), (1, 1), (2, 1), (3, 1), whole, whole];
        assert_eq!(taken[..6], begin);
        assert_eq!(taken[6..], [(0, 64), (0, 64), (0, 64), (1, 64)], "files in turns");
    }

    #[test]
    fn a_part_holds_no_more_than_its_file() {
        const MIB: u64 = 1 << 20;
        let check = |bytes: u64, part: u64, memory: u64| {
            let large = Large::new(file("f", bytes * MIB), false, part * MIB);
            let unit = Unit::Part(Arc::new(large), 0);
            assert_eq!(unit.memory(&Memory::flat()), memory * MIB, "{bytes} in {part}");
        };
        check(20, 8, 9); // with what an open brings
        check(20, 512, 21);
        check(512, 512, 513);
        check(600, 512, 513);
    }
}
