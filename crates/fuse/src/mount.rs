//! Mounting and unmounting.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, BackingId, Config, Session, SessionACL};
use hayase_client::Volume;
use rustix::fs::MemfdFlags;
use rustix::mount::UnmountFlags;

use crate::filesystem::Requests;
use crate::limits::{READ_AHEAD_BYTES, SMALL_REQUEST_BYTES, THREADS, THREADS_MAX};
use crate::mount_point::{self, MountOptions, MountPoint, Place};
use crate::notify::Kernel;
use crate::ops::Shared;
use crate::passthrough::PassthroughState;
use crate::profile::KernelProfile;

/// Between two looks at a mount that is busy.
const BUSY_POLL: Duration = Duration::from_millis(10);

/// How and where to mount.
#[derive(Clone, Debug)]
pub struct MountSettings {
    /// An existing directory.
    pub mount_point: PathBuf,
    /// The first column of /proc/mounts.
    pub name: String,
    /// A kernel to be like.
    pub kernel_profile: KernelProfile,
    /// Other users than the mount's may use it (as root only).
    pub allow_other: bool,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Device files work.
    pub dev: bool,
    /// Set-user-id and set-group-id programs work.
    pub suid: bool,
    /// Threads that take requests, 1 to 16.
    pub threads: usize,
    /// Names are looked up each time, so that a rename on another node is seen at once.
    pub strict_names: bool,
    /// Files that are not served by the kernel may be mapped shared and writable (whole pages are
    /// written back); otherwise that is `ENODEV`.
    pub map_remote: bool,
    /// Pages of a file stay until an open says that it is another version; changed times and sizes drop none. A volume that
    /// tells a larger size of an open file drops its pages first.
    pub pages_until_open: bool,
}

impl MountSettings {
    /// For a directory; everything else as usual.
    pub fn new(mount_point: PathBuf) -> Self {
        Self {
            mount_point,
            name: "hayase".to_owned(),
            kernel_profile: KernelProfile::Native,
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            dev: false,
            suid: false,
            threads: default_threads(),
            strict_names: false,
            map_remote: true,
            pages_until_open: false,
        }
    }

    fn options(&self) -> MountOptions {
        let is_old = self.kernel_profile == KernelProfile::V4_18;
        MountOptions {
            name: self.name.clone(),
            read_only: self.read_only,
            dev: self.dev,
            suid: self.suid,
            allow_other: self.allow_other,
            checks_rights: true,
            max_read: is_old.then_some(SMALL_REQUEST_BYTES.get()),
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.acl = self.acl();
        config.n_threads = Some(self.threads.clamp(1, THREADS_MAX));
        // One descriptor for all threads: whoever answers in our place has it, too.
        config.clone_fd = false;
        config
    }

    fn acl(&self) -> SessionACL {
        if self.allow_other { SessionACL::All } else { SessionACL::Owner }
    }
}

fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(*THREADS.start(), usize::from);
    cores.clamp(*THREADS.start(), *THREADS.end())
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory is not there, or no directory.
    #[error("use {} as a mount point", .path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// The kernel or fusermount3 refused.
    #[error("mount a FUSE file system at {}", .path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// What they said.
        source: std::io::Error,
    },
    /// No thread could be started.
    #[error("start the threads of the mount at {}", .path.display())]
    Threads {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The mount could not be taken away.
    #[error("unmount {}", .path.display())]
    Unmount {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Something was mounted over it, and stays, and so does the mount.
    #[error("unmount {}: something else is mounted over it", .path.display())]
    Covered {
        /// The directory.
        path: PathBuf,
    },
}

impl MountError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::MountPoint { .. } => Some("give an empty directory that exists and is yours"),
            Self::Mount { .. } if !Path::new("/dev/fuse").exists() => {
                Some("/dev/fuse is missing: load the kernel module `fuse`, or pass the device in")
            }
            Self::Mount { .. } => Some(
                "without root, fusermount3 must be installed and /dev/fuse open to all users: `hayase doctor` checks both",
            ),
            Self::Threads { .. } => Some("raise the limit of processes (`ulimit -u`)"),
            Self::Unmount { .. } => None,
            Self::Covered { .. } => Some("unmount that first, and then this one: `umount` twice"),
        }
    }
}

/// A mounted volume; unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    session: Option<BackgroundSession>,
    shared: Arc<Shared>,
    unmounter: Unmounter,
}

/// Unmounts from another thread; never what was mounted there later.
#[derive(Clone, Debug)]
pub struct Unmounter {
    point: MountPoint,
    /// As it was asked for.
    path: PathBuf,
}

