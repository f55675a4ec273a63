//! The queue between planning and streams. A large file is cut into parts when its turn comes, so that their size
//! is what is known to be good by then, and stays.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::large::Large;
use crate::limits::PARTS_BYTES_MIN;
use crate::plan::{Task, Work};

/// What a stream takes from the queue.
pub(super) enum Unit {
    Work(Work),
    Part(Arc<Large>, usize),
}

/// The queue, and how many were taken from it: each unit has its number.
pub(super) struct Units {
    receiver: Receiver<Work>,
    taken: u64,
    /// A file of which parts are left, and the next of them.
    begun: Option<(Arc<Large>, usize)>,
}

impl Units {
    /// The first unit has the number `taken`.
    pub(super) fn new(receiver: Receiver<Work>, taken: u64) -> Self {
        Self { receiver, taken, begun: None }
    }

    /// `None` when there will be no more; `cut` is told whether a file lies beside packs.
    pub(super) fn take(&mut self, cut: impl Fn(Task, bool) -> Large) -> Option<(u64, Unit)> {
        let unit = match self.next_part() {
            Some(part) => part,
            None => match self.receiver.recv().ok()? {
                Work::Loose(task) if task.item.bytes() >= PARTS_BYTES_MIN => {
                    self.begin(cut(task, true))
                }
                Work::Parts(task) => self.begin(cut(task, false)),
                work => Unit::Work(work),
            },
        };
        let number = self.taken;
        self.taken += 1;
        Some((number, unit))
    }

    /// Its first part.
    fn begin(&mut self, large: Large) -> Unit {
        let large = Arc::new(large);
        self.begun = Some((Arc::clone(&large), 1));
        Unit::Part(large, 0)
    }

    fn next_part(&mut self) -> Option<Unit> {
        let (large, next) = self.begun.take()?;
        if next >= large.parts() {
            return None;
        }
        self.begun = Some((Arc::clone(&large), next + 1));
        Some(Unit::Part(large, next))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use hayase_tier::Key;

    use super::*;
    use crate::compare::Step;
    use crate::item::{Item, Kind};
    use crate::source::Origin;
    use crate::{Mtime, limits::PART_BYTES};

    fn file(name: &str, bytes: u64) -> Task {
        let name = Key::new(name).unwrap();
        let item = Item { name, kind: Kind::File { bytes }, mode: 0o644, mtime: Mtime::EPOCH };
        Task { item, origin: Origin::Object(None), step: Step::Copy }
    }

    #[test]
    fn a_file_keeps_the_parts_it_began_with() {
        let (sender, receiver) = sync_channel(4);
        sender.send(Work::Parts(file("a", 3 * PART_BYTES + 1))).unwrap();
        sender.send(Work::Copy(vec![file("b", 1)])).unwrap();
        sender.send(Work::Loose(file("c", 1))).unwrap();
        sender.send(Work::Loose(file("d", 4 * PART_BYTES))).unwrap();
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
        assert_eq!(taken, [(0, 1), (1, 1), (2, 1), (3, 1), whole, whole, (0, 64)]);
    }
}
