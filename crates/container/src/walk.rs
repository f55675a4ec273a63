//! The containers below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Container, ContainerError};

/// `path` itself when it is a container, else every container below it, sorted; symbolic links are not
/// followed. A directory with a mark that is damaged or newer counts too: who opens it is told.
///
/// One listing for each directory, one open for each directory in it.
pub fn containers_below(path: &Path) -> Result<Vec<PathBuf>, ContainerError> {
    let metadata = fs::symlink_metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ContainerError::NotFound { path: path.to_owned() },
        _ => ContainerError::io("look at", path, source),
    })?;
    if is_container(path) {
        return Ok(vec![path.to_owned()]);
    }
    if !metadata.is_dir() {
        return Err(ContainerError::NotContainer { path: path.to_owned() });
    }
    let mut found = Vec::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let failed = |source| ContainerError::io("list the directory", &directory, source);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !entry.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            let below = entry.path();
            if !is_container(&below) {
                waiting.push(below);
            } else if !is_hidden(&below) {
                found.push(below);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_container(path: &Path) -> bool {
    !matches!(Container::is_at(path), Ok(false))
}

/// Being made, or being removed; see [`Container`].
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| crate::is_hidden_name(&name.to_string_lossy()))
}
