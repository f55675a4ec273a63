//! What the kernel granted to a session, as far as requests are answered by it.

use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{InitFlags, OpenFlags};

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

    /// Whether an open with these flags never goes through pages.
    ///
    /// With `O_DIRECT` the kernel itself takes reads and writes past its pages, also where the open is a cached one. Before
    /// Linux 6.6 only a cached one can be mapped shared, so there it is one when it writes too, while a single node has the
    /// file open. One that only reads is not: a direct read that ends early is continued from pages by the kernel, which may
    /// fill them with zeros up to the end that the file had before a truncation.
    pub(crate) fn is_uncached(&self, flags: OpenFlags) -> bool {
        if flags.0 & libc::O_APPEND != 0 {
            return true;
        }
        let read_only = flags.0 & libc::O_ACCMODE == libc::O_RDONLY;
        flags.0 & libc::O_DIRECT != 0 && (read_only || self.maps_direct.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_opens_that_write_are_cached_ones_where_only_these_are_mapped() {
        let granted = Granted::default();
        let is_uncached = |flags| granted.is_uncached(OpenFlags(flags));
        assert!(!is_uncached(libc::O_RDWR | libc::O_DIRECT));
        assert!(is_uncached(libc::O_RDONLY | libc::O_DIRECT));
        assert!(!is_uncached(libc::O_RDONLY));
        assert!(is_uncached(libc::O_WRONLY | libc::O_APPEND));
        granted.begins(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        assert!(is_uncached(libc::O_RDWR | libc::O_DIRECT));
        assert!(!is_uncached(libc::O_RDWR));
    }
}
