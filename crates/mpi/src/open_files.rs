//! Open containers, by the handles that the MPI library gave for their stubs.
//!
//! Here: the table of this process, what one open file is. Not here: how it came to be
//! ([`crate::calls::opening`]), what calls do with it ([`crate::calls`]).

use std::{
    collections::HashMap,
    ffi::c_int,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use hayase_container::ContainerFile;

use crate::{
    abi::Handle,
    calls::split::Split,
    error::Error,
    exchange::Exchanges,
    flat::Presence,
    library::Communicator,
    selection::{Consistency, Flatten},
    shared_pointer::SharedPointer,
    view::{FileView, Recent},
};

/// One file of one communicator.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    /// As the program said it; the stub was opened with less.
    pub(crate) amode: c_int,
    pub(crate) comm: Communicator,
    pub(crate) container: ContainerFile,
    pub(crate) shared: SharedPointer,
    pub(crate) exchanges: Exchanges,
    pub(crate) delete_on_close: bool,
    pub(crate) flatten: Flatten,
    consistency: Consistency,
    /// Others may have published since we looked last.
    is_stale: AtomicBool,
    /// Others published since this process began its epoch.
    is_overtaken: AtomicBool,
    is_atomic: AtomicBool,
    /// `None` when it is being closed.
    presence: Mutex<Option<Presence>>,
    state: Mutex<State>,
}

/// What calls change.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) view: Arc<FileView>,
    /// For when they are set again.
    pub(crate) recent: Recent,
    /// The individual pointer, in bytes of the view's stream.
    pub(crate) position: u64,
    /// A split collective call that has begun: which, and how many bytes it moved.
    pub(crate) split: Option<(Split, u64)>,
}

/// What an open file is made of.
pub(crate) struct Parts {
    pub(crate) presence: Presence,
    pub(crate) path: PathBuf,
    pub(crate) amode: c_int,
    pub(crate) comm: Communicator,
    pub(crate) container: ContainerFile,
    /// It knows what was published when all came to open it.
    pub(crate) is_current: bool,
    pub(crate) shared: SharedPointer,
    pub(crate) exchanges: Exchanges,
    pub(crate) delete_on_close: bool,
    pub(crate) flatten: Flatten,
    pub(crate) consistency: Consistency,
}

impl OpenFile {
    pub(crate) fn new(parts: Parts) -> Self {
        let view = Arc::new(FileView::of_bytes());
        let is_stale = AtomicBool::new(!parts.is_current);
        Self {
            path: parts.path,
            amode: parts.amode,
            comm: parts.comm,
            container: parts.container,
            shared: parts.shared,
            exchanges: parts.exchanges,
            delete_on_close: parts.delete_on_close,
            flatten: parts.flatten,
            consistency: parts.consistency,
            is_stale,
            is_overtaken: AtomicBool::new(true),
            is_atomic: AtomicBool::new(false),
            presence: Mutex::new(Some(parts.presence)),
            state: Mutex::new(State { view, recent: Recent::default(), position: 0, split: None }),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process has the container open no more.
    pub(crate) fn leave(&self) {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is left to free.
    pub(crate) fn into_comm(self) -> Communicator {
        self.comm
    }

    /// The view at this moment.
    pub(crate) fn view(&self) -> Arc<FileView> {
        Arc::clone(&self.state().view)
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.is_atomic.load(Ordering::Acquire)
    }

    pub(crate) fn set_atomic(&self, is_atomic: bool) {
        self.is_atomic.store(is_atomic, Ordering::Release);
    }

    /// Whether each call sees what calls before it wrote, by any process.
    pub(crate) fn is_immediate(&self) -> bool {
        self.consistency == Consistency::Posix || self.is_atomic()
    }

    /// Others published: the next read looks.
    pub(crate) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Sees what others published, when they may have.
    pub(crate) fn refresh(&self) -> Result<(), Error> {
        match self.is_stale.load(Ordering::Acquire) || self.is_immediate() {
            true => self.look(),
            false => Ok(()),
        }
    }

    /// Sees what others published.
    pub(crate) fn look(&self) -> Result<(), Error> {
        // Before: what is published meanwhile is looked for again.
        self.is_stale.store(false, Ordering::Release);
        match self.container.refresh() {
            Ok(has_changed) => {
                self.is_overtaken.fetch_or(has_changed, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                self.set_stale();
                Err(error.into())
            }
        }
    }

    /// Where calls are seen at once: what is written next wins over all that is published now.
    pub(crate) fn overtake(&self) -> Result<(), Error> {
        self.refresh()?;
        if self.is_overtaken.swap(false, Ordering::AcqRel) {
            self.container.advance(self.container.proposed_epoch())?;
        }
        Ok(())
    }

    /// Length of the file, as it is known here.
    pub(crate) fn size(&self) -> Result<u64, Error> {
        self.refresh()?;
        Ok(self.container.size()?.get())
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
