//! The mounts of a node: the shared area through a session with the node's server, shown by FUSE; and the same
//! way its `local`, where the node has no storage of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hayase_client::{AreaSettings, AreaVolume, PrivateTree, Session, Volume};
use hayase_fuse::{KernelProfile, MountSettings, Mounted, PassthroughState, Unmounter};
use hayase_layout::{NodeId, ServerId};
use tokio::signal::unix::{SignalKind, signal};

use crate::job::{JobDir, KernelProfile as Asked, MmapShared, Names, Settings};
use crate::supervisor::said::{DaemonSaid, MountTold};
use crate::system::mounts::MOUNT_NAME;

/// How long a busy mount is waited for when a signal ends us; then it is detached.
const BUSY_PATIENCE: Duration = Duration::from_millis(100);

/// Mounts and serves until it is unmounted or a signal ends it; calls `say` when it is ready, and with each change after that.
pub(crate) fn serve_mount(
    dir: &JobDir,
    settings: &Settings,
    node: u16,
    say: impl Fn(DaemonSaid) -> anyhow::Result<()> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let volume = area(dir, settings, node)?;
    let mounted = mount(Arc::new(volume), settings, settings.shared_mount(node))?;
    // Unmounted with the other one: it is dropped when that one has gone.
    let _local = match settings.has_storage(node) {
        true => None,
        false => {
            let server = ServerId(settings.storage_of(node));
            let tree = PrivateTree::new(area(dir, settings, node)?, server, NodeId(node));
            Some(mount(Arc::new(tree), settings, settings.local_mount(node))?)
        }
    };
    let passthrough = mounted.passthrough();
    unmount_on_signal(mounted.unmounter(), Stuck::Serves, || {})?;
    let ways = Ways::of(settings, node);
    say(DaemonSaid::Ready(Some(ways.told(passthrough))))?;
    mounted.on_passthrough_change(passthrough, move |state| {
        if let Err(error) = say(DaemonSaid::Changed(ways.told(state))) {
            tracing::warn!(
                "the supervisor does not hear that passthrough is {}: {error:#}",
                state.describe()
            );
        }
    });
    mounted.wait().context("serve the mount")
}

/// How a node serves files whose bytes are on it, as `status` shows it.
#[derive(Clone, Copy)]
struct Ways {
    has_storage: bool,
    has_images: bool,
}

impl Ways {
    fn of(settings: &Settings, node: u16) -> Self {
        Self { has_storage: settings.has_storage(node), has_images: settings.image }
    }

    /// With passthrough as the mount has it.
    fn told(self, state: PassthroughState) -> MountTold {
        let why = match (state, self) {
            (PassthroughState::Used, Self { has_storage: false, .. }) => {
                "all files are on other nodes"
            }
            // Every write has to pass the server.
            (PassthroughState::Used, Self { has_images: false, .. }) => {
                "the servers count the sizes of areas that are no images"
            }
            (state, _) => state.describe().trim_start_matches("off: "),
        };
        match why {
            "used" => MountTold { path: "passthrough".to_owned(), why: String::new() },
            why => MountTold { path: "fuse".to_owned(), why: why.to_owned() },
        }
    }
}

/// The area, as a process of its own for the node's server: no mount is told what another holds.
fn area(dir: &JobDir, settings: &Settings, node: u16) -> anyhow::Result<AreaVolume> {
    let session = Session::connect(&dir.node(node).server_socket(), true)?;
    let how = AreaSettings { gathers: settings.gather, ..AreaSettings::mount() };
    AreaVolume::new(Arc::new(session), how).context("start the threads of the mount")
}

fn mount(
    volume: Arc<dyn Volume>,
    settings: &Settings,
    mount_point: PathBuf,
) -> anyhow::Result<Mounted> {
    let mut how = MountSettings::new(mount_point);
    how.name = MOUNT_NAME.to_owned();
    how.kernel_profile = profile(settings.kernel_profile);
    how.strict_names = settings.names == Names::Strict;
    how.map_remote = settings.mmap_shared == MmapShared::Everywhere;
    Ok(hayase_fuse::mount(volume, &how)?)
}

/// What becomes of a mount that can not be unmounted, because something else is mounted over it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stuck {
    /// It is served, and tried again at the next signal: a supervisor kills it when it is done.
    Serves,
    /// It is left there, dead: nobody else ends it.
    Ends,
}

/// Starts a thread that unmounts when somebody asks us to end, or when the supervisor has ended, and
/// then calls `unmounted`.
pub(super) fn unmount_on_signal(
    unmounter: Unmounter,
    stuck: Stuck,
    unmounted: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let wait = move || {
        loop {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            });
            tracing::info!("asked to end: unmounting");
            match unmounter.unmount(BUSY_PATIENCE) {
                Ok(()) => return unmounted(),
                Err(error) => {
                    let why = &error as &dyn std::error::Error;
                    tracing::error!(error = why, help = error.help(), "the mount stays");
                }
            }
            if stuck == Stuck::Ends {
                return unmounted();
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("start a thread for signals")?;
    Ok(())
}

fn profile(asked: Option<Asked>) -> KernelProfile {
    match asked {
        None => KernelProfile::Native,
        Some(Asked::V4_18) => KernelProfile::V4_18,
        Some(Asked::V6_1) => KernelProfile::V6_1,
        Some(Asked::V6_6) => KernelProfile::V6_6,
        Some(Asked::V6_9) => KernelProfile::V6_9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passthrough_is_told_where_a_file_can_have_it() {
        let check = |has_storage, has_images, state, path: &str, why: &str| {
            let told = Ways { has_storage, has_images }.told(state);
            assert_eq!(told.path, path, "{state:?}");
            assert!(told.why.contains(why) && told.why.is_empty() == why.is_empty(), "{told:?}");
        };
        use PassthroughState::{NoPrivilege, Refused, Used};
        check(true, true, Used, "passthrough", "");
        check(true, true, Refused, "fuse", "refused a part");
        check(true, false, Used, "fuse", "no images");
        check(true, false, NoPrivilege, "fuse", "CAP_SYS_ADMIN");
        check(false, true, Used, "fuse", "on other nodes");
    }
}
