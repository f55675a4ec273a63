//! The storage of the nodes of a job without their servers: ledgers and parts, and the tier.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hayase_layout::ServerId;
use hayase_server::{LeftNode, LeftNodes, ResumedJob};
use hayase_store::{CountedArea, FileState, ImageArea, LedgerRecord};
use hayase_tier::Tier;
use hayase_wire::message::Refused;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::places;
use crate::job::{Settings, ledgers};
use crate::launch::holders;
use crate::launch::mounts::is_mount_point;

pub(crate) use hayase_server::{Resumed, Resuming};

/// Processes that were killed a moment ago let go of their files within this: also one that waits for storage out of
/// reach, which the kernel ends only when that answers.
const LET_GO_WAIT: Duration = Duration::from_secs(30);
const LET_GO_STEP: Duration = Duration::from_millis(50);

/// What a job left on the nodes of this machine.
pub(crate) struct Left<'a> {
    settings: &'a Settings,
    tier: Arc<dyn Tier>,
    job: ResumedJob,
    /// Tombstones of all nodes that are here.
    pub(crate) removals: u64,
    nodes: Nodes<'a>,
}

impl<'a> Left<'a> {
    pub(crate) fn find(settings: &'a Settings) -> anyhow::Result<Self> {
        let tier = settings.tier.as_ref().context("the job had no tier")?;
        let tier = places::open_tier(tier).context("open the tier")?.tier;
        let records = ledgers::all(settings)?;
        let is_removal = |record: &&LedgerRecord| record.state == FileState::Removed;
        let removals = records.iter().filter(is_removal).count() as u64;
        let job = ResumedJob::new(records);
        Ok(Self { settings, tier, job, removals, nodes: Nodes::of(settings) })
    }

    /// Flushes what the ledger of `node` says is not durable; images are mounted from here on.
    pub(crate) fn files(&mut self, node: u16, told: impl FnMut(Resumed)) -> anyhow::Result<()> {
        let left = ledgers::not_durable(self.settings, node)?;
        if left.iter().all(|record| record.state == FileState::Removed) {
            return Ok(());
        }
        self.nodes.open(node)?;
        let tier = self.settings.tier.as_ref().context("the job had no tier")?;
        let owner = self.settings.owner_in_tier(node);
        let own = places::open_owned(tier, &owner).context("open the tier")?;
        let mut ledger = ledgers::open(self.settings, node)?;
        let home = (ServerId(node), &mut ledger);
        Ok(self.job.files(home, &self.nodes, &*own.tier, told)?)
    }

    /// Makes durable what is here of files that other nodes miss.
    pub(crate) fn sync_parts(&self, node: u16) -> anyhow::Result<()> {
        if !self.settings.has_storage(node) {
            return Ok(());
        }
        Ok(self.nodes.open(node)?.sync_parts()?)
    }

    /// No file is read any more.
    pub(crate) fn unmount(&mut self) -> anyhow::Result<()> {
        std::mem::replace(&mut self.nodes, Nodes::of(self.settings)).unmount()
    }

    /// Removes from the tier what the job had removed, after the files of all nodes of the job.
    pub(crate) fn removals(&self, node: u16, told: impl FnMut(Resumed)) -> anyhow::Result<()> {
        if ledgers::not_durable(self.settings, node)?.is_empty() {
            return Ok(());
        }
        let mut ledger = ledgers::open(self.settings, node)?;
        Ok(self.job.removals(&mut ledger, &*self.tier, told)?)
    }
}

/// The storage of each node, opened when something of it is wanted: a striped file lies on many.
struct Nodes<'a> {
    settings: &'a Settings,
    opened: Vec<OnceCell<Opened>>,
}

/// The order matters: what is open in an image goes before its mount.
struct Opened {
    left: LeftNode,
    image: Option<ImageArea>,
}

impl<'a> Nodes<'a> {
    fn of(settings: &'a Settings) -> Self {
        let opened = (0..settings.nodes).map(|_| OnceCell::new()).collect();
        Self { settings, opened }
    }

    fn open(&self, node: u16) -> anyhow::Result<&LeftNode> {
        let cell = self.opened.get(usize::from(node));
        let cell = cell.with_context(|| format!("the job had no node {node}"))?;
        if let Some(opened) = cell.get() {
            return Ok(&opened.left);
        }
        let opened = self.open_area(node)?;
        Ok(&cell.get_or_init(|| opened).left)
    }

    /// An image is mounted.
    fn open_area(&self, node: u16) -> anyhow::Result<Opened> {
        let (root, server) = (self.settings.shared_root(node), ServerId(node));
        if !self.settings.image {
            let area = CountedArea::open(&root, self.settings.shared)?;
            return Ok(Opened { left: LeftNode::of(server, &area)?, image: None });
        }
        if is_mount_point(&root) {
            // Its servers were killed, or are not of this job's record. Not by force: who uses it stays.
            unmount_when_free(&root).with_context(|| {
                let who = holders::named(&holders::anywhere(&root));
                format!("{} is mounted and used by {who}", root.display())
            })?;
        }
        let image = ImageArea::open(&root.with_extension("img"), &root)?;
        Ok(Opened { left: LeftNode::of(server, &image)?, image: Some(image) })
    }

    fn unmount(self) -> anyhow::Result<()> {
        for opened in self.opened.into_iter().filter_map(OnceCell::into_inner) {
            let Opened { left, image } = opened;
            drop(left);
            if let Some(image) = image {
                image.unmount()?;
            }
        }
        Ok(())
    }
}

impl LeftNodes for Nodes<'_> {
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused> {
        if !self.settings.ledger(server.0).exists() {
            let why = format!("the storage of node {server} is not found here");
            return Err(Refused::because(Errno::NXIO.raw_os_error(), why));
        }
        self.open(server.0).map_err(|error| {
            let why = format!("the storage of node {server} can not be read: {error:#}");
            Refused::because(Errno::IO.raw_os_error(), why)
        })
    }
}

/// Unmounts `root` as soon as nobody uses it; who still does after [`LET_GO_WAIT`] means to.
fn unmount_when_free(root: &Path) -> Result<(), Errno> {
    let until = Instant::now() + LET_GO_WAIT;
    loop {
        match unmount(root, UnmountFlags::empty()) {
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(LET_GO_STEP),
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, mount};

    use super::*;

    #[test]
    fn who_lets_go_late_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        match mount("resume", root.path(), "tmpfs", MountFlags::empty(), None) {
            Ok(()) => {}
            Err(errno) => {
                return println!("SKIP who_lets_go_late: a tmpfs is not to be mounted: {errno}");
            }
        }
        let held = std::fs::File::create(root.path().join("held")).unwrap();
        assert_eq!(unmount(root.path(), UnmountFlags::empty()), Err(Errno::BUSY));
        let holder = std::thread::spawn(move || {
            std::thread::sleep(3 * LET_GO_STEP);
            drop(held);
        });
        assert_eq!(unmount_when_free(root.path()), Ok(()));
        holder.join().unwrap();
        assert_eq!(unmount_when_free(root.path()), Err(Errno::INVAL), "it is no mount any more");
    }
}
