//! A large file whose parts outlive the process that writes them: temporary and journal stay when it ends.
//!
//! Invariants:
//! 1. The data's file has a random name, as of every upload; only the journal is found by the target's name.
//!    Whoever begins anew takes another data file, so that nobody ever renames or cuts somebody else's.
//! 2. Who holds the lock of the journal writes; others go another way ([`crate::claim`]).
//! 3. A part counts as there only after its bytes were read back and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::again;
use super::beneath::Root;
use super::journal::{Begun, Crc32c, Journal, SUFFIX_BYTES, crc32c};
use super::upload::{PosixUpload, create_temporary};
use crate::claim::{claim, is_own};
use crate::descriptor::read_fully;
use crate::{
    Action, Attributes, Key, ObjectMeta, PartPieces, PartsUpload, Precondition, TierError, UploadOf,
};

/// `None` where another process is at it, where no journal can be kept, and where owners have their names.
pub(super) fn resume(
    root: &Root,
    key: &Key,
    attributes: Attributes,
    of: UploadOf,
) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
    let resumed = resume_file(root, key, attributes, of)?;
    Ok(resumed.map(|parts| Box::new(parts) as Box<dyn PartsUpload>))
}

fn resume_file(
    root: &Root,
    key: &Key,
    attributes: Attributes,
    of: UploadOf,
) -> Result<Option<FileParts>, TierError> {
    if root.own.is_some() || of.parts() == 0 || u32::try_from(of.parts()).is_err() {
        return Ok(None);
    }
    let failed = |errno| TierError::from_errno(Action::Begin, root.shown(key.as_bytes()), errno);
    let directory = root.make_directory(key.split_last().0).map_err(failed)?;
    let name = journal_name(root, key);
    let Some(file) = claim(&directory, &name) else { return Ok(None) };
    let known = Journal::read(&file);
    let kept = known.filter(|(begun, _)| begun.of == of).and_then(|(begun, parts)| {
        let data = reopen_data(root, &directory, &begun)?;
        Some((begun, data, parts))
    });
    let (begun, made, kept) = match kept {
        Some((begun, data, parts)) => (begun, (data_name(root, &begun), data), parts),
        None => {
            forget_data(root, &directory, &file);
            let made = create_temporary(root, &directory, attributes, OFlags::RDWR);
            let made = made.map_err(failed)?;
            let suffix = made.0[made.0.len() - SUFFIX_BYTES..].try_into();
            let suffix = suffix.expect("it ends with 16 digits");
            (Begun { of, suffix }, made, BTreeMap::new())
        }
    };
    let is_kept = !kept.is_empty();
    let mut upload = PosixUpload::new(root, key, attributes, (directory, made))?;
    let journal = match is_kept {
        true => date_now(&file).and_then(|()| Journal::reopen(file, begun)),
        false => Journal::begin(file, begun),
    };
    let Ok(journal) = journal else { return Ok(None) };
    let temporary = upload.temporary.take();
    let (state, name) = (Mutex::new(State { journal, there: BTreeSet::new() }), name);
    Ok(Some(FileParts { upload, temporary, name, of, kept, state }))
}

/// In which parts an upload of `size` bytes was begun.
pub(super) fn unfinished_part_bytes(root: &Root, key: &Key, size: u64) -> Option<u64> {
    let directory = root.open_directory(key.split_last().0).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(&directory, journal_name(root, key), flags, Mode::empty()).ok()?;
    let begun = Begun::read(&file).filter(|_| fs::fstat(&file).is_ok_and(|stat| is_own(&stat)))?;
    (begun.of.size == size && begun.of.parts() > 0).then_some(begun.of.part_bytes)
}

fn journal_name(root: &Root, key: &Key) -> Vec<u8> {
    let hash = xxhash_rust::xxh3::xxh3_128(key.split_last().1);
    [root.temporary_prefix(), format!("journal-{hash:032x}").as_bytes()].concat()
}

