//! What the tests that need a real file system share.

use std::path::{Path, PathBuf};

use hayase_layout::ByteCount;
use hayase_store::ImageArea;

/// Why loop devices can not be used here, if they can not.
fn no_images() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root to mount images");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("needs loop devices");
    }
    let found = |program: &str| {
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
            .iter()
            .any(|bin| Path::new(bin).join(program).exists())
    };
    if !found("mkfs.xfs") {
        return Some("needs mkfs.xfs (package xfsprogs)");
    }
    (!found("losetup")).then_some("needs losetup (package mount)")
}

/// Says that `test` is skipped, when it is.
pub(crate) fn skip(test: &str) -> bool {
    if let Some(reason) = no_images() {
        skipped(test, reason);
        return true;
    }
    false
}

/// Says that `test` is skipped, and why.
#[expect(clippy::print_stderr, reason = "a skip has to be seen")]
pub(crate) fn skipped(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}

/// A directory with a mounted image in it; both go when it is dropped, also in a panic.
pub(crate) struct Mounted {
    pub(crate) area: Option<ImageArea>,
    pub(crate) root: PathBuf,
    /// Holds image and mount point, and removes them.
    _directory: tempfile::TempDir,
}

impl Mounted {
    pub(crate) fn new(size: ByteCount) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("mnt");
        let area = ImageArea::create(&directory.path().join("a.img"), &root, size).unwrap();
        Self { area: Some(area), root, _directory: directory }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.area.take()); // unmounts, before the directory is removed
    }
}
