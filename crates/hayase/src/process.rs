//! Processes of this machine, named so that a reused pid is never taken for the old process.
//!
//! Here: pid + start time, the boot's id, looking into `/proc`, waiting for ends: by pidfd, or where the kernel has none
//! (before Linux 5.3) or gives none (no free descriptor), by looking again and again.
//! A process is gone only where the kernel says so: an error says nothing about it.
//! Rooms: [`signals`] that we receive, [`message`] and [`lines`] between our processes, [`child`]ren that say them.

pub(crate) mod child;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod signals;

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal, test_kill_process,
};
use serde::{Deserialize, Serialize};

/// Gives this process the name that ps(1) and top(1) show; call it before there are other threads. At most 15 bytes.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    if let Err(error) = rustix::thread::set_name(name) {
        tracing::debug!(%error, "name the process");
    }
}

/// One process of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    /// Its number, reused after its end.
    pub(crate) pid: i32,
    /// Clock ticks between boot and its start: field 22 of `/proc/PID/stat`.
    pub(crate) start: u64,
}

impl ProcessId {
    /// This process.
    pub(crate) fn current() -> io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self::of(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// The living process that has this number now; a zombie is dead.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::look(pid).ok()?
    }

    /// # Errors
    /// When `/proc` could not be read, which says nothing about the process.
    fn look(pid: i32) -> io::Result<Option<Self>> {
        let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat,
            // ESRCH: it ended between open(2) and read(2).
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = parse_stat(&stat);
        let living = found.filter(|(_, state)| !matches!(state, 'Z' | 'X'));
        Ok(living.map(|(start, _)| Self { pid, start }))
    }

    /// Whether it still runs. One that could not be looked at runs as long as there is any process of its number.
    pub(crate) fn is_alive(self) -> bool {
        match Self::look(self.pid) {
            Ok(found) => found == Some(self),
            Err(_) => Pid::from_raw(self.pid)
                .is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH)),
        }
    }

    /// A handle that does not come to mean another process; `None` when it is gone.
    ///
    /// One of another user is none that a file of this user may name.
    pub(crate) fn open(self) -> Option<Handle> {
        self.open_any().filter(|_| self.is_own())
    }

    /// The same for a process of any user: for processes that no file names.
    pub(crate) fn open_any(self) -> Option<Handle> {
        let pidfd = match pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::SRCH) => return None,
            Err(_) => None,
        };
        // The handle is taken first: if the start time still fits, it is the right process.
        self.is_alive().then_some(Handle { id: self, pidfd })
    }

    /// Whether it has the rights of this process's user, and no others: who acts on a process that a file names must not be
    /// led to one of somebody else.
    fn is_own(self) -> bool {
        match fs::read_to_string(self.proc().join("status")) {
            Ok(status) => users(&status).is_some_and(|users| {
                let own = rustix::process::geteuid().as_raw();
                users.iter().all(|user| *user == own)
            }),
            // Of others the kernel refuses everything, but to root.
            Err(_) => !rustix::process::geteuid().is_root(),
        }
    }

    /// Whether its end has begun: it was killed, or is exiting, and may take a moment to be gone.
    pub(crate) fn is_ending(self) -> bool {
        let read = |file| fs::read_to_string(self.proc().join(file)).unwrap_or_default();
        is_exiting(&read("stat")) || is_killed(&read("status"))
    }

    /// Its directory in `/proc`.
    pub(crate) fn proc(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid))
    }
}

/// A process that was alive when it was opened.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Which.
    pub(crate) id: ProcessId,
    /// Readable when it has ended. `None` where there is none: then `/proc` is asked before each signal, and once in
    /// each [`LOOK_PAUSE`] of a wait.
    pidfd: Option<OwnedFd>,
}

