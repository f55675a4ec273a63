//! Writing while the next bytes are gathered: a thread that writes one batch after the other.
//!
//! What it has written begins its way to the disk at once, so the sync at the end waits for little.
//! Batches go round: as many as [`EXPORT_BATCHES`], which bounds the memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use hayase_layout::Extent;

use crate::limits::EXPORT_BATCHES;

mod writeback;

/// Bytes of these extents, one behind the other; the extents ascend.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) extents: Vec<Extent>,
    /// At least as long as all extents together; kept when the batch is used again.
    pub(super) bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WriteBehind {
    full: Sender<Batch>,
    /// Batches that are written, or what went wrong; nothing is written behind that.
    empty: Receiver<io::Result<Batch>>,
}

impl WriteBehind {
    /// The thread ends with `self`, or when a write failed.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        file: &'scope File,
    ) -> io::Result<Self> {
        let (full, to_write) = channel::<Batch>();
        let (done, empty) = channel();
        for _ in 0..EXPORT_BATCHES {
            done.send(Ok(Batch::default())).expect("the other end is here");
        }
        let name = "hayase-export".to_owned();
        std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
            for batch in to_write {
                let written = write(file, &batch);
                let has_failed = written.is_err();
                if done.send(written.map(|()| batch)).is_err() || has_failed {
                    return;
                }
            }
        })?;
        Ok(Self { full, empty })
    }

    /// A batch to fill, when one is free. Fails when a batch before could not be written.
    pub(super) fn empty_batch(&self) -> io::Result<Batch> {
        self.empty.recv().unwrap_or_else(|_| Err(io::Error::other("nobody writes any more")))
    }

    /// Has it written; a failure is told by one of the next calls.
    pub(super) fn write(&self, batch: Batch) {
        // Who writes no more has said why, in the other direction.
        let _ = self.full.send(batch);
    }

    /// Waits until all is written.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.full);
        self.empty.iter().try_for_each(|written| written.map(drop))
    }
}

/// One write for each extent.
fn write(file: &File, batch: &Batch) -> io::Result<()> {
    let mut rest = &batch.bytes[..];
    for extent in &batch.extents {
        let (now, later) = rest.split_at(extent.len().get() as usize);
        file.write_all_at(now, extent.start().0)?;
        rest = later;
    }
    if let [first, .., last] | [first @ last] = &batch.extents[..] {
        begin_writeback(file, first.start().0, last.end().0);
    }
    Ok(())
}

/// Has the kernel begin to write what is dirty between two offsets of the file.
pub(super) fn begin_writeback(file: &File, start: u64, end: u64) {
    // It only saves time; what fails to reach the disk fails again at the end, in fsync(2).
    let _ = writeback::begin(file.as_fd(), start, end - start);
}

#[cfg(test)]
mod tests {
    use hayase_layout::{ByteCount, GlobalOffset};

    use super::*;

    fn write_three(writing: &WriteBehind, at: u64, byte: u8) -> io::Result<()> {
        let mut batch = writing.empty_batch()?;
        batch.extents = vec![Extent::new(GlobalOffset(at), ByteCount(3)).unwrap()];
        batch.bytes = vec![byte; 5]; // longer than the extent, as a used one may be
        writing.write(batch);
        Ok(())
    }

    #[test]
    fn more_batches_than_go_round_are_written() {
        let file = tempfile::tempfile().unwrap();
        std::thread::scope(|scope| {
            let writing = WriteBehind::start(scope, &file).unwrap();
            (0..9_u8).for_each(|nth| write_three(&writing, 4 * u64::from(nth), nth).unwrap());
            writing.finish().unwrap();
        });
        let mut bytes = [0; 35];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let expected: Vec<u8> = (0..35).map(|at| if at % 4 == 3 { 0 } else { at / 4 }).collect();
        assert_eq!(bytes[..], expected[..]);
        assert_eq!(file.metadata().unwrap().len(), 35);
    }

    #[test]
    fn a_write_that_fails_is_told_and_ends_it() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(path.path()).unwrap();
        let is_told = |told: io::Result<()>| {
            assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::EBADF));
        };
        std::thread::scope(|scope| {
            let writing = WriteBehind::start(scope, &read_only).unwrap();
            is_told((0..9).try_for_each(|nth| write_three(&writing, nth, 1)));
            let writing = WriteBehind::start(scope, &read_only).unwrap();
            write_three(&writing, 0, 1).unwrap();
            is_told(writing.finish());
        });
    }
}