/// Mounts `volume`; it answers from its own threads when this returns.
///
/// # Errors
/// When the mount point is no directory or may not be mounted on.
pub fn mount(volume: Arc<dyn Volume>, settings: &MountSettings) -> Result<Mounted, MountError> {
    let path = || settings.mount_point.clone();
    let metadata = std::fs::metadata(&settings.mount_point)
        .map_err(|source| MountError::MountPoint { path: path(), source })?;
    if !metadata.is_dir() {
        let source = std::io::Error::from_raw_os_error(libc::ENOTDIR);
        return Err(MountError::MountPoint { path: path(), source });
    }
    let config = settings.config();
    let threads = config.n_threads.unwrap_or_else(default_threads);
    let shared = Arc::new(Shared::new(volume, threads, settings.strict_names));
    let requests = Requests {
        shared: Arc::clone(&shared),
        profile: settings.kernel_profile,
        map_remote: settings.map_remote,
        pages_until_open: settings.pages_until_open,
    };
    let failed = |source| MountError::Mount { path: path(), source };
    let (connection, point) =
        mount_point::attach(&settings.mount_point, &settings.options()).map_err(failed)?;
    let unmounter = Unmounter { point, path: path() };
    let mut mounted = Mounted { session: None, shared, unmounter };
    let session = Session::from_fd(requests, connection, settings.acl(), config).map_err(failed)?;
    let shared = &mounted.shared;
    probe_passthrough(&session, &shared.kernel);
    shared.kernel.asks_at(session.as_fd());
    let started = shared.kernel.start(&session.notifier());
    started.map_err(|source| MountError::Threads { path: path(), source })?;
    shared.volume.attach(Arc::clone(&shared.kernel) as Arc<dyn hayase_client::KernelCaches>);
    let session = session.spawn().map_err(|source| MountError::Threads { path: path(), source })?;
    raise_read_ahead(&mounted.unmounter.point.device());
    mounted.session = Some(session);
    Ok(mounted)
}

impl Mounted {
    /// Whether files whose part is here are read and written by the kernel.
    pub fn passthrough(&self) -> PassthroughState {
        self.shared.kernel.backings.state()
    }

    /// Calls `listener` when that is another than `known`, now or later: the kernel may refuse a part while the mount serves,
    /// and then it is off until the next mount. It is called before the open of that part is answered.
    pub fn on_passthrough_change(
        &self,
        known: PassthroughState,
        listener: impl Fn(PassthroughState) + Send + Sync + 'static,
    ) {
        self.shared.kernel.backings.listen(known, Box::new(listener));
    }

    /// For a signal handler's thread, while another waits.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Returns when the mount is gone, whoever took it away.
    ///
    /// # Errors
    /// When the session ended for another reason.
    pub fn wait(mut self) -> std::io::Result<()> {
        match self.session.take() {
            Some(session) => session.join(),
            None => Ok(()),
        }
    }

    /// Unmounts it, and then the binds of it; while it is busy until `patience` ends, then hides it from new users and leaves
    /// the rest to the kernel.
    ///
    /// # Errors
    /// When the kernel refuses even that.
    pub fn unmount(mut self, patience: Duration) -> Result<(), MountError> {
        let result = self.unmounter.unmount(patience);
        self.finish(patience);
        result
    }

    /// Lets the session end if it can.
    fn finish(&mut self, patience: Duration) {
        let Some(session) = self.session.take() else { return };
        let until = Instant::now() + patience;
        while !session.guard.is_finished() && Instant::now() < until {
            std::thread::sleep(BUSY_POLL);
        }
        if session.guard.is_finished()
            && let Err(error) = session.join()
        {
            tracing::warn!(%error, "the FUSE session ended badly");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Also what a session that broke down has left.
        if let Err(error) = self.unmounter.unmount(Duration::ZERO) {
            let why = &error as &dyn std::error::Error;
            tracing::warn!(error = why, help = error.help(), "leave a mount behind");
        }
        self.finish(Duration::from_secs(1));
        self.shared.waiters.stop();
        self.shared.closes.stop();
        self.shared.kernel.stop();
    }
}

impl Unmounter {
    /// As [`Mounted::unmount`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unmount(&self, patience: Duration) -> Result<(), MountError> {
        let until = Instant::now() + patience;
        let ended = loop {
            match self.point.unmount(UnmountFlags::empty()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if Instant::now() >= until {
                        break self.point.unmount(UnmountFlags::DETACH);
                    }
                    std::thread::sleep(BUSY_POLL);
                }
                ended => break ended,
            }
        };
        let path = self.path.clone();
        match ended.map_err(|source| MountError::Unmount { path, source })? {
            Place::Covered(path) => Err(MountError::Covered { path }),
            Place::Cut(path) => {
                let path = path.display();
                let help = format!("look whether {path} answers; if it does not: umount -l {path}");
                tracing::warn!(
                    help,
                    "the connection of a mount was cut: if it is still there, it stays"
                );
                Ok(())
            }
            Place::Gone | Place::OnTop(_) => {
                if let Err(error) = self.point.detach_binds() {
                    tracing::warn!(%error, "binds of the mount stay");
                }
                Ok(())
            }
        }
    }
}

/// Registers a file of no importance, to know before the first open whether it is allowed. The
/// registration lives as long as the mount.
fn probe_passthrough(session: &Session<Requests>, kernel: &Kernel) {
    if kernel.backings.state() != PassthroughState::Used {
        return;
    }
    let registered = rustix::fs::memfd_create("hayase-probe", MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .and_then(|file| BackingId::create_raw(session.as_fd(), file));
    if let Err(error) = registered {
        let state = PassthroughState::of_error(&error);
        tracing::info!(%error, "passthrough {}", state.describe());
        kernel.backings.set_state(state);
    }
}

/// The kernel reads ahead 128 KiB unless told otherwise, one small request after the other.
/// Not allowed without privilege, and not important.
fn raise_read_ahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, format!("{}", READ_AHEAD_BYTES.get() / 1024)) {
        tracing::debug!(%error, path, "read-ahead stays as it is");
    }
}
