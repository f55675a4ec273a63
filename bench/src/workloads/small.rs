//! Calls of one size that fill an empty file one behind the other, to its disk.

use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::block::{BLOCK_BYTES, Block};
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Passes over a file that is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Small {
    /// The file.
    pub(crate) path: PathBuf,
    /// `O_APPEND`, else where the call before ended.
    pub(crate) append: bool,
    /// Of one write(2); 1 MiB at most.
    pub(crate) call_bytes: usize,
    /// Of one pass.
    pub(crate) calls: u64,
    /// As many passes as take at least this long; one when it is 0.
    pub(crate) milliseconds: u64,
}

impl Small {
    /// Writes; the bytes are the amount. The file is opened, and emptied before each pass, while the clock stands. The
    /// fsync(2) that ends the pass counts: bytes that wait anywhere for being written are written when it stops.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        self.fill()
            .with_context(|| format!("calls of {} B on {}", self.call_bytes, self.path.display()))
    }

    fn fill(&self) -> anyhow::Result<Measured> {
        ensure!((8..=BLOCK_BYTES).contains(&self.call_bytes), "no size of calls");
        let mut file = OpenOptions::new().write(true).append(self.append).open(&self.path)?;
        let (mut block, mut watch) = (Block::new(), Stopwatch::default());
        let bytes = self.calls * self.call_bytes as u64;
        loop {
            file.set_len(0)?;
            file.rewind()?;
            let lap = Stopwatch::start();
            for index in 0..self.calls {
                block.stamp(index);
                let written = file.write(&block[..self.call_bytes])?;
                ensure!(written == self.call_bytes, "{written} bytes of a call were written");
            }
            file.sync_all()?;
            watch.stop(&lap, bytes as f64);
            if watch.elapsed() >= Duration::from_millis(self.milliseconds) {
                break;
            }
        }
        let found = file.metadata()?.len();
        ensure!(found == bytes, "{found} bytes of {bytes} are there");
        Ok(watch.measured())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_fill_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let work = |append, call_bytes| Small {
            path: path.clone(),
            append,
            call_bytes,
            calls: 3,
            milliseconds: 0,
        };
        assert!(work(false, 512).run().is_err(), "it is not there");
        std::fs::write(&path, [1; 5000]).unwrap();
        for append in [false, true] {
            assert_eq!(work(append, 512).run().unwrap().amount, 1536.0);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len(), 1536, "nothing is left of what was there");
            let stamps: Vec<u8> = bytes.chunks(512).map(|call| call[0]).collect();
            assert_eq!(stamps, [0, 1, 2]);
        }
        assert!(work(false, BLOCK_BYTES + 1).run().is_err());
    }
}
