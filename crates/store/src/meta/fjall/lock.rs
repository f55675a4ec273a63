//! fjall's own lock, taken before the journals of a store are looked at: while it is open elsewhere, what seems to be the
//! torn end of one is a commit that is being written.
//!
//! Here: taking it for so long. Not here: holding it while the store is open, which fjall does.
//! Source: fjall 3.1, its module `locked_file`: flock(2) of the file `lock`, tried as often as here.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::meta::MetaError;

const NAME: &str = "lock";
/// A process that was just started may have the descriptor of another one for a moment.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// Given back when it is dropped.
pub(super) struct Lock(Option<File>);

impl Lock {
    /// Of the store in `directory`; nothing is locked where none was made yet.
    pub(super) fn take(directory: &Path) -> Result<Self, MetaError> {
        let fail = |source| MetaError::Io { action: "lock", path: directory.to_owned(), source };
        let file = match OpenOptions::new().read(true).write(true).open(directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self(None)),
            file => file.map_err(fail)?,
        };
        for _ in 0..TRIES {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(fail(error)),
                Ok(()) => return Ok(Self(Some(file))),
            }
        }
        Err(MetaError::Locked { path: directory.to_owned() })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that another thread is starting may have the descriptor too, so closing it is not enough.
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }
}
