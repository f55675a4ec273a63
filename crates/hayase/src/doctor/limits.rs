//! Limits of processes and of the kernel.

use hayase_store::SlotPool;
use hayase_store::uring::Ring;
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

/// What servers use for large transfers past the page cache; without it they go through it.
fn io_uring() -> Check {
    let name = "io_uring";
    let forbidden = |found: &str| {
        Check::warn(
            name,
            found,
            "large requests of other nodes go through the page cache of the node that has the part",
            "sysctl kernel.io_uring_disabled=0, or a kernel and container that allow it",
        )
    };
    let slots = match SlotPool::new(1) {
        Ok(slots) => slots,
        Err(error) => return forbidden(&format!("no memory to try it: {error}")),
    };
    match Ring::<Vec<u8>>::new(1, &slots) {
        Ok(ring) if ring.has_registered_slots() => Check::ok(name, "io_uring, registered buffers"),
        Ok(_) => Check::ok(name, "io_uring; buffers can not be registered"),
        Err(error) => forbidden(&error.to_string()),
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
