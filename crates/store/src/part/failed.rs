//! Parts of which the storage has lost bytes.
//!
//! The kernel tells an error of write-back once for each open file, takes the pages for clean, and reads the old bytes once it
//! has dropped them: a second fsync(2) succeeds. So the first error counts until the part is emptied, made again or removed.
//! Source: "Error handling" in `Documentation/filesystems/vfs.rst` of Linux; fsync(2), NOTES.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use super::{PartError, PartId};

/// See the module header.
#[derive(Default)]
pub(super) struct FailedParts {
    /// Errno, and the directory of the part.
    errors: Mutex<HashMap<PartId, (i32, PathBuf)>>,
}

impl FailedParts {
    fn lock(&self) -> MutexGuard<'_, HashMap<PartId, (i32, PathBuf)>> {
        self.errors.lock().expect("no holder of this lock panics")
    }

    /// Fails again where it has failed before.
    pub(super) fn check(&self, id: PartId) -> Result<(), PartError> {
        match self.lock().get(&id) {
            None => Ok(()),
            Some((errno, device)) => {
                let source = io::Error::from_raw_os_error(*errno);
                Err(PartError::from_io("keep the bytes of", id, device, source))
            }
        }
    }

    /// Keeps an error of write-back. One that tells nothing of the bytes is none.
    pub(super) fn add(&self, error: &PartError) {
        let errno = error.errno();
        if let PartError::Io { part, device, .. } | PartError::NoRoom { part, device, .. } = error {
            self.lock().entry(*part).or_insert_with(|| (errno, device.clone()));
        }
    }

    pub(super) fn has(&self, id: PartId) -> bool {
        self.lock().contains_key(&id)
    }

    /// Nothing is left of what was lost.
    pub(super) fn forget(&self, id: PartId) {
        self.lock().remove(&id);
    }
}
