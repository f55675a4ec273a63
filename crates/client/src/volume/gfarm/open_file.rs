//! What this mount has open of one file: one open of Gfarm for each of the kernel's, and the plain file behind them.
//!
//! Here: decisions, without a call to anybody but fstat(2). Not here: who opens and closes ([`super::opens`]).
//!
//! Invariants:
//! 1. The class is that of the first open and stays until the last is released.
//! 2. In class L all opens have the same plain file: what the kernel was given.
//! 3. While somebody writes here, what is read comes from an open that writes: an open that only reads may be of another copy.
//! 4. In class R, while nobody writes here, the kernel is told no size but that of the version `pages`.
//! 5. `told` is how the plain file looked when the metadata server was told of it last, or when it was opened.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{FileId, SetTime, Stat};
use hayase_wire::message::Access;

use crate::open_file::Class;

/// The kernel's clock of files goes in steps; a change within one step leaves no trace in the time.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// Of a file's bytes: generation, size and time of change.
pub(super) type Version = (u64, u64, (i64, u32));

pub(super) fn version(stat: &Stat) -> Version {
    (stat.generation, stat.size, stat.mtime)
}

/// A plain file as fstat(2) shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// Which file it is.
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) mtime: (i64, u32),
}

impl Plain {
    pub(super) fn of(file: impl AsFd) -> std::io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        })
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Written so shortly before `at` that another change may have left the same time.
    fn is_of_the_moment(&self, at: SystemTime) -> bool {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = u64::try_from(self.mtime.0).unwrap_or(0);
        since < Duration::new(seconds, self.mtime.1) + CLOCK_STEP
    }
}

/// An open of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) access: Access,
    /// Gfarm's open file; `None` after a close told the metadata server, and until it is needed again.
    pub(super) file: Option<FileId>,
}

/// Where a call finds Gfarm's open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usable {
    Open(FileId),
    /// It was closed: opened again, as it was, it goes back to its slot ([`OpenFile::refill`]).
    Closed {
        write: bool,
    },
}

/// Times that were set while the file is open for writing: its close would put others in their place.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimesLater {
    pub(super) atime: SetTime,
    pub(super) mtime: SetTime,
    /// The plain file when they were set: when it was written since, they are old.
    pub(super) plain: Option<Plain>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OpenFile {
    pub(super) slots: Vec<Slot>,
    pub(super) class: Option<Class>,
    /// The plain file, open for reading at least.
    pub(super) reads: Option<Arc<OwnedFd>>,
    /// The same, open for writing.
    pub(super) writes: Option<Arc<OwnedFd>>,
    pub(super) told: Option<(Plain, SystemTime)>,
    /// Where the file ends, while it is written on another host from here.
    pub(super) size: Option<u64>,
    /// Its last name was removed here, as far as this host knows: a name that another one made is found by a look.
    pub(super) unlinked: bool,
    pub(super) times: Option<TimesLater>,
    /// A write was lost: the next close says so.
    pub(super) failed: Option<i32>,
    /// Version of the pages that the kernel may have.
    pub(super) pages: Option<Version>,
    /// The newest generation that an open or a look found: the kernel was told of it.
    pub(super) newest: u64,
    /// Counts what was written here and the metadata server was told of.
    pub(super) told_here: u64,
    /// It was made here, in this directory, and who made it has not closed it.
    pub(super) made_in: Option<InodeId>,
    /// It was made without a place for its bytes.
    pub(super) placed_late: bool,
    /// And nobody has done anything with its bytes since.
    pub(super) untouched: bool,
}

/// What is to be done when the kernel has given an open back.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) leaving: Leaving,
    /// Opens that only read, to be closed.
    pub(super) readers: Vec<FileId>,
    /// The kernel has none any more.
    pub(super) is_last: bool,
}

/// What has to be told to the metadata server when a writer closes.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) file: Option<FileId>,
    pub(super) writes: Option<Arc<OwnedFd>>,
    pub(super) told: Option<(Plain, SystemTime)>,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing is open, nothing has changed.
    Nothing,
    /// Closing tells it.
    Close,
    /// Gfarm's server would see no change: make it one, and close.
    MarkAndClose,
    /// It changed behind the last close: open it again, make it a change, close.
    Reopen,
}

impl Leaving {
    /// `now`: the plain file, when it is on this host.
    pub(super) fn telling(&self, now: Option<&Plain>) -> Telling {
        let unchanged = now.zip(self.told.as_ref()).is_some_and(|(now, (told, _))| now == told);
        match (self.file, now) {
            (None, Some(now)) if !unchanged && now.size + self.told_size() > 0 => Telling::Reopen,
            (None, _) => Telling::Nothing,
            (Some(_), Some(now)) if unchanged && now.size > 0 => {
                let hidden =
                    self.told.as_ref().is_some_and(|(told, at)| told.is_of_the_moment(*at));
                if hidden { Telling::MarkAndClose } else { Telling::Close }
            }
            (Some(_), _) => Telling::Close,
        }
    }

