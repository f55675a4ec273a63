//! What the kernel granted to a session, as far as requests are answered by it.

use std::sync::atomic::{AtomicBool, Ordering};

use fuser::InitFlags;

/// Set once, before the first request; nothing is granted before.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    maps_direct: AtomicBool,
    checks_acls: AtomicBool,
}

impl Granted {
    /// The session begins with these.
    pub(crate) fn begins(&self, granted: InitFlags) {
        let maps_direct = granted.contains(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        self.maps_direct.store(maps_direct, Ordering::Relaxed);
        let checks_acls = granted.contains(InitFlags::FUSE_POSIX_ACL);
        self.checks_acls.store(checks_acls, Ordering::Relaxed);
    }

    /// The kernel asks for access control lists and checks them, and leaves the umask to us. Otherwise it applies the
    /// umask, and nothing with a list may be made here.
    pub(crate) fn checks_acls(&self) -> bool {
        self.checks_acls.load(Ordering::Relaxed)
    }

    /// Opens with one of these never go through pages.
    ///
    /// With `O_DIRECT` the kernel itself takes reads and writes past its pages, also where the open is a cached one. Before
    /// Linux 6.6 only a cached one can be mapped shared, so there it is one, while a single node has the file open.
    pub(crate) fn uncached_flags(&self) -> i32 {
        match self.maps_direct.load(Ordering::Relaxed) {
            true => libc::O_APPEND | libc::O_DIRECT,
            false => libc::O_APPEND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_opens_are_cached_ones_where_only_these_are_mapped() {
        let granted = Granted::default();
        granted.begins(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        assert_eq!(granted.uncached_flags(), libc::O_APPEND | libc::O_DIRECT);
        assert!(!granted.checks_acls());
        granted.begins(InitFlags::FUSE_POSIX_ACL);
        assert!(granted.checks_acls());
        assert_eq!(granted.uncached_flags(), libc::O_APPEND);
    }
}
