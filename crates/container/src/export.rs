//! Export: the container as one flat file, byte for byte.
//!
//! Here: what `hayase container export` does: large pieces by copy_file_range(2) (shared blocks where the
//! file system can), the rest gathered into large writes by two threads ([`behind`]); holes stay holes.
//! The target appears whole, under its name, when all of it is on the disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use hayase_layout::{ByteCount, Extent, Found, GlobalOffset, Piece};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::directory::{Directory, hidden_name, retry, split};
use crate::limits::{
    EXPORT_BUFFER, EXPORT_WINDOW_MAX, EXPORT_WINDOW_MIN, KERNEL_COPY_MIN, PIECES_MAX,
};
use crate::{ContainerError, Reader};

mod behind;

use behind::{WriteBehind, begin_writeback};

/// What is to become of a file that has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It stays, and the export fails.
    Never,
    /// It is replaced, at the end, at once.
    Yes,
}

/// What was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Length of the file.
    pub size: ByteCount,
    /// Bytes that were not holes.
    pub bytes: ByteCount,
    /// Of these, bytes that the kernel copied (or shared) by itself.
    pub kernel_bytes: ByteCount,
}

/// Writes the file that `reader` sees to `target`; `progress` is told how far it is.
///
/// Durable when it returns. Memory for [`EXPORT_BATCHES`](crate::limits::EXPORT_BATCHES) of [`EXPORT_BUFFER`]
/// and the pieces of one window, whatever the size.
pub fn export(
    reader: &Reader,
    target: &Path,
    replace: Replace,
    progress: &mut dyn FnMut(ByteCount),
) -> Result<Exported, ContainerError> {
    if replace == Replace::Never && target.symlink_metadata().is_ok() {
        return Err(ContainerError::Exists { path: target.to_owned() });
    }
    let (parent, name) = split(target)?;
    let hidden = parent.join(hidden_name(name));
    let failed = |source| ContainerError::io("create", target, source);
    let file = OpenOptions::new().write(true).create_new(true).open(&hidden).map_err(failed)?;
    let mut export = Export { reader, file, path: target.to_owned(), told: Exported::default() };
    let exported = export.run(progress).and_then(|()| switch(&hidden, target, replace));
    if exported.is_err() {
        // Only what was made above; nothing when it has its final name.
        let _ = std::fs::remove_file(&hidden);
    }
    exported?;
    Directory::open(parent)?.sync()?;
    Ok(export.told)
}

struct Export<'a> {
    reader: &'a Reader,
    file: File,
    path: PathBuf,
    told: Exported,
}

