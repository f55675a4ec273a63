//! Which files travel together: pure; items go in, in order, units of work come out.
//!
//! A unit is what one stream does at a time: a pack to be written, a stretch of a pack to be read, some
//! small files, or one large file, which is cut into parts that several streams move.

use crate::compare::Step;
use crate::item::{Item, Kind};
use crate::limits::{
    BATCH_BYTES, BATCH_ITEMS_MAX, BATCH_LOOSE_BYTES, BATCH_LOOSE_MAX, GAP_BYTES_MAX, PART_BYTES,
    PARTS_BYTES_MIN, PARTS_MAX, PARTS_MIN, PIECE_BYTES,
};
use crate::pack::{Codec, header};
use crate::source::Origin;

/// One item and what is to be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// As the source had it when it was listed.
    pub item: Item,
    /// Where its bytes are.
    pub origin: Origin,
    /// Never `Keep` or `Spare`.
    pub step: Step,
}

/// What one stream does at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Items that become items: small files, directories, links. Those of packs lie in one stretch of
    /// one pack.
    Copy(Vec<Task>),
    /// A large file, in parts.
    Parts(Task),
    /// Items that become one pack, in order.
    Pack(Vec<Task>),
    /// A large file that becomes an object beside the packs.
    Loose(Task),
    /// A large file that becomes a pack of its own: nothing of a sealed set is loose.
    Solo(Task),
}

/// How packs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackRules {
    /// What a pack is filled to; larger files are not packed with others.
    pub bytes: u64,
    /// Most names in each.
    pub entries: usize,
    /// Large files go into packs of their own, as in every sealed set; otherwise they stay loose.
    pub is_complete: bool,
}

/// Collects items into units.
#[derive(Debug)]
pub struct Planner {
    packs: Option<PackRules>,
    batch: Vec<Task>,
    /// Of the batch: bytes of the tar, or of the files.
    bytes: u64,
}

impl Planner {
    /// `packs` when the target is a set of packs.
    pub fn new(packs: Option<PackRules>) -> Self {
        Self { packs, batch: Vec::new(), bytes: 0 }
    }

    /// Takes one task; answers the units that are complete, at most two.
    pub fn push(&mut self, task: Task) -> impl Iterator<Item = Work> + use<> {
        let (mut before, mut alone) = (None, None);
        match self.packs {
            Some(rules) if task.item.bytes() > rules.bytes => {
                alone = Some(if rules.is_complete { Work::Solo(task) } else { Work::Loose(task) });
            }
            Some(rules) => {
                let bytes = member_bytes(&task.item);
                let is_full = self.bytes + bytes > rules.bytes;
                if is_full || self.batch.len() >= rules.entries {
                    before = self.finish();
                }
                self.bytes += bytes;
                self.batch.push(task);
            }
            None if is_in_parts(&task) => alone = Some(Work::Parts(task)),
            None => {
                let bytes = task.item.bytes();
                let (items_max, bytes_max) = match place(&task) {
                    Some(_) => (BATCH_ITEMS_MAX, BATCH_BYTES),
                    None => (BATCH_LOOSE_MAX, BATCH_LOOSE_BYTES),
                };
                let is_full = self.bytes + bytes > bytes_max || self.batch.len() >= items_max;
                if is_full || !self.joins(&task) {
                    before = self.finish();
                }
                self.bytes += bytes;
                self.batch.push(task);
            }
        }
        before.into_iter().chain(alone)
    }

    /// What is left.
    pub fn finish(&mut self) -> Option<Work> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        match self.packs {
            _ if batch.is_empty() => None,
            Some(_) => Some(Work::Pack(batch)),
            None => Some(Work::Copy(batch)),
        }
    }

    /// The task lies in the stretch of a pack that the batch has begun, or neither lies in a pack.
    fn joins(&self, task: &Task) -> bool {
        let Some(last) = self.batch.last() else { return true };
        match (place(last), place(task)) {
            (None, None) => true,
            (Some((pack, _, end)), Some((next, start, next_end))) => {
                let first = self.batch.iter().find_map(place).map_or(start, |(_, start, _)| start);
                let has_gap = start.checked_sub(end).is_none_or(|gap| gap > GAP_BYTES_MAX);
                pack == next && !has_gap && next_end - first <= 2 * BATCH_BYTES
            }
            _ => false,
        }
    }
}

