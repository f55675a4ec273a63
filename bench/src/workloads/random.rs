//! Calls of 4 KiB at random places of a file, all of which is cached.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::block::BLOCK_BYTES;
use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Bytes of a call; offsets are multiples of it.
const CALL_BYTES: usize = 4096;

/// Calls between two looks at the clock.
const CALLS: u64 = 4096;

/// Reads or writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Random {
    /// Else read.
    pub(crate) write: bool,
    /// The file.
    pub(crate) path: PathBuf,
    /// Its size, in MiB.
    pub(crate) mebibytes: u64,
    /// At least so long.
    pub(crate) milliseconds: u64,
    /// Same seed, same places.
    pub(crate) seed: u64,
}

impl Random {
    /// Makes the calls; their number is the amount. Opening is not counted.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let at = || format!("4 KiB calls on {}", self.path.display());
        let file =
            OpenOptions::new().read(true).write(self.write).open(&self.path).with_context(at)?;
        let places = self.mebibytes * (1 << 20) / CALL_BYTES as u64;
        let mut buffer = vec![0x5a; CALL_BYTES];
        let mut state = self.seed | 1;
        let mut watch = Stopwatch::default();
        while watch.elapsed() < Duration::from_millis(self.milliseconds) {
            let lap = Stopwatch::start();
            for _ in 0..CALLS {
                let offset = beside_the_stamps(next(&mut state) % places) * CALL_BYTES as u64;
                if self.write {
                    file.write_all_at(&buffer, offset).with_context(at)?;
                } else {
                    file.read_exact_at(&mut buffer, offset).with_context(at)?;
                }
            }
            watch.stop(&lap, CALLS as f64);
        }
        Ok(watch.measured())
    }
}

/// The first call of each MiB would overwrite its stamp ([`super::block`]): the next one instead.
fn beside_the_stamps(place: u64) -> u64 {
    const PLACES: u64 = (BLOCK_BYTES / CALL_BYTES) as u64;
    if place.is_multiple_of(PLACES) { place + 1 } else { place }
}

/// xorshift64*: a few cycles a number.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_stay_inside_and_differ() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        for write in [true, false] {
            let work = Random { write, path: path.clone(), mebibytes: 1, milliseconds: 1, seed: 9 };
            assert!(work.run().unwrap().amount >= CALLS as f64);
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 1 << 20, "nothing was written past the end");
        assert_eq!(bytes[..CALL_BYTES], [0; CALL_BYTES], "the stamp stays");
        assert!(bytes.chunks(CALL_BYTES).filter(|chunk| chunk[0] == 0x5a).count() > 200);
    }
}
