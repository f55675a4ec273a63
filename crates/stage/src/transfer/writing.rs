//! Making and removing items of the target.

use std::borrow::Cow;

use hayase_tier::{Attributes, Key, Precondition, TierError, Whole};

use super::report::Report;
use super::retries::Retries;
use crate::Place;
use crate::bandwidth::Bandwidth;
use crate::compare::Step;
use crate::item::{Item, Kind, Mtime};
use crate::pack::PackError;
use crate::plan::Task;

/// The target, and the line to it.
pub(super) struct Writing<'a> {
    target: &'a Place,
    bandwidth: Bandwidth,
    report: &'a Report<'a>,
    retries: &'a Retries<'a>,
}

impl<'a> Writing<'a> {
    /// At most `bandwidth` bytes go in a second.
    pub(super) fn new(
        target: &'a Place,
        bandwidth: Option<u64>,
        report: &'a Report<'a>,
        retries: &'a Retries<'a>,
    ) -> Self {
        Self { target, bandwidth: Bandwidth::new(bandwidth), report, retries }
    }

    /// Where the target is.
    pub(super) fn place(&self) -> &'a Place {
        self.target
    }

    /// Waits until `bytes` may go.
    pub(super) fn wait(&self, bytes: usize) {
        self.bandwidth.wait(bytes);
    }

    /// Waits until `bytes` may go, and counts them: they arrive together with others.
    pub(super) fn wait_and_count(&self, bytes: usize) {
        self.bandwidth.wait(bytes);
        self.report.arrived(bytes);
    }

    /// Makes a whole file.
    pub(super) fn put(&self, task: &Task, item: &Item, data: &[u8]) -> Result<(), PackError> {
        let key = self.room_for(task, item)?;
        self.bandwidth.wait(data.len());
        self.retries.again(|| {
            self.target.tier.put(&key, item.attributes(), data, Precondition::Any)?;
            Ok(())
        })?;
        self.report.arrived(data.len());
        Ok(())
    }

    /// Makes small files together; reports each.
    pub(super) fn put_each(&self, files: &[(Task, Cow<'_, [u8]>)]) {
        let (mut keys, mut ready) =
            (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for (task, data) in files {
            match self.room_for(task, &task.item) {
                Ok(key) => {
                    keys.push(key);
                    ready.push((task, data));
                    // They arrive together: otherwise a slow line would show nothing for seconds.
                    self.wait_and_count(data.len());
                }
                Err(error) => self.report.failed(&task.item.name.to_string(), error),
            }
        }
        let objects: Vec<Whole<'_>> = keys
            .iter()
            .zip(&ready)
            .map(|(key, (task, data))| Whole { key, attributes: task.item.attributes(), data })
            .collect();
        let answers = self.target.tier.put_each(&objects);
        let mut made = 0;
        for ((answer, object), (task, _)) in answers.into_iter().zip(&objects).zip(&ready) {
            let answer = match answer {
                // As with what was not begun: the transfer is over, and these are not listed one by one.
                Err(TierError::Unavailable { .. }) if self.report.is_stopped() => continue,
                Err(TierError::Unavailable { .. }) => self.retries.again(|| {
                    let Whole { key, attributes, data } = *object;
                    self.target.tier.put(key, attributes, data, Precondition::Any)?;
                    Ok(())
                }),
                answer => answer.map_err(PackError::from),
            };
            match answer {
                Ok(()) => made += 1,
                Err(error) => self.report.failed(&task.item.name.to_string(), error),
            }
        }
        self.report.copied(made);
    }

    /// The key of a file, after what the file can not replace was removed.
    fn room_for(&self, task: &Task, item: &Item) -> Result<Key, PackError> {
        if task.step == Step::Replace {
            self.remove_other(task)?;
        }
        Ok(self.target.key(item.name.as_bytes())?)
    }

    /// Makes a directory, or what stands for one in a store, with the attributes that `item` answers.
    pub(super) fn make_directory(
        &self,
        name: &Key,
        item: impl FnOnce() -> Result<Item, PackError>,
    ) -> Result<(), PackError> {
        let (key, tier) = (self.target.key(name.as_bytes())?, &self.target.tier);
        match (tier.tree(), tier.marks()) {
            (Some(tree), _) => self.retries.again(|| Ok(tree.make_directory(&key)?)),
            (None, marks) => {
                let marks = marks.expect("a target without directories gets none");
                let item = item()?;
                self.retries.again(|| Ok(marks.mark_directory(&key, item.attributes())?))
            }
        }
    }

    /// Makes a symbolic link, or what stands for one in a store.
    pub(super) fn put_link(
        &self,
        task: &Task,
        item: &Item,
        target: &[u8],
    ) -> Result<(), PackError> {
        let key = self.target.key(item.name.as_bytes())?;
        let tier = &self.target.tier;
        let Some(tree) = tier.tree() else {
            let marks = tier.marks().expect("a target without links gets none");
            return self.retries.again(|| Ok(marks.mark_link(&key, target, item.attributes())?));
        };
        if task.step == Step::Replace {
            self.remove_other(task)?;
        }
        self.retries.again(|| match tree.make_link(&key, target) {
            // Its listing showed a file where a file is; that it is a link is known only now.
            Err(TierError::NotObject { .. }) if matches!(task.item.kind, Kind::File { .. }) => {
                tier.delete(&key)?;
                Ok(tree.make_link(&key, target)?)
            }
            other => Ok(other?),
        })
    }

    /// Gives what is there the mode and time of `item`, where the target keeps them.
    pub(super) fn set_attributes(&self, item: &Item) -> Result<(), PackError> {
        let key = self.target.key(item.name.as_bytes())?;
        self.retries.again(|| match self.target.tier.set_attributes(&key, item.attributes()) {
            Err(TierError::Unsupported { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
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

    /// Removes an item. `false` for a directory that stays, since something that was not selected is in it.
    pub(super) fn remove(&self, item: &Item) -> Result<bool, PackError> {
        let key = self.target.key(item.name.as_bytes())?;
        let tier = &self.target.tier;
        let removed = match (&item.kind, tier.tree()) {
            (Kind::Link { .. }, Some(tree)) => tree.remove_link(&key),
            (Kind::Directory, Some(tree)) => {
                // A directory without the right to write keeps its names.
                let writable = Attributes { mode: Some(item.mode | 0o700), mtime: None };
                if item.mode & 0o700 != 0o700 {
                    tree.set_directory(&key, writable)?;
                }
                match tree.remove_directory(&key) {
                    Err(TierError::NotObject { .. }) => return Ok(false),
                    other => other,
                }
            }
            (Kind::Directory, None) => match tier.marks() {
                Some(marks) => marks.unmark_directory(&key),
                None => return Ok(false),
            },
            _ => tier.delete(&key),
        };
        match removed {
            Ok(()) | Err(TierError::Missing { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The mark that a store has of a directory says what the source does.
    pub(super) fn mark_again(&self, directory: &Item) -> Result<(), PackError> {
        let Some(marks) = self.target.tier.marks() else { return Ok(()) };
        let there = self.retries.again(|| Ok(self.target.told_directory(directory)?))?;
        if there.mode == directory.mode && there.mtime == directory.mtime {
            return Ok(());
        }
        let key = self.target.key(directory.name.as_bytes())?;
        self.retries.again(|| Ok(marks.mark_directory(&key, directory.attributes())?))
    }

    /// A directory of a tree gets its mode and time.
    pub(super) fn date_directory(&self, directory: &Item) -> Result<(), PackError> {
        let Some(tree) = self.target.tier.tree() else { return Ok(()) };
        let key = self.target.key(directory.name.as_bytes())?;
        let there = tree.directory(&key)?;
        let is_same = there.mode == directory.mode && Mtime::from(there.mtime) == directory.mtime;
        if !is_same {
            tree.set_directory(&key, directory.attributes())?;
        }
        Ok(())
    }

    /// Whether a directory stands at the target under the name of a file or link, where `next` is the target's
    /// first name behind it.
    pub(super) fn has_directory(
        &self,
        item: &Item,
        next: Option<&Item>,
    ) -> Result<bool, PackError> {
        let Some(next) = next else { return Ok(false) };
        // Between a name and the same with a slash sort only names that begin with it.
        if item.is_directory() || !next.name.as_bytes().starts_with(item.name.as_bytes()) {
            return Ok(false);
        }
        if next.name == item.name {
            return Ok(next.is_directory());
        }
        self.is_directory(&item.name)
    }

    /// Whether a directory of the target has this name.
    pub(super) fn is_directory(&self, name: &Key) -> Result<bool, PackError> {
        let Some(tree) = self.target.tier.tree() else { return Ok(false) };
        let key = self.target.key(name.as_bytes())?;
        self.retries.again(|| match tree.directory(&key) {
            Ok(_) => Ok(true),
            Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        })
    }
}
