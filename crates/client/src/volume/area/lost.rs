//! Files of which something was lost: a home that was started anew, or that took this node for dead,
//! did not give it back. Their data answers EIO until the last close here.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::message::Refused;

/// Mostly empty.
#[derive(Debug, Default)]
pub(super) struct LostFiles {
    inodes: Mutex<HashSet<InodeId>>,
    len: AtomicUsize,
}

impl LostFiles {
    fn lock(&self) -> MutexGuard<'_, HashSet<InodeId>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, inodes: &[InodeId]) {
        let mut lost = self.lock();
        lost.extend(inodes);
        self.len.store(lost.len(), Ordering::Release);
    }

    /// Its last descriptor here was closed; tells whether it was one of them.
    pub(super) fn closed(&self, ino: InodeId) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut lost = self.lock();
        let was_lost = lost.remove(&ino);
        self.len.store(lost.len(), Ordering::Release);
        was_lost
    }

    pub(super) fn check(&self, ino: InodeId) -> Result<(), Refused> {
        if self.len.load(Ordering::Acquire) > 0 && self.lock().contains(&ino) {
            let why = "an open or a lock of this file was lost; close it and open it again";
            return Err(Refused::because(libc::EIO, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_file_answers_eio_until_it_is_closed() {
        let (lost, ino) = (LostFiles::default(), InodeId(7));
        assert!(lost.check(ino).is_ok());
        lost.add(&[ino, InodeId(8)]);
        assert_eq!(lost.check(ino).unwrap_err().errno, libc::EIO);
        assert!(lost.closed(ino) && !lost.closed(ino));
        assert!(lost.check(ino).is_ok() && lost.check(InodeId(8)).is_err());
    }
}