/// Between two looks at a process without a pidfd.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Handle {
    /// Sends a signal; one that has ended is fine.
    pub(crate) fn signal(&self, signal: Signal) {
        let sent = match &self.pidfd {
            Some(pidfd) => pidfd_send_signal(pidfd, signal),
            None => self.signal_by_number(signal),
        };
        if let Err(error) = sent
            && error != Errno::SRCH
        {
            tracing::warn!("signal process {}: {error}", self.id.pid);
        }
    }

    /// Its number could be given to another process between the look and the signal, only if it ended within these
    /// microseconds and the kernel had used up all other numbers.
    fn signal_by_number(&self, signal: Signal) -> rustix::io::Result<()> {
        match Pid::from_raw(self.id.pid).filter(|_| self.id.is_alive()) {
            Some(pid) => kill_process(pid, signal),
            None => Err(Errno::SRCH),
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        wait_ended(std::slice::from_ref(self), Duration::ZERO)
    }

    /// Waits until it has ended; false at the deadline.
    fn wait_ended(&self, deadline: Instant) -> bool {
        if let Some(pidfd) = &self.pidfd {
            return wait_readable(pidfd.as_fd(), deadline);
        }
        while self.id.is_alive() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK_PAUSE));
        }
        true
    }

    /// Waits until it has ended or `other` is readable, or for a moment.
    ///
    /// # Errors
    /// When the kernel cannot wait for them.
    pub(crate) fn wait_ended_or_readable(&self, other: BorrowedFd<'_>) -> io::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(other, PollFlags::IN)];
        fds.extend(self.pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let pause = timespec(LOOK_PAUSE);
        match poll(&mut fds, self.pidfd.is_none().then_some(&pause)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until all have ended; false when `patience` was not enough.
pub(crate) fn wait_ended(handles: &[Handle], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    handles.iter().all(|handle| handle.wait_ended(deadline))
}

/// Waits until `fd` is readable or hung up; false at the deadline.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = timespec(left);
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::warn!("poll: {error}");
                return false;
            }
        }
    }
}

/// As `poll` takes it; rounded up so that a wait never ends just before its deadline.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(Duration::from_secs(86_400)) + Duration::from_nanos(1);
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// Changes with each boot of the machine: pids and mounts of another boot mean nothing.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Whether the machine has not been restarted since `boot`; true where that cannot be found out.
pub(crate) fn is_this_boot(boot: &str) -> bool {
    boot_id().map_or(true, |this| this == boot)
}

/// The first PID namespace of every machine (`PROC_PID_INIT_INO` of the kernel): it shows all processes.
const ALL_PROCESSES: &str = "pid:[4026531836]";

/// The PID namespace of this process: process numbers of another one mean nothing here, or another process. Empty where
/// `/proc` does not tell.
pub(crate) fn pid_namespace() -> String {
    namespace_of("self")
}

fn namespace_of(process: &str) -> String {
    let link = fs::read_link(format!("/proc/{process}/ns/pid")).unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Whether processes of a PID namespace of this boot may run that are not seen here. Not where all processes are seen and
/// none that may be looked at is in it: then it has ended.
pub(crate) fn are_hidden(namespace: &str) -> bool {
    let is_seen = || all().any(|process| namespace_of(&process.pid.to_string()) == namespace);
    may_hide(namespace, &pid_namespace(), is_seen)
}

fn may_hide(namespace: &str, ours: &str, is_seen: impl FnOnce() -> bool) -> bool {
    let are_known = !namespace.is_empty() && !ours.is_empty();
    are_known && namespace != ours && (ours != ALL_PROCESSES || is_seen())
}

/// All processes that `/proc` shows now.
pub(crate) fn all() -> impl Iterator<Item = ProcessId> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| ProcessId::of(entry.file_name().to_str()?.parse().ok()?))
}

/// `process` and its parents, up to the first process of the machine.
pub(crate) fn ancestry(pid: i32) -> Vec<i32> {
    // A bound, since the tree changes while it is walked.
    const DEPTH_MAX: usize = 256;
    let mut chain = vec![pid];
    while let Some(&last) = chain.last() {
        let stat = fs::read_to_string(format!("/proc/{last}/stat")).unwrap_or_default();
        match parse_parent(&stat) {
            Some(parent) if parent > 0 && chain.len() < DEPTH_MAX => chain.push(parent),
            _ => break,
        }
    }
    chain
}

/// Fields after the command's name, which may itself hold spaces and parentheses.
fn fields(stat: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(stat[stat.rfind(')')? + 1..].split_ascii_whitespace())
}

fn parse_stat(stat: &str) -> Option<(u64, char)> {
    let mut fields = fields(stat)?;
    let state = fields.next()?.chars().next()?;
    // State is field 3, start time field 22.
    Some((fields.nth(18)?.parse().ok()?, state))
}

fn parse_parent(stat: &str) -> Option<i32> {
    fields(stat)?.nth(1)?.parse().ok()
}

/// Real, effective, saved and file system user, by `/proc/PID/status`.
fn users(status: &str) -> Option<Vec<u32>> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    numbers.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
}

