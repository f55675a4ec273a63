//! Calls of 1 MiB from the start of a file to its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, OFlags, fadvise};
use serde::{Deserialize, Serialize};

use super::block::{BLOCK_BYTES, Block};
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Open it, then read what is there; the open is not counted.
    Read,
    /// Open it, then write over what is there; the open is not counted.
    Overwrite,
    /// Create, write and close it, all of it counted.
    New,
}

/// Passes over a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sequential {
    /// Of which kind.
    pub(crate) operation: Operation,
    /// The file.
    pub(crate) path: PathBuf,
    /// Its size, in blocks of 1 MiB.
    pub(crate) blocks: u64,
    /// As many passes as take at least this long; one when it is 0.
    pub(crate) milliseconds: u64,
    /// Drop the pages that this node's kernel has of the file before each pass (not counted).
    pub(crate) cold: bool,
    /// Each pass of writes ends with fsync(2), which counts.
    pub(crate) sync: bool,
    /// `O_DIRECT`.
    pub(crate) direct: bool,
    /// Leave a new file there.
    pub(crate) keep: bool,
}

impl Sequential {
    /// One pass through the page cache, nothing kept.
    pub(crate) fn new(operation: Operation, path: impl Into<PathBuf>, blocks: u64) -> Self {
        let path = path.into();
        let (cold, sync, direct, keep) = (false, false, false, false);
        Self { operation, path, blocks, milliseconds: 0, cold, sync, direct, keep }
    }

    /// Moves the bytes.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let at = || format!("{:?} of {}", self.operation, self.path.display());
        let mut watch = Stopwatch::default();
        let mut block = Block::new();
        loop {
            match self.operation {
                Operation::Read => self.read(&mut watch, &mut block),
                Operation::Overwrite => self.overwrite(&mut watch, &mut block),
                Operation::New => self.write_new(&mut watch, &mut block),
            }
            .with_context(at)?;
            if watch.elapsed() >= Duration::from_millis(self.milliseconds) {
                return Ok(watch.measured());
            }
        }
    }

    fn bytes(&self) -> f64 {
        (self.blocks * BLOCK_BYTES as u64) as f64
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        options
    }

    fn read(&self, watch: &mut Stopwatch, block: &mut Block) -> anyhow::Result<()> {
        let file = self.options().read(true).open(&self.path)?;
        if self.cold {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        let lap = Stopwatch::start();
        for index in 0..self.blocks {
            file.read_exact_at(block, index * BLOCK_BYTES as u64)?;
            block.check(index)?;
        }
        watch.stop(&lap, self.bytes());
        Ok(())
    }

    fn overwrite(&self, watch: &mut Stopwatch, block: &mut Block) -> anyhow::Result<()> {
        let file = self.options().write(true).open(&self.path)?;
        let lap = Stopwatch::start();
        self.write(&file, block)?;
        watch.stop(&lap, self.bytes());
        Ok(())
    }

    fn write_new(&self, watch: &mut Stopwatch, block: &mut Block) -> anyhow::Result<()> {
        let lap = Stopwatch::start();
        let file = self.options().write(true).create_new(true).open(&self.path)?;
        self.write(&file, block)?;
        drop(file);
        watch.stop(&lap, self.bytes());
        if !self.keep {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn write(&self, file: &File, block: &mut Block) -> anyhow::Result<()> {
        for index in 0..self.blocks {
            block.stamp(index);
            file.write_all_at(block, index * BLOCK_BYTES as u64)?;
        }
        if self.sync {
            file.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let work = |operation, name| Sequential::new(operation, dir.path().join(name), 3);
        let mut made = work(Operation::New, "old");
        (made.keep, made.sync) = (true, true);
        made.run().unwrap();
        for operation in [Operation::Overwrite, Operation::Read] {
            let found = work(operation, "old").run().unwrap();
            assert_eq!(found.amount, 3.0 * 1_048_576.0);
            assert!(found.seconds > 0.0);
        }
        assert!(work(Operation::New, "old").run().is_err(), "it is there");
        work(Operation::New, "new").run().unwrap();
        assert!(!dir.path().join("new").exists());
        let longer = Sequential::new(Operation::Read, dir.path().join("old"), 4);
        assert!(longer.run().is_err(), "it is shorter");
    }
}
