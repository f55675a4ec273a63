//! Parts and indexes of recorded files: made durable, and what their homes note of that.
//!
//! Programs write them past every server. So the home of such a file notes, each time it was synced, how long it was then
//! ([`ops::durability`]): after a power cut `hayase resume` sends nothing else. The kernel tells an error of write-back once, to
//! whoever syncs first, often the writer: the home notes that too, durably, until the file is emptied or removed.
//!
//! Faults: "fsync(2) or write-back fails once", "every node loses power" in `docs/design/000-faults.md`.

use std::rc::Rc;

use hayase_container::Gathered;
use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::Namespace;
use hayase_store::namespace::Inode;
use hayase_store::ops;
use hayase_wire::message::{MachineLife, Refused};

use crate::convert::{meta_refused, part_refused};
use crate::node::{Node, libc_errno};

impl Node {
    /// Home: a part or an index survives a power cut from here on, and so does the note of that when the names are durable.
    ///
    /// # Errors
    /// `EIO`, each time, where the storage has lost bytes of it.
    pub(super) async fn sync_noted(
        self: &Rc<Self>,
        inode: &Inode,
        data_only: bool,
    ) -> Result<Vec<(ServerId, MachineLife)>, Refused> {
        if is_broken(&self.names, inode.ino)? {
            return Err(lost_bytes_of(name_of(inode).unwrap_or("a part"), self.me));
        }
        if let Layout::Striped { .. } = inode.layout {
            let lives = self.sync_parts(inode, data_only).await?;
            if self.cache.is_some() {
                note_durable(&self.names, inode.ino, inode.size)?;
            }
            return Ok(lives);
        }
        let part = self.whole(inode)?;
        let found = part.clone();
        let work = move || {
            let bytes = found.stat().map_err(part_refused)?.size;
            found.sync(data_only).map(|()| bytes).map_err(part_refused)
        };
        let done = self.disk.run(work).await;
        if done.is_err() && part.has_failed() {
            note_broken(&self.names, inode.ino)?;
            self.names_durable().await?;
            return Err(lost_bytes_of(name_of(inode).unwrap_or("a part"), self.me));
        }
        let bytes = done?;
        // Nobody resumes a job that has no tier.
        if self.cache.is_some() {
            note_durable(&self.names, inode.ino, bytes)?;
        }
        Ok(vec![(self.me, self.life)])
    }
}

/// Whether its name is that of the mark, a part or an index of a container, or of what becomes one.
pub(super) fn is_of_container(inode: &Inode) -> bool {
    !inode.ino.is_cached() && name_of(inode).is_some_and(Gathered::is_synced)
}

fn name_of(inode: &Inode) -> Option<&str> {
    inode.name.as_ref().and_then(|(_, name)| std::str::from_utf8(name).ok())
}

fn is_broken(names: &Namespace, ino: InodeId) -> Result<bool, Refused> {
    let noted = ops::durability(&names.begin(), ino).map_err(meta_refused)?;
    Ok(noted.is_broken)
}

fn note_durable(names: &Namespace, ino: InodeId, bytes: u64) -> Result<(), Refused> {
    let mut txn = names.begin();
    match ops::note_durable(&mut txn, ino, bytes).map_err(meta_refused)? {
        true => txn.commit().map_err(meta_refused),
        false => Ok(()),
    }
}

fn note_broken(names: &Namespace, ino: InodeId) -> Result<(), Refused> {
    let mut txn = names.begin();
    ops::note_broken(&mut txn, ino).map_err(meta_refused)?;
    txn.commit().map_err(meta_refused)
}

/// Nothing of a part or an index is left of which something could be lost.
pub(super) fn forget_durability(names: &Namespace, ino: InodeId) -> Result<(), Refused> {
    let mut txn = names.begin();
    ops::forget_durability(&mut txn, ino).map_err(meta_refused)?;
    txn.commit().map_err(meta_refused)
}

/// Of a file whose container has this part or index.
pub(crate) fn lost_bytes_of(name: &str, server: ServerId) -> Refused {
    let why = format!(
        "the storage of node {server} has lost bytes of {name} of its container: write the file again"
    );
    Refused::because(libc_errno::EIO, why)
}