fn data_name(root: &Root, begun: &Begun) -> Vec<u8> {
    [root.temporary_prefix(), &begun.suffix].concat()
}

/// The file with the data of an upload, dated now so that no sweep takes it for old.
fn reopen_data(root: &Root, directory: &OwnedFd, begun: &Begun) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = data_name(root, begun);
    let data = again(|| fs::openat(directory, name.as_slice(), flags, Mode::empty())).ok()?;
    if !is_own(&fs::fstat(&data).ok()?) {
        return None;
    }
    date_now(&data).ok()?;
    Some(data)
}

fn date_now(file: &OwnedFd) -> rustix::io::Result<()> {
    let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let now = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    fs::futimens(file, &now)
}

/// Removes the data that a journal speaks of and that is of no use.
fn forget_data(root: &Root, directory: &OwnedFd, journal: &OwnedFd) {
    if let Some(begun) = Begun::read(journal) {
        // Where it stays it is hidden, and left to `sweep`.
        let _ = fs::unlinkat(directory, data_name(root, &begun).as_slice(), AtFlags::empty());
    }
}

struct FileParts {
    upload: PosixUpload,
    /// Until it is committed or discarded, which the upload itself must not do when it is dropped.
    temporary: Option<Vec<u8>>,
    /// Of the journal.
    name: Vec<u8>,
    of: UploadOf,
    /// What the journal said at the begin: the CRC32C of each part.
    kept: BTreeMap<u32, u32>,
    state: Mutex<State>,
}

struct State {
    journal: Journal,
    /// Parts that were put or compared by this process.
    there: BTreeSet<u32>,
}

impl FileParts {
    fn state(&self) -> MutexGuard<'_, State> {
        // A record that was not written says nothing, and a number more or less is one part moved again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, number: u32) -> u64 {
        u64::from(number) * self.of.part_bytes
    }

    /// All of its bytes are written.
    fn note(&self, number: u32, crc: u32) {
        let mut state = self.state();
        state.there.insert(number);
        // Without a record the part is moved again after a kill, and that is all.
        let _ = state.journal.add(number, crc);
    }

    fn other_length(&self) -> TierError {
        TierError::Unsupported { action: Action::Write, path: self.upload.path.clone() }
    }

    fn forget_journal(&self) {
        // Where it stays it speaks of no data, and is left to `sweep`.
        let _ = fs::unlinkat(&self.upload.directory, self.name.as_slice(), AtFlags::empty());
    }
}

impl PartsUpload for FileParts {
    fn read_kept(&self, number: u32, buffer: &mut Vec<u8>) -> bool {
        let Some(&crc) = self.kept.get(&number) else { return false };
        let len =
            usize::try_from(self.of.len(number)).expect("a part that was written is in memory");
        if buffer.capacity() < len {
            // Grown, it would be there twice for a moment, and what is written over would be copied.
            drop(std::mem::take(buffer));
            *buffer = vec![0; len];
        }
        buffer.resize(len, 0);
        let is_read = read_fully(&self.upload.file, self.start(number), buffer) == Ok(len);
        let is_whole = is_read && crc32c(&[buffer]) == crc;
        if is_whole {
            self.state().there.insert(number);
        }
        is_whole
    }

    fn discard(mut self: Box<Self>) {
        // Dropped with it.
        self.upload.temporary = self.temporary.take();
        self.forget_journal();
    }

    fn put_part(&self, number: u32, data: &[u8]) -> Result<(), TierError> {
        if data.is_empty() || data.len() as u64 != self.of.len(number) {
            return Err(self.other_length());
        }
        self.upload.put(self.start(number), data)?;
        self.note(number, crc32c(&[data]));
        Ok(())
    }

