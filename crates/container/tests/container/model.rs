//! Random writers against a flat file that anyone can believe.
//!
//! The model keeps every write and every change of size as an event; what an opening sees is all events
//! that it knows, done again, the one that wins last.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hayase_container::{
    Access, Container, ContainerFile, Durability, Finished, Joining, Reader, Replace, Snapshot,
    Write, check, export,
};
use hayase_layout::{ByteCount, Epoch, GlobalOffset, StreamMap, StreamOffset, View};
use proptest::prelude::*;

use super::{create, cyclic, extent, identity, open, published, read_all, window};

const OPENINGS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    At {
        who: usize,
        start: u64,
        len: u64,
    },
    Strided {
        who: usize,
        start: u64,
        block: u64,
        gap: u64,
        count: u64,
    },
    Through {
        who: usize,
        view: usize,
        start: u64,
        len: u64,
    },
    Publish {
        who: usize,
    },
    Refresh {
        who: usize,
    },
    Sync {
        who: usize,
    },
    SetSize {
        who: usize,
        size: u64,
    },
    Preallocate {
        who: usize,
        size: u64,
    },
    /// Closed and opened with another rank.
    Reopen {
        who: usize,
        rank: u32,
    },
    /// Dropped without being closed, and opened.
    Kill {
        who: usize,
        rank: u32,
    },
    /// Joining parts from the second one on, or as it comes.
    Compact {
        joins: bool,
    },
    /// Another process of the group tells what it knows.
    Adopt {
        who: usize,
        from: usize,
    },
    Read {
        who: usize,
        start: u64,
        len: u64,
        view: usize,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = 0..OPENINGS;
    prop_oneof![
        6 => (who.clone(), 0..60u64, 1..20u64)
            .prop_map(|(who, start, len)| Step::At { who, start, len }),
        3 => (who.clone(), 0..40u64, 1..5u64, 0..5u64, 1..6u64).prop_map(
            |(who, start, block, gap, count)| Step::Strided { who, start, block, gap, count }
        ),
        5 => (who.clone(), 0..3usize, 0..20u64, 1..24u64)
            .prop_map(|(who, view, start, len)| Step::Through { who, view, start, len }),
        2 => who.clone().prop_map(|who| Step::Publish { who }),
        2 => who.clone().prop_map(|who| Step::Refresh { who }),
        3 => who.clone().prop_map(|who| Step::Sync { who }),
        1 => (who.clone(), 0..90u64).prop_map(|(who, size)| Step::SetSize { who, size }),
        1 => (who.clone(), 0..90u64).prop_map(|(who, size)| Step::Preallocate { who, size }),
        1 => (who.clone(), 0..4u32).prop_map(|(who, rank)| Step::Reopen { who, rank }),
        1 => (who.clone(), 0..4u32).prop_map(|(who, rank)| Step::Kill { who, rank }),
        2 => any::<bool>().prop_map(|joins| Step::Compact { joins }),
        1 => (who.clone(), 0..OPENINGS).prop_map(|(who, from)| Step::Adopt { who, from }),
        6 => (who, 0..90u64, 0..60u64, 0..4usize)
            .prop_map(|(who, start, len, view)| Step::Read { who, start, len, view }),
    ]
}

/// The first two tile the file between them; the third is another decomposition.
fn views() -> [View; 3] {
    [cyclic(0, 4, 8), cyclic(4, 4, 8), cyclic(3, 7, 11)]
}

/// Two parts with something in them become one.
pub(super) const EAGER: Joining =
    Joining { parts_max: 1, bytes_max: ByteCount::mib(1), ..Joining::AT_CLOSE };

#[derive(Clone, Debug)]
enum What {
    /// Each byte that is written, in order.
    Bytes(Vec<(u64, u8)>),
    Cut(u64),
    Grow(u64),
}

#[derive(Clone, Debug)]
struct Event {
    epoch: Epoch,
    /// Rank, then writer: lower wins.
    key: (u32, u32),
    opening: u32,
    is_published: bool,
    what: What,
}

struct Opening {
    file: ContainerFile,
    number: u32,
    rank: u32,
    /// Events of others that it knows.
    known: BTreeSet<usize>,
}

struct Scene {
    container: Container,
    openings: Vec<Opening>,
    opened: u32,
    events: Vec<Event>,
}

impl Scene {
    fn new(container: Container) -> Self {
        let mut scene = Self { container, openings: Vec::new(), opened: 0, events: Vec::new() };
        for rank in 0..OPENINGS {
            let opening = scene.open(rank as u32);
            scene.openings.push(opening);
        }
        scene
    }

    fn open(&mut self, rank: u32) -> Opening {
        self.opened += 1;
        let file = open(&self.container, self.opened, rank);
        Opening { file, number: self.opened, rank, known: self.all_published() }
    }

    fn all_published(&self) -> BTreeSet<usize> {
        (0..self.events.len()).filter(|at| self.events[*at].is_published).collect()
    }

