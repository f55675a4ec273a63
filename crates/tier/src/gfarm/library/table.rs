//! libgfarm's functions and structures as C declares them, and how they are found.
//!
//! Here: one table. Not here: what is asked of them (the door, [`super`]).
//! Source: `gfarm/gfs.h`, `gfarm/gfarm_misc.h`, `gfarm/error.h`, and for the eight functions that no installed header
//! declares `gfs_pio.h`, `gfs_misc.h`, `gfm_client.h`, `lookup.h` and `host.h` of Gfarm's library; the same in 2.7.17 to 2.8.

use std::ffi::{c_char, c_int, c_void};

use hayase_dynlib::Missing;

/// `gfarm_error_t`.
pub(super) type Code = c_int;
/// `GFS_File`.
pub(super) type RawFile = *mut c_void;

/// `struct gfarm_timespec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawTime {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
}

/// `struct gfs_stat`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RawStat {
    pub(super) ino: u64,
    pub(super) generation: u64,
    pub(super) mode: u32,
    pub(super) nlink: u64,
    pub(super) user: *mut c_char,
    pub(super) group: *mut c_char,
    pub(super) size: i64,
    pub(super) ncopy: u64,
    pub(super) atime: RawTime,
    pub(super) mtime: RawTime,
    pub(super) ctime: RawTime,
}

/// `struct gfs_dirent`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RawEntry {
    pub(super) ino: u64,
    pub(super) record_bytes: u16,
    pub(super) kind: u8,
    pub(super) name_bytes: u8,
    pub(super) name: [c_char; 256],
}

/// Why the library can not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotLoaded {
    /// `dlopen` says so.
    Absent(String),
    /// It lacks a function.
    Lacks(&'static str),
    /// It is older than [`super::VERSION_MIN`].
    Old((c_int, c_int, c_int)),
    /// `gfarm_initialize` says so.
    Refused(String),
}

hayase_dynlib::functions! {
    /// One pointer for each function.
    pub(super) struct Table;
    gfarm_initialize(*mut c_int, *mut *mut *mut c_char) -> Code;
    gfarm_error_string(Code) -> *const c_char;
    gfarm_version_major() -> c_int;
    gfarm_version_minor() -> c_int;
    gfarm_version_teeny() -> c_int;

    gfs_stat(*const c_char, *mut RawStat) -> Code;
    gfs_lstat(*const c_char, *mut RawStat) -> Code;
    gfs_lstat_cached(*const c_char, *mut RawStat) -> Code;
    gfs_fstat(RawFile, *mut RawStat) -> Code;
    gfs_stat_free(*mut RawStat);
    gfs_lchmod(*const c_char, u32) -> Code;
    gfs_lutimes(*const c_char, *const RawTime) -> Code;
    gfs_lchown(*const c_char, *const c_char, *const c_char) -> Code;
    gfs_statfs_by_path(*const c_char, *mut i64, *mut i64, *mut i64) -> Code;
    gfs_mkdir(*const c_char, u32) -> Code;
    gfs_rmdir(*const c_char) -> Code;
    gfs_unlink(*const c_char) -> Code;
    gfs_rename(*const c_char, *const c_char) -> Code;
    gfs_link(*const c_char, *const c_char) -> Code;
    gfs_symlink(*const c_char, *const c_char) -> Code;
    gfs_readlink(*const c_char, *mut *mut c_char) -> Code;
    gfs_opendirplus(*const c_char, *mut *mut c_void) -> Code;
    gfs_readdirplus(*mut c_void, *mut *mut RawEntry, *mut *mut RawStat) -> Code;
    gfs_closedirplus(*mut c_void) -> Code;

    gfs_lsetxattr(*const c_char, *const c_char, *const c_void, usize, c_int) -> Code;
    gfs_lgetxattr(*const c_char, *const c_char, *mut c_void, *mut usize) -> Code;
    gfs_llistxattr(*const c_char, *mut c_char, *mut usize) -> Code;
    gfs_lremovexattr(*const c_char, *const c_char) -> Code;

    gfs_pio_create_igen(*const c_char, c_int, u32, *mut RawFile, *mut u64, *mut u64) -> Code;
    gfs_pio_open(*const c_char, c_int, *mut RawFile) -> Code;
    gfs_pio_close(RawFile) -> Code;
    gfs_pio_pread(RawFile, *mut c_void, c_int, i64, *mut c_int) -> Code;
    gfs_pio_pwrite(RawFile, *const c_void, c_int, i64, *mut c_int) -> Code;
    gfs_pio_truncate(RawFile, i64) -> Code;
    gfs_pio_sync(RawFile) -> Code;
    gfs_pio_view_fd(RawFile, *mut c_int) -> Code;
    gfs_pio_internal_set_view_section(RawFile, *mut c_char) -> Code;

    gfs_replica_info_by_name(*const c_char, c_int, *mut *mut c_void) -> Code;
    gfs_replica_info_number(*mut c_void) -> c_int;
    gfs_replica_info_nth_host(*mut c_void, c_int) -> *const c_char;
    gfs_replica_info_free(*mut c_void);
    gfs_replicate_file_to(*const c_char, *const c_char, c_int) -> Code;
    gfarm_schedule_hosts_domain_all(*const c_char, *const c_char, *mut c_int, *mut *mut c_void) -> Code;
    gfarm_schedule_hosts_acyclic_to_write(
        *const c_char, c_int, *mut c_void, *mut c_int, *mut *mut c_char, *mut c_int,
    ) -> Code;
    gfarm_host_sched_info_free(c_int, *mut c_void);

    gfm_client_connection_and_process_acquire_by_path(*const c_char, *mut *mut c_void) -> Code;
    gfm_client_connection_free(*mut c_void);
    gfm_client_username(*mut c_void) -> *const c_char;
    gfm_host_get_canonical_name(*mut c_void, *const c_char, *mut *mut c_char, *mut c_int) -> Code;
    gfarm_host_get_self_name() -> *const c_char;
}

impl From<Missing> for NotLoaded {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Library(why) => Self::Absent(why),
            Missing::Function(name) => Self::Lacks(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_in_c() {
        assert_eq!((size_of::<RawStat>(), size_of::<RawEntry>()), (112, 272));
    }
}