    fn told_size(&self) -> u64 {
        self.told.as_ref().map_or(0, |(told, _)| told.size)
    }
}

impl OpenFile {
    pub(super) fn has_writers(&self) -> bool {
        self.slots.iter().any(|slot| slot.access.write)
    }

    /// This mount made it.
    pub(super) fn made(&mut self, dir: InodeId, is_placed: bool) {
        self.made_in = Some(dir);
        (self.placed_late, self.untouched) = (!is_placed, !is_placed);
    }

    /// A new file whose end nobody needs to be told of: the metadata server knows all of it.
    pub(super) fn is_as_made(&self) -> bool {
        self.untouched && self.times.is_none() && self.failed.is_none()
    }

    /// Who made it closes it: where, and whether it has no bytes.
    pub(super) fn maker_closes(&mut self) -> Option<(InodeId, bool)> {
        let dir = self.made_in.take()?;
        let plain = self.writes.as_ref().and_then(|writes| Plain::of(writes).ok());
        let size = plain.map(|plain| plain.size).or(self.size).unwrap_or(0);
        Some((dir, size == 0))
    }

    /// By requests, and by nobody who writes.
    pub(super) fn is_only_read(&self) -> bool {
        self.class == Some(Class::Remote) && !self.slots.is_empty() && !self.has_writers()
    }

    /// Where the kernel must take the end of the file to be: behind it, its pages are filled up with zeros.
    pub(super) fn end_of_pages(&self) -> Option<u64> {
        self.pages.filter(|_| self.is_only_read()).map(|(_, size, _)| size)
    }

    /// Whether what is read here may be of another version than this one.
    pub(super) fn is_behind(&self, version: Version) -> bool {
        self.is_only_read() && self.pages != Some(version)
    }

    /// Opens that may be of a former version, or of a copy that is one: to be closed, they are opened again when needed.
    pub(super) fn take_readers(&mut self) -> Vec<FileId> {
        let readers = self.slots.iter_mut().filter(|slot| !slot.access.write);
        readers.filter_map(|slot| slot.file.take()).collect()
    }

    /// Where the bytes can be read here; not while they are written elsewhere.
    pub(super) fn readable(&self) -> Option<Arc<OwnedFd>> {
        match (&self.reads, &self.writes) {
            (None, _) => None,
            (Some(_), None) if self.has_writers() => None,
            (Some(reads), _) => Some(Arc::clone(reads)),
        }
    }

    /// An open of Gfarm for this; `None` when the kernel has none.
    pub(super) fn usable(&self, write: bool) -> Option<Usable> {
        let write = write || self.has_writers();
        let slots = || self.slots.iter().filter(|slot| slot.access.write || !write);
        let open = slots().find_map(|slot| slot.file).map(Usable::Open);
        open.or_else(|| slots().next().map(|slot| Usable::Closed { write: slot.access.write }))
    }

    /// Whether there is a slot that lacks such an open: it has this one now.
    pub(super) fn refill(&mut self, file: FileId, write: bool) -> bool {
        let lacks = |slot: &&mut Slot| slot.access.write == write && slot.file.is_none();
        let slot = self.slots.iter_mut().find(lacks);
        slot.map(|slot| slot.file = Some(file)).is_some()
    }

    /// Whether an open for writing that was on its way to be closed stays, since nobody could open the file again.
    pub(super) fn takes_back(&mut self, file: FileId) -> bool {
        self.unlinked && self.refill(file, true)
    }

    /// A descriptor that may write was closed: of one open the rest.
    pub(super) fn writer_closes(&mut self) -> Option<Leaving> {
        if self.unlinked || !self.has_writers() {
            return None; // who opens it again would not find it
        }
        let slot = self.slots.iter_mut().find(|slot| slot.access.write && slot.file.is_some());
        let file = slot.and_then(|slot| slot.file.take());
        Some(Leaving { file, writes: self.writes.clone(), told: self.told })
    }

    /// The kernel gives an open back.
    pub(super) fn release(&mut self, access: Access) -> Option<Released> {
        let of_access = |slot: &Slot| slot.access == access;
        let closed = self.slots.iter().position(|slot| of_access(slot) && slot.file.is_none());
        let number = closed.or_else(|| self.slots.iter().position(of_access))?;
        let slot = self.slots.swap_remove(number);
        let writes = self.writes.clone().filter(|_| access.write && !self.unlinked);
        let mut leaving = Leaving { file: slot.file, writes, told: self.told };
        let readers = match access.write && !self.has_writers() {
            true => self.last_writer_leaves(slot.file),
            false => Vec::new(),
        };
        if self.unlinked && slot.file.is_some_and(|file| self.refill(file, self.has_writers())) {
            leaving.file = None;
        }
        let is_last = self.slots.is_empty();
        if is_last {
            self.class = None;
            self.reads = None;
            (self.placed_late, self.untouched) = (false, false);
        }
        Some(Released { leaving, readers, is_last })
    }

