//! Programs that run from this mount, by the opens that exec(2) makes of them.
//!
//! The kernel refuses to write to a running program, but for `O_RDONLY | O_TRUNC` it looks only
//! after OPEN, which has truncated by then: such an open is refused here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fuser::OpenFlags;
use hayase_layout::InodeId;

/// `__FMODE_EXEC` of the kernel: an open by exec(2), held until the program ends.
const FMODE_EXEC: i32 = 0x20;

/// How often each inode is open as a program.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<HashMap<InodeId, u32>>);

impl Running {
    /// An open has succeeded.
    pub(crate) fn opened(&self, ino: InodeId, flags: OpenFlags) {
        if flags.0 & FMODE_EXEC != 0 {
            let mut opens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *opens.entry(ino).or_default() += 1;
        }
    }

    /// The kernel gives an open back, with the flags that it had.
    pub(crate) fn released(&self, ino: InodeId, flags: OpenFlags) {
        if flags.0 & FMODE_EXEC == 0 {
            return;
        }
        let mut opens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = opens.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&ino);
            }
        }
    }

    /// Whether an open would empty a program that runs.
    pub(crate) fn forbids(&self, ino: InodeId, flags: OpenFlags) -> bool {
        let empties_unwritten =
            flags.0 & (libc::O_ACCMODE | libc::O_TRUNC) == (libc::O_RDONLY | libc::O_TRUNC);
        empties_unwritten
            && self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_until_its_last_open_is_released() {
        let (running, ino) = (Running::default(), InodeId(7));
        let [run, read, truncate, rewrite] =
            [FMODE_EXEC, libc::O_RDONLY, libc::O_TRUNC, libc::O_TRUNC | libc::O_WRONLY]
                .map(OpenFlags);
        running.opened(ino, read);
        assert!(!running.forbids(ino, truncate));
        running.opened(ino, run);
        running.opened(ino, run);
        running.released(ino, run);
        running.released(ino, read);
        assert!(running.forbids(ino, truncate) && !running.forbids(InodeId(8), truncate));
        assert!(!running.forbids(ino, read) && !running.forbids(ino, rewrite));
        running.released(ino, run);
        assert!(!running.forbids(ino, truncate));
    }
}
