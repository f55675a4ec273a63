//! Directories whose lock our kernel holds, for a request of its own that changes names in them.
//!
//! Dropping a name there would wait for that request, which may itself wait for the node that asks:
//! so a name in a busy directory is acknowledged at once and dropped when the lock is free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hayase_layout::InodeId;

/// How many requests of the kernel change names in each directory. Clones share the table.
#[derive(Clone, Default)]
pub(crate) struct BusyDirectories {
    requests: Arc<Mutex<HashMap<InodeId, u32>>>,
}

impl BusyDirectories {
    /// A request that holds the directory's lock has begun; it is over when the guard is dropped.
    pub(crate) fn enter(&self, dir: InodeId) -> Busy {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(dir).or_default() += 1;
        Busy { directories: self.clone(), dir }
    }

    pub(crate) fn is_busy(&self, dir: InodeId) -> bool {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&dir)
    }
}

/// One request under way.
pub(crate) struct Busy {
    directories: BusyDirectories,
    dir: InodeId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let requests = self.directories.requests.lock();
        let mut requests = requests.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = requests.get_mut(&self.dir) {
            *count -= 1;
            if *count == 0 {
                requests.remove(&self.dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_busy_until_its_last_request_is_over() {
        let (directories, dir) = (BusyDirectories::default(), InodeId(7));
        let first = directories.enter(dir);
        let second = directories.enter(dir);
        drop(first);
        assert!(directories.is_busy(dir) && !directories.is_busy(InodeId::ROOT));
        drop(second);
        assert!(!directories.is_busy(dir));
    }
}
