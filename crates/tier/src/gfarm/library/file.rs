//! An open file of Gfarm.
//!
//! Reads, writes and syncs run beside each other, also those of one file; the library lets one after
//! the other of a file through.

#![expect(unsafe_code, reason = "functions of libgfarm")]

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::null_mut;

use super::table::RawFile;
use super::{Failure, Library, Stat};

/// Most bytes of one call of the library, whose lengths are `int`; it sends them in requests of 1 MiB.
const CALL_BYTES_MAX: usize = 1 << 24;

/// An open file of Gfarm: gfmd knows of it until it is closed.
#[derive(Debug)]
pub(crate) struct File {
    pub(super) library: &'static Library,
    /// Null once it is closed.
    pub(super) raw: RawFile,
}

// SAFETY: a GFS_File belongs to no thread; its calls here are those that lock it, or are alone.
unsafe impl Send for File {}
// SAFETY: see above.
unsafe impl Sync for File {}

impl File {
    /// As gfmd sees the inode that is open.
    pub(crate) fn stat(&self) -> Result<Stat, Failure> {
        // SAFETY: the file is open; `stat` is filled on success.
        self.library.told(|stat| unsafe { (self.library.table.gfs_fstat)(self.raw, stat) })
    }

    /// Chooses the host that serves it, `None`: lets Gfarm choose; before the first byte. May be asked again
    /// when it fails.
    pub(crate) fn place(&self, host: Option<&CStr>) -> Result<(), Failure> {
        // Not const in C, and not written to; null means any.
        let host = host.map_or(null_mut(), |host| host.as_ptr().cast_mut());
        let _alone = self.library.alone();
        // SAFETY: the file is open; the text ends with a zero and lives during the call.
        self.library.checked(unsafe {
            (self.library.table.gfs_pio_internal_set_view_section)(self.raw, host)
        })
    }

    /// When it is this host that serves it: a descriptor of the plain file on it.
    pub(crate) fn descriptor(&self) -> Result<Option<OwnedFd>, Failure> {
        let mut fd = -1;
        let _alone = self.library.alone();
        // SAFETY: the file is open.
        let answer = unsafe { (self.library.table.gfs_pio_view_fd)(self.raw, &raw mut fd) };
        self.library.checked(answer)?;
        if fd < 0 {
            return Ok(None);
        }
        // Our own copy: the library closes its descriptor when it changes servers.
        // SAFETY: the library keeps it open while no other call runs.
        let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        let code = -1;
        copy.map(Some).map_err(|error| Failure { code, text: error.to_string() })
    }

    /// Fewer bytes than asked only at the end of the file.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        let mut done = 0;
        while done < buffer.len() {
            // Behind the largest offset there is nothing.
            let Ok(at) = i64::try_from(offset.saturating_add(done as u64)) else { break };
            let piece = &mut buffer[done..];
            let len = piece.len().min(CALL_BYTES_MAX) as c_int;
            let mut count = 0;
            let _shared = self.library.shared();
            // SAFETY: the file is open; the piece has at least `len` bytes.
            self.library.checked(unsafe {
                let piece: *mut c_void = piece.as_mut_ptr().cast();
                (self.library.table.gfs_pio_pread)(self.raw, piece, len, at, &raw mut count)
            })?;
            match usize::try_from(count) {
                Ok(0) | Err(_) => break,
                Ok(count) => done += count,
            }
        }
        Ok(done)
    }

    /// Writes all of `data`.
    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let mut done = 0;
        while done < data.len() {
            let at = i64::try_from(offset.saturating_add(done as u64)).unwrap_or(i64::MAX);
            let piece = &data[done..];
            let len = piece.len().min(CALL_BYTES_MAX) as c_int;
            let mut count = 0;
            let _shared = self.library.shared();
            // SAFETY: the file is open; the piece has at least `len` bytes.
            self.library.checked(unsafe {
                let piece: *const c_void = piece.as_ptr().cast();
                (self.library.table.gfs_pio_pwrite)(self.raw, piece, len, at, &raw mut count)
            })?;
            match usize::try_from(count) {
                // Taking nothing without a reason: repeating could go on for ever.
                Ok(0) | Err(_) => {
                    return Err(Failure { code: -1, text: "nothing was written".into() });
                }
                Ok(count) => done += count,
            }
        }
        Ok(())
    }

    /// Sets the length. What was written through [`File::descriptor`] counts as a change from then on.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), Failure> {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let _alone = self.library.alone();
        // SAFETY: the file is open.
        self.library.checked(unsafe { (self.library.table.gfs_pio_truncate)(self.raw, len) })
    }

    /// Until the host that serves it has the bytes on its storage.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        let _shared = self.library.shared();
        // SAFETY: the file is open.
        self.library.checked(unsafe { (self.library.table.gfs_pio_sync)(self.raw) })
    }

    /// Tells gfmd the new size and generation before it returns.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        let raw = std::mem::replace(&mut self.raw, null_mut());
        let _alone = self.library.alone();
        // SAFETY: it is open, and used no more.
        self.library.checked(unsafe { (self.library.table.gfs_pio_close)(raw) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let _alone = self.library.alone();
        // What was written and not committed is not missed.
        // SAFETY: it is open, and used no more.
        let _ = unsafe { (self.library.table.gfs_pio_close)(self.raw) };
    }
}
