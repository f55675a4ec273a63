//! Room that is kept for the names, in a file that holds nothing else.
//!
//! Here: taking the room, giving it back when the disk is full, taking it again. Not here: how much free space the
//! store leaves alone ([`super::FREE_MIN_TO_GROW`]).
//!
//! Fault: the disk is full, or the user's quota is used up, by files that are not ours. Without this room nothing could
//! be removed then, and a store whose journal could not grow would not open again. statvfs(2) does not see quotas,
//! fallocate(2) does: where the room can not be had, the store does not grow.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::{FREE_MIN_TO_CHANGE, FREE_MIN_TO_GROW, free};
use crate::meta::says_full;

/// Of the file, next to the journals; fjall leaves files alone that it does not know.
const NAME: &str = "reserve";
/// Of the file that is there for a moment, to see whether the disk is full.
const TRIAL: &str = "reserve.trial";
/// What is kept. A restart takes less than half of it (the changes that were in no table yet), the rest is for removals.
pub const RESERVE_BYTES: ByteCount = ByteCount::mib(64);
/// Between two attempts to take the room again.
const PAUSE: Duration = Duration::from_secs(5);
/// The same where a quota is used up: each of them takes what is left of it for a moment.
const QUOTA_PAUSE: Duration = Duration::from_secs(60);

/// The room of one store.
#[derive(Debug)]
pub(super) struct Reserve {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Held,
    /// Not held since then, when it was given back or could not be had: why the store may not grow, if it may not.
    Tried(Instant, Option<Errno>),
    /// The file system does not reserve room: what is free counts alone.
    Unsupported,
}

impl Reserve {
    /// Of the store in `directory`, as its last process left it.
    pub(super) fn found(directory: &Path) -> Self {
        let file = directory.join(NAME);
        let is_whole = std::fs::metadata(&file).is_ok_and(|it| it.len() == RESERVE_BYTES.get());
        let state = match is_whole {
            true => State::Held,
            false => {
                let _ = remove(&file); // of a process that was killed while it took it
                gone()
            }
        };
        Self { file, state: Mutex::new(state) }
    }

    /// Gives the room back; false when there was none to give.
    pub(super) fn give(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, State::Held) {
            return false;
        }
        *state = gone();
        tracing::info!(file = %self.file.display(), "names use the room that was kept for them");
        match remove(&self.file) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "give the room that was kept back");
                false
            }
        }
    }

    /// Fails where the store may not grow: the room is not held and can not be had. Tries that once in a while.
    pub(super) fn expect(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Tried(at, why) = *state {
            let pause = if why == Some(Errno::DQUOT) { QUOTA_PAUSE } else { PAUSE };
            if at.elapsed() >= pause {
                *state = self.take();
            }
        }
        match *state {
            State::Tried(_, Some(errno)) => Err(errno.into()),
            _ => Ok(()),
        }
    }

    /// Tries to take the room now, when it is not held.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Tried(..)) {
            *state = self.take();
        }
    }

    fn take(&self) -> State {
        match self.try_to_take() {
            Ok(true) => State::Held,
            // A small disk: what is free counts alone.
            Ok(false) => State::Tried(Instant::now(), None),
            Err(error) => {
                // Half of it would only be in the way.
                let _ = remove(&self.file);
                match Errno::from_io_error(&error) {
                    Some(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                        State::Tried(Instant::now(), Some(errno))
                    }
                    Some(Errno::OPNOTSUPP | Errno::NOSYS) => State::Unsupported,
                    _ => State::Tried(Instant::now(), None),
                }
            }
        }
    }

    /// False where that would leave too little. Such a disk is not touched: others may need what it still has.
    fn try_to_take(&self) -> io::Result<bool> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.file)?;
        if free::to_grow(&file)? < RESERVE_BYTES.get() + FREE_MIN_TO_GROW.get() {
            drop(file);
            remove(&self.file)?;
            return Ok(false);
        }
        allocate(&file, RESERVE_BYTES)?;
        Ok(true)
    }
}

/// Nothing is known yet of whether it can be had again.
fn gone() -> State {
    State::Tried(Instant::now(), Some(Errno::NOSPC))
}

fn allocate(file: &File, bytes: ByteCount) -> io::Result<()> {
    let allocate = || rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes.get());
    Ok(rustix::io::retry_on_intr(allocate)?)
}

/// Its room is free when this returns: XFS frees that of a file without a name later.
fn remove(file: &Path) -> io::Result<()> {
    let emptied = OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(0));
    match emptied.and(std::fs::remove_file(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether a table of names finds no room in `directory`.
pub(super) fn is_full(directory: &Path) -> bool {
    let file = directory.join(TRIAL);
    let tried = File::create(&file).and_then(|file| allocate(&file, FREE_MIN_TO_CHANGE));
    let _ = remove(&file);
    tried.is_err_and(|error| says_full(&error))
}
