//! Whether the kernel serves files alone here, by trying it.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use hayase_fuse::{PassthroughState, probe_passthrough};

use crate::system::namespaces;

/// Mounts an empty file system for a moment, out of sight where we may; says why it does not work.
pub(crate) fn try_out(is_privileged: bool, scratch: &Path) -> Result<(), String> {
    fs::DirBuilder::new().mode(0o700).create(scratch).map_err(|error| error.to_string())?;
    let try_there = || {
        if is_privileged {
            namespaces::new_mounts().map_err(|error| error.to_string())?;
        }
        match probe_passthrough(scratch) {
            Ok(PassthroughState::Used) => Ok(()),
            Ok(state) => Err(state.describe().trim_start_matches("off: ").to_owned()),
            Err(error) => Err(format!("{:#}", anyhow::Error::from(error)).trim().to_owned()),
        }
    };
    // A thread, so that only it gets other mounts.
    let tried =
        std::thread::scope(|scope| scope.spawn(try_there).join().expect("trying does not panic"));
    let _ = fs::remove_dir(scratch);
    tried
}
