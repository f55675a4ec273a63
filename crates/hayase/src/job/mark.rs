//! The mark in a job's place in the storage, which says whose it is: of this very start of the job, not only of its name.
//!
//! Here: also removing what has the mark, through the descriptor that it was read with.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::kept_file::{self, KeptFileError};

/// As it lies in the file.
#[derive(Serialize, Deserialize)]
struct Mark {
    mark: String,
}

/// Leaves the mark of this very start of the job in its storage; durable when it returns.
pub(crate) fn mark_storage(settings: &Settings) -> Result<(), KeptFileError> {
    let (path, mark) = (settings.storage_mark(), settings.mark.clone());
    kept_file::write(&path, &Mark { mark })?;
    kept_file::sync_directory_of(&path)?;
    kept_file::sync_directory_of(&settings.job_storage())
}

/// Removes the job's place in the storage if the launcher was killed between making it and marking it: nothing is in it
/// but what was to become the mark.
pub(crate) fn remove_unmarked(settings: &Settings) {
    let Ok(None) = found_mark(settings) else { return };
    for entry in fs::read_dir(settings.job_storage()).into_iter().flatten().flatten() {
        if kept_file::is_unfinished(&settings.storage_mark(), &entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    // Refused where anything else is in it.
    let _ = fs::remove_dir(settings.job_storage());
}

/// Whether the storage still belongs to this very start of the job.
pub(crate) fn is_ours(settings: &Settings) -> bool {
    found_mark(settings).is_ok_and(|found| found.as_ref() == Some(&settings.mark))
}

/// A job's place in the storage, which has its mark. What is removed through it is in the directory that had the mark, even
/// if another user has put something else in its path meanwhile.
pub(crate) struct Marked {
    directory: OwnedFd,
}

impl Marked {
    /// `None` where the storage does not belong to this very start of the job.
    pub(crate) fn find(settings: &Settings) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(settings.job_storage(), flags, Mode::empty()).ok()?;
        let marked = Self { directory };
        let mark = marked.path().join(settings.storage_mark().file_name()?);
        let found: Option<Mark> = kept_file::read(&mark).ok()?;
        (found?.mark == settings.mark).then_some(marked)
    }

    /// Where it is, as long as this lives, whatever becomes of its path: proc_pid_fd(5).
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    /// Removes a node's share; fine when there is none.
    pub(crate) fn remove_node(&self, settings: &Settings, node: u16) -> io::Result<()> {
        let share = settings.node_storage(node);
        remove(&self.path().join(share.file_name().expect("it has a name")))
    }

    /// Removes everything in it, the mark last, and then itself.
    pub(crate) fn remove_all(self, settings: &Settings) -> io::Result<()> {
        let mark = settings.storage_mark().file_name().expect("it has a name").to_owned();
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            if entry.file_name() != mark {
                remove(&entry.path())?;
            }
        }
        remove(&self.path().join(mark))?;
        // Only an empty directory goes.
        fs::remove_dir(settings.job_storage())
    }
}

/// A file or a directory with all that is in it; links are not followed. Fine when it is not there.
fn remove(path: &Path) -> io::Result<()> {
    let removed = fs::symlink_metadata(path).and_then(|found| match found.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The mark in the storage; `None` where it has none.
pub(crate) fn found_mark(settings: &Settings) -> Result<Option<String>, KeptFileError> {
    let found: Option<Mark> = kept_file::read(&settings.storage_mark())?;
    Ok(found.map(|found| found.mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Kind, settings::tests::sample};

    /// Another user who may write above the storage puts a link in its place, between the look at the mark and the removal.
    #[test]
    fn what_takes_the_place_of_a_marked_storage_is_not_removed() {
        let top = tempfile::tempdir().unwrap();
        let storage = top.path().join("storage");
        let settings = Settings { storage: storage.clone(), ..sample(Kind::ThisMachine, 2) };
        let others = top.path().join("others");
        for share in [settings.node_storage(0), settings.node_storage(1)] {
            fs::create_dir_all(&share).unwrap();
        }
        let bytes = others.join(settings.job.as_str()).join("node-0/bytes");
        fs::create_dir_all(bytes.parent().unwrap()).unwrap();
        fs::write(&bytes, "of others").unwrap();
        assert!(Marked::find(&settings).is_none(), "it has no mark yet");
        mark_storage(&settings).unwrap();

        let marked = Marked::find(&settings).unwrap();
        let moved = top.path().join("moved");
        fs::rename(&storage, &moved).unwrap();
        std::os::unix::fs::symlink(&others, &storage).unwrap();
        marked.remove_node(&settings, 0).unwrap();
        let own = moved.join(settings.job.as_str());
        assert!(!own.join("node-0").exists() && own.join("node-1").exists());
        marked.remove_all(&settings).expect_err("the directory of others is not empty");
        assert!(fs::read_dir(&own).unwrap().next().is_none() && bytes.exists());
        assert!(Marked::find(&settings).is_none());
        // Nor does a link lead to a place with the mark.
        fs::remove_file(&storage).unwrap();
        fs::rename(&moved, &storage).unwrap();
        mark_storage(&settings).unwrap();
        let place = settings.job_storage();
        fs::rename(&place, top.path().join("real")).unwrap();
        std::os::unix::fs::symlink(top.path().join("real"), &place).unwrap();
        assert!(Marked::find(&settings).is_none());
    }

    #[test]
    fn a_place_that_was_made_and_not_marked_is_removed_and_nothing_else() {
        let storage = tempfile::tempdir().unwrap();
        let settings =
            Settings { storage: storage.path().to_owned(), ..sample(Kind::ThisMachine, 1) };
        let place = settings.job_storage();
        fs::create_dir(&place).unwrap();
        remove_unmarked(&settings);
        assert!(!place.exists());

        // Killed while it wrote the mark.
        fs::create_dir(&place).unwrap();
        let mut unfinished = settings.storage_mark().into_os_string();
        unfinished.push(".new-0123456789abcdef");
        fs::write(unfinished, "{").unwrap();
        remove_unmarked(&settings);
        assert!(!place.exists());

        fs::create_dir(&place).unwrap();
        fs::write(place.join("bytes"), "x").unwrap();
        remove_unmarked(&settings);
        assert!(place.join("bytes").exists());
        fs::remove_file(place.join("bytes")).unwrap();
        mark_storage(&settings).unwrap();
        remove_unmarked(&settings);
        assert!(is_ours(&settings));
    }
}
