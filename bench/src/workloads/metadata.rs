//! Names and inodes: create, open, stat and unlink, one file after the other.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// What is done to each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// open(2) with `O_CREAT|O_EXCL`, and close.
    Create,
    /// open(2) for reading, and close.
    Open,
    /// stat(2) again and again, after a pass that is not counted.
    Stat,
    /// stat(2), once.
    Look,
    /// unlink(2).
    Unlink,
}

/// Over a number of files in one directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// Which operation.
    pub(crate) operation: Operation,
    /// Where; it must exist.
    pub(crate) directory: PathBuf,
    /// Names of files begin with it.
    pub(crate) prefix: String,
    /// How many files.
    pub(crate) files: u64,
    /// As many passes as take at least this long; one when it is 0. For stat(2) only.
    pub(crate) milliseconds: u64,
}

impl Metadata {
    /// Does it; the number of files, times passes, is the amount.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let paths: Vec<PathBuf> = (0..self.files)
            .map(|file| self.directory.join(format!("{}{file}", self.prefix)))
            .collect();
        if self.operation == Operation::Stat {
            self.pass(&paths)?;
        }
        let mut watch = Stopwatch::default();
        loop {
            let lap = Stopwatch::start();
            self.pass(&paths)?;
            watch.stop(&lap, self.files as f64);
            let again = watch.elapsed() < Duration::from_millis(self.milliseconds);
            if self.operation != Operation::Stat || !again {
                return Ok(watch.measured());
            }
        }
    }

    fn pass(&self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            self.one(path).with_context(|| format!("{:?} {}", self.operation, path.display()))?;
        }
        Ok(())
    }

    fn one(&self, path: &Path) -> std::io::Result<()> {
        match self.operation {
            Operation::Create => {
                OpenOptions::new().write(true).create_new(true).open(path).map(drop)
            }
            Operation::Open => File::open(path).map(drop),
            Operation::Stat | Operation::Look => fs::metadata(path).map(drop),
            Operation::Unlink => fs::remove_file(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_filled_and_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let work = |operation| Metadata {
            operation,
            directory: dir.path().to_owned(),
            prefix: "f".to_owned(),
            files: 5,
            milliseconds: 1,
        };
        let count = || fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(work(Operation::Create).run().unwrap().amount, 5.0);
        assert_eq!(count(), 5);
        assert!(work(Operation::Create).run().is_err(), "they are there");
        work(Operation::Open).run().unwrap();
        assert_eq!(work(Operation::Look).run().unwrap().amount, 5.0);
        assert!(work(Operation::Stat).run().unwrap().amount >= 5.0);
        work(Operation::Unlink).run().unwrap();
        assert_eq!(count(), 0);
        assert!(work(Operation::Stat).run().is_err(), "they are gone");
    }
}
