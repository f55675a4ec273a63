//! The mark in a job's place in the storage, which says whose it is: of this very start of the job, not only of its name.
//!
//! Here: also removing what has the mark, through the descriptor that it was read with.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::held::Held;
use super::{Settings, expect_safe_way};
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
    let Some(place) = Place::find(settings) else { return };
    let Ok(None) = place.mark(settings) else { return };
    for name in place.names().into_iter().flatten() {
        if kept_file::is_unfinished(&settings.storage_mark(), &settings.job_storage().join(&name)) {
            let _ = place.directory.remove_all(&name);
        }
    }
    // Refused where anything else is in it.
    let _ = place.remove_empty();
}

/// Whether the storage still belongs to this very start of the job.
pub(crate) fn is_ours(settings: &Settings) -> bool {
    found_mark(settings).is_ok_and(|found| found.as_ref() == Some(&settings.mark))
}

/// A job's place in the storage, held: what another user has put in its path meanwhile does not count.
struct Place {
    storage: Held,
    name: OsString,
    directory: Held,
}

impl Place {
    /// `None` where it is not there, or other users can lead its path elsewhere.
    fn find(settings: &Settings) -> Option<Self> {
        let place = settings.job_storage();
        let name = place.file_name()?.to_owned();
        let found = expect_safe_way(place.parent()?)
            .inspect_err(|error| tracing::warn!("what is in the storage stays: {error}"));
        let storage = found.ok()??;
        let directory = storage.directory(&name).ok()?;
        Some(Self { storage, name, directory })
    }

    fn mark(&self, settings: &Settings) -> Result<Option<String>, KeptFileError> {
        let name = mark_name(settings);
        let open = |_: &Path| self.directory.open_file(name.as_ref());
        let found: Option<Mark> = kept_file::read_by(&settings.storage_mark(), open)?;
        Ok(found.map(|found| found.mark))
    }

    /// What is in it.
    fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(self.directory.path())?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Removes it, if nothing is in it any more.
    fn remove_empty(&self) -> io::Result<()> {
        self.storage.remove_empty(&self.name)
    }
}

fn mark_name(settings: &Settings) -> OsString {
    settings.storage_mark().file_name().map(OsStr::to_owned).unwrap_or_default()
}

/// A job's place in the storage, which has its mark. What is removed through it is in the directory that had the mark, even
/// if another user has put something else in its path meanwhile.
pub(crate) struct Marked(Place);

impl Marked {
    /// `None` where the storage does not belong to this very start of the job.
    pub(crate) fn find(settings: &Settings) -> Option<Self> {
        let place = Place::find(settings)?;
        let found = place.mark(settings).ok()?;
        (found.as_ref() == Some(&settings.mark)).then_some(Self(place))
    }

    /// Removes a node's share; fine when there is none.
    pub(crate) fn remove_node(&self, settings: &Settings, node: u16) -> io::Result<()> {
        let share = settings.node_storage(node);
        self.0.directory.remove_all(share.file_name().expect("it has a name"))
    }

    /// Removes everything in it, the mark last, and then itself.
    pub(crate) fn remove_all(self, settings: &Settings) -> io::Result<()> {
        self.remove_if(settings, |_| true).map(drop)
    }

    /// The same if all that is in it but the mark is `removable`; whether that was so.
    pub(crate) fn remove_if(
        self,
        settings: &Settings,
        removable: impl Fn(&OsStr) -> bool,
    ) -> io::Result<bool> {
        let (Self(place), mark) = (self, mark_name(settings));
        let mut names = place.names()?;
        names.retain(|name| *name != mark);
        if !names.iter().all(|name| removable(name)) {
            return Ok(false);
        }
        names.iter().chain([&mark]).try_for_each(|name| place.directory.remove_all(name))?;
        // Only an empty directory goes.
        place.remove_empty()?;
        Ok(true)
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
        marked.remove_all(&settings).unwrap();
        assert!(!own.exists() && bytes.exists());
        assert!(Marked::find(&settings).is_none());
        // Nor does a link lead to a place with the mark.
        fs::remove_file(&storage).unwrap();
        fs::rename(&moved, &storage).unwrap();
        fs::create_dir(settings.job_storage()).unwrap();
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