/// Pack, begin and end of the stored bytes.
fn place(task: &Task) -> Option<(u32, u64, u64)> {
    let Origin::Row(row) = &task.origin else { return None };
    row.location.map(|at| (at.pack, at.offset, at.offset + at.stored))
}

/// Large enough that its parts are worth several streams; a compressed entry is one piece.
fn is_in_parts(task: &Task) -> bool {
    let is_frame = match &task.origin {
        Origin::Row(row) => row.location.is_some_and(|at| at.codec == Codec::Zstd),
        Origin::Object(_) => false,
    };
    matches!(task.step, Step::Copy | Step::Replace)
        && task.item.bytes() >= PARTS_BYTES_MIN
        && !is_frame
}

/// Bytes of a tar that an item takes, with a header of usual length.
fn member_bytes(item: &Item) -> u64 {
    match item.kind {
        Kind::File { bytes } => header::BLOCK as u64 + bytes.next_multiple_of(header::BLOCK as u64),
        Kind::Directory | Kind::Link { .. } => header::BLOCK as u64,
    }
}

/// How large each part of a file is but the last, where parts of `chosen` bytes are good: smaller ones where there
/// would be few, larger ones where there would be too many.
pub fn chosen_part_bytes(bytes: u64, chosen: u64) -> u64 {
    part_bytes(bytes, chosen.min(PART_BYTES.max(whole_pieces(bytes.div_ceil(PARTS_MIN)))))
}

/// The same where a person said `wished`.
pub fn part_bytes(bytes: u64, wished: u64) -> u64 {
    wished.max(whole_pieces(bytes.div_ceil(PARTS_MAX))).max(1)
}

fn whole_pieces(bytes: u64) -> u64 {
    bytes.next_multiple_of(PIECE_BYTES as u64)
}

/// Begin and length of each part of a file, in order; each has `part` bytes but the last.
pub fn parts(bytes: u64, part: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(part)).map(move |number| {
        let start = number * part;
        (start, part.min(bytes - start))
    })
}

/// Bytes of the pack that items become, about: its members and the lines of its index.
pub fn pack_bytes(tasks: &[Task]) -> u64 {
    let index_line = |task: &Task| 160 + 2 * task.item.name.as_bytes().len() as u64;
    tasks.iter().map(|task| member_bytes(&task.item) + index_line(task)).sum::<u64>() + 4096
}

#[cfg(test)]
mod tests {
    use hayase_tier::Key;
    use proptest::prelude::*;

    use super::*;
    use crate::Mtime;
    use crate::limits::{PACK_ENTRIES_MAX, PART_BYTES_MIN};
    use crate::pack::{Location, Row};

    fn task(number: usize, bytes: u64, location: Option<Location>) -> Task {
        let name = Key::new(format!("f{number:06}")).unwrap();
        let item = Item { name, kind: Kind::File { bytes }, mode: 0o644, mtime: Mtime::EPOCH };
        let row = |location| Row { item: item.clone(), crc32c: 0, location: Some(location) };
        let origin = location.map_or(Origin::Object(None), |at| Origin::Row(row(at)));
        Task { item: item.clone(), origin, step: Step::Copy }
    }

    fn plan(packs: Option<PackRules>, tasks: &[Task]) -> Vec<Work> {
        let mut planner = Planner::new(packs);
        let mut work: Vec<_> = tasks.iter().flat_map(|task| planner.push(task.clone())).collect();
        work.extend(planner.finish());
        work
    }

    fn tasks_of(work: &Work) -> &[Task] {
        match work {
            Work::Copy(tasks) | Work::Pack(tasks) => tasks,
            Work::Parts(task) | Work::Loose(task) | Work::Solo(task) => std::slice::from_ref(task),
        }
    }

    #[test]
    fn large_files_go_alone_in_a_way_that_suits_the_set() {
        let tasks = [task(1, 100, None), task(2, 5000, None), task(3, 100, None)];
        let rules =
            |is_complete| Some(PackRules { bytes: 4096, entries: PACK_ENTRIES_MAX, is_complete });
        let kinds = |packs| -> Vec<String> {
            plan(packs, &tasks).iter().map(|work| format!("{work:?}")[..4].to_owned()).collect()
        };
        assert_eq!(kinds(rules(false)), ["Loos", "Pack"]);
        assert_eq!(kinds(rules(true)), ["Solo", "Pack"]);
        assert_eq!(kinds(None), ["Copy"]);
        let large = plan(None, &[task(1, PARTS_BYTES_MIN, None)]);
        assert!(matches!(large[..], [Work::Parts(_)]));
    }

