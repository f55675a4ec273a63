//! Directories of Gfarm, read for listings and for the sweep.
//!
//! A directory comes with the attributes of what is in it, some hundred names a request.

use std::ops::ControlFlow;
use std::time::SystemTime;

use super::error::{self, code};
use super::library::{Kind, Stat};
use super::{Gfarm, meta};
use crate::key::TEMPORARY_PREFIX;
use crate::walk::{Directories, Seen, split_prefix};
use crate::{Action, ObjectMeta, TierError};

impl Directories for &Gfarm {
    fn for_each_name(
        &mut self,
        path: &[u8],
        visit: &mut dyn FnMut(&[u8], Seen),
    ) -> Result<(), TierError> {
        self.for_each_in(Action::List, path, &mut |name, stat| {
            let seen = match stat.kind {
                Kind::Directory => Seen::Directory,
                Kind::File => Seen::Object(Some(meta(stat))),
                Kind::Link => Seen::Other(error::IS_LINK),
            };
            visit(name, seen);
        })
    }

    fn object(&mut self, _path: &[u8], _name: &[u8]) -> Result<Option<ObjectMeta>, TierError> {
        unreachable!("the names came with their attributes")
    }
}

impl Gfarm {
    /// For no name when the directory vanished, or became something else. `visit` calls nothing of the tier.
    fn for_each_in(
        &self,
        action: Action,
        path: &[u8],
        visit: &mut dyn FnMut(&[u8], &Stat),
    ) -> Result<(), TierError> {
        match self.root.require_directory(self.library, action, path) {
            Err(TierError::Missing { .. } | TierError::NotObject { .. }) => return Ok(()),
            answer => answer?,
        }
        let mut visit_all = |name: &[u8], stat: &Stat| {
            visit(name, stat);
            ControlFlow::Continue(())
        };
        match self.library.names(&self.root.path(path), &mut visit_all) {
            Err(failure) if is_gone(failure.code) => Ok(()),
            answer => answer.map_err(self.root.failed(action, path)),
        }
    }
}

fn is_gone(number: i32) -> bool {
    matches!(number, code::NO_SUCH_NAME | code::NOT_A_DIRECTORY | code::LINKS)
}

/// Removes temporaries last written before `before`, below the directory `prefix`.
pub(super) fn sweep(tier: &Gfarm, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
    let Some((base, b"")) = split_prefix(prefix) else { return Ok(0) };
    let mut waiting = vec![base.to_vec()];
    let mut removed = 0;
    while let Some(path) = waiting.pop() {
        let mut left = Vec::new();
        tier.for_each_in(Action::Sweep, &path, &mut |name, stat| {
            let is_old = stat.mtime < before;
            match stat.kind {
                Kind::Directory => waiting.push([&path, name, b"/"].concat()),
                Kind::File if is_old && name.starts_with(TEMPORARY_PREFIX) => {
                    left.push([&path, name].concat());
                }
                Kind::File | Kind::Link => {}
            }
        })?;
        removed += remove(tier, left)?;
    }
    Ok(removed)
}

/// Removes what earlier attachments of the owner left in one directory, but for second names of objects: an upload
/// that was cut off between the two halves of a commit by link is the object too.
pub(super) fn sweep_own(tier: &Gfarm, directory: &[u8]) -> Result<usize, TierError> {
    let Some(own) = &tier.own else { return Ok(0) };
    let mut left = Vec::new();
    tier.for_each_in(Action::Sweep, directory, &mut |name, stat| {
        if stat.kind == Kind::File && stat.nlink == 1 && own.is_left_over(name) {
            let above = if directory.is_empty() { &b""[..] } else { b"/" };
            left.push([directory, above, name].concat());
        }
    })?;
    remove(tier, left)
}

/// Removes these paths; how many were still there.
fn remove(tier: &Gfarm, paths: Vec<Vec<u8>>) -> Result<usize, TierError> {
    let mut removed = 0;
    for path in paths {
        match tier.library.unlink(&tier.root.path(&path)) {
            Ok(()) => removed += 1,
            Err(failure) if failure.code == code::NO_SUCH_NAME => {}
            Err(failure) => return Err(tier.root.failed(Action::Sweep, &path)(failure)),
        }
    }
    Ok(removed)
}
