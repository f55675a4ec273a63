//! What the kernel has open: files, and directories with the names that they had at their open.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thing that is open.
#[derive(Clone, Debug)]
pub(super) enum Opened {
    File(Arc<File>),
    Names(Arc<Vec<OsString>>),
}

/// All of them, by handle.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Mutex<(u64, HashMap<u64, Opened>)>);

impl OpenFiles {
    fn table(&self) -> MutexGuard<'_, (u64, HashMap<u64, Opened>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its handle.
    pub(super) fn add(&self, opened: Opened) -> u64 {
        let mut table = self.table();
        table.0 += 1;
        let handle = table.0;
        table.1.insert(handle, opened);
        handle
    }

    pub(super) fn file(&self, handle: u64) -> Option<Arc<File>> {
        match self.table().1.get(&handle)? {
            Opened::File(file) => Some(Arc::clone(file)),
            Opened::Names(_) => None,
        }
    }

    pub(super) fn names(&self, handle: u64) -> Option<Arc<Vec<OsString>>> {
        match self.table().1.get(&handle)? {
            Opened::Names(names) => Some(Arc::clone(names)),
            Opened::File(_) => None,
        }
    }

    /// The kernel needs it no more.
    pub(super) fn remove(&self, handle: u64) {
        let removed = self.table().1.remove(&handle);
        // Perhaps the last one: closed outside of the lock.
        drop(removed);
    }
}
