//! Which kind of open the kernel gets.
//!
//! The kernel allows on one inode either passthrough opens of one backing file, or cached and
//! direct ones, until the last of them is released (`docs/design/001-coherence.md`,
//! "What an open returns").
//! Which of the two it is, is decided once per inode and node by the volume ([`Class`]); here is
//! what follows from it, so no open can fail because of another.

use fuser::{FileHandle, FopenFlags};
use hayase_client::open_file::Class;
use hayase_client::volume::FileOpen;

use crate::handles::as_direct;

/// A kind of open, as `docs/design/001-coherence.md` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenClass {
    /// P: the kernel reads and writes the part.
    Passthrough,
    /// C: through the page cache, written through.
    Cached {
        /// What the kernel has is as good as new.
        keep: bool,
    },
    /// D: every read and write comes to us.
    Direct {
        /// Writes to different places need not wait for each other.
        parallel: bool,
    },
}

impl OpenClass {
    /// `registered`: the part is known to the kernel. An inode of class L without that is served
    /// by messages, all of its opens.
    pub(crate) fn of(open: &FileOpen, registered: bool) -> Self {
        match open.class {
            Class::Local if registered => Self::Passthrough,
            Class::Remote if open.cache => Self::Cached { keep: open.keep_pages },
            Class::Local | Class::Remote => Self::Direct { parallel: open.striped },
        }
    }

    /// The handle of such an open.
    pub(crate) fn handle(self, handle: FileHandle) -> FileHandle {
        match self {
            Self::Passthrough | Self::Cached { .. } => handle,
            Self::Direct { .. } => as_direct(handle),
        }
    }

    /// What the kernel is told besides the backing id.
    pub(crate) fn flags(self) -> FopenFlags {
        match self {
            Self::Passthrough | Self::Cached { keep: false } => FopenFlags::empty(),
            Self::Cached { keep: true } => FopenFlags::FOPEN_KEEP_CACHE,
            Self::Direct { parallel: false } => FopenFlags::FOPEN_DIRECT_IO,
            Self::Direct { parallel: true } => {
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_protocol() {
        let check = |class, cache, keep_pages, striped, registered, expected: OpenClass| {
            let open = FileOpen { class, descriptor: None, cache, keep_pages, striped };
            assert_eq!(OpenClass::of(&open, registered), expected, "{open:?}");
        };
        use Class::*;
        let (kept, fresh) = (OpenClass::Cached { keep: true }, OpenClass::Cached { keep: false });
        let (direct, parallel) =
            (OpenClass::Direct { parallel: false }, OpenClass::Direct { parallel: true });
        check(Local, false, false, false, true, OpenClass::Passthrough);
        check(Local, false, false, false, false, direct); // not registered: plain FUSE
        check(Remote, true, false, false, false, fresh); // first cached open
        check(Remote, true, true, false, false, kept); // CACHE held without a gap
        check(Remote, false, false, false, false, direct); // somebody writes
        check(Remote, false, false, true, false, parallel); // striped
        check(Remote, true, true, true, false, kept);
    }

    #[test]
    fn classes_are_never_mixed() {
        for (class, registered) in [(Class::Local, true), (Class::Remote, false)] {
            for cache in [false, true] {
                let open = FileOpen {
                    class,
                    descriptor: None,
                    cache: cache && class == Class::Remote,
                    keep_pages: false,
                    striped: false,
                };
                let passthrough = OpenClass::of(&open, registered) == OpenClass::Passthrough;
                assert_eq!(passthrough, class == Class::Local);
            }
        }
    }
}
