//! A mount over a server in memory, gone when it is dropped, also by a panic.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_client::testing::FakeServer;
use hayase_client::testing::server::Parts;
use hayase_client::{AreaSettings, AreaVolume, Link};
use hayase_fuse::{KernelProfile, MountSettings, Mounted, PassthroughState, mount};
use hayase_layout::InodeId;
use tempfile::TempDir;

pub(crate) struct Fixture {
    mounted: Option<Mounted>,
    pub(crate) server: Arc<FakeServer>,
    directory: TempDir,
}

impl Fixture {
    pub(crate) fn native(test: &str, parts: Parts) -> Option<Self> {
        Self::new(test, parts, KernelProfile::Native)
    }

    /// `None`, and a line on stderr, where nothing can be mounted.
    pub(crate) fn new(test: &str, parts: Parts, profile: KernelProfile) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            skip(test, "no /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let stored = directory.path().join("parts");
        let mount_point = directory.path().join("mount");
        std::fs::create_dir(&stored).unwrap();
        std::fs::create_dir(&mount_point).unwrap();
        let server = Arc::new(FakeServer::new(stored, parts));
        let link = Arc::clone(&server) as Arc<dyn Link>;
        let volume = Arc::new(AreaVolume::new(link, AreaSettings::mount()).unwrap());
        let mut settings = MountSettings::new(mount_point);
        settings.kernel_profile = profile;
        settings.dev = true;
        settings.suid = true;
        match mount(volume, &settings) {
            Ok(mounted) => Some(Self { mounted: Some(mounted), server, directory }),
            Err(error) if !rustix::process::geteuid().is_root() => {
                skip(test, &format!("{error}: {:?}", std::error::Error::source(&error)));
                None
            }
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().expect("not taken")
    }

    pub(crate) fn take(&mut self) -> Mounted {
        self.mounted.take().expect("taken once")
    }

    pub(crate) fn count(&self, request: &'static str) -> u64 {
        self.server.count(request)
    }

    pub(crate) fn inode(&self, name: &str) -> InodeId {
        self.server.inode_of(name).expect("the server knows the name")
    }

    /// True, and a line on stderr, when the kernel can not do it.
    pub(crate) fn without_passthrough(&self, test: &str) -> bool {
        let state = self.mounted().passthrough();
        if state != PassthroughState::Used {
            skip(test, state.describe());
        }
        state != PassthroughState::Used
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Else the end of the mount would wait for what a failed test held up.
        self.server.hold_up(None);
    }
}

pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(Instant::now() < until, "not within 5 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A copy of sleep(1), running. A child of another test has, until its exec(2), the descriptor through which it was copied.
pub(crate) fn asleep(program: &Path) -> Child {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match Command::new(program).arg("60").spawn() {
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started.unwrap(),
        }
    }
}

pub(crate) fn skip(test: &str, reason: &str) {
    // Not by eprintln: the harness would swallow it, and a skip must be seen.
    let line = format!("SKIP {test}: {reason}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