    #[test]
    fn a_stretch_of_a_pack_is_read_at_once() {
        let at = |pack, offset| Some(Location { pack, offset, stored: 1000, codec: Codec::Raw });
        let check = |places: &[Option<Location>], units: usize| {
            let tasks: Vec<_> =
                places.iter().enumerate().map(|(number, at)| task(number, 1000, *at)).collect();
            assert_eq!(plan(None, &tasks).len(), units, "{places:?}");
        };
        check(&[at(0, 512), at(0, 2048), at(0, 3584)], 1);
        check(&[at(0, 512), at(1, 512)], 2);
        check(&[at(0, 2048), at(0, 512)], 2); // never backwards
        check(&[at(0, 512), at(0, 512 + 1024 + 2 * GAP_BYTES_MAX)], 2); // too far
        check(&[at(0, 512), None, at(0, 2048)], 3);
    }

    proptest! {
        #[test]
        fn every_task_is_in_one_unit_and_units_are_bounded(
            sizes in prop::collection::vec(prop_oneof![0u64..20_000, 0u64..200 << 20], 0..200),
            packs in prop::option::of((65_536u64..4 << 20, any::<bool>())),
        ) {
            let rules = packs.map(|(bytes, is_complete)| {
                PackRules { bytes, entries: PACK_ENTRIES_MAX, is_complete }
            });
            let tasks: Vec<_> = sizes.iter().enumerate().map(|(n, &bytes)| task(n, bytes, None)).collect();
            let work = plan(rules, &tasks);
            let mut planned: Vec<_> = work.iter().flat_map(tasks_of).cloned().collect();
            planned.sort_by(|a, b| a.item.order(&b.item));
            prop_assert_eq!(planned, tasks);
            for unit in &work {
                let bytes: u64 = tasks_of(unit).iter().map(|task| member_bytes(&task.item)).sum();
                match (unit, rules) {
                    (Work::Pack(tasks), Some(rules)) => {
                        prop_assert!(bytes <= rules.bytes || tasks.len() == 1);
                    }
                    (Work::Copy(tasks), None) => {
                        let bytes: u64 = tasks.iter().map(|task| task.item.bytes()).sum();
                        prop_assert!(bytes <= BATCH_LOOSE_BYTES || tasks.len() == 1);
                        prop_assert!(tasks.len() <= BATCH_LOOSE_MAX);
                    }
                    (Work::Loose(task) | Work::Solo(task), Some(rules)) => {
                        prop_assert!(task.item.bytes() > rules.bytes);
                    }
                    (Work::Parts(task), None) => prop_assert!(task.item.bytes() >= PARTS_BYTES_MIN),
                    (unit, rules) => prop_assert!(false, "{unit:?} under {rules:?}"),
                }
            }
        }

        #[test]
        fn parts_cover_a_file(
            bytes in prop_oneof![0u64..1 << 34, 0u64..5 << 40],
            chosen in prop_oneof![Just(PART_BYTES), PART_BYTES_MIN..512 << 20],
            is_fixed: bool,
        ) {
            let part = if is_fixed { part_bytes(bytes, chosen) } else { chosen_part_bytes(bytes, chosen) };
            let (mut end, mut count) = (0, 0);
            for (start, len) in parts(bytes, part) {
                prop_assert_eq!(start, end);
                // Stores: all equal but the last, which is smaller.
                prop_assert!(len == part || start + len == bytes && len > 0 && len < part);
                (end, count) = (end + len, count + 1);
            }
            prop_assert_eq!(end, bytes);
            prop_assert!(count <= PARTS_MAX);
            let is_huge = bytes > PARTS_MAX * chosen.min(PART_BYTES);
            prop_assert!(is_huge || part <= chosen);
            prop_assert!(part >= PART_BYTES_MIN.min(chosen));
            prop_assert!(is_huge || !is_fixed || part == chosen);
            prop_assert!(is_fixed || part <= PART_BYTES || count >= PARTS_MIN - 1);
        }
    }
}
