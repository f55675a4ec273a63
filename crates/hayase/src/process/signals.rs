//! Signals as events that can be waited for, together with pipes and ends of processes.
//!
//! Here: blocking signals and reading them from a descriptor; giving a child back the mask that we
//! were started with. Source: signalfd(2).

#![expect(unsafe_code, reason = "signalfd and the signal mask have no safe wrapper")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

/// What asks a command to end.
pub(crate) const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals that are blocked and read from a descriptor, until this is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// One signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Which.
    pub(crate) signal: Signal,
    /// The terminal sent it to the whole foreground group: our children have it already.
    pub(crate) is_from_terminal: bool,
}

impl Signals {
    /// Blocks `wanted` in this thread; call it before other threads are made.
    pub(crate) fn block(wanted: &[Signal]) -> io::Result<Self> {
        // SAFETY: a zeroed sigset_t is a valid place for sigemptyset to initialise; every pointer
        // is to a live local; signalfd returns a new descriptor that nobody else owns.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in wanted {
                libc::sigaddset(&raw mut set, signal.as_raw());
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// The next signal that has arrived; `None` when there is none now.
    pub(crate) fn next(&self) -> Option<Received> {
        // SAFETY: signalfd_siginfo is plain numbers, so zeroes are valid; read(2) writes at most
        // its size into it.
        let (info, count) = unsafe {
            let mut info: libc::signalfd_siginfo = mem::zeroed();
            let size = mem::size_of_val(&info);
            let count = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            (info, count)
        };
        if usize::try_from(count).ok()? != mem::size_of_val(&info) {
            return None;
        }
        let signal = Signal::from_named_raw(info.ssi_signo as i32)?;
        Some(Received { signal, is_from_terminal: info.ssi_code == libc::SI_KERNEL })
    }

    /// Makes `command` start with the mask that this process had before [`Signals::block`].
    pub(crate) fn unblock_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                match libc::pthread_sigmask(
                    libc::SIG_SETMASK,
                    &raw const before,
                    std::ptr::null_mut(),
                ) {
                    0 => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(errno)),
                }
            });
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_and_children_start_unblocked() {
        // A thread of its own: the mask belongs to the thread, and so does a signal sent to it.
        std::thread::spawn(|| {
            let signals = Signals::block(&[Signal::USR1]).unwrap();
            assert_eq!(signals.next(), None);
            // SAFETY: raise sends to this very thread, where the signal is blocked.
            unsafe { libc::raise(libc::SIGUSR1) };
            let received = signals.next().unwrap();
            assert_eq!(received.signal, Signal::USR1);
            assert!(!received.is_from_terminal);

            let mut command = Command::new("sh");
            command.args(["-c", "grep SigBlk /proc/self/status"]);
            signals.unblock_in(&mut command);
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            let mask = u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap();
            assert_eq!(mask >> (libc::SIGUSR1 - 1) & 1, 0, "{text}");
        })
        .join()
        .unwrap();
    }
}
