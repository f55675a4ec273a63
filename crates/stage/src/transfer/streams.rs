//! What a stream does with a batch: small files, directories, links and attributes, one after the other.

use std::borrow::Cow;
use std::sync::Arc;

use hayase_tier::{Attributes, Precondition, TierError};

use super::Shared;
use super::group::Group;
use crate::compare::Step;
use crate::item::{Item, Kind};
use crate::limits::{
    BATCH_BYTES, GAP_BYTES_MAX, GROUP_FILE_BYTES_MAX, GROUP_ITEMS_MAX, PARTS_BYTES_MIN,
};
use crate::pack::{Location, PackError, PackReader, Row, Stretch};
use crate::plan::Task;
use crate::source::Origin;

/// Mode and time, as the target may keep them.
pub(super) fn attributes(item: &Item) -> Attributes {
    Attributes { mode: Some(item.mode), mtime: Some(item.mtime.into()) }
}

impl Shared<'_> {
    /// Items become items; `buffer` is used for what is read of a pack.
    pub(super) fn copy(&self, mut tasks: Vec<Task>, buffer: &mut Vec<u8>) {
        let mut stretch = match first_and_last(&tasks) {
            Some((first, last)) => Read::of(self.stretch(first, last, std::mem::take(buffer))),
            None => Read::Nothing,
        };
        while !tasks.is_empty() && !self.is_stopped() {
            let rest = tasks.split_off(tasks.len().min(GROUP_ITEMS_MAX));
            let some = std::mem::replace(&mut tasks, rest);
            if let (Read::Whole(stretch), Some((_, last))) = (&mut stretch, first_and_last(&some)) {
                // Where that fails some of them are open, and the others are asked for again.
                let _damaged = stretch.open_through(last);
            }
            self.copy_group(some, &stretch);
        }
        if let Read::Whole(stretch) = stretch {
            *buffer = stretch.into_buffer();
        }
    }

    /// So many that they can be made together.
    fn copy_group(&self, tasks: Vec<Task>, stretch: &Read) {
        let mut group = Group::default();
        for task in tasks {
            if self.is_stopped() {
                return;
            }
            let name = task.item.name.clone();
            let task = match task.step {
                Step::Ask(there) => match self.asked(task, there) {
                    Ok(Some(task)) => task,
                    Ok(None) => continue,
                    Err(error) => {
                        self.failed(&name.to_string(), error);
                        continue;
                    }
                },
                _ => task,
            };
            let is_entry = is_file_in_pack(&task) && task.step != Step::Attributes;
            let done = match stretch {
                Read::Whole(stretch) if is_entry => match stretch.entry(row_of(&task)) {
                    Ok(data) => {
                        self.group(&mut group, task, data);
                        continue;
                    }
                    Err(_) => self.entry_alone(&task),
                },
                // Asked for again, one by one: some of them may be whole.
                Read::Failed if is_entry => self.entry_alone(&task),
                _ if self.is_grouped(&task) => match self.read_object(&task, PARTS_BYTES_MIN) {
                    Ok((item @ Item { kind: Kind::File { .. }, .. }, data)) => {
                        self.group(&mut group, Task { item, ..task }, Cow::Owned(data));
                        continue;
                    }
                    Ok((item, data)) => self.put_link(&task, &item, &data),
                    Err(error) => Err(error),
                },
                _ => {
                    self.make(&mut group);
                    self.item(&task)
                }
            };
            match done {
                Ok(()) => self.copied(1),
                Err(error) => self.failed(&name.to_string(), error),
            }
        }
        if !self.is_stopped() {
            self.make(&mut group);
        }
    }

    /// A small object of its own that becomes a file of a tree: it is made together with others.
    fn is_grouped(&self, task: &Task) -> bool {
        self.target.tier.tree().is_some()
            && task.step != Step::Attributes
            && location(task).is_none()
            && matches!(task.item.kind, Kind::File { bytes } if bytes <= GROUP_FILE_BYTES_MAX)
    }

    /// The bytes of a pack from one entry to another, by one read, into `buffer`.
    pub(super) fn stretch(
        &self,
        first: Location,
        last: Location,
        buffer: Vec<u8>,
    ) -> Result<PackStretch, PackError> {
        let mut buffer = Some(buffer);
        self.again(|| self.read_stretch(first, last, buffer.take().unwrap_or_default()))
    }

    fn read_stretch(
        &self,
        first: Location,
        last: Location,
        buffer: Vec<u8>,
    ) -> Result<PackStretch, PackError> {
        let set = self.source.set().expect("an entry lies in a set");
        let len = usize::try_from(last.offset + last.stored - first.offset).unwrap_or(usize::MAX);
        let pack = self.open_packs.get(set, first.pack)?;
        let bytes = pack.read_stretch(first.offset, len, buffer)?;
        Ok(PackStretch { pack, number: first.pack, bytes })
    }

    /// An entry that did not come whole with others: damage that was done on the way is not there when it is
    /// read again.
    pub(super) fn entry_again(&self, row: &Row, at: Location) -> Result<Vec<u8>, PackError> {
        self.open_packs.clear();
        self.until_whole(|| {
            let mut alone = self.read_stretch(at, at, Vec::new())?;
            alone.open_through(at)?;
            Ok(alone.entry(row)?.into_owned())
        })
    }

    fn entry_alone(&self, task: &Task) -> Result<(), PackError> {
        let at = location(task).expect("an entry lies in a pack");
        let data = self.entry_again(row_of(task), at)?;
        self.put(task, &task.item, &data)
    }

    /// Anything but the bytes of an entry.
    fn item(&self, task: &Task) -> Result<(), PackError> {
        let key = self.target.key(task.item.name.as_bytes())?;
        let tier = &self.target.tier;
        match &task.item.kind {
            _ if task.step == Step::Attributes => {
                self.again(|| match tier.set_attributes(&key, attributes(&task.item)) {
                    Err(TierError::Unsupported { .. }) | Ok(()) => Ok(()),
                    Err(error) => Err(error.into()),
                })
            }
            Kind::File { .. } => {
                let (item, data) = self.read_object(task, PARTS_BYTES_MIN)?;
                match item.kind {
                    Kind::Link { .. } => self.put_link(task, &item, &data),
                    _ => self.put(task, &item, &data),
                }
            }
            Kind::Directory => match (tier.tree(), tier.marks()) {
                (Some(tree), _) => self.again(|| Ok(tree.make_directory(&key)?)),
                (None, marks) => {
                    let marks = marks.expect("a target without directories gets none");
                    let item = self.directory_of(task)?;
                    self.again(|| Ok(marks.mark_directory(&key, attributes(&item))?))
                }
            },
            Kind::Link { target } => self.put_link(task, &task.item, target),
        }
    }

    /// A directory of the source with its mode and time.
    fn directory_of(&self, task: &Task) -> Result<Item, PackError> {
        match task.origin {
            Origin::Object(_) => {
                self.again(|| Ok(self.source.place().told_directory(&task.item)?))
            }
            Origin::Row(_) => Ok(task.item.clone()),
        }
    }

    /// Makes a symbolic link, or what stands for one in a store.
    fn put_link(&self, task: &Task, item: &Item, target: &[u8]) -> Result<(), PackError> {
        let key = self.target.key(item.name.as_bytes())?;
        let tier = &self.target.tier;
        let Some(tree) = tier.tree() else {
            let marks = tier.marks().expect("a target without links gets none");
            return self.again(|| Ok(marks.mark_link(&key, target, attributes(item))?));
        };
        if task.step == Step::Replace {
            self.remove_other(task)?;
        }
        self.again(|| match tree.make_link(&key, target) {
            // Its listing showed a file where a file is; that it is a link is known only now.
            Err(TierError::NotObject { .. }) if matches!(task.item.kind, Kind::File { .. }) => {
                tier.delete(&key)?;
                Ok(tree.make_link(&key, target)?)
            }
            other => Ok(other?),
        })
    }

    /// A file or link that stands where the other is to be.
    pub(super) fn remove_other(&self, task: &Task) -> Result<(), PackError> {
        let key = self.target.key(task.item.name.as_bytes())?;
        let tier = &self.target.tier;
        let removed = match (&task.item.kind, tier.tree()) {
            (Kind::File { .. }, Some(tree)) => tree.remove_link(&key),
            _ => tier.delete(&key),
        };
        match removed {
            Ok(()) | Err(TierError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a whole file.
    fn put(&self, task: &Task, item: &Item, data: &[u8]) -> Result<(), PackError> {
        if task.step == Step::Replace {
            self.remove_other(task)?;
        }
        let key = self.target.key(item.name.as_bytes())?;
        self.bandwidth.wait(data.len());
        self.again(|| {
            self.target.tier.put(&key, attributes(item), data, Precondition::Any)?;
            Ok(())
        })?;
        self.arrived(data.len());
        Ok(())
    }
}

/// Bytes of a pack from the first entry of a batch to its last.
pub(super) fn stretch_bytes(tasks: &[Task]) -> u64 {
    first_and_last(tasks).map_or(0, |(first, last)| last.offset + last.stored - first.offset)
}

/// The last of the tasks that one read brings together with the first, which lies in a pack.
pub(super) fn together(tasks: &[Task], first: Location) -> Location {
    let mut last = first;
    for next in tasks.iter().map_while(location) {
        let gap = next.offset.checked_sub(last.offset + last.stored);
        let is_near = next == first || gap.is_some_and(|gap| gap <= GAP_BYTES_MAX);
        let end = next.offset.saturating_add(next.stored);
        if next.pack != first.pack || !is_near || end.saturating_sub(first.offset) > BATCH_BYTES {
            break;
        }
        last = next;
    }
    last
}

fn is_file_in_pack(task: &Task) -> bool {
    location(task).is_some() && matches!(task.item.kind, Kind::File { .. })
}

fn row_of(task: &Task) -> &Row {
    let Origin::Row(row) = &task.origin else { unreachable!("an entry of a pack has a row") };
    row
}

pub(super) fn location(task: &Task) -> Option<Location> {
    match &task.origin {
        Origin::Row(row) => row.location,
        Origin::Object(_) => None,
    }
}

fn first_and_last(tasks: &[Task]) -> Option<(Location, Location)> {
    let mut places = tasks.iter().filter_map(location);
    let first = places.next()?;
    Some((first, places.next_back().unwrap_or(first)))
}

/// What came of a batch's one read.
enum Read {
    /// None of it lies in a pack.
    Nothing,
    Whole(PackStretch),
    Failed,
}

impl Read {
    fn of(read: Result<PackStretch, PackError>) -> Self {
        read.map_or(Self::Failed, Self::Whole)
    }
}

/// Consecutive bytes of a pack.
pub(super) struct PackStretch {
    pack: Arc<PackReader>,
    /// As rows call it.
    number: u32,
    bytes: Stretch,
}

impl PackStretch {
    /// The buffer, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes.into_buffer()
    }

    /// An entry lies in it.
    pub(super) fn holds(&self, at: Location) -> bool {
        at.pack == self.number && self.bytes.holds(at.offset, at.stored)
    }

    /// Opens it up to the end of an entry, which lies in it, where it is sealed.
    pub(super) fn open_through(&mut self, last: Location) -> Result<(), PackError> {
        self.pack.open_until(&mut self.bytes, last.offset.saturating_add(last.stored))
    }

    /// One entry of it that is open, checked.
    pub(super) fn entry(&self, row: &Row) -> Result<Cow<'_, [u8]>, PackError> {
        self.pack.entry_of(row, &self.bytes)
    }
}