    fn begin_part(&self, number: u32) -> Option<Box<dyn PartPieces + '_>> {
        Some(Box::new(FilePieces { parts: self, number, written: 0, crc: Crc32c::default() }))
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        if self.state().there.len() as u64 != self.of.parts() {
            let source = std::io::Error::other("a part of it was not written");
            let path = self.upload.path.clone();
            return Err(TierError::Io { action: Action::Commit, path, source });
        }
        self.upload.temporary = self.temporary.take();
        let switched = self.upload.switch(precondition);
        match switched {
            Ok(_) => self.forget_journal(),
            // The data goes with it: it can not be believed, or is of no use under this key.
            Err(_) if self.upload.is_doubtful => self.forget_journal(),
            Err(TierError::Changed { .. }) => self.forget_journal(),
            // Left to be resumed.
            Err(_) => self.temporary = self.upload.temporary.take(),
        }
        switched
    }
}

struct FilePieces<'a> {
    parts: &'a FileParts,
    number: u32,
    written: u64,
    crc: Crc32c,
}

impl PartPieces for FilePieces<'_> {
    fn put(&mut self, data: &[u8]) -> Result<(), TierError> {
        if self.written + data.len() as u64 > self.parts.of.len(self.number) {
            return Err(self.parts.other_length());
        }
        if self.written == 0 {
            // What was there before is not any more.
            self.parts.state().there.remove(&self.number);
        }
        self.parts.upload.put(self.parts.start(self.number) + self.written, data)?;
        self.crc.add(data);
        self.written += data.len() as u64;
        Ok(())
    }

    fn end(self: Box<Self>) -> Result<(), TierError> {
        if self.written == 0 || self.written != self.parts.of.len(self.number) {
            return Err(self.parts.other_length());
        }
        self.parts.note(self.number, self.crc.value());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use super::super::beneath::Lasts;
    use super::*;
    use crate::{Posix, Tier};

    const OF: UploadOf = UploadOf { version: 1, size: 25, part_bytes: 10 };

    fn resume(top: &Path, of: UploadOf) -> Option<Box<dyn PartsUpload>> {
        let tier = Posix::attach(top).unwrap();
        tier.resume_parts(&Key::new("d/f").unwrap(), Attributes::default(), of).unwrap()
    }

    /// Begins, puts parts 0 and 2, and ends as a killed process does.
    fn killed() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let upload = resume(top.path(), OF).unwrap();
        upload.put_part(0, b"0123456789").unwrap();
        upload.put_part(2, b"vwxyz").unwrap();
        top
    }

    fn kept(top: &Path) -> Vec<u32> {
        let upload = resume(top, OF).unwrap();
        let mut buffer = Vec::new();
        (0..3).filter(|&number| upload.read_kept(number, &mut buffer)).collect()
    }

    /// Journal and data.
    fn files(top: &Path) -> (PathBuf, PathBuf) {
        let names = std::fs::read_dir(top.join("d")).unwrap();
        let (journals, data): (Vec<PathBuf>, Vec<PathBuf>) = names
            .map(|name| name.unwrap().path())
            .partition(|path| path.to_str().unwrap().contains("journal"));
        assert_eq!((journals.len(), data.len()), (1, 1), "{journals:?} {data:?}");
        (journals[0].clone(), data[0].clone())
    }

    #[test]
    fn a_part_in_pieces_is_there_once_it_is_ended() {
        let top = tempfile::tempdir().unwrap();
        let upload = resume(top.path(), OF).unwrap();
        let mut whole = upload.begin_part(0).unwrap();
        for piece in [&b"0123"[..], b"", b"456789"] {
            whole.put(piece).unwrap();
        }
        whole.end().unwrap();
        let mut begun = upload.begin_part(1).unwrap();
        begun.put(b"abc").unwrap();
        assert!(begun.put(b"more than it has").is_err());
        assert!(begun.end().is_err());
        for _ in 0..2 {
            let mut again = upload.begin_part(2).unwrap();
            again.put(b"vwxyz").unwrap();
            drop(again);
        }
        upload.put_part(1, b"abcdefghij").unwrap();
        upload.begin_part(1).unwrap().put(b"abc").unwrap();
        assert!(upload.commit(Precondition::Any).is_err(), "half of a part is another");
        let upload = resume(top.path(), OF).unwrap();
        drop(upload);
        assert_eq!(kept(top.path()), [0, 1], "the same bytes");
    }

    #[test]
    fn parts_that_were_written_are_kept_and_damaged_ones_are_not() {
        let top = killed();
        assert_eq!(kept(top.path()), [0, 2]);
        assert_eq!(kept(top.path()), [0, 2], "it was dropped again");
        // As a power cut leaves a page of it.
        let (_, data) = files(top.path());
        let mut bytes = std::fs::read(&data).unwrap();
        bytes[3] = 0;
        std::fs::write(&data, bytes).unwrap();
        assert_eq!(kept(top.path()), [2]);
        std::fs::File::options().write(true).open(data).unwrap().set_len(23).unwrap();
        assert_eq!(kept(top.path()), [0_u32; 0]);
    }

    #[test]
    fn a_torn_journal_begins_anew() {
        let top = killed();
        let (journal, data) = files(top.path());
        let file = std::fs::File::options().write(true).open(&journal).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        assert_eq!(kept(top.path()), [0_u32; 0]);
        assert_ne!(files(top.path()).1, data, "the data that nobody knows of stayed");
        for text in
            ["", "nothing of ours, and longer than the header of a journal would have to be"]
        {
            std::fs::write(&journal, text).unwrap();
            // What no journal speaks of is left to the sweep.
            assert_eq!(kept(top.path()), [0_u32; 0]);
        }
    }

    #[test]
    fn data_that_is_gone_or_somebody_elses_begins_anew() {
        let top = killed();
        let (_, data) = files(top.path());
        std::fs::hard_link(&data, top.path().join("other name")).unwrap();
        assert_eq!(kept(top.path()), [0_u32; 0]);
        let top = killed();
        let (_, data) = files(top.path());
        std::fs::remove_file(&data).unwrap();
        std::os::unix::fs::symlink(top.path().join("elsewhere"), &data).unwrap();
        assert_eq!(kept(top.path()), [0_u32; 0]);
        assert!(!top.path().join("elsewhere").exists());
    }

    #[test]
    fn one_that_is_resumed_is_not_old() {
        let top = killed();
        let (journal, data) = files(top.path());
        for path in [&journal, &data] {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        assert_eq!(kept(top.path()), [0, 2]);
        for path in [&journal, &data] {
            assert!(std::fs::metadata(path).unwrap().mtime() > 0, "{path:?}");
        }
    }

    #[test]
    fn what_could_not_be_synced_is_not_resumed() {
        let top = killed();
        let root = Root::attach(top.path(), Lasts::BeyondPowerCut).unwrap();
        let key = Key::new("d/f").unwrap();
        let mut upload = resume_file(&root, &key, Attributes::default(), OF).unwrap().unwrap();
        for (number, data) in [&b"0123456789"[..], b"abcdefghij", b"vwxyz"].iter().enumerate() {
            upload.put_part(number as u32, data).unwrap();
        }
        let (unsyncable, _writer) = rustix::pipe::pipe().unwrap();
        let data = std::mem::replace(&mut upload.upload.file, unsyncable);
        assert!(Box::new(upload).commit(Precondition::Any).is_err());
        drop(data);
        assert_eq!(std::fs::read_dir(top.path().join("d")).unwrap().count(), 0);
    }

    #[test]
    fn nothing_stays_when_it_is_done_or_given_up() {
        let top = killed();
        resume(top.path(), OF).unwrap().discard();
        assert_eq!(std::fs::read_dir(top.path().join("d")).unwrap().count(), 0);
        let upload = resume(top.path(), OF).unwrap();
        for (number, data) in [&b"0123456789"[..], b"abcdefghij", b"vwxyz"].iter().enumerate() {
            upload.put_part(number as u32, data).unwrap();
        }
        upload.commit(Precondition::Any).unwrap();
        let names: Vec<_> = std::fs::read_dir(top.path().join("d")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(std::fs::read(top.path().join("d/f")).unwrap(), b"0123456789abcdefghijvwxyz");
    }
}
