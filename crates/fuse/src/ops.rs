//! The requests of the kernel, one file per kind. Each answers its reply exactly once.

pub(crate) mod attr;
pub(crate) mod create;
mod directory;
mod link;
pub(crate) mod locks;
mod lookup;
mod open;
pub(crate) mod read_write;
pub(crate) mod space;
pub(crate) mod xattr;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Generation, OpenAccMode, OpenFlags, ReplyEntry};
use hayase_client::limits::ATTR_TTL;
use hayase_client::open_file::Serving;
use hayase_client::volume::{Found, OpenWish, Volume};
use hayase_layout::InodeId;
use hayase_wire::message::{Access, Name, Refused};

use crate::attributes::file_attr;
use crate::closes::Closes;
use crate::granted::Granted;
use crate::handles::Directories;
use crate::limits::{NAME_BYTES_MAX, NAME_TTL};
use crate::notify::Kernel;
use crate::passthrough::PassthroughState;
use crate::running::Running;
use crate::waiters::Waiters;
use locks::Locks;
use space::Space;
use xattr::Xattrs;

/// Inode numbers are never used twice, so one generation is enough.
const GENERATION: Generation = Generation(0);

/// What all requests of a mount share.
pub(crate) struct Shared {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) waiters: Waiters,
    pub(crate) directories: Directories,
    running: Running,
    pub(crate) closes: Arc<Closes>,
    pub(crate) wants_closes: bool,
    pub(crate) granted: Arc<Granted>,
    pub(crate) locks: Locks,
    pub(crate) space: Space,
    pub(crate) xattrs: Xattrs,
    /// How long the kernel keeps a name.
    name_ttl: Duration,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(volume: Arc<dyn Volume>, threads: usize, strict_names: bool) -> Self {
        let wants_closes = volume.wants_closes();
        let (kernel, granted) = (Arc::new(Kernel::new()), Arc::<Granted>::default());
        let closes = Arc::new(Closes::new(wants_closes));
        Self {
            locks: Locks::new(Arc::clone(&volume), Arc::clone(&closes)),
            space: Space::new(Arc::clone(&volume)),
            xattrs: Xattrs::new(Arc::clone(&volume), Arc::clone(&kernel), Arc::clone(&granted)),
            volume,
            kernel,
            waiters: Waiters::new(threads),
            directories: Directories::default(),
            running: Running::default(),
            closes,
            wants_closes,
            granted,
            name_ttl: if strict_names { Duration::ZERO } else { NAME_TTL },
        }
    }

    /// What can be done with a part on this node.
    fn serving(&self) -> Serving {
        match self.kernel.backings.state() {
            PassthroughState::Used => Serving::Descriptor,
            PassthroughState::NotOffered => Serving::CachedWriter,
            PassthroughState::NoPrivilege | PassthroughState::Refused => Serving::Messages,
        }
    }

    fn wish(&self, flags: OpenFlags) -> OpenWish {
        OpenWish {
            access: access(flags),
            truncate: flags.0 & libc::O_TRUNC != 0,
            serving: self.serving(),
            uncached: self.granted.is_uncached(flags),
        }
    }

    /// How long the kernel may keep these attributes. Between [`crate::replies::Replies::begin`]
    /// and the answer.
    fn ttl(&self, found: &Found) -> Duration {
        let keep = self.volume.may_keep(found.attr.ino, found.stamp);
        if keep { ATTR_TTL } else { Duration::ZERO }
    }

    /// The same where name and attributes have one TTL: the library has no other call.
    fn shared_ttl(&self, found: &Found) -> Duration {
        if self.name_ttl.is_zero() { Duration::ZERO } else { self.ttl(found) }
    }

    /// Answers with a name found or made in `parent`.
    fn reply_entry(&self, parent: InodeId, found: &Found, reply: ReplyEntry) {
        let ino = found.attr.ino;
        self.kernel.inodes.remember(ino, parent);
        let _begun = self.kernel.replies.begin(ino);
        self.kernel.set_ids.told(&found.attr);
        let attr = file_attr(&found.attr);
        reply.entry_with_ttls(&self.ttl(found), &self.name_ttl, &attr, GENERATION);
    }
}

/// A component as the messages carry it.
fn checked_name(name: &OsStr) -> Result<Name, Refused> {
    let name = name.as_bytes();
    if name.len() > NAME_BYTES_MAX {
        return Err(Refused::new(libc::ENAMETOOLONG));
    }
    Ok(name.to_vec())
}

fn access(flags: OpenFlags) -> Access {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Access { read: true, write: false },
        OpenAccMode::O_WRONLY => Access { read: false, write: true },
        OpenAccMode::O_RDWR => Access { read: true, write: true },
    }
}
