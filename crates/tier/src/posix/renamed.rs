//! One version of an object gets another name, in the place of one version only, or of none.
//!
//! A second link of it, under a hidden name that nobody else uses, takes the new name, by [`swap`] or by
//! [`rename_no_replace`]; then the old name goes, if it still is that version's. So what others put at either name at that
//! moment is neither replaced nor moved. An exchange of the old name itself would leave a version of somebody else there,
//! or the replaced one, when the process is killed.
//!
//! Invariant: the version has its old name until it has the new one durably. A process that is killed leaves it under one of
//! them or under both, and the same call does the rest; what came out of the exchange is under a name that tells the sweep
//! whether it may go ([`swap`]).
//! Fault: others rename in the tier while the job does (`docs/design/000-faults.md`).

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags};
use rustix::io::Errno;

use super::no_replace::{is_taken, rename_no_replace};
use super::swap::{self, Held, Swapped};
use super::{Posix, meta};
use crate::temporary::with_temporary_name;
use crate::{Action, Key, ObjectMeta, TierError};

/// A directory, and a name in it.
type At<'a> = (&'a OwnedFd, &'a [u8]);

impl Posix {
    /// [`crate::Tier::rename_version`].
    pub(super) fn rename_held(
        &self,
        (from, identity): (&Key, u64),
        (to, expected): (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        let failed = self.failed(Action::Rename, to);
        let changed = |key: &Key| {
            let path = self.root.shown(key.as_bytes());
            TierError::Changed { action: Action::Rename, path }
        };
        let (source, _) = self.find(Action::Rename, from)?;
        let (from_parent, old) = from.split_last();
        let moved = swap::look(&source, old, identity).map_err(&failed)?;
        let moved = moved.ok_or_else(|| changed(from))?;
        let (parent, new) = to.split_last();
        let target = self.root.make_directory(parent).map_err(&failed)?;
        let there = match fs::statat(&target, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
            Ok(there) => Some(there),
        };
        if let Some(there) = &there {
            self.require_object(Action::Rename, to, there)?;
        }
        // Before it gets a second link, which gives it another identity.
        match (there.map(|there| meta(&there).identity), expected) {
            (Some(_), None) => return Err(failed(Errno::EXIST)),
            (there, expected) if there != expected => return Err(changed(to)),
            _ => {}
        }
        // Two links of one file: a process that was killed had come so far.
        let is_there = there.is_some_and(|there| moved.is(&there));
        if !is_there {
            match self.place((&source, old), &moved, (&target, new), expected) {
                Ok(Placed::Done) => {}
                Ok(Placed::OtherMoved) => return Err(changed(from)),
                Ok(Placed::OtherThere) => return Err(changed(to)),
                Err(errno) => return Err(failed(errno)),
            }
        }
        if from != to {
            if from_parent != parent {
                // In one directory the file system keeps the order.
                self.root.lasts.sync_names(&target).map_err(&failed)?;
            }
            self.remove_old((&source, old), &moved).map_err(&failed)?;
        }
        self.root.lasts.sync_names(&source).map_err(&failed)?;
        moved.stat().map(|stat| meta(&stat)).map_err(&failed)
    }

    /// Gives the version the new name; it keeps the old one, except where a file has one name only.
    fn place(
        &self,
        (source, old): At<'_>,
        moved: &Held,
        target: At<'_>,
        expected: Option<u64>,
    ) -> rustix::io::Result<Placed> {
        let link = |name: &[u8]| fs::linkat(source, old, source, name, AtFlags::empty());
        let mut hidden = match with_temporary_name(self.root.temporary_prefix(), link, is_taken) {
            Ok((name, ())) => name,
            Err(Errno::NOENT) => return Ok(Placed::OtherMoved),
            // No links in this file system, too many of this file, or none of somebody else's files (protected_hardlinks).
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                return rename((source, old), target, expected);
            }
            Err(errno) => return Err(errno),
        };
        let placed = match fs::statat(source, hidden.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if moved.is(&found) => place_link((source, &mut hidden), target, expected),
            Ok(_) => Ok(Placed::OtherMoved),
            Err(errno) => Err(errno),
        };
        swap::discard(source, &hidden);
        placed
    }

    /// What has the old name by now may be somebody else's, and stays.
    fn remove_old(&self, (source, old): At<'_>, moved: &Held) -> rustix::io::Result<()> {
        match fs::statat(source, old, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if moved.is(&found) => {
                swap::remove_held(source, self.root.temporary_prefix(), old, moved).map(drop)
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Done,
    /// The old name is another version's by now.
    OtherMoved,
    /// The new name is not the expected version's.
    OtherThere,
}

/// Gives the link `hidden` the new name. What is under `hidden` then may be removed.
fn place_link(
    (source, hidden): (&OwnedFd, &mut Vec<u8>),
    target: At<'_>,
    expected: Option<u64>,
) -> rustix::io::Result<Placed> {
    let Some(expected) = expected else { return rename((source, hidden), target, None) };
    match swap::swap((source, hidden), (target.0.as_fd(), target.1), expected)? {
        Swapped::Done => Ok(Placed::Done),
        Swapped::Other => Ok(Placed::OtherThere),
        Swapped::Unsupported => rename((source, hidden), target, Some(expected)),
    }
}

/// In one step; over a version only after a look.
fn rename(
    (source, old): At<'_>,
    (target, new): At<'_>,
    expected: Option<u64>,
) -> rustix::io::Result<Placed> {
    let Some(expected) = expected else {
        return rename_no_replace((source, old), (target, new)).map(|()| Placed::Done);
    };
    if swap::look(target, new, expected)?.is_none() {
        return Ok(Placed::OtherThere);
    }
    fs::renameat(source, old, target, new).map(|()| Placed::Done)
}

#[cfg(test)]
mod tests;
