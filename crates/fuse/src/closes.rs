//! Which closes the kernel tells, and which locks end with which close.
//!
//! A process's locks on a file end when it closes any descriptor of it. The kernel tells of closes
//! (FLUSH), one more round trip for each, unless the file was opened with `FOPEN_NOFLUSH`. So files
//! are opened with that until the first lock on this node; from then on closes are told.
//! Locks of an open file (flock(2), `F_OFD_SETLK`) end with it: at its RELEASE those are given up that were taken through
//! it and that no close has ended, since of `F_OFD_SETLK` nothing says which they are. So end also those of fcntl(2)
//! through a file whose closes are not told; they end too when their process is seen to have fewer descriptors of the inode
//! than it had: looked at each second, while there are any. Which of the calls it was, the library does not say, but the
//! thread that waits for the answer is still in it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{FileHandle, FopenFlags, LockOwner};
use hayase_layout::InodeId;
use hayase_wire::message::Access;

use crate::handles::{file_handle, is_untold};

/// Processes with such locks are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// Somebody who may hold locks through an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) ino: InodeId,
    pub(crate) owner: LockOwner,
    /// Through which file.
    handle: FileHandle,
    pid: u32,
    /// Of the inode, when last looked; `None` when no close that is not told ends them.
    descriptors: Option<usize>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Closes {
    /// Closes of files that may be written are told from the start.
    writers_told: bool,
    files: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody has locked something.
    told: bool,
    holders: HashMap<InodeId, Vec<Holder>>,
    /// Owners whose locks are being released. The owner of an open file is its address in the kernel, which the next file
    /// that is opened may have again.
    ending: HashSet<(InodeId, u64)>,
    watched: bool,
    stopped: bool,
}

impl Closes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `writers_told`: the volume wants to know of closes.
    pub(crate) fn new(writers_told: bool) -> Self {
        Self { writers_told, ..Self::default() }
    }

    /// The handle of a file that is opened now, and what the kernel is told of its closes.
    pub(crate) fn open(&self, access: Access) -> (FileHandle, FopenFlags) {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        match self.lock().told || (self.writers_told && access.write) {
            true => (file_handle(number, access, false), FopenFlags::empty()),
            false => (file_handle(number, access, true), FopenFlags::FOPEN_NOFLUSH),
        }
    }

    /// A lock is asked for: from now on closes are told. `released` is called for whoever is seen
    /// later to have closed a descriptor. Waits until the locks of an earlier file with this owner are given up.
    pub(crate) fn locks(
        self: &Arc<Self>,
        ino: InodeId,
        handle: FileHandle,
        (owner, pid, thread): (LockOwner, u32, u32),
        released: impl Fn(&Holder) + Send + 'static,
    ) {
        let is_ending = |state: &mut State| state.ending.contains(&(ino, owner.0));
        let state = self.changed.wait_while(self.lock(), is_ending);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.told = true;
        let holders = state.holders.entry(ino).or_default();
        if holders.iter().any(|holder| (holder.handle, holder.owner) == (handle, owner)) {
            return;
        }
        let is_looked_at = is_untold(handle) && is_in_fcntl(thread);
        let descriptors = is_looked_at.then(|| descriptors_of(pid, ino));
        holders.push(Holder { ino, owner, handle, pid, descriptors });
        if descriptors.is_some() && !std::mem::replace(&mut state.watched, true) {
            let this = Arc::clone(self);
            let builder = std::thread::Builder::new().name("hayase-closes".into());
            if let Err(error) = builder.spawn(move || this.watch(&released)) {
                tracing::error!(%error, "start a thread that looks for closes");
            }
        }
    }

    /// A process has closed a descriptor, which ends its locks of fcntl(2) through all files of the inode.
    pub(crate) fn closed(&self, ino: InodeId, owner: LockOwner) {
        self.take(ino, |holder| holder.owner == owner);
    }

    /// Owners that may hold locks through a file that is closed for good; call [`Closes::ended`] for each of them. Owners
    /// that have locked through another file since are left out: that is a younger file with the same owner.
    pub(crate) fn released(&self, ino: InodeId, handle: FileHandle) -> Vec<Holder> {
        let mut taken = self.take(ino, |holder| holder.handle == handle);
        let mut state = self.lock();
        let others = state.holders.get(&ino).map_or(&[][..], Vec::as_slice);
        let is_younger = |holder: &Holder| others.iter().any(|other| other.owner == holder.owner);
        taken.retain(|holder| holder.descriptors.is_some() || !is_younger(holder));
        state.ending.extend(taken.iter().map(|holder| (ino, holder.owner.0)));
        taken
    }

    /// The locks of an owner are given up.
    pub(crate) fn ended(&self, ino: InodeId, owner: LockOwner) {
        self.lock().ending.remove(&(ino, owner.0));
        self.changed.notify_all();
    }

    fn take(&self, ino: InodeId, is_meant: impl Fn(&Holder) -> bool) -> Vec<Holder> {
        let mut state = self.lock();
        let Some(holders) = state.holders.get_mut(&ino) else { return Vec::new() };
        let taken = holders.extract_if(.., |holder| is_meant(holder)).collect();
        if holders.is_empty() {
            state.holders.remove(&ino);
        }
        taken
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Until nobody is left to be looked at.
    fn watch(&self, released: &dyn Fn(&Holder)) {
        loop {
            let state = self.lock();
            let state = self.changed.wait_timeout_while(state, LOOK, |state| !state.stopped);
            let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
            let is_watched = |holder: &Holder| holder.descriptors.is_some();
            if state.stopped || !state.holders.values().flatten().any(is_watched) {
                state.watched = false;
                return;
            }
            let count = |holder: &Holder| descriptors_of(holder.pid, holder.ino);
            let closed = take_closed(&mut state.holders, count);
            drop(state);
            closed.iter().for_each(released);
        }
    }
}

