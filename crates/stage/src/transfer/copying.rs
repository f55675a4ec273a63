//! What a stream does with a batch: small files, directories, links and attributes, one after the other.

use std::borrow::Cow;

use super::asking::Asking;
use super::group::Group;
use super::reading::Reading;
use super::report::Report;
use super::stretch::{PackStretch, first_and_last, location};
use super::writing::Writing;
use crate::compare::Step;
use crate::item::{Item, Kind};
use crate::limits::{GROUP_FILE_BYTES_MAX, GROUP_ITEMS_MAX, PARTS_BYTES_MIN};
use crate::pack::{PackError, Row};
use crate::plan::Task;
use crate::source::Origin;

/// Copies items to items.
pub(super) struct Copying<'a> {
    pub(super) reading: &'a Reading<'a>,
    pub(super) writing: &'a Writing<'a>,
    pub(super) asking: &'a Asking<'a>,
    pub(super) report: &'a Report<'a>,
}

impl Copying<'_> {
    /// Items become items; `buffer` is used for what is read of a pack.
    pub(super) fn copy(&self, mut tasks: Vec<Task>, buffer: &mut Vec<u8>) {
        let mut stretch = match first_and_last(&tasks) {
            Some((first, last)) => {
                Read::of(self.reading.stretch(first, last, std::mem::take(buffer)))
            }
            None => Read::Nothing,
        };
        while !tasks.is_empty() && !self.report.is_stopped() {
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
            if self.report.is_stopped() {
                return;
            }
            let name = task.item.name.clone();
            let task = match task.step {
                Step::Ask(there) => match self.asking.asked(task, there) {
                    Ok(Some(task)) => task,
                    Ok(None) => continue,
                    Err(error) => {
                        self.report.failed(&name.to_string(), error);
                        continue;
                    }
                },
                _ => task,
            };
            let is_entry = is_file_in_pack(&task) && task.step != Step::Attributes;
            let done = match stretch {
                Read::Whole(stretch) if is_entry => match stretch.entry(row_of(&task)) {
                    Ok(data) => {
                        group.add(task, data, self.writing);
                        continue;
                    }
                    Err(_) => self.entry_alone(&task),
                },
                // Asked for again, one by one: some of them may be whole.
                Read::Failed if is_entry => self.entry_alone(&task),
                _ if self.is_grouped(&task) => {
                    match self.reading.read_object(&task, PARTS_BYTES_MIN) {
                        Ok((item @ Item { kind: Kind::File { .. }, .. }, data)) => {
                            group.add(Task { item, ..task }, Cow::Owned(data), self.writing);
                            continue;
                        }
                        Ok((item, data)) => self.writing.put_link(&task, &item, &data),
                        Err(error) => Err(error),
                    }
                }
                _ => {
                    group.make(self.writing);
                    self.item(&task)
                }
            };
            match done {
                Ok(()) => self.report.copied(1),
                Err(error) => self.report.failed(&name.to_string(), error),
            }
        }
        if !self.report.is_stopped() {
            group.make(self.writing);
        }
    }

    /// A small object of its own that becomes a file of a tree: it is made together with others.
    fn is_grouped(&self, task: &Task) -> bool {
        self.writing.place().tier.tree().is_some()
            && task.step != Step::Attributes
            && location(task).is_none()
            && matches!(task.item.kind, Kind::File { bytes } if bytes <= GROUP_FILE_BYTES_MAX)
    }

    fn entry_alone(&self, task: &Task) -> Result<(), PackError> {
        let at = location(task).expect("an entry lies in a pack");
        let data = self.reading.entry_again(row_of(task), at)?;
        self.writing.put(task, &task.item, &data)
    }

    /// Anything but the bytes of an entry.
    fn item(&self, task: &Task) -> Result<(), PackError> {
        match &task.item.kind {
            _ if task.step == Step::Attributes => self.writing.set_attributes(&task.item),
            Kind::File { .. } => {
                // A name that is too long there need not be read.
                self.writing.place().key(task.item.name.as_bytes())?;
                let (item, data) = self.reading.read_object(task, PARTS_BYTES_MIN)?;
                match item.kind {
                    Kind::Link { .. } => self.writing.put_link(task, &item, &data),
                    _ => self.writing.put(task, &item, &data),
                }
            }
            Kind::Directory => {
                self.writing.make_directory(&task.item.name, || self.reading.directory(task))
            }
            Kind::Link { target } => self.writing.put_link(task, &task.item, target),
        }
    }
}

fn is_file_in_pack(task: &Task) -> bool {
    location(task).is_some() && matches!(task.item.kind, Kind::File { .. })
}

fn row_of(task: &Task) -> &Row {
    let Origin::Row(row) = &task.origin else { unreachable!("an entry of a pack has a row") };
    row
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
