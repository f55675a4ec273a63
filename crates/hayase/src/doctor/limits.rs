//! Limits of processes and of the kernel.

use rustix::process::{Resource, getrlimit};

use super::{Check, read};

/// Parts and connections of one server that may be open at once.
const OPEN_FILES_WANTED: u64 = 4096;

pub(super) fn checks() -> Vec<Check> {
    vec![open_files(), locked_memory(), io_uring(), huge_pages()]
}

fn open_files() -> Check {
    let limit = getrlimit(Resource::Nofile).maximum;
    let found = limit.map_or("no limit".to_owned(), |n| format!("{n} (hard limit)"));
    if limit.is_none_or(|n| n >= OPEN_FILES_WANTED) {
        return Check::ok("open files", found);
    }
    Check::warn(
        "open files",
        found,
        "a server keeps fewer parts open and reopens them more often",
        "raise the hard limit: ulimit -Hn, /etc/security/limits.conf or the batch system",
    )
}

fn locked_memory() -> Check {
    let limit = getrlimit(Resource::Memlock).current;
    Check::ok("locked memory", limit.map_or("no limit".to_owned(), |n| format!("{} KiB", n >> 10)))
}

fn io_uring() -> Check {
    match read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("0") => Check::ok("io_uring", "allowed"),
        Some(_) => Check::ok("io_uring", "switched off; not used by this version"),
        None => Check::ok("io_uring", "not known to be restricted; not used by this version"),
    }
}

fn huge_pages() -> Check {
    let name = "huge pages";
    let text = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_whitespace().find(|word| word.starts_with('[')).unwrap_or("[never]");
    let chosen = chosen.trim_matches(|c| c == '[' || c == ']');
    if chosen != "never" {
        return Check::ok(name, chosen);
    }
    Check::warn(
        name,
        "never",
        "transfer buffers lie in 4 KiB pages: somewhat more CPU time per byte",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
}
