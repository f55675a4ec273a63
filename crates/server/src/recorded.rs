//! Recorded files: an N-1 file that MPI-IO keeps as one part per writer, shown as the one file it is.
//!
//! Its parts, and the indexes that say what is in them, are files of their own in a directory that no
//! listing shows (`hayase_container`): made on their writers' nodes, written there by descriptors, read
//! by messages like any other. The inode has the layout `Recorded`, and its home keeps what the indexes
//! say: size and time are those of the last publication.
//!
//! Here: what is kept in memory. Rooms: the home ([`crate::peer_service`]'s `recorded`), reading
//! (`node_service`'s `recorded`).
//! Invariants: a writer's publication is answered when the home has read its index, and no node uses an
//! older one afterwards, since each read asks the home which publication is the last
//! ([`hayase_wire::message::Attr::trunc_epoch`] counts them). What was published and is out of reach is
//! an error, never a hole.
//! Source: `docs/design/001-coherence.md`, "Recorded files"; `docs/design/003-containers.md`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use hayase_container::{ContainerError, Gathered, Snapshot};
use hayase_layout::{Index, InodeId, WriterId};
use hayase_wire::message::Refused;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{FLATTEN_TOLD, RECORDINGS_MAX};
use crate::refusals::libc_errno;

/// The directory at the root of the area with all containers, each named by its file's inode.
pub(crate) const DIRECTORY: &[u8] = hayase_container::AREA_DIRECTORY.as_bytes();

/// A recorded file at its home: what its indexes say.
pub(crate) struct Recording {
    pub(crate) gathered: Gathered,
    /// All files of the container.
    pub(crate) files: BTreeMap<String, InodeId>,
    /// For readers, as [`Shown::decode`] reads it.
    pub(crate) told: Rc<Vec<u8>>,
    /// Length of the file.
    pub(crate) size: u64,
    /// It has all that was published when this publication was told.
    pub(crate) as_of: u64,
}

impl Recording {
    pub(crate) fn new(gathered: Gathered) -> Self {
        let (files, told) = (BTreeMap::new(), Rc::default());
        Self { gathered, files, told, size: 0, as_of: 0 }
    }

    /// Puts together what is told to readers; whether it is anything new.
    pub(crate) fn settle(&mut self, ino: InodeId) -> Result<bool, Refused> {
        let snapshot = self.gathered.snapshot().map_err(refused)?;
        let size = snapshot.size(shown_path(ino).as_ref()).map_err(refused)?.get();
        let parts: Vec<(WriterId, InodeId)> = self.parts().collect();
        let told = postcard::to_stdvec(&(parts, snapshot.encode()));
        let told = told.map_err(|error| Refused::because(libc_errno::EIO, error.to_string()))?;
        let is_new = told != *self.told || size != self.size;
        (self.told, self.size) = (Rc::new(told), size);
        Ok(is_new)
    }

    /// The inode of each writer's part.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (WriterId, InodeId)> {
        self.files.iter().filter_map(|(name, ino)| Some((Gathered::part_of(name)?, *ino)))
    }
}

/// A recorded file as one publication shows it to readers of this node.
pub(crate) struct Shown {
    pub(crate) trunc_epoch: u32,
    pub(crate) size: u64,
    pub(crate) index: Index,
    pub(crate) parts: HashMap<WriterId, InodeId>,
}

impl Shown {
    /// From [`Recording::told`].
    pub(crate) fn decode(
        ino: InodeId,
        trunc_epoch: u32,
        size: u64,
        told: &[u8],
    ) -> Result<Self, Refused> {
        let broken = |error: postcard::Error| Refused::because(libc_errno::EIO, error.to_string());
        let (parts, snapshot): (Vec<(WriterId, InodeId)>, Vec<u8>) =
            postcard::from_bytes(told).map_err(broken)?;
        let snapshot = Snapshot::decode(&snapshot).map_err(refused)?;
        let index = snapshot.index(shown_path(ino).as_ref()).map_err(refused)?;
        Ok(Self { trunc_epoch, size, index, parts: parts.into_iter().collect() })
    }
}

/// A file that is being made whole.
#[derive(Default)]
pub(crate) struct Flattening {
    pub(crate) ended: Notify,
    /// How it went, and when.
    pub(crate) outcome: RefCell<Option<(Result<(), Refused>, Instant)>>,
}

/// All of them on one server.
#[derive(Default)]
pub(crate) struct RecordedFiles {
    recordings: RefCell<HashMap<InodeId, Recording>>,
    shown: RefCell<HashMap<InodeId, Rc<Shown>>>,
    flattening: RefCell<HashMap<InodeId, Rc<Flattening>>>,
    /// Publications that were told here.
    publications: Cell<u64>,
    /// Indexes in which something was published that their home has not read.
    unread: RefCell<HashMap<InodeId, BTreeSet<String>>>,
    /// Files of whose parts some have lost bytes, as of which publication, and what was said: sending all of one again to
    /// hear the same helps nobody.
    broken: RefCell<HashMap<InodeId, (u32, Refused)>>,
}

