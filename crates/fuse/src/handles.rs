//! File handles: what a number stands for that the kernel gives back.
//!
//! A file's handle is a number of its own and how it was opened, so it needs no table. A directory's is a place in one,
//! for the rest of a listing that was fetched and not asked for yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::FileHandle;
use hayase_client::volume::Listed;
use hayase_wire::message::Access;

use crate::limits::{LISTING_FRESH, NAME_TTL};

/// Of a file: the access to give back at release; `untold`: its closes are not told.
pub(crate) fn file_handle(number: u64, access: Access, untold: bool) -> FileHandle {
    let how = u64::from(access.read) | u64::from(access.write) << 1 | u64::from(untold) << 2;
    FileHandle(number << 4 | how)
}

/// The same of one whose writes come to us as they are, without the kernel's cache.
pub(crate) fn as_direct(handle: FileHandle) -> FileHandle {
    FileHandle(handle.0 | 8)
}

/// Whether it is [`as_direct`].
pub(crate) fn is_direct(handle: FileHandle) -> bool {
    handle.0 & 8 != 0
}

/// Whether the kernel does not tell of the closes of this file.
pub(crate) fn is_untold(handle: FileHandle) -> bool {
    handle.0 & 4 != 0
}

/// The access of a [`file_handle`].
pub(crate) fn access_of(handle: FileHandle) -> Access {
    Access { read: handle.0 & 1 != 0, write: handle.0 & 2 != 0 }
}

/// A listing in progress.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Entries that follow `after`, asked for at `at`.
    pub(crate) rest: VecDeque<Listed>,
    pub(crate) after: u64,
    pub(crate) plus: bool,
    pub(crate) at: Option<Instant>,
    /// They were asked for by the kernel's present request.
    pub(crate) is_new: bool,
}

impl Listing {
    /// How long the kernel may keep what it is told of it now, by its age: no name longer than [`NAME_TTL`] after
    /// it was asked for. What waited here may have changed by writes that only the kernel knows of, where
    /// the kernel minds itself what changed during its request.
    pub(crate) fn may_be_kept(&self) -> Duration {
        let Some(age) = self.at.map(|at| at.elapsed()) else { return Duration::ZERO };
        let is_fresh = self.is_new || age < LISTING_FRESH;
        if is_fresh { NAME_TTL.saturating_sub(age) } else { Duration::ZERO }
    }
}

/// Open directories.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Arc<Mutex<Listing>>>,
    last: u64,
}

impl Directories {
    pub(crate) fn open(&self) -> FileHandle {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let number = table.last;
        table.open.insert(number, Arc::default());
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Option<Arc<Mutex<Listing>>> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.open.get(&handle.0).cloned()
    }

    pub(crate) fn release(&self, handle: FileHandle) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.open.remove(&handle.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_handle_says_how_it_was_opened() {
        for (read, write) in [(false, false), (true, false), (false, true), (true, true)] {
            let access = Access { read, write };
            for untold in [false, true] {
                let handle = file_handle(12, access, untold);
                assert_eq!((access_of(handle), is_untold(handle)), (access, untold));
                let direct = as_direct(handle);
                assert_eq!((is_direct(handle), is_direct(direct)), (false, true));
                assert_eq!((access_of(direct), is_untold(direct)), (access, untold));
            }
        }
    }

    #[test]
    fn directories_come_and_go() {
        let directories = Directories::default();
        let (one, other) = (directories.open(), directories.open());
        assert_ne!(one, other);
        directories.release(one);
        assert!(directories.get(one).is_none() && directories.get(other).is_some());
    }

    #[test]
    fn a_listing_is_kept_by_its_age_and_what_waited_here_only_when_it_is_fresh() {
        let kept = |age: u64, is_new| {
            let at = Instant::now().checked_sub(Duration::from_millis(age));
            Listing { at, is_new, ..Listing::default() }.may_be_kept()
        };
        assert_eq!(Listing { is_new: true, ..Listing::default() }.may_be_kept(), Duration::ZERO);
        assert!(kept(200, true) <= NAME_TTL - Duration::from_millis(200));
        assert!(kept(200, true) > Duration::ZERO);
        assert_eq!(kept(200, false), Duration::ZERO);
        assert_eq!(kept(2000, true), Duration::ZERO);
    }
}
