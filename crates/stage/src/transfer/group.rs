//! Small files that a stream has in memory and makes together, so that a directory's names are made durable
//! once for all of them.

use std::borrow::Cow;

use super::writing::Writing;
use crate::limits::{GROUP_ITEMS_MAX, PIECE_BYTES};
use crate::plan::Task;

/// Files that wait to be made.
#[derive(Default)]
pub(super) struct Group<'a> {
    files: Vec<(Task, Cow<'a, [u8]>)>,
    /// Bytes that the group itself holds.
    owned: usize,
}

impl<'a> Group<'a> {
    /// Adds a file; makes all of them when the group is full.
    pub(super) fn add(&mut self, task: Task, data: Cow<'a, [u8]>, to: &Writing<'_>) {
        self.push(task, data);
        if self.is_full() {
            self.make(to);
        }
    }

    /// Makes all files of the group, and leaves it empty.
    pub(super) fn make(&mut self, to: &Writing<'_>) {
        to.put_each(&std::mem::take(self).files);
    }

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
