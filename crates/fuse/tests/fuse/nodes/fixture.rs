//! Servers and mounts of a few nodes, gone when they are dropped, also by a panic.
//!
//! The areas are plain directories that say they keep their size by themselves and are nearly empty,
//! so parts are made where their creator is, and the kernel serves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hayase_client::{AreaSettings, AreaVolume, Session};
use hayase_fuse::{KernelProfile, MountSettings, Mounted, mount};
use hayase_layout::{NodeId, ServerId};
use hayase_server::{Settings, TransportChoice};
use hayase_store::{Area, AreaError, AreaUsage, Device, MountedArea, PartError};
use hayase_wire::Secret;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Dropped in this order: mounts, servers, directories.
pub(crate) struct Nodes {
    mounts: Vec<Mounted>,
    servers: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
    directory: TempDir,
}

impl Nodes {
    /// `None`, and a line on stderr, where nothing can be mounted.
    pub(crate) fn up(test: &str, count: u16, profile: KernelProfile) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            skip(test, "no /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut nodes = Self { mounts: Vec::new(), servers: Vec::new(), directory };
        nodes.start_servers(count);
        for node in 0..count {
            match nodes.mount(node, profile) {
                Ok(mounted) => nodes.mounts.push(mounted),
                Err(error) if !rustix::process::geteuid().is_root() => {
                    skip(test, &error.to_string());
                    return None;
                }
                Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
            }
        }
        Some(nodes)
    }

    pub(crate) fn path(&self, node: u16, name: &str) -> PathBuf {
        self.directory.path().join(format!("{node}/mount")).join(name)
    }

    pub(crate) fn socket(&self, node: u16) -> PathBuf {
        self.directory.path().join(format!("{node}/server.sock"))
    }

    fn start_servers(&mut self, count: u16) {
        let secret = Secret::generate().unwrap();
        let mut ready = Vec::new();
        for server in 0..count {
            let (stop, stopped) = oneshot::channel();
            let (tell, told) = std::sync::mpsc::channel();
            let settings = self.settings(server, count, secret.clone());
            let thread = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let stop = async {
                    let _dropped_is_stop_too = stopped.await;
                };
                let serve =
                    hayase_server::serve(settings(), ended, move || tell.send(()).unwrap(), stop);
                runtime.unwrap().block_on(serve).unwrap();
            });
            self.servers.push((stop, thread));
            ready.push(told);
        }
        for told in ready {
            told.recv_timeout(Duration::from_secs(20)).expect("the server is ready");
        }
    }

    fn settings(
        &self,
        server: u16,
        count: u16,
        secret: Secret,
    ) -> impl FnOnce() -> Settings + Send + use<> {
        let job_dir = self.directory.path().to_owned();
        let (home, socket) = (job_dir.join(server.to_string()), self.socket(server));
        std::fs::create_dir_all(home.join("area")).unwrap();
        std::fs::create_dir_all(home.join("mount")).unwrap();
        move || Settings {
            server: ServerId(server),
            node: NodeId(server),
            servers: count,
            groups: hayase_layout::Groups::all(count),
            host: format!("n{server}"),
            secret,
            nonce: u32::from(server) + 100,
            socket,
            listen: vec!["127.0.0.1".parse().unwrap()],
            port: 0,
            job_dir,
            area: Box::new(RoomyArea(MountedArea::open(&home.join("area")).unwrap())),
            mounts: 1,
            cache: None,
            direct_io: true,
            transport: TransportChoice::default(),
            encrypt: false,
            intent_age: Settings::INTENT_AGE,
            kept_until: hayase_server::KeptUntil::default(),
            wait: Duration::from_secs(20),
        }
    }

    fn mount(&self, node: u16, profile: KernelProfile) -> Result<Mounted, hayase_fuse::MountError> {
        let session = Session::connect(&self.socket(node), true).unwrap();
        let volume = AreaVolume::new(Arc::new(session), AreaSettings::mount()).unwrap();
        let mut settings = MountSettings::new(self.path(node, ""));
        settings.kernel_profile = profile;
        mount(Arc::new(volume), &settings)
    }
}

/// Never full, whatever the disk below is.
struct RoomyArea(MountedArea);

impl Area for RoomyArea {
    fn root(&self) -> &Path {
        self.0.root()
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        Ok(AreaUsage { total: 1 << 40, free: 1 << 39, ..self.0.usage()? })
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        self.0.parts()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.mounts.clear();
        for (stop, thread) in self.servers.drain(..) {
            let _already_over = stop.send(());
            let _panicked = thread.join();
        }
    }
}

fn skip(test: &str, reason: &str) {
    // Not by eprintln: the harness would swallow it, and a skip must be seen.
    let line = format!("SKIP {test}: {reason}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

/// Names could not be written.
fn ended(status: u8) -> ! {
    panic!("the server ended with {status}")
}