/// Those who have closed a descriptor since they were looked at last.
fn take_closed(
    holders: &mut HashMap<InodeId, Vec<Holder>>,
    descriptors: impl Fn(&Holder) -> usize,
) -> Vec<Holder> {
    let mut closed = Vec::new();
    for holders in holders.values_mut() {
        holders.retain_mut(|holder| {
            let Some(before) = holder.descriptors else { return true };
            let now = descriptors(holder);
            let fewer = now < before;
            holder.descriptors = Some(now);
            if fewer {
                closed.push(*holder);
            }
            !fewer
        });
    }
    holders.retain(|_, holders| !holders.is_empty());
    closed
}

/// Whether a thread, which waits for our answer, waits in fcntl(2) for a lock of its process (an `F_OFD_SETLK` is one of an
/// open file). Nobody knows: then not, since a lock that lasts too long is better than one that ends too early.
/// Source: proc_pid_syscall(5).
fn is_in_fcntl(thread: u32) -> bool {
    let syscall = std::fs::read_to_string(format!("/proc/{thread}/syscall"));
    syscall.is_ok_and(|text| is_process_lock(&text))
}

/// A line of proc_pid_syscall(5): number of the call, its arguments in hexadecimal digits.
fn is_process_lock(syscall: &str) -> bool {
    let mut words = syscall.split(' ');
    let number = words.next().and_then(|word| word.parse::<i64>().ok());
    let command = words.nth(1).and_then(|word| word.strip_prefix("0x"));
    let command = command.and_then(|word| i32::from_str_radix(word, 16).ok());
    number == Some(libc::SYS_fcntl) && matches!(command, Some(libc::F_SETLK | libc::F_SETLKW))
}

/// How many descriptors of an inode of a FUSE mount a process has; 0 of one that is gone. Asks
/// nothing of any file system but `/proc`. Source: proc_pid_fdinfo(5).
fn descriptors_of(pid: u32, ino: InodeId) -> usize {
    descriptors_on(pid, ino, |kind| kind.starts_with("fuse"))
}

/// The same on mounts of file systems that `is_meant` picks by their kind.
fn descriptors_on(pid: u32, ino: InodeId, is_meant: impl Fn(&str) -> bool) -> usize {
    let Ok(mounts) = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")) else { return 0 };
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let mounts: HashSet<u64> =
        mounts.lines().filter_map(mount_and_kind).filter(|m| is_meant(m.1)).map(|m| m.0).collect();
    let is_of = |info: &str| {
        let number = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|number| number.trim().parse::<u64>().ok())
        };
        number("ino:") == Some(ino.0) && number("mnt_id:").is_some_and(|id| mounts.contains(&id))
    };
    let infos = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    infos.filter(|info| is_of(info)).count()
}

