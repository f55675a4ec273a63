//! The mark in a job's place in the storage, which says whose it is: of this very start of the job, not only of its name.

use std::fs;

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

/// The mark in the storage; `None` where it has none.
pub(crate) fn found_mark(settings: &Settings) -> Result<Option<String>, KeptFileError> {
    let found: Option<Mark> = kept_file::read(&settings.storage_mark())?;
    Ok(found.map(|found| found.mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Kind, settings::tests::sample};

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
