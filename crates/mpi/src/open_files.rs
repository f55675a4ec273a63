//! Open containers, by the handles that the MPI library gave for their stubs.
//!
//! Here: the table of this process; what one open file is made of, each part with its own state. `cursor`: view and
//! individual pointer; `split`: the split call that has begun. Not here: how a file is opened
//! (`crate::calls::opening`), what calls do with it (`crate::calls`).

use std::{
    collections::HashMap,
    ffi::c_int,
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    abi::Handle,
    error::Error,
    exchange::Exchanges,
    flat::{Flatten, Presence},
    library::Communicator,
    shared_bytes::SharedBytes,
    shared_pointer::{Locked, SharedPointer},
};

pub(crate) mod cursor;
mod split;

pub(crate) use cursor::Cursor;
pub(crate) use split::{Split, SplitCall};

/// One file of one communicator.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    /// As the program said it; the stub was opened with less.
    pub(crate) amode: c_int,
    pub(crate) comm: Communicator,
    pub(crate) bytes: SharedBytes,
    pub(crate) shared: SharedPointer,
    pub(crate) cursor: Cursor,
    pub(crate) split: SplitCall,
    pub(crate) exchanges: Exchanges,
    pub(crate) delete_on_close: bool,
    pub(crate) flatten: Flatten,
    pub(crate) presence: Presence,
}

impl OpenFile {
    /// What is left to free.
    pub(crate) fn into_comm(self) -> Communicator {
        self.comm
    }

    /// In the atomic mode no other process is in a call on the file, until this is dropped.
    pub(crate) fn lock_if_atomic(&self) -> Result<Option<Locked<'_>>, Error> {
        self.bytes.is_atomic().then(|| self.shared.lock()).transpose()
    }
}

/// As many files as a process has open; most have none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static FILES: RwLock<Option<HashMap<usize, Arc<OpenFile>>>> = RwLock::new(None);

/// The container behind a handle.
pub(crate) fn find(handle: Handle) -> Option<Arc<OpenFile>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    files.as_ref()?.get(&handle.raw()).map(Arc::clone)
}

pub(crate) fn insert(handle: Handle, file: OpenFile) {
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    let files = files.get_or_insert_default();
    files.insert(handle.raw(), Arc::new(file));
    COUNT.store(files.len(), Ordering::Release);
}

pub(crate) fn remove(handle: Handle) -> Option<Arc<OpenFile>> {
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    let files = files.as_mut()?;
    let removed = files.remove(&handle.raw());
    COUNT.store(files.len(), Ordering::Release);
    removed
}

/// All that are open now.
pub(crate) fn all() -> Vec<Arc<OpenFile>> {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    files.as_ref().map_or_else(Vec::new, |files| files.values().map(Arc::clone).collect())
}
