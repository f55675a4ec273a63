//! Calls of 1 MiB from the start of a file to its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{Advice, OFlags, fadvise};
use serde::{Deserialize, Serialize};

use super::block::{BLOCK_BYTES, Block};
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// New files of one block of work: they take room until its end.
const NEW_FILES_MAX: usize = 8;

/// So long what was removed may still be on its way out.
const REMOVAL: Duration = Duration::from_millis(100);

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// Open it, then read what is there; the open is not counted.
    Read,
    /// Open it, then write over what is there; the open is not counted.
    Overwrite,
    /// Create, write and close it, all of it counted; again with further names.
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
        let mut block = Block::new();
        let measured = match self.operation {
            Operation::Read => self.read(&mut block),
            Operation::Overwrite => self.overwrite(&mut block),
            Operation::New => self.write_new(&mut block),
        };
        measured.with_context(|| format!("{:?} of {}", self.operation, self.path.display()))
    }

    fn bytes(&self) -> f64 {
        (self.blocks * BLOCK_BYTES as u64) as f64
    }

    fn is_enough(&self, watch: &Stopwatch) -> bool {
        watch.elapsed() >= Duration::from_millis(self.milliseconds)
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        if self.direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        options
    }

    fn read(&self, block: &mut Block) -> anyhow::Result<Measured> {
        let file = self.options().read(true).open(&self.path)?;
        let mut watch = Stopwatch::default();
        loop {
            if self.cold {
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
            let lap = Stopwatch::start();
            for index in 0..self.blocks {
                file.read_exact_at(block, index * BLOCK_BYTES as u64)?;
                block.check(index)?;
            }
            watch.stop(&lap, self.bytes());
            if self.is_enough(&watch) {
                return Ok(watch.measured());
            }
        }
    }

    fn overwrite(&self, block: &mut Block) -> anyhow::Result<Measured> {
        let file = self.options().write(true).open(&self.path)?;
        let mut watch = Stopwatch::default();
        loop {
            let lap = Stopwatch::start();
            self.write(&file, block)?;
            watch.stop(&lap, self.bytes());
            if self.is_enough(&watch) {
                return Ok(watch.measured());
            }
        }
    }

    /// Where passes are repeated, one that is not counted comes first. New files take free memory, and
    /// a virtual machine whose host had taken that away gets it back at a twentieth of the speed,
    /// whoever asks first: what follows takes the memory of files that were just removed.
    fn write_new(&self, block: &mut Block) -> anyhow::Result<Measured> {
        if self.milliseconds > 0 {
            for index in 0..NEW_FILES_MAX {
                self.write_file(&self.new_path(index), block)?;
            }
            (0..NEW_FILES_MAX).try_for_each(|index| std::fs::remove_file(self.new_path(index)))?;
            std::thread::sleep(REMOVAL);
        }
        let mut watch = Stopwatch::default();
        let mut made = 0;
        while made < NEW_FILES_MAX && (made == 0 || !self.is_enough(&watch)) {
            let path = self.new_path(made);
            let lap = Stopwatch::start();
            self.write_file(&path, block)?;
            watch.stop(&lap, self.bytes());
            made += 1;
        }
        // Only now: nobody is busy with the last file while the next is timed.
        if !self.keep {
            (0..made).try_for_each(|index| std::fs::remove_file(self.new_path(index)))?;
        }
        Ok(watch.measured())
    }

    fn new_path(&self, index: usize) -> PathBuf {
        let mut path = self.path.clone();
        if index > 0 {
            path.as_mut_os_string().push(format!(".{index}"));
        }
        path
    }

    fn write_file(&self, path: &Path, block: &mut Block) -> anyhow::Result<()> {
        let file = self.options().write(true).create_new(true).open(path)?;
        self.write(&file, block)
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
