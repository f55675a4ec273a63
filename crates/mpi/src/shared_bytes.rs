//! The bytes of one open file, which other processes write too: when this process sees what they wrote.
//!
//! Here: what is known of what others published, the two modes in which each call sees it. Not here: the bytes
//! themselves ([`hayase_container`]), moving them ([`crate::transfer`]).
//! Source: MPI 4.1, section 14.6.1 (file consistency).

use std::sync::atomic::{AtomicBool, Ordering};

use hayase_container::ContainerFile;

use crate::error::Error;

/// When processes see what others wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// After sync and close, as MPI says.
    Mpi,
    /// At once: each write is published, each read looks. For programs that write, wait and read.
    Posix,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedBytes {
    pub(crate) container: ContainerFile,
    consistency: Consistency,
    /// Others may have published since we looked last.
    is_stale: AtomicBool,
    /// Others published since this process began its epoch.
    is_overtaken: AtomicBool,
    is_atomic: AtomicBool,
}

impl SharedBytes {
    /// `is_current`: the container knows what was published when all met to open it.
    pub(crate) fn new(
        container: ContainerFile,
        is_current: bool,
        consistency: Consistency,
    ) -> Self {
        Self {
            container,
            consistency,
            is_stale: AtomicBool::new(!is_current),
            is_overtaken: AtomicBool::new(true),
            is_atomic: AtomicBool::new(false),
        }
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
