//! Small files that a stream has in memory and makes together, so that a directory's names are made durable
//! once for all of them.

use std::borrow::Cow;

use hayase_tier::{Key, Precondition, TierError, Whole};

use super::Shared;
use super::streams::attributes;
use crate::compare::Step;
use crate::limits::{GROUP_ITEMS_MAX, PIECE_BYTES};
use crate::pack::PackError;
use crate::plan::Task;

/// Files that wait to be made.
#[derive(Default)]
pub(super) struct Group<'a> {
    files: Vec<(Task, Cow<'a, [u8]>)>,
    /// Bytes that the group itself holds.
    owned: usize,
}

impl<'a> Group<'a> {
    fn push(&mut self, task: Task, data: Cow<'a, [u8]>) {
        if let Cow::Owned(data) = &data {
            self.owned += data.len();
        }
        self.files.push((task, data));
    }

    fn is_full(&self) -> bool {
        self.files.len() >= GROUP_ITEMS_MAX || self.owned >= PIECE_BYTES
    }
}

impl Shared<'_> {
    /// Adds a file to the group; makes all of them when it is full.
    pub(super) fn group<'a>(&self, group: &mut Group<'a>, task: Task, data: Cow<'a, [u8]>) {
        group.push(task, data);
        if group.is_full() {
            self.make(group);
        }
    }

    /// Makes all files of the group, and leaves it empty.
    pub(super) fn make(&self, group: &mut Group<'_>) {
        let files = std::mem::take(group).files;
        let (mut keys, mut ready) =
            (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for (task, data) in &files {
            match self.room_for(task) {
                Ok(key) => {
                    keys.push(key);
                    ready.push((task, data));
                    self.bandwidth.wait(data.len());
                    // They arrive together: otherwise a slow line would show nothing for seconds.
                    self.arrived(data.len());
                }
                Err(error) => self.failed(&task.item.name.to_string(), error),
            }
        }
        let objects: Vec<Whole<'_>> = keys
            .iter()
            .zip(&ready)
            .map(|(key, (task, data))| Whole { key, attributes: attributes(&task.item), data })
            .collect();
        let answers = self.target.tier.put_each(&objects);
        let mut made = 0;
        for ((answer, object), (task, _)) in answers.into_iter().zip(&objects).zip(&ready) {
            let answer = match answer {
                // As with what was not begun: the transfer is over, and these are not listed one by one.
                Err(TierError::Unavailable { .. }) if self.is_stopped() => continue,
                Err(TierError::Unavailable { .. }) => self.again(|| {
                    let Whole { key, attributes, data } = *object;
                    self.target.tier.put(key, attributes, data, Precondition::Any)?;
                    Ok(())
                }),
                answer => answer.map_err(PackError::from),
            };
            match answer {
                Ok(()) => made += 1,
                Err(error) => self.failed(&task.item.name.to_string(), error),
            }
        }
        self.copied(made);
    }

    /// Takes away what a file can not replace.
    fn room_for(&self, task: &Task) -> Result<Key, PackError> {
        if task.step == Step::Replace {
            self.remove_other(task)?;
        }
        Ok(self.target.key(task.item.name.as_bytes())?)
    }
}
