//! libgfarm, loaded at run time: its calls with Rust's types, and who may make them when.
//!
//! Here: [`Library`], one for the process, and what it answers. Rooms: [`file`] (open files), [`table`] (the functions in C).
//! Not here: what a tier makes of it ([`super`]).
//!
//! Invariants:
//! 1. libgfarm is initialised once and never ended; its state is the process's.
//! 2. Its own `README.MT-safe` lists what may run on several threads. Of that list only reads, writes and syncs
//!    of open files do so here ([`Library::shared`]): they are what takes long. Every other call is alone
//!    ([`Library::alone`]).
//! 3. While a server is silent (`network_receive_timeout`), who must be alone waits behind a read of it, and
//!    all that come later behind that.

#![expect(unsafe_code, reason = "functions of libgfarm")]

mod file;
mod table;

use std::ffi::{CStr, CString, c_char, c_int};
use std::ops::ControlFlow;
use std::ptr::{null, null_mut};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

pub(crate) use file::File;
pub(crate) use table::NotLoaded;
use table::{Code, RawEntry, RawStat, RawTime, Table};

use super::owners::Owners;
use crate::timestamp::{seconds_and_nanos, system_time};

/// The first whose file calls are safe on several threads (its release notes).
pub(crate) const VERSION_MIN: (c_int, c_int, c_int) = (2, 7, 17);

const NAME: &CStr = c"libgfarm.so.1";
/// Largest extended attribute that is read (`GFARM_XATTR_SIZE_MAX_DEFAULT` is 64 KiB).
const XATTR_BYTES_MAX: usize = 1 << 20;

const READ_ONLY: c_int = 0;
const WRITE_ONLY: c_int = 1;
const READ_WRITE: c_int = 2;
const TRUNCATE: c_int = 0x0400;
const EXCLUSIVE: c_int = 0x1000;
/// Each call is its own request: an error belongs to the call that gets it.
const UNBUFFERED: c_int = 0x0020_0000;
/// `GFARM_UTIME_OMIT`.
const OMIT: i32 = (1 << 30) - 2;
/// `GFARM_UTIME_NOW`.
const NOW: i32 = (1 << 30) - 1;
const TYPE_MASK: u32 = 0o170_000;

/// `GFARM_ERR_NO_SUCH_USER`, `GFARM_ERR_NO_SUCH_GROUP`.
const NO_USER: c_int = 84;
const NO_GROUP: c_int = 86;

/// A call that failed: Gfarm's number and words.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
}

/// What gfmd tells about an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) ino: u64,
    /// Grows when other bytes are written.
    pub(crate) generation: u64,
    pub(crate) kind: Kind,
    /// Permission bits, with the set-id bits.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) mtime: SystemTime,
    pub(crate) atime: SystemTime,
    pub(crate) ctime: SystemTime,
    pub(crate) nlink: u64,
    /// Of this host's user and group of the same name.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Which inode a new file is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) ino: u64,
    pub(crate) generation: u64,
}

/// What may be done with a file that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    Both,
}

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeSet {
    Keep,
    Now,
    /// Seconds since 1970, and nanoseconds.
    To(i64, u32),
}

/// Room of a whole Gfarm, in KiB, and its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) used: u64,
    pub(crate) free: u64,
    pub(crate) files: u64,
}

/// The functions, and the order of their calls.
#[derive(Debug)]
pub(crate) struct Library {
    table: Table,
    owners: Owners,
    calls: RwLock<()>,
}

impl Use {
    fn flags(self) -> c_int {
        match self {
            Self::Read => READ_ONLY,
            Self::Write => WRITE_ONLY,
            Self::Both => READ_WRITE,
        }
    }
}

impl Library {
    /// Loaded and initialised at the first call, with the settings of that moment (`GFARM_CONFIG_FILE`,
    /// `~/.gfarm2rc`, the system's `gfarm2.conf`).
    pub(crate) fn get() -> Result<&'static Self, NotLoaded> {
        static LIBRARY: OnceLock<Result<Library, NotLoaded>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, NotLoaded> {
        let (table, owners) = (Table::load(NAME)?, Owners::of_this_host());
        let library = Self { table, owners, calls: RwLock::new(()) };
        let table = &library.table;
        // SAFETY: these three take and change nothing.
        let version = unsafe {
            (
                (table.gfarm_version_major)(),
                (table.gfarm_version_minor)(),
                (table.gfarm_version_teeny)(),
            )
        };
        if version < VERSION_MIN {
            return Err(NotLoaded::Old(version));
        }
        // SAFETY: it takes no arguments to parse; nothing else of the library runs yet.
        let answer = unsafe { (table.gfarm_initialize)(null_mut(), null_mut()) };
        library.checked(answer).map_err(|failure| NotLoaded::Refused(failure.text))?;
        Ok(library)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.calls.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.calls.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked(&self, code: Code) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it answers a constant text for any number.
        let text = unsafe { CStr::from_ptr((self.table.gfarm_error_string)(code)) };
        Err(Failure { code, text: text.to_string_lossy().into_owned() })
    }