    fn visible(&self, who: usize) -> Vec<&Event> {
        let opening = &self.openings[who];
        let knows = |(at, event): &(usize, &Event)| {
            event.opening == opening.number || opening.known.contains(at)
        };
        self.events.iter().enumerate().filter(knows).map(|(_, event)| event).collect()
    }

    fn note(&mut self, who: usize, what: What, is_published: bool, epoch: Epoch) {
        let Opening { number, rank, .. } = self.openings[who];
        let key = (rank, number);
        self.events.push(Event { epoch, key, opening: number, is_published, what });
    }

    fn write(&mut self, who: usize, write: Write, places: &[u64]) {
        let stamp = self.events.len() as u8;
        let data: Vec<u8> = (0..places.len() as u8)
            .map(|nth| stamp.wrapping_mul(37).wrapping_add(nth) | 1)
            .collect();
        let file = &self.openings[who].file;
        file.write(write, &data).unwrap();
        let epoch = file.epoch();
        let bytes = places.iter().copied().zip(data).collect();
        self.note(who, What::Bytes(bytes), false, epoch);
    }

    fn publish(&mut self, who: usize) {
        let number = self.openings[who].number;
        self.events
            .iter_mut()
            .filter(|event| event.opening == number)
            .for_each(|event| event.is_published = true);
    }

    fn refresh(&mut self, who: usize) {
        self.openings[who].known = self.all_published();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::At { who, start, len } => {
                let places: Vec<_> = (start..start + len).collect();
                self.write(who, Write::At(extent(start, len)), &places);
            }
            Step::Strided { who, start, block, gap, count } => {
                for nth in 0..count {
                    let start = start + nth * (block + gap);
                    let places: Vec<_> = (start..start + block).collect();
                    self.write(who, Write::At(extent(start, block)), &places);
                }
            }
            Step::Through { who, view, start, len } => {
                let view = &views()[view];
                let places: Vec<_> = (start..start + len)
                    .map(|at| view.forward(StreamOffset(at)).unwrap().0)
                    .collect();
                let view = self.openings[who].file.declare_view(view);
                self.write(who, Write::Through { view, window: window(start, len) }, &places);
            }
            Step::Publish { who } => {
                self.openings[who].file.publish(Durability::Written).unwrap();
                self.publish(who);
            }
            Step::Refresh { who } => {
                self.openings[who].file.refresh().unwrap();
                self.refresh(who);
            }
            Step::Sync { who } => {
                self.openings[who].file.sync(Durability::Durable).unwrap();
                self.publish(who);
                self.refresh(who);
            }
            Step::SetSize { who, size } => {
                let file = &self.openings[who].file;
                let epoch = file.proposed_epoch();
                file.set_size(ByteCount(size), epoch).unwrap();
                self.publish(who);
                self.note(who, What::Cut(size), true, epoch);
            }
            Step::Preallocate { who, size } => {
                let file = &self.openings[who].file;
                if file.size().unwrap().get() < size {
                    file.preallocate(ByteCount(size)).unwrap();
                    let epoch = file.epoch();
                    self.publish(who);
                    self.note(who, What::Grow(size), true, epoch);
                }
            }
            Step::Reopen { who, rank } => {
                self.openings[who].file.close(Durability::Written).unwrap();
                self.publish(who);
                self.openings[who] = self.open(rank);
            }
            Step::Kill { who, rank } => {
                let number = self.openings[who].number;
                self.openings[who] = self.open(rank);
                // What was not published is gone, for everybody.
                self.events
                    .iter_mut()
                    .filter(|event| event.opening == number && !event.is_published)
                    .for_each(|event| event.what = What::Bytes(Vec::new()));
            }
            Step::Compact { joins } => {
                let joining = if joins { EAGER } else { Joining::default() };
                self.container.compact_joining(Finished::Closed, joining).unwrap();
                // Who reads a part that is gone sees what is published now.
                for who in 0..OPENINGS {
                    self.openings[who].file.refresh().unwrap();
                    self.refresh(who);
                }
            }
            Step::Adopt { who, from } if who != from => {
                self.openings[from].file.publish(Durability::Written).unwrap();
                self.publish(from);
                let told = self.openings[from].file.snapshot().unwrap();
                let told = Snapshot::decode(&told.encode()).unwrap();
                self.openings[who].file.adopt(told);
                let number = self.openings[from].number;
                let own = (0..self.events.len()).filter(|at| self.events[*at].opening == number);
                let known = own.chain(self.openings[from].known.iter().copied()).collect();
                self.openings[who].known = known;
            }
            Step::Adopt { .. } => {}
            Step::Read { who, start, len, view } => self.compare(who, start, len, view),
        }
    }

    fn compare(&self, who: usize, start: u64, len: u64, view: usize) {
        let expected = flat(&self.visible(who));
        let file = &self.openings[who].file;
        assert_eq!(file.size().unwrap().get(), expected.len() as u64, "size");
        let mut buffer = vec![0xee; len as usize];
        let (count, places): (usize, Vec<u64>) = match views().get(view) {
            None => {
                let count = file.read_at(GlobalOffset(start), &mut buffer).unwrap();
                (count, (start..start + len).collect())
            }
            Some(view) => {
                let from = StreamOffset(start / 2);
                let count = file.read_through(view, from, &mut buffer).unwrap();
                let at = |nth| view.forward(StreamOffset(from.0 + nth)).unwrap().0;
                (count, (0..len).map(at).collect())
            }
        };
        let inside = places.iter().take_while(|place| **place < expected.len() as u64);
        let bytes: Vec<u8> = inside.map(|place| expected[*place as usize]).collect();
        assert_eq!(&buffer[..count], &bytes[..]);
        let planned = by_plan(&file.reader().unwrap(), start, len, views().get(view));
        assert_eq!(planned, bytes, "by a plan");
    }
}