    /// What is left are opens that only read: those that are to be closed, since they may lack what was written.
    fn last_writer_leaves(&mut self, file: Option<FileId>) -> Vec<FileId> {
        let plain = self.writes.take().and_then(|writes| Plain::of(writes).ok());
        let size = self.size.take().or(plain.map(|plain| plain.size));
        if self.class != Some(Class::Remote) || self.slots.is_empty() {
            return Vec::new();
        }
        // Of no generation that is told: the next look opens what was written.
        self.pages = size.map(|size| (0, size, (0, 0)));
        match self.reads.is_none() && (!self.unlinked || file.is_some()) {
            true => self.take_readers(),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access { read: true, write: false };
    const WRITE: Access = Access { read: false, write: true };

    fn plain(size: u64, mtime: (i64, u32)) -> Plain {
        Plain { device: 1, inode: 2, size, blocks: 0, mtime }
    }

    fn file() -> FileId {
        FileId::default()
    }

    fn opened(slots: &[(Access, bool)]) -> OpenFile {
        let slot = |&(access, open): &(Access, bool)| Slot { access, file: open.then(file) };
        OpenFile { slots: slots.iter().map(slot).collect(), ..OpenFile::default() }
    }

    #[test]
    fn a_change_is_told_once_and_never_missed() {
        let long_ago = (plain(10, (1000, 0)), SystemTime::UNIX_EPOCH + Duration::from_secs(2000));
        let just_now =
            (plain(10, (2000, 0)), SystemTime::UNIX_EPOCH + Duration::new(2000, 3_000_000));
        let check = |open: bool, told, now: Option<Plain>, expected| {
            let leaving = Leaving { file: open.then(file), writes: None, told };
            assert_eq!(leaving.telling(now.as_ref()), expected, "{leaving:?} {now:?}");
        };
        check(true, None, None, Telling::Close); // on another host
        check(true, Some(long_ago), Some(plain(10, (1000, 0))), Telling::Close); // nothing written
        check(true, Some(long_ago), Some(plain(10, (2000, 5))), Telling::Close); // seen by the time
        check(true, Some(just_now), Some(plain(10, (2000, 0))), Telling::MarkAndClose);
        check(true, Some(just_now), Some(plain(11, (2000, 0))), Telling::Close); // seen by the size
        check(false, Some(just_now), Some(plain(10, (2000, 0))), Telling::Nothing);
        check(false, Some(just_now), Some(plain(12, (2001, 0))), Telling::Reopen);
        check(false, None, None, Telling::Nothing);
    }

    #[test]
    fn closes_of_descriptors_and_of_opens_are_two_things() {
        let mut open = opened(&[(WRITE, true), (READ, true)]);
        assert!(open.writer_closes().unwrap().file.is_some(), "the first close of a descriptor");
        assert!(open.writer_closes().unwrap().file.is_none(), "one more of the same open");
        let released = open.release(WRITE).unwrap();
        assert!(released.leaving.file.is_none() && !released.is_last);
        assert!(open.writer_closes().is_none(), "only a reader is left");
        let released = open.release(READ).unwrap();
        assert!(released.leaving.file.is_some() && released.is_last && open.class.is_none());
        assert!(open.release(READ).is_none());
    }

    #[test]
    fn a_file_without_a_name_stays_open_until_its_last_release() {
        let mut open = opened(&[(WRITE, true)]);
        open.unlinked = true;
        assert!(open.writer_closes().is_none());
        assert!(open.release(WRITE).unwrap().leaving.file.is_some());
    }

    #[test]
    fn an_open_that_is_closed_already_is_released_first() {
        let mut open = opened(&[(WRITE, true), (WRITE, false)]);
        assert!(open.release(WRITE).unwrap().leaving.file.is_none());
        assert_eq!(open.usable(true), Some(Usable::Open(file())));
        assert_eq!(open.usable(false), Some(Usable::Open(file())));
        assert_eq!(opened(&[(READ, true)]).usable(true), None);
    }

    #[test]
    fn what_is_opened_again_to_be_read_can_be_written_as_before() {
        let mut open = opened(&[(WRITE, false)]);
        assert_eq!(open.usable(false), Some(Usable::Closed { write: true }));
        assert!(!open.refill(file(), false), "no open is there that only reads");
        assert!(open.refill(file(), true));
        assert!(!open.refill(file(), true), "another call was faster");
        assert_eq!(open.usable(true), Some(Usable::Open(file())));
        assert_eq!(opened(&[(READ, false)]).usable(false), Some(Usable::Closed { write: false }));
    }
}
