//! Quiescence: does anybody else still have a file open for writing, or mapped so?
//!
//! Here: asking the kernel, by a read lease taken and given back at once.
//! Not here: closing one's own writable descriptors first (the device does it); what follows from
//! the answer (`hayase_server`).
//! Source: fcntl(2), `F_SETLEASE`: a read lease is refused with `EAGAIN` while the file is open for
//! writing anywhere. A shared writable mapping keeps the file behind it open after its descriptor
//! is closed, so it is seen too; a FUSE passthrough open likewise.
#![expect(unsafe_code, reason = "neither std nor rustix has F_SETLEASE and F_SETSIG")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `F_SETSIG` of Linux, which the `libc` crate lacks.
const F_SETSIG: libc::c_int = 10;

/// Nobody has the file of `file` open for writing. `file` must be open read-only, and the caller
/// must own the file (or have `CAP_LEASE`).
///
/// Where the file system has no leases nobody can tell: the answer is `false`. Somebody who opens
/// the file for writing in between waits for the microsecond until the lease is given back.
pub fn is_quiescent(file: BorrowedFd<'_>) -> io::Result<bool> {
    // An opener in that microsecond makes the kernel send us a signal; the default one, SIGIO,
    // kills. SIGURG is ignored unless somebody asks for it.
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    match fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {}
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINVAL | libc::EOPNOTSUPP | libc::EACCES) => Ok(false),
                _ => Err(error),
            };
        }
    }
    fcntl(file, libc::F_SETLEASE, libc::F_UNLCK)?;
    Ok(true)
}

fn fcntl(file: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: both commands take an integer and touch no memory of ours; the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_writer_is_seen_and_a_reader_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        let writer = File::create(&path).unwrap();
        let probe = File::open(&path).unwrap();
        assert!(!is_quiescent(probe.as_fd()).unwrap(), "a writer is there");
        let reader = File::open(&path).unwrap();
        drop(writer);
        assert!(is_quiescent(probe.as_fd()).unwrap(), "only readers");
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(!is_quiescent(probe.as_fd()).unwrap(), "a writer came, so no lease is left");
        drop((reader, writer));
    }

    #[test]
    fn openers_in_between_neither_fail_nor_kill_us() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        drop(File::create(&path).unwrap());
        let probe = File::open(&path).unwrap();
        // The opener stays until the probe has come between two opens, however long a busy machine takes for that.
        let quiet = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                let mut opened = 0;
                while opened < 5_000 || quiet.load(Ordering::Relaxed) < 100 {
                    OpenOptions::new().write(true).open(&path).expect("open for writing");
                    opened += 1;
                }
            });
            while !opener.is_finished() {
                let is_quiet = is_quiescent(probe.as_fd()).unwrap();
                quiet.fetch_add(u32::from(is_quiet), Ordering::Relaxed);
            }
        });
    }
}
