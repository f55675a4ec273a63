//! Windows that have waited for long, and all of them at the end.
//!
//! Here: threads, one for each home that has something to take, so that none waits for a home that hangs.
//! Not here: what handing on is, and when a window is due ([`super`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{Builder, Scope};
use std::time::Instant;

use hayase_layout::{InodeId, ServerId};

use super::{FileGathering, Gatherer};
use crate::limits::{GATHER_RECALL_WAIT, GATHER_WAIT};

/// Files of one home.
type Files = Vec<(InodeId, Arc<FileGathering>)>;

impl Gatherer {
    /// Body of the thread that hands on what has waited for long. Those that it starts end before it.
    pub(in crate::volume::area) fn hand_on_late(&self) {
        std::thread::scope(|scope| {
            while self.windows.until_due() {
                for (home, files) in self.gathered_by_home() {
                    self.hand_on_due(scope, home, files);
                }
            }
        });
    }

    /// Begins to hand on what is due of one home's files, and says when the others are.
    fn hand_on_due<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        home: ServerId,
        mut files: Files,
    ) {
        files.retain(|(_, file)| self.is_due_now(file));
        if files.is_empty() {
            return;
        }
        if !self.windows.begins_at(home) {
            // Its thread may have passed these.
            return self.windows.is_due(Instant::now() + GATHER_WAIT);
        }
        let hand_on = move || {
            for (ino, file) in files {
                if self.is_due_now(&file) {
                    let _told = self.end_window(ino, &file, &mut file.lock());
                }
            }
            self.windows.ended_at(home);
        };
        let builder = Builder::new().name("hayase-gather".to_owned());
        if let Err(error) = builder.spawn_scoped(scope, hand_on) {
            tracing::warn!(%error, "start a thread that hands on what was gathered");
            self.windows.ended_at(home);
            self.windows.is_due(Instant::now() + GATHER_WAIT);
        }
    }

    /// Whether a file's window is due; if it is later, it is looked at again then. Whoever holds the file's lock hands
    /// it on, or takes more into a window that is looked at again.
    fn is_due_now(&self, file: &FileGathering) -> bool {
        let Some(due) = file.due() else { return false };
        let is_now = due <= Instant::now();
        if !is_now {
            self.windows.is_due(due);
        }
        is_now
    }

    /// Everything is handed on, or lost; for the end.
    pub(in crate::volume::area) fn hand_on_all(&self) {
        let until = Instant::now() + GATHER_RECALL_WAIT;
        std::thread::scope(|scope| {
            for files in self.gathered_by_home().into_values() {
                scope.spawn(move || {
                    files.iter().for_each(|(ino, _)| self.hand_on_or_lose(*ino, until));
                });
            }
        });
    }

    fn gathered_by_home(&self) -> BTreeMap<ServerId, Files> {
        let mut homes = BTreeMap::<ServerId, Files>::new();
        self.known.table().for_each(|shard| {
            for (ino, node) in &shard.nodes {
                if let Some(file) = node.gathering.as_ref().filter(|file| file.may_have_window()) {
                    homes.entry(ino.home()).or_default().push((*ino, Arc::clone(file)));
                }
            }
        });
        homes
    }
}