impl RecordedFiles {
    /// Something that this publication shows has lost bytes.
    pub(crate) fn broken(&self, ino: InodeId, trunc_epoch: u32, refused: Refused) {
        let mut all = self.broken.borrow_mut();
        make_room(&mut all);
        all.insert(ino, (trunc_epoch, refused));
    }

    /// `EIO` where that was found of this publication.
    pub(crate) fn refuse_broken(&self, ino: InodeId, trunc_epoch: u32) -> Result<(), Refused> {
        match self.broken.borrow().get(&ino) {
            Some((as_of, refused)) if *as_of == trunc_epoch => Err(refused.clone()),
            _ => Ok(()),
        }
    }

    /// Numbers a publication, in an index of this name.
    pub(crate) fn publication(&self, ino: InodeId, index: String) -> u64 {
        self.unread.borrow_mut().entry(ino).or_default().insert(index);
        self.publications.set(self.publications.get() + 1);
        self.publications.get()
    }

    /// The indexes that publications up to now were in.
    pub(crate) fn take_unread(&self, ino: InodeId) -> BTreeSet<String> {
        self.unread.borrow_mut().remove(&ino).unwrap_or_default()
    }

    /// The number of the last one.
    pub(crate) fn last_publication(&self) -> u64 {
        self.publications.get()
    }

    /// Whether a home knows a file as of a publication.
    pub(crate) fn has(&self, ino: InodeId, publication: u64) -> bool {
        self.recordings.borrow().get(&ino).is_some_and(|found| found.as_of >= publication)
    }

    /// What `look` makes of what the home knows; `None` when it has to be read first.
    pub(crate) fn with<T>(&self, ino: InodeId, look: impl FnOnce(&Recording) -> T) -> Option<T> {
        self.recordings.borrow().get(&ino).map(look)
    }

    /// Out of the table, to be changed under the inode's lock.
    pub(crate) fn take(&self, ino: InodeId) -> Option<Recording> {
        self.recordings.borrow_mut().remove(&ino)
    }

    /// Beyond [`RECORDINGS_MAX`] another one is forgotten, and read again when it is needed.
    pub(crate) fn put(&self, ino: InodeId, recording: Recording) {
        let mut recordings = self.recordings.borrow_mut();
        make_room(&mut recordings);
        recordings.insert(ino, recording);
    }

    pub(crate) fn shown(&self, ino: InodeId) -> Option<Rc<Shown>> {
        self.shown.borrow().get(&ino).cloned()
    }

    pub(crate) fn show(&self, ino: InodeId, shown: Rc<Shown>) {
        let mut all = self.shown.borrow_mut();
        make_room(&mut all);
        all.insert(ino, shown);
    }

    /// It is no recorded file any more.
    pub(crate) fn forget(&self, ino: InodeId) {
        self.recordings.borrow_mut().remove(&ino);
        self.shown.borrow_mut().remove(&ino);
        self.unread.borrow_mut().remove(&ino);
        self.broken.borrow_mut().remove(&ino);
    }

    /// What is under way with a file, or ended a moment ago and was not told; and whether it has to be
    /// begun.
    pub(crate) fn flattening(&self, ino: InodeId) -> (Rc<Flattening>, bool) {
        let mut all = self.flattening.borrow_mut();
        all.retain(|_, other| {
            let outcome = other.outcome.borrow();
            outcome.as_ref().is_none_or(|(_, at)| at.elapsed() < FLATTEN_TOLD)
        });
        if let Some(known) = all.get(&ino) {
            return (Rc::clone(known), false);
        }
        let new = Rc::<Flattening>::default();
        all.insert(ino, Rc::clone(&new));
        (new, true)
    }

    /// Whether one is being made whole now.
    pub(crate) fn is_flattening(&self, ino: InodeId) -> bool {
        let all = self.flattening.borrow();
        all.get(&ino).is_some_and(|known| known.outcome.borrow().is_none())
    }

    /// Its outcome was told.
    pub(crate) fn flattening_told(&self, ino: InodeId) {
        self.flattening.borrow_mut().remove(&ino);
    }
}

fn make_room<T>(table: &mut HashMap<InodeId, T>) {
    if table.len() >= RECORDINGS_MAX
        && let Some(any) = table.keys().next().copied()
    {
        table.remove(&any);
    }
}

/// What people are told of a container in an area.
pub(crate) fn shown_path(ino: InodeId) -> std::path::PathBuf {
    hayase_container::area::name_of(ino.0).into()
}

/// What is wrong with a container is an I/O error, with its words.
#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
pub(crate) fn refused(error: ContainerError) -> Refused {
    tracing::error!(%error, "failed to read a container");
    Refused::because(libc_errno::EIO, error.to_string())
}