/// Reads as [`Scene::compare`] does, but plans first.
fn by_plan(reader: &Reader, start: u64, len: u64, view: Option<&View>) -> Vec<u8> {
    let mut buffer = vec![0xdd; len as usize];
    let plan = match view {
        None => reader.plan_at(GlobalOffset(start), &mut buffer),
        Some(view) => reader.plan_through(view, StreamOffset(start / 2), &mut buffer),
    };
    let plan = plan.unwrap();
    assert!(!plan.is_cut, "a few pieces");
    let mut same = buffer.clone();
    let cost = reader.read_planned(&plan.wanted, &mut buffer).unwrap();
    assert_eq!(cost, plan.cost());
    // By somebody who knows the writers from elsewhere, and was asked in another order.
    let writers: Vec<_> = reader.index().parts().iter().map(|writer| writer.id).collect();
    let asked = plan.wanted.into_iter().rev().collect();
    assert_eq!(reader.read_wanted(&writers, asked, &mut same).unwrap(), cost);
    assert_eq!(same, buffer);
    buffer.truncate(plan.bytes);
    buffer
}

/// Syncs of compactions cost nothing there; what they are for is tried in [`super::crash`].
pub(super) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The file that these events make.
fn flat(events: &[&Event]) -> Vec<u8> {
    let mut cuts = Vec::new();
    for event in events {
        if let What::Cut(size) = event.what {
            cuts.push((event.epoch, size));
        }
    }
    let bound = |epoch: Epoch| {
        cuts.iter().filter(|(cut, _)| *cut > epoch).map(|(_, size)| *size).min().unwrap_or(u64::MAX)
    };
    let mut sorted = events.to_vec();
    // Stable: of one opening and epoch the later write stays behind the earlier one.
    sorted.sort_by_key(|event| (event.epoch, Reverse(event.key)));
    let mut file: Vec<u8> = Vec::new();
    let mut size = cuts.iter().max().map_or(0, |(_, size)| *size);
    for event in sorted {
        match &event.what {
            What::Bytes(bytes) => {
                for (place, byte) in bytes.iter().filter(|(place, _)| *place < bound(event.epoch)) {
                    file.resize(file.len().max(*place as usize + 1), 0);
                    file[*place as usize] = *byte;
                }
            }
            What::Grow(to) => size = size.max((*to).min(bound(event.epoch))),
            What::Cut(_) => {}
        }
    }
    let len = file.len().max(size as usize);
    file.resize(len, 0);
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn containers_agree_with_a_flat_file(steps in prop::collection::vec(any_step(), 0..50)) {
        let top = in_memory();
        let path = top.path().join("F");
        let mut scene = Scene::new(create(&path));
        for step in steps {
            scene.take(step);
        }
        for who in 0..OPENINGS {
            scene.compare(who, 0, 200, 3);
            scene.compare(who, 0, 200, 2);
            scene.openings[who].file.close(Durability::Written).unwrap();
            scene.publish(who);
        }
        let all: Vec<_> = scene.events.iter().filter(|event| event.is_published).collect();
        let expected = flat(&all);
        prop_assert_eq!(&published(&path), &expected);

        let report = check(&path).unwrap();
        prop_assert!(report.is_sound(), "{:?}", report.problems);
        prop_assert_eq!(report.size, Some(ByteCount(expected.len() as u64)));

        let told = scene.container.compact_joining(Finished::All, EAGER).unwrap();
        prop_assert!(told.records_after <= told.records_before);
        prop_assert_eq!(&published(&path), &expected);
        prop_assert!(check(&path).unwrap().is_sound());
        prop_assert_eq!(scene.container.compact(Finished::All).unwrap().indexes_removed, 0);
        scene.container.flatten(&mut |_| {}).unwrap();
        prop_assert_eq!(&published(&path), &expected);
        prop_assert!(scene.container.load().unwrap().logs().len() <= 1);
        prop_assert!(check(&path).unwrap().is_sound());

        let target = top.path().join("flat");
        let who = identity(9999, 0);
        let file = ContainerFile::open(scene.container.clone(), Access::Read, who, None).unwrap();
        let reader = file.reader().unwrap();
        export(&reader, &target, Replace::Never, &mut |_| {}).unwrap();
        prop_assert_eq!(&std::fs::read(&target).unwrap(), &expected);
        prop_assert_eq!(&read_all(&file), &expected);
    }
}