    /// A call that takes no more than a path.
    fn on_path(
        &self,
        call: unsafe extern "C" fn(*const c_char) -> Code,
        path: &CStr,
    ) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: the path ends with a zero and lives during the call.
        self.checked(unsafe { call(path.as_ptr()) })
    }

    fn on_two_paths(
        &self,
        call: unsafe extern "C" fn(*const c_char, *const c_char) -> Code,
        from: &CStr,
        to: &CStr,
    ) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: both end with a zero and live during the call.
        self.checked(unsafe { call(from.as_ptr(), to.as_ptr()) })
    }

    fn stat_by(
        &self,
        call: unsafe extern "C" fn(*const c_char, *mut RawStat) -> Code,
        path: &CStr,
    ) -> Result<Stat, Failure> {
        // SAFETY: the path ends with a zero; `stat` is filled on success.
        self.told(|stat| unsafe { call(path.as_ptr(), stat) })
    }

    /// Takes over what `call` writes into a `gfs_stat`, and frees its texts.
    fn told(&self, call: impl FnOnce(*mut RawStat) -> Code) -> Result<Stat, Failure> {
        let _alone = self.alone();
        let mut raw = std::mem::MaybeUninit::<RawStat>::zeroed();
        self.checked(call(raw.as_mut_ptr()))?;
        // SAFETY: filled, and all zeros are a valid value too.
        let mut raw = unsafe { raw.assume_init() };
        let stat = self.stat_of(&raw);
        // SAFETY: its texts are the library's and are used no more.
        unsafe { (self.table.gfs_stat_free)(&raw mut raw) };
        Ok(stat)
    }

    /// Follows links.
    pub(crate) fn stat(&self, path: &CStr) -> Result<Stat, Failure> {
        self.stat_by(self.table.gfs_stat, path)
    }

    /// Follows links on the way, not at the end.
    pub(crate) fn lstat(&self, path: &CStr) -> Result<Stat, Failure> {
        self.stat_by(self.table.gfs_lstat, path)
    }

    /// As [`Library::lstat`], perhaps as it was a second ago.
    pub(crate) fn lstat_cached(&self, path: &CStr) -> Result<Stat, Failure> {
        self.stat_by(self.table.gfs_lstat_cached, path)
    }

    pub(crate) fn set_mode(&self, path: &CStr, mode: u32) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: the path ends with a zero and lives during the call.
        self.checked(unsafe { (self.table.gfs_lchmod)(path.as_ptr(), mode) })
    }

    /// The time of access stays.
    pub(crate) fn set_mtime(&self, path: &CStr, mtime: SystemTime) -> Result<(), Failure> {
        let (seconds, nanos) = seconds_and_nanos(mtime);
        self.set_times(path, TimeSet::Keep, TimeSet::To(seconds, nanos))
    }

    pub(crate) fn set_times(
        &self,
        path: &CStr,
        atime: TimeSet,
        mtime: TimeSet,
    ) -> Result<(), Failure> {
        let raw = |time| match time {
            TimeSet::Keep => RawTime { seconds: 0, nanos: OMIT },
            TimeSet::Now => RawTime { seconds: 0, nanos: NOW },
            TimeSet::To(seconds, nanos) => {
                RawTime { seconds, nanos: i32::try_from(nanos).unwrap_or(0) }
            }
        };
        let times = [raw(atime), raw(mtime)];
        let _alone = self.alone();
        // SAFETY: the path ends with a zero; the function reads two times.
        self.checked(unsafe { (self.table.gfs_lutimes)(path.as_ptr(), times.as_ptr()) })
    }

    /// Gfarm knows users and groups by name; `None` stays.
    pub(crate) fn set_owner(
        &self,
        path: &CStr,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Failure> {
        let unknown = |code, what| move || Failure { code, text: format!("no such {what} here") };
        let user = uid.map(|uid| self.owners.user(uid).ok_or_else(unknown(NO_USER, "user")));
        let group = gid.map(|gid| self.owners.group(gid).ok_or_else(unknown(NO_GROUP, "group")));
        let (user, group) = (user.transpose()?, group.transpose()?);
        let raw = |name: &Option<CString>| name.as_ref().map_or(null(), |name| name.as_ptr());
        let _alone = self.alone();
        // SAFETY: the texts end with a zero and live during the call; null leaves what is there.
        self.checked(unsafe { (self.table.gfs_lchown)(path.as_ptr(), raw(&user), raw(&group)) })
    }

    /// Of the Gfarm that `path` belongs to.
    pub(crate) fn room(&self, path: &CStr) -> Result<Room, Failure> {
        let (mut used, mut free, mut files) = (0, 0, 0);
        let _alone = self.alone();
        // SAFETY: the path ends with a zero; the three numbers are set on success.
        self.checked(unsafe {
            (self.table.gfs_statfs_by_path)(
                path.as_ptr(),
                &raw mut used,
                &raw mut free,
                &raw mut files,
            )
        })?;
        let positive = |number: i64| u64::try_from(number).unwrap_or(0);
        Ok(Room { used: positive(used), free: positive(free), files: positive(files) })
    }

    pub(crate) fn mkdir(&self, path: &CStr, mode: u32) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: the path ends with a zero and lives during the call.
        self.checked(unsafe { (self.table.gfs_mkdir)(path.as_ptr(), mode) })
    }

    pub(crate) fn rmdir(&self, path: &CStr) -> Result<(), Failure> {
        self.on_path(self.table.gfs_rmdir, path)
    }

    pub(crate) fn unlink(&self, path: &CStr) -> Result<(), Failure> {
        self.on_path(self.table.gfs_unlink, path)
    }

    /// Replaces what is there.
    pub(crate) fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Failure> {
        self.on_two_paths(self.table.gfs_rename, from, to)
    }

    /// A second name; replaces nothing.
    pub(crate) fn link(&self, from: &CStr, to: &CStr) -> Result<(), Failure> {
        self.on_two_paths(self.table.gfs_link, from, to)
    }

    pub(crate) fn symlink(&self, target: &CStr, path: &CStr) -> Result<(), Failure> {
        self.on_two_paths(self.table.gfs_symlink, target, path)
    }

    pub(crate) fn readlink(&self, path: &CStr) -> Result<Vec<u8>, Failure> {
        let mut target = null_mut();
        let _alone = self.alone();
        // SAFETY: the path ends with a zero; `target` becomes a text of malloc on success.
        self.checked(unsafe { (self.table.gfs_readlink)(path.as_ptr(), &raw mut target) })?;
        // SAFETY: see above; it is freed once and used no more.
        unsafe {
            let bytes = CStr::from_ptr(target).to_bytes().to_vec();
            libc::free(target.cast());
            Ok(bytes)
        }
    }

    /// Calls `visit` for each name of a directory but `.` and `..`, until it has enough; some hundred names come with a
    /// request.
    /// `visit` calls nothing of the library: it would wait for itself.
    pub(crate) fn names(
        &self,
        path: &CStr,
        visit: &mut dyn FnMut(&[u8], &Stat) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let _alone = self.alone();
        let table = &self.table;
        let mut directory = null_mut();
        // SAFETY: the path ends with a zero; `directory` is set on success.
        self.checked(unsafe { (table.gfs_opendirplus)(path.as_ptr(), &raw mut directory) })?;
        let answer = loop {
            let (mut entry, mut raw) = (null_mut::<RawEntry>(), null_mut::<RawStat>());
            // SAFETY: the directory is open; both are set on success, to null at the end.
            let code = unsafe { (table.gfs_readdirplus)(directory, &raw mut entry, &raw mut raw) };
            if code != 0 || entry.is_null() || raw.is_null() {
                break code;
            }
            // SAFETY: they are the library's until the next call on the directory; the name ends with a zero.
            let (name, stat) =
                unsafe { (CStr::from_ptr((&raw const (*entry).name).cast()), self.stat_of(&*raw)) };
            let is_name = !matches!(name.to_bytes(), b"." | b"..");
            if is_name && visit(name.to_bytes(), &stat).is_break() {
                break 0;
            }
        };
        // SAFETY: it was opened above and is used no more.
        unsafe { (table.gfs_closedirplus)(directory) };
        self.checked(answer)
    }

    /// A new file, open for writing; fails when the name is taken.
    pub(crate) fn create(&'static self, path: &CStr, mode: u32) -> Result<File, Failure> {
        self.create_for(path, mode, Use::Write).map(|(file, _)| file)
    }

    /// As [`Library::create`], open as it is said.
    pub(crate) fn create_for(
        &'static self,
        path: &CStr,
        mode: u32,
        access: Use,
    ) -> Result<(File, Made), Failure> {
        let flags = access.flags() | EXCLUSIVE | UNBUFFERED;
        let (mut raw, mut ino, mut generation) = (null_mut(), 0, 0);
        let _alone = self.alone();
        // SAFETY: the path ends with a zero; the rest is set on success.
        let answer = unsafe {
            let (file, ino, generation) = (&raw mut raw, &raw mut ino, &raw mut generation);
            (self.table.gfs_pio_create_igen)(path.as_ptr(), flags, mode, file, ino, generation)
        };
        self.checked(answer).map(|()| (File { library: self, raw }, Made { ino, generation }))
    }

    /// An existing file, open for reading. Follows links.
    pub(crate) fn open(&'static self, path: &CStr) -> Result<File, Failure> {
        self.open_for(path, Use::Read, false)
    }

    /// An existing file, emptied first when `truncate` says so. Follows links.
    pub(crate) fn open_for(
        &'static self,
        path: &CStr,
        access: Use,
        truncate: bool,
    ) -> Result<File, Failure> {
        let flags = access.flags() | UNBUFFERED | if truncate { TRUNCATE } else { 0 };
        let mut raw = null_mut();
        let _alone = self.alone();
        // SAFETY: the path ends with a zero; `raw` is set on success.
        let answer = unsafe { (self.table.gfs_pio_open)(path.as_ptr(), flags, &raw mut raw) };
        self.checked(answer).map(|()| File { library: self, raw })
    }

    /// The name under which this host serves files of the Gfarm that `path` belongs to; `None` when the
    /// metadata server knows none now. The library would keep that answer for good.
    pub(crate) fn own_host(&self, path: &CStr) -> Result<Option<CString>, Failure> {
        let _alone = self.alone();
        let table = &self.table;
        let mut connection = null_mut();
        // SAFETY: the path ends with a zero; `connection` is set on success.
        self.checked(unsafe {
            (table.gfm_client_connection_and_process_acquire_by_path)(
                path.as_ptr(),
                &raw mut connection,
            )
        })?;
        // SAFETY: the connection is open; the name is its own, and null or a text.
        unsafe {
            let user = (table.gfm_client_username)(connection);
            if !user.is_null() {
                self.owners.own_user(CStr::from_ptr(user).to_bytes());
            }
        }
        let (mut name, mut port) = (null_mut(), 0);
        // SAFETY: the connection is ours until it is freed; a name that is told is ours, and freed once.
        let host = unsafe {
            let own = (table.gfarm_host_get_self_name)();
            let answer =
                (table.gfm_host_get_canonical_name)(connection, own, &raw mut name, &raw mut port);
            (answer == 0).then(|| {
                let host = CStr::from_ptr(name).to_owned();
                libc::free(name.cast());
                host
            })
        };
        // SAFETY: it was acquired above and is used no more.
        unsafe { (table.gfm_client_connection_free)(connection) };
        Ok(host)
    }

    /// Hosts that hold the file whole and answer.
    pub(crate) fn replicas(&self, path: &CStr) -> Result<Vec<String>, Failure> {
        let _alone = self.alone();
        let table = &self.table;
        let mut info = null_mut();
        // SAFETY: the path ends with a zero; `info` is set on success. No flag: dead and unfinished ones are left out.
        self.checked(unsafe { (table.gfs_replica_info_by_name)(path.as_ptr(), 0, &raw mut info) })?;
        // SAFETY: the names are the information's; it is freed once and used no more.
        unsafe {
            let host = |nth| CStr::from_ptr((table.gfs_replica_info_nth_host)(info, nth));
            let count = (table.gfs_replica_info_number)(info);
            let hosts = (0..count).map(|nth| host(nth).to_string_lossy().into_owned()).collect();
            (table.gfs_replica_info_free)(info);
            Ok(hosts)
        }
    }

    /// Asks for a copy on `host`, which is made behind the answer.
    pub(crate) fn replicate(&self, path: &CStr, host: &CStr) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: both end with a zero and live during the call.
        self.checked(unsafe { (self.table.gfs_replicate_file_to)(path.as_ptr(), host.as_ptr(), 0) })
    }

    /// Hosts that can take new files now, the least busy first.
    pub(crate) fn hosts(&self, path: &CStr) -> Result<Vec<String>, Failure> {
        let _alone = self.alone();
        let table = &self.table;
        let (mut known, mut info) = (0, null_mut());
        // SAFETY: the texts end with a zero; both are set on success. An empty domain means all.
        self.checked(unsafe {
            (table.gfarm_schedule_hosts_domain_all)(
                path.as_ptr(),
                c"".as_ptr(),
                &raw mut known,
                &raw mut info,
            )
        })?;
        let room = usize::try_from(known).unwrap_or(0);
        let (mut names, mut ports) = (vec![null_mut::<c_char>(); room], vec![0; room]);
        let mut chosen = known;
        // SAFETY: `info` holds `known` hosts; both lists have room for as many, and no more than `chosen` are set.
        unsafe {
            let answer = (table.gfarm_schedule_hosts_acyclic_to_write)(
                path.as_ptr(),
                known,
                info,
                &raw mut chosen,
                names.as_mut_ptr(),
                ports.as_mut_ptr(),
            );
            let chosen = if answer == 0 { usize::try_from(chosen).unwrap_or(0) } else { 0 };
            // The names belong to `info`.
            let host = |name: &*mut c_char| CStr::from_ptr(*name).to_string_lossy().into_owned();
            let hosts: Vec<String> = names[..chosen.min(room)].iter().map(host).collect();
            (table.gfarm_host_sched_info_free)(known, info);
            self.checked(answer).map(|()| hosts)
        }
    }

    /// Sets an extended attribute, new or not.
    pub(crate) fn set_xattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> Result<(), Failure> {
        self.set_xattr_if(path, name, value, 0)
    }

    /// The same with the flags of setxattr(2), which are Gfarm's too.
    pub(crate) fn set_xattr_if(
        &self,
        path: &CStr,
        name: &CStr,
        value: &[u8],
        flags: c_int,
    ) -> Result<(), Failure> {
        let _alone = self.alone();
        // SAFETY: the texts end with a zero; the value has that many bytes.
        self.checked(unsafe {
            let (value, len) = (value.as_ptr().cast(), value.len());
            (self.table.gfs_lsetxattr)(path.as_ptr(), name.as_ptr(), value, len, flags)
        })
    }

    pub(crate) fn xattr(&self, path: &CStr, name: &CStr) -> Result<Vec<u8>, Failure> {
        self.sized(|value, len| {
            // SAFETY: the texts end with a zero; `value` has room for `*len` bytes.
            unsafe { (self.table.gfs_lgetxattr)(path.as_ptr(), name.as_ptr(), value.cast(), len) }
        })
    }

    /// Names, each with a zero behind it.
    pub(crate) fn xattr_names(&self, path: &CStr) -> Result<Vec<u8>, Failure> {
        self.sized(|names, len| {
            // SAFETY: the path ends with a zero; `names` has room for `*len` bytes.
            unsafe { (self.table.gfs_llistxattr)(path.as_ptr(), names.cast(), len) }
        })
    }

    pub(crate) fn remove_xattr(&self, path: &CStr, name: &CStr) -> Result<(), Failure> {
        self.on_two_paths(self.table.gfs_lremovexattr, path, name)
    }

    /// An answer whose length is not known before.
    fn sized(&self, call: impl FnOnce(*mut u8, *mut usize) -> Code) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; XATTR_BYTES_MAX];
        let mut len = bytes.len();
        let _alone = self.alone();
        self.checked(call(bytes.as_mut_ptr(), &raw mut len))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn stat_of(&self, raw: &RawStat) -> Stat {
        let kind = match raw.mode & TYPE_MASK {
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Link,
            _ => Kind::File,
        };
        let name = |text: *mut c_char| {
            // SAFETY: null, or a text of the library that lives as long as `raw`.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            text.map_or(&[][..], CStr::to_bytes)
        };
        let time = |time: RawTime| system_time(time.seconds, time.nanos);
        Stat {
            ino: raw.ino,
            generation: raw.generation,
            kind,
            mode: raw.mode & 0o7777,
            size: u64::try_from(raw.size).unwrap_or(0),
            mtime: time(raw.mtime),
            atime: time(raw.atime),
            ctime: time(raw.ctime),
            nlink: raw.nlink,
            uid: self.owners.uid(name(raw.user)),
            gid: self.owners.gid(name(raw.group)),
        }
    }
}
