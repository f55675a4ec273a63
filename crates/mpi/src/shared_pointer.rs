//! The shared file pointer of one open file: a number that all its processes see.
//!
//! It is kept in the container's stub, which holds nothing else: a short list of entries, one for each
//! open file whose shared pointer was moved, read and written under flock(2). So it needs no process that
//! answers, and works wherever the container's file system can lock.
//!
//! MPI_File_set_view sets it to 0 on all processes. That is a new *generation*: an entry of an earlier one
//! counts as 0, so nothing has to be said.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::error::Error;

/// Key, generation, value: 64 bits each, little-endian.
const ENTRY_BYTES: usize = 24;

/// Files with shared pointers in use at a time, of one container.
const ENTRIES_MAX: usize = 4096;

/// An attribute that every file on a mount of gfarm2fs has; its locks are those of one host.
const MOUNTED_BY_GFARM2FS: &str = "gfarm2fs.url";

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedPointer {
    stub: PathBuf,
    /// The same on all processes that opened the file together, and on no others.
    key: u64,
    generation: AtomicU64,
    /// Opened when it is needed first: few programs use shared pointers.
    file: Mutex<Option<File>>,
}

/// Locked until it is dropped.
pub(crate) struct Locked<'a> {
    file: MutexGuard<'a, Option<File>>,
}

impl SharedPointer {
    pub(crate) fn new(stub: &Path, key: u64) -> Self {
        let (generation, file) = (AtomicU64::new(0), Mutex::new(None));
        Self { stub: stub.to_owned(), key, generation, file }
    }

    /// It is 0 again; on all processes, at the same point between collective calls.
    pub(crate) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn get(&self) -> Result<u64, Error> {
        self.update(|value| value)
    }

    pub(crate) fn set(&self, value: u64) -> Result<(), Error> {
        self.update(|_| value).map(|_| ())
    }

    /// Adds, and gives what was there before.
    pub(crate) fn fetch_add(&self, count: u64) -> Result<u64, Error> {
        self.update(|value| value.saturating_add(count))
    }

    /// Nobody uses it any more; on one process.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        if !self.stub.metadata().is_ok_and(|stub| stub.len() > 0) {
            return Ok(());
        }
        let locked = self.lock()?;
        self.forget_in(locked.file()).map_err(|error| self.failed(&error))
    }

    /// Nobody else has the stub locked; for the atomic mode too.
    pub(crate) fn lock(&self) -> Result<Locked<'_>, Error> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            // To lock it, reading is enough.
            let opened = File::options().read(true).write(true).open(&self.stub);
            let opened = opened.or_else(|_| File::open(&self.stub));
            *file = Some(self.lockable(opened.map_err(|error| self.failed(&error))?)?);
        }
        let locked = Locked { file };
        locked.file().lock().map_err(|error| self.failed(&error))?;
        Ok(locked)
    }

    /// Fails where a lock would be granted to several hosts at once: success would mean nothing.
    fn lockable(&self, file: File) -> Result<File, Error> {
        match rustix::fs::fgetxattr(&file, MOUNTED_BY_GFARM2FS, &mut [0_u8; 0][..]) {
            Err(_) => Ok(file),
            Ok(_) => Err(Error::unsupported(format!(
                "{}: locks on a mount of gfarm2fs hold on one host only, and shared pointers and the atomic mode need them",
                self.stub.display()
            ))),
        }
    }

    fn update(&self, change: impl FnOnce(u64) -> u64) -> Result<u64, Error> {
        let locked = self.lock()?;
        self.update_in(locked.file(), change).map_err(|error| self.failed(&error))
    }

    fn update_in(&self, file: &File, change: impl FnOnce(u64) -> u64) -> io::Result<u64> {
        let entries = entries(file)?;
        let generation = self.generation.load(Ordering::Acquire);
        let own = entries.iter().position(|entry| entry[0] == self.key);
        let old = own.map(|own| entries[own]).filter(|entry| entry[1] == generation);
        let old = old.map_or(0, |entry| entry[2]);
        let new = change(old);
        if new != old {
            let at = own.unwrap_or(entries.len());
            if at >= ENTRIES_MAX {
                return Err(io::Error::other("too many shared pointers are in use"));
            }
            write_entry(file, at, [self.key, generation, new])?;
        }
        Ok(old)
    }

    /// The last entry takes its place.
    fn forget_in(&self, file: &File) -> io::Result<()> {
        let entries = entries(file)?;
        let Some(own) = entries.iter().position(|entry| entry[0] == self.key) else {
            return Ok(());
        };
        let last = entries.len() - 1;
        if own != last {
            write_entry(file, own, entries[last])?;
        }
        file.set_len((last * ENTRY_BYTES) as u64)
    }

    fn failed(&self, error: &io::Error) -> Error {
        let class = match error.kind() {
            io::ErrorKind::PermissionDenied => crate::abi::ErrorClass::Access,
            _ => crate::abi::ErrorClass::Io,
        };
        Error::usual(class, format!("shared pointer in {}: {error}", self.stub.display()))
    }
}

impl Locked<'_> {
    fn file(&self) -> &File {
        self.file.as_ref().expect("it is opened before it is locked")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // The descriptor stays open; where it can not be unlocked now, closing it does.
        if self.file().unlock().is_err() {
            *self.file = None;
        }
    }
}

fn entries(file: &File) -> io::Result<Vec<[u64; 3]>> {
    let len = (file.metadata()?.len() as usize / ENTRY_BYTES).min(ENTRIES_MAX);
    let mut bytes = vec![0; len * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let word = |bytes: &[u8], nth: usize| {
        u64::from_le_bytes(std::array::from_fn(|at| bytes[nth * 8 + at]))
    };
    Ok(bytes.chunks_exact(ENTRY_BYTES).map(|entry| [0, 1, 2].map(|nth| word(entry, nth))).collect())
}

fn write_entry(file: &File, at: usize, entry: [u64; 3]) -> io::Result<()> {
    let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all_at(&bytes, (at * ENTRY_BYTES) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_given_once() {
        let stub = tempfile::NamedTempFile::new().unwrap();
        let mut given: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    // Each as a process of its own: with its own descriptor.
                    let pointer = SharedPointer::new(stub.path(), 77);
                    scope.spawn(move || {
                        (0..50).map(|_| pointer.fetch_add(1).unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        given.sort_unstable();
        assert_eq!(given, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn pointers_of_other_files_and_generations_are_apart() {
        let stub = tempfile::NamedTempFile::new().unwrap();
        let pointers = [1, 2, 3].map(|key| SharedPointer::new(stub.path(), key));
        for (nth, pointer) in (10..).zip(&pointers) {
            pointer.set(nth).unwrap();
        }
        assert_eq!(pointers.each_ref().map(|pointer| pointer.get().unwrap()), [10, 11, 12]);
        pointers[1].begin_generation();
        assert_eq!(pointers[1].fetch_add(5).unwrap(), 0);
        assert_eq!(pointers[1].get().unwrap(), 5);
        pointers[0].forget().unwrap();
        assert_eq!(pointers.each_ref().map(|pointer| pointer.get().unwrap()), [0, 5, 12]);
        pointers.iter().for_each(|pointer| pointer.forget().unwrap());
        assert_eq!(stub.path().metadata().unwrap().len(), 0);
    }
}