impl Export<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(ByteCount)) -> Result<(), ContainerError> {
        let size = self.reader.size();
        self.told.size = size;
        self.file.set_len(size.get()).map_err(|source| self.failed(source))?;
        let file = self.file.try_clone().map_err(|source| self.failed(source))?;
        std::thread::scope(|scope| {
            let writing = WriteBehind::start(scope, &file);
            let writing = writing.map_err(|source| self.failed(source))?;
            self.copy_windows(&writing, progress)?;
            writing.finish().map_err(|source| self.failed(source))
        })?;
        self.file.sync_all().map_err(|source| self.failed(source))
    }

    fn copy_windows(
        &mut self,
        writing: &WriteBehind,
        progress: &mut dyn FnMut(ByteCount),
    ) -> Result<(), ContainerError> {
        let size = self.told.size.get();
        let (mut at, mut window) = (0, EXPORT_WINDOW_MIN.get());
        while at < size {
            let end = (at + window).min(size);
            let extent = Extent::between(GlobalOffset(at), GlobalOffset(end));
            let extent = extent.expect("sizes of files are offsets");
            let found = self.reader.index().lookup(extent);
            // Small pieces make many of them: keep their number, and so memory, within bounds.
            if found.len() > PIECES_MAX && window > EXPORT_WINDOW_MIN.get() {
                window = EXPORT_WINDOW_MIN.get();
                continue;
            }
            if found.len() < PIECES_MAX / 4 {
                window = (window * 2).min(EXPORT_WINDOW_MAX.get());
            }
            self.copy(&found, writing)?;
            at = end;
            progress(ByteCount(at));
        }
        Ok(())
    }

    fn copy(&mut self, found: &[Found], writing: &WriteBehind) -> Result<(), ContainerError> {
        let mut small: Vec<Extent> = Vec::new();
        for found in found {
            let Found::Bytes(piece) = found else { continue };
            self.told.bytes.0 += piece.extent.len().get();
            if piece.extent.len() >= KERNEL_COPY_MIN && self.copy_by_kernel(piece)? {
                self.told.kernel_bytes.0 += piece.extent.len().get();
                continue;
            }
            match small.last_mut() {
                Some(last) if last.end() == piece.extent.start() => {
                    let joined = Extent::between(last.start(), piece.extent.end());
                    *last = joined.expect("both are valid, and one is behind the other");
                }
                _ => small.push(piece.extent),
            }
        }
        self.copy_small(&small, writing)
    }

    /// In batches that fill a buffer.
    fn copy_small(&self, extents: &[Extent], writing: &WriteBehind) -> Result<(), ContainerError> {
        let (mut batch, mut len) = (Vec::new(), 0);
        for extent in extents.iter().flat_map(|extent| extent.chunks(EXPORT_BUFFER)) {
            if len + extent.len().get() > EXPORT_BUFFER.get() {
                self.copy_batch(&batch, writing)?;
                batch.clear();
                len = 0;
            }
            len += extent.len().get();
            batch.push(extent);
        }
        self.copy_batch(&batch, writing)
    }

    /// One read of all, in the order of the parts; written while the next ones are read.
    fn copy_batch(&self, extents: &[Extent], writing: &WriteBehind) -> Result<(), ContainerError> {
        if extents.is_empty() {
            return Ok(());
        }
        let len: u64 = extents.iter().map(|extent| extent.len().get()).sum();
        let mut batch = writing.empty_batch().map_err(|source| self.failed(source))?;
        batch.bytes.resize(batch.bytes.len().max(len as usize), 0);
        self.reader.read_extents(extents.iter().copied(), &mut batch.bytes[..len as usize])?;
        batch.extents.clear();
        batch.extents.extend_from_slice(extents);
        writing.write(batch);
        Ok(())
    }

    /// `false` where the kernel does not do that between these two files.
    fn copy_by_kernel(&self, piece: &Piece) -> Result<bool, ContainerError> {
        let part = self.reader.part_file(self.reader.part(piece.part).id)?;
        let (mut from, mut to) = (piece.local.start().0, piece.extent.start().0);
        let mut left = piece.extent.len().get();
        while left > 0 {
            let count = retry(|| {
                let (mut source, mut target) = (from, to);
                rustix::fs::copy_file_range(
                    &*part,
                    Some(&mut source),
                    &self.file,
                    Some(&mut target),
                    left as usize,
                )
            });
            match count {
                // The part ends here: reading says so, in words.
                Ok(0) => return Ok(false),
                Ok(count) => {
                    (from, to) = (from + count as u64, to + count as u64);
                    left -= count as u64;
                }
                Err(Errno::STALE | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    return Ok(false);
                }
                Err(errno) => return Err(self.failed(errno.into())),
            }
        }
        begin_writeback(&self.file, piece.extent.start().0, piece.extent.end().0);
        Ok(true)
    }

    fn failed(&self, source: io::Error) -> ContainerError {
        ContainerError::io("write", &self.path, source)
    }
}

fn switch(hidden: &Path, target: &Path, replace: Replace) -> Result<(), ContainerError> {
    let exists = || ContainerError::Exists { path: target.to_owned() };
    let renamed = match replace {
        Replace::Yes => retry(|| rustix::fs::rename(hidden, target)),
        Replace::Never => {
            let flags = RenameFlags::NOREPLACE;
            match retry(|| rustix::fs::renameat_with(CWD, hidden, CWD, target, flags)) {
                // Not on this file system: it was looked for before.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    retry(|| rustix::fs::rename(hidden, target))
                }
                answer => answer,
            }
        }
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::ISDIR) => Err(exists()),
        Err(errno) => Err(ContainerError::io("create", target, errno.into())),
    }
}
