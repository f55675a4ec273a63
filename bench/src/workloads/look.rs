//! One look at each of some names.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// stat(2) of paths that may not be there, one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Which.
    pub(crate) paths: Vec<PathBuf>,
}

impl Look {
    /// The moment of the last answer ([`super::locks::now`]), whether there is something or not.
    pub(crate) fn run(&self) -> anyhow::Result<u64> {
        for path in &self.paths {
            match std::fs::metadata(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("stat {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(super::locks::now())
    }
}
