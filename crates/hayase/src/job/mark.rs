//! The mark in a job's place in the storage, which says whose it is: of this very start of the job, not only of its name.

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

/// Whether the storage still belongs to this very start of the job.
pub(crate) fn is_ours(settings: &Settings) -> bool {
    found_mark(settings).is_ok_and(|found| found.as_ref() == Some(&settings.mark))
}

/// The mark in the storage; `None` where it has none.
pub(crate) fn found_mark(settings: &Settings) -> Result<Option<String>, KeptFileError> {
    let found: Option<Mark> = kept_file::read(&settings.storage_mark())?;
    Ok(found.map(|found| found.mark))
}
