//! Whether files can be served by the kernel alone here: tried on an empty mount that lives a moment.
//!
//! Not here: the same question for a mount that stays ([`crate::Mounted::passthrough`]).

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, Config, Filesystem, InitFlags, KernelConfig, Request, Session, SessionACL};
use rustix::fs::MemfdFlags;

use crate::mount_point::{self, Leaves, MountOptions};
use crate::{MountError, PassthroughState};

/// A file system without files.
struct Nothing {
    offered: Arc<AtomicBool>,
}

impl Filesystem for Nothing {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let is_offered = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        self.offered.store(is_offered, Ordering::SeqCst);
        Ok(())
    }
}

/// Mounts nothing at `directory`, registers a file with the kernel, and unmounts again.
///
/// # Errors
/// When nothing can be mounted there.
pub fn probe_passthrough(directory: &Path) -> Result<PassthroughState, MountError> {
    let failed = |source| MountError::Mount { path: directory.to_owned(), source };
    let offered = Arc::new(AtomicBool::new(false));
    let nothing = Nothing { offered: Arc::clone(&offered) };
    let options = MountOptions {
        name: "hayase-probe".to_owned(),
        read_only: true,
        ..MountOptions::default()
    };
    let (connection, point) = mount_point::attach(directory, &options).map_err(failed)?;
    let _left = Leaves(point);
    let session = Session::from_fd(nothing, connection, SessionACL::Owner, Config::default())
        .map_err(failed)?;
    if !offered.load(Ordering::SeqCst) {
        return Ok(PassthroughState::NotOffered);
    }
    let registered = rustix::fs::memfd_create("hayase-probe", MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .and_then(|file| BackingId::create_raw(session.as_fd(), file));
    Ok(match registered {
        Ok(_) => PassthroughState::Used,
        Err(error) => PassthroughState::of_error(&error),
    })
}