/// `PF_EXITING` of the kernel's task flags, field 9 of `/proc/PID/stat`.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    let flags = fields(stat).and_then(|mut fields| fields.nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Whether SIGKILL waits for the process, by `/proc/PID/status`.
fn is_killed(status: &str) -> bool {
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let kill = 1 << (Signal::KILL.as_raw() - 1);
    masks.fold(0, |all, mask| all | mask) & kill != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_another_pid_namespace_are_hidden_until_it_has_ended() {
        let check = |namespace: &str, ours: &str, is_seen: bool, expected: bool| {
            let found = may_hide(namespace, ours, || is_seen);
            assert_eq!(found, expected, "{namespace} from {ours}");
        };
        let (one, other) = ("pid:[4026532001]", "pid:[4026532002]");
        check(one, one, true, false);
        check(one, other, false, true); // A process that does not see all cannot know that it has ended.
        check(ALL_PROCESSES, other, false, true);
        check(one, ALL_PROCESSES, true, true);
        check(one, ALL_PROCESSES, false, false);
        check("", other, false, false); // Written by an earlier build.
        check(one, "", false, false);
        assert!(!are_hidden(&pid_namespace()));
    }

    #[test]
    fn stat_is_read_past_a_strange_name() {
        let stat = "77 (a) b (c)) S 5 77 77 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 2 3";
        assert_eq!(parse_stat(stat), Some((4242, 'S')));
        assert_eq!(parse_parent(stat), Some(5));
        assert_eq!(parse_stat("rubbish"), None);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        let other = ProcessId { start: me.start + 1, ..me };
        assert!(!other.is_alive());
        assert!(other.open().is_none());
    }

    /// As root: its own processes are all that it may be led to.
    #[test]
    fn a_process_of_another_user_is_none_of_ours() {
        assert_eq!(users("Name:\ta\nUid:\t7\t8\t8\t7\nGid:\t1\n"), Some(vec![7, 8, 8, 7]));
        assert_eq!(users("Name:\ta\n"), None);
        if !rustix::process::geteuid().is_root() {
            return println!("SKIP: only root can start a process of another user");
        }
        let start = |uid: u32| {
            use std::os::unix::process::CommandExt;
            let mut command = std::process::Command::new("sleep");
            command.arg("60").uid(uid).spawn().unwrap()
        };
        for (uid, is_ours) in [(0, true), (4711, false)] {
            let mut child = start(uid);
            let id = ProcessId::of(child.id() as i32).unwrap();
            assert_eq!(id.open().is_some(), is_ours, "user {uid}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn an_end_is_noticed_and_a_zombie_counts_as_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        let handle = id.open().unwrap();
        assert!(!handle.has_ended());
        handle.signal(Signal::KILL);
        assert!(wait_ended(std::slice::from_ref(&handle), Duration::from_secs(10)));
        assert!(!id.is_alive());
        child.wait().unwrap();
    }

    /// As on a kernel without pidfds.
    #[test]
    fn without_a_pidfd_an_end_is_noticed_and_signals_arrive() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        let handle = Handle { id, pidfd: None };
        assert!(!handle.has_ended());
        let (unread, _writer) = std::io::pipe().unwrap();
        handle.wait_ended_or_readable(unread.as_fd()).unwrap();
        handle.signal(Signal::KILL);
        assert!(wait_ended(std::slice::from_ref(&handle), Duration::from_secs(10)));
        child.wait().unwrap();
        // To whoever has its number now, nothing is sent.
        assert_eq!(handle.signal_by_number(Signal::KILL), Err(Errno::SRCH));
    }

    #[test]
    fn an_end_that_has_begun_is_seen() {
        assert!(!ProcessId::current().unwrap().is_ending());
        assert!(is_exiting("77 (a) D 5 77 77 0 -1 4228100 1 0 0 0"));
        assert!(!is_exiting("77 (a) S 5 77 77 0 -1 4194304 1 0 0 0"));
        assert!(is_killed("Name:\ta\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000101\n"));
        assert!(!is_killed("SigPnd:\t0000000000004000\nSigBlk:\t0000000000000100\n"));
    }

    #[test]
    fn parents_are_followed_to_the_first_process() {
        let me = ProcessId::current().unwrap().pid;
        let chain = ancestry(me);
        assert_eq!(chain[0], me);
        assert!(chain.len() > 1);
    }
}