/// Of a line of `/proc/PID/mountinfo`.
fn mount_and_kind(line: &str) -> Option<(u64, &str)> {
    let (mount, source) = line.split_once(" - ")?;
    Some((mount.split(' ').next()?.parse().ok()?, source.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access { read: true, write: false };

    #[test]
    fn closes_are_told_from_the_first_lock_on() {
        let closes = Arc::new(Closes::default());
        let (handle, flags) = closes.open(READ);
        assert_eq!(flags, FopenFlags::FOPEN_NOFLUSH);
        let me = (LockOwner(7), std::process::id(), u32::MAX);
        closes.locks(InodeId(1), handle, me, |_| panic!("nobody is looked at"));
        let (later, flags) = closes.open(READ);
        assert_eq!(flags, FopenFlags::empty());
        assert_ne!(handle, later);
        assert!(closes.released(InodeId(1), later).is_empty());
        let released = closes.released(InodeId(1), handle);
        assert!(matches!(released[..], [Holder { owner: LockOwner(7), .. }]));
        assert!(closes.released(InodeId(1), handle).is_empty(), "once");
    }

    #[test]
    fn a_release_ends_what_was_locked_through_it_and_no_close_has_ended() {
        let closes = Arc::new(Closes::default());
        let ino = InodeId(1);
        let lock = |handle, owner| {
            let who = (LockOwner(owner), std::process::id(), u32::MAX);
            closes.locks(ino, handle, who, |_| panic!("nobody is looked at"));
        };
        let released = |handle| -> Vec<u64> {
            closes.released(ino, handle).iter().map(|holder| holder.owner.0).collect()
        };
        let (process, one_file, other_file) = (1, 2, 3);
        let (untold, _) = closes.open(READ);
        lock(untold, process);
        let [one, other] = [(); 2].map(|()| closes.open(READ).0);
        lock(one, process);
        lock(one, one_file);
        lock(one, one_file);
        lock(other, other_file);
        lock(other, process);
        closes.closed(InodeId(2), LockOwner(process));
        closes.closed(ino, LockOwner(process));
        assert_eq!((released(untold), released(one)), (vec![], vec![one_file]));
        lock(other, process); // a lock of later
        assert!(released(one).is_empty(), "it holds nothing any more");
        assert_eq!(released(other), [other_file, process]);
        assert!(closes.lock().holders.is_empty());
    }

    /// The kernel names an open file by its address, which the next one may have.
    #[test]
    fn a_release_that_comes_late_ends_no_younger_lock() {
        let closes = Arc::new(Closes::default());
        let (ino, owner) = (InodeId(1), LockOwner(7));
        closes.locks(InodeId(9), closes.open(READ).0, (owner, 1, u32::MAX), |_| ());
        let lock = move |closes: &Arc<Closes>, handle| {
            closes.locks(ino, handle, (owner, 1, u32::MAX), |_| panic!("nobody is looked at"));
        };
        let [one, other, third] = [(); 3].map(|()| closes.open(READ).0);
        lock(&closes, one);
        lock(&closes, other);
        assert!(closes.released(ino, one).is_empty(), "it has locked through another file since");
        assert_eq!(closes.released(ino, other).len(), 1);
        // Its locks are being given up: the next one waits for that.
        let waiting = std::thread::spawn({
            let closes = Arc::clone(&closes);
            move || lock(&closes, third)
        });
        while Arc::strong_count(&closes) < 2 {
            std::thread::yield_now();
        }
        assert!(!closes.lock().holders.contains_key(&ino));
        closes.ended(ino, owner);
        waiting.join().unwrap();
        assert_eq!(closes.released(ino, third).len(), 1);
    }

    #[test]
    fn closes_of_writers_are_told_where_the_volume_wants_them() {
        let closes = Closes::new(true);
        assert_eq!(closes.open(READ).1, FopenFlags::FOPEN_NOFLUSH);
        let (handle, flags) = closes.open(Access { read: false, write: true });
        assert_eq!((flags, is_untold(handle)), (FopenFlags::empty(), false));
    }

    #[test]
    fn who_closes_a_descriptor_is_seen_unless_it_was_flock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ino = InodeId(std::os::unix::fs::MetadataExt::ino(&file.as_file().metadata().unwrap()));
        let other = file.reopen().unwrap();
        let pid = std::process::id();
        let on_all_mounts = |pid| descriptors_on(pid, ino, |_| true);
        assert_eq!((on_all_mounts(pid), on_all_mounts(u32::MAX)), (2, 0));
        assert_eq!(descriptors_of(pid, ino), 0, "on none of FUSE");
        let handle = FileHandle(4);
        let holder =
            |owner, descriptors| Holder { ino, owner: LockOwner(owner), handle, pid, descriptors };
        let (fcntl, flock) = (holder(1, Some(2)), holder(2, None));
        let mut holders = HashMap::from([(ino, vec![fcntl, flock])]);
        let mut closed = || -> Vec<u64> {
            let closed = take_closed(&mut holders, |holder| on_all_mounts(holder.pid));
            closed.iter().map(|holder| holder.owner.0).collect()
        };
        assert!(closed().is_empty());
        drop(other);
        assert_eq!(closed(), [1]);
        assert!(closed().is_empty());
        assert_eq!(holders[&ino], [flock]);
    }

    #[test]
    fn a_lock_of_an_open_file_is_none_of_its_process() {
        let line = |command: i32| format!("{} 0x3 {command:#x} 0x7ffd 0x0", libc::SYS_fcntl);
        assert!(is_process_lock(&line(libc::F_SETLK)) && is_process_lock(&line(libc::F_SETLKW)));
        assert!(!is_process_lock(&line(libc::F_OFD_SETLK)));
        assert!(!is_process_lock(&line(libc::F_OFD_SETLKW)));
        assert!(!is_process_lock("running") && !is_process_lock(""));
    }

    #[test]
    fn a_thread_in_another_call_is_not_in_fcntl() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(!is_in_fcntl(u32::try_from(me).unwrap()), "it reads");
        assert!(!is_in_fcntl(u32::MAX));
    }
}
