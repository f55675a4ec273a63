//! One look at a name.

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// stat(2) of a path that may not be there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Which.
    pub(crate) path: PathBuf,
}

impl Look {
    /// The moment of the answer ([`super::locks::now`]), whether there is something or not.
    pub(crate) fn run(&self) -> anyhow::Result<u64> {
        match std::fs::metadata(&self.path) {
            Ok(_) => Ok(super::locks::now()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(super::locks::now()),
            Err(error) => Err(error).with_context(|| format!("stat {}", self.path.display())),
        }
    }
}
