//! Recorded files of the area: written through MPI-IO as one part per writer, one file in the tier.
//!
//! Parts and indexes are files of `shared`, which nobody flushes; the inode that stands for them is one of the area, and
//! has a record in the ledger. It is dirty from its first moment, and again before a publication is answered, so
//! what a program was told is written is flushed. Its layout epoch stays 0, and its whole part
//! is not there: what becomes whole, and what is fetched again, has it anew.
//!
//! Programs write its parts past this server. Each that has it open holds a lock on the mark of its container: while
//! somebody does, it counts as open for writing, and no flush is its last.

use std::rc::Rc;

use hayase_container::MARK;
use hayase_layout::{InodeId, Layout};
use hayase_store::FileState;
use hayase_wire::message::{Lock, LockKind, LockRange, LockRequest, PeerReply, Place, Refused};
use tokio::time::Instant;

use super::Cache;
use crate::limits::{MPI_LOOK, MPI_OPENING};
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

impl Cache {
    /// As far as was seen.
    pub(crate) fn is_open_by_mpi(&self, ino: InodeId) -> bool {
        self.active.borrow().get(&ino).is_some_and(|active| active.is_open_by_mpi.get())
    }
}

impl Node {
    /// Home: a file becomes a recorded one, under its locks and `publishing`. The ledger says so first: whoever is
    /// killed in between has an empty file, with an empty part.
    pub(crate) fn recorded_begins(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        container: InodeId,
    ) -> Result<(), Refused> {
        cache.active(ino).opening_until.set(Some(Instant::now() + MPI_OPENING));
        self.watch_mpi(cache, ino);
        cache.becomes_dirty(ino)?;
        cache.update(ino, |record| record.layout = Layout::Recorded { container })
    }

    /// Home: something is about to be published in the file. Durable where the ledger said that the tier has all of
    /// it: what its writer syncs must not be taken for that after a power cut.
    pub(crate) async fn written_by_mpi(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<(), Refused> {
        let state = cache.state(ino);
        let active = cache.active(ino);
        active.opening_until.set(None);
        self.watch_mpi(cache, ino);
        if matches!(state, Some(FileState::Dirty | FileState::Failed)) {
            active.changed();
            return Ok(());
        }
        cache.becomes_dirty(ino)?;
        match state.is_some_and(FileState::is_safe) {
            true => cache.ledger_durable().await,
            false => Ok(()),
        }
    }

    /// It is open by MPI-IO; somebody looks when that ends.
    fn watch_mpi(self: &Rc<Self>, cache: &Cache, ino: InodeId) {
        let active = cache.active(ino);
        active.is_open_by_mpi.set(true);
        if active.is_watched.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let Some(cache) = this.cache.get() else { return };
            loop {
                tokio::time::sleep(MPI_LOOK).await;
                // What stands against it the flush tells.
                if !matches!(this.look_for_mpi(cache, ino).await, Ok(true)) {
                    break;
                }
            }
            active.is_open_by_mpi.set(false);
            active.is_watched.set(false);
            cache.work.notify_one();
        });
    }

    /// Home: whether programs have a file open by MPI-IO now.
    pub(crate) async fn look_for_mpi(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<bool, Refused> {
        let active = cache.active(ino);
        let layout = self.meta.inode(ino).map(|inode| inode.layout);
        let is_open = match layout {
            Ok(Layout::Recorded { container }) => {
                active.opening_until.get().is_some_and(|until| Instant::now() < until)
                    || self.mpi_lock(container).await?
            }
            _ => false,
        };
        match is_open {
            true => self.watch_mpi(cache, ino),
            false => active.is_open_by_mpi.set(false),
        }
        Ok(is_open)
    }

    /// Before a flush: whether programs have the file open by MPI-IO, or are about to; one that has no name of its own
    /// yet is being made.
    pub(crate) async fn is_used_by_mpi(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<bool, Refused> {
        let Some(record) = cache.record(ino) else { return Ok(false) };
        let name = record.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_hidden = std::str::from_utf8(name).is_ok_and(hayase_container::is_hidden_name);
        let since = cache.active(ino).complete_since.get();
        if is_hidden && since.is_some_and(|since| since.elapsed() < MPI_OPENING) {
            return Ok(true);
        }
        self.look_for_mpi(cache, ino).await
    }

    /// Whether somebody holds the lock that programs hold on the mark of a container while they have it open.
    pub(crate) async fn mpi_lock(self: &Rc<Self>, container: InodeId) -> Result<bool, Refused> {
        let place = Place { parent: container, name: MARK.as_bytes().to_vec() };
        let Some(mark) = self.binding(&place).await? else { return Ok(false) };
        let (kind, range) = (LockKind::Exclusive, LockRange::ALL);
        let lock = Lock { owner: u64::MAX, kind, range, pid: 0 };
        let request = LockRequest::Test { ino: mark.ino, process: 0, lock };
        match self.rpc.ask(mark.ino.home(), request).await {
            Ok(PeerReply::LockHeld(held)) => Ok(held.is_some()),
            Ok(other) => Err(unexpected(&other)),
            // It was removed meanwhile.
            Err(refused) if refused.errno == libc_errno::ESTALE => Ok(false),
            Err(refused) => Err(refused),
        }
    }
}
