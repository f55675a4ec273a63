//! Requests of 1 MiB by the ring that servers use for their disks, as many under way as asked for.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use hayase_store::uring::{Request, Ring, Transfer};
use hayase_store::{Slot, SlotPool};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::block::BLOCK_BYTES;
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Passes over a file that is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RingTransfers {
    /// The file.
    pub(crate) path: PathBuf,
    /// Into the file, else out of it.
    pub(crate) write: bool,
    /// Its size, in blocks of 1 MiB.
    pub(crate) blocks: u64,
    /// Requests under way.
    pub(crate) depth: u32,
    /// As long as this.
    pub(crate) milliseconds: u64,
}

impl RingTransfers {
    /// Moves the bytes. The ring is made, and its memory touched, before the clock runs.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(&self.path)
            .with_context(|| format!("open {}", self.path.display()))?;
        let file = Arc::new(OwnedFd::from(file));
        let slots = SlotPool::new(self.depth as usize)?;
        let mut ring = Ring::new(self.depth, &slots)?;
        let mut free: Vec<Box<Slot>> = Vec::new();
        while let Some(mut slot) = slots.try_take() {
            (*slot.as_mut()).fill(7);
            free.push(Box::new(slot));
        }
        let (mut next, mut watch) = (0, Stopwatch::default());
        let limit = Duration::from_millis(self.milliseconds);
        let lap = Stopwatch::start();
        let begin = std::time::Instant::now();
        let mut moved = 0;
        while begin.elapsed() < limit || ring.under_way() > 0 {
            while begin.elapsed() < limit
                && let Some(buffer) = free.pop()
            {
                let offset = next % self.blocks * BLOCK_BYTES as u64;
                next += 1;
                ring.begin(self.request(&file, offset, buffer))
                    .map_err(|_| anyhow!("the ring takes no request"))?;
            }
            ring.wait()?;
            while let Some(ended) = ring.ended() {
                let count = ended.moved.context("move a block")?;
                ensure!(count == BLOCK_BYTES, "{count} bytes of a block were moved");
                moved += count;
                free.push(ended.buffer);
            }
        }
        watch.stop(&lap, moved as f64);
        Ok(watch.measured())
    }

    fn request(&self, file: &Arc<OwnedFd>, offset: u64, buffer: Box<Slot>) -> Request<Slot> {
        let transfer = if self.write { Transfer::Write } else { Transfer::Read };
        Request { file: Arc::clone(file), transfer, offset, buffer, len: BLOCK_BYTES }
    }
}
