//! The storage of the nodes of a job without their servers: ledgers and parts, and the tier.

use std::cell::OnceCell;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hayase_layout::ServerId;
use hayase_server::{LeftNode, LeftNodes, ResumedJob, SalvagedFile};
use hayase_store::{CountedArea, Damage, FileState, ImageArea, LedgerRecord, MountedArea};
use hayase_tier::Tier;
use hayase_wire::message::Refused;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::places;
use crate::job::{Settings, is_ours, ledgers};
use crate::system::mounts::is_mount_point;
use crate::system::{holders, open_files};

pub(crate) use hayase_server::{Resumed, Resuming};

/// Processes that were killed a moment ago let go of their files within this: also one that waits for storage out of
/// reach, which the kernel ends only when that answers.
const LET_GO_WAIT: Duration = Duration::from_secs(30);
/// The same where `hayase down` asks, which has more to do and can be called again.
const UNUSED_WAIT: Duration = Duration::from_secs(5);
const LET_GO_STEP: Duration = Duration::from_millis(50);
/// What is busy for longer while no process has a file of it: another mount namespace has a copy of the job's mounts,
/// whose plain files the kernel keeps, or somebody stands in it.
const UNSEEN_WAIT: Duration = Duration::from_secs(2);

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
        Self::of(settings, ledgers::all(settings)?)
    }

    /// The same where nothing that the ledgers say is believed.
    pub(crate) fn to_salvage(settings: &'a Settings) -> anyhow::Result<Self> {
        Self::of(settings, Vec::new())
    }

    fn of(settings: &'a Settings, records: Vec<LedgerRecord>) -> anyhow::Result<Self> {
        let tier = settings.tier.as_ref().context("the job had no tier")?;
        let tier = places::open_tier(tier).context("open the tier")?.tier;
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

    /// Brings every file of `node` whose bytes are here; answers where its ledger can not be read. Images are mounted
    /// from here on.
    pub(crate) fn salvage(
        &self,
        node: u16,
        told: impl FnMut(SalvagedFile),
    ) -> anyhow::Result<Vec<Damage>> {
        let salvaged = ledgers::salvage(self.settings, node)?;
        let tier = self.settings.tier.as_ref().context("the job had no tier")?;
        let owner = self.settings.owner_in_tier(node);
        let own = places::open_owned(tier, &owner).context("open the tier")?;
        let home = (ServerId(node), &salvaged.records);
        hayase_server::salvage(self.settings.job.as_str(), home, &self.nodes, &*own.tier, told)?;
        Ok(salvaged.damage)
    }

    /// Makes durable what the tier does not have, and what is here of files that other nodes miss.
    pub(crate) fn seal(&self, node: u16) -> anyhow::Result<()> {
        if !self.settings.has_storage(node) {
            return Ok(());
        }
        Ok(self.nodes.open(node)?.seal(&mut ledgers::open(self.settings, node)?)?)
    }

    /// Why names of nodes can not be read that were wanted so far.
    pub(crate) fn unread_names(&self) -> Vec<String> {
        let opened = self.nodes.opened.iter().filter_map(OnceCell::get);
        opened.filter_map(|opened| Some(opened.left.unread_names()?.to_string())).collect()
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

/// Makes durable what is kept of a node whose server has just ended and whose areas are as it left them: the machine may be
/// switched off before anybody resumes the job.
fn seal(settings: &Settings, node: u16) -> anyhow::Result<()> {
    if !settings.has_storage(node) || !settings.ledger(node).exists() {
        return Ok(());
    }
    let (root, server) = (settings.shared_root(node), ServerId(node));
    let left = match settings.image {
        true if is_mount_point(&root)? => LeftNode::of(server, &MountedArea::open(&root)?)?,
        true => return Ok(()), // It was unmounted, and that made it durable.
        false => LeftNode::of(server, &CountedArea::open(&root, settings.shared)?)?,
    };
    Ok(left.seal(&mut ledgers::open(settings, node)?)?)
}

/// Leaves the storage of a node whose server has ended as `hayase resume` takes it: with the settings of the job, a list of
/// what the tier does not have, and all of that durable. Answers what could not be done.
pub(crate) fn keep_node(settings: &Settings, node: u16) -> Vec<String> {
    if settings.tier.is_none() || !settings.has_storage(node) {
        return Vec::new();
    }
    let storage = settings.node_storage(node);
    if !storage.exists() {
        let is_gone = ledgers::is_in_tier(settings, node);
        let what = format!(
            "its storage {} is not there: is it mounted? If it is gone for good: `hayase down --discard`",
            storage.display()
        );
        return if is_gone { Vec::new() } else { vec![what] };
    }
    if !is_ours(settings) {
        return vec![format!("{} is not the storage of this job", storage.display())];
    }
    let written =
        ledgers::keep_for_resume(settings).and_then(|()| ledgers::write_list(settings, node));
    let sealed =
        seal(settings, node).context("not made durable, so do not switch this machine off");
    let failed = [written, sealed].into_iter().filter_map(Result::err);
    failed.map(|error| format!("{error:#}")).collect()
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
        // Its servers were killed, or are not of this job's record: who uses it stays, in whichever mount namespace.
        wait_until_unused(std::slice::from_ref(&root), LET_GO_WAIT)?;
        if is_mount_point(&root)? && unmount_unused(&root)? == Unmounted::Unseen {
            let as_it_is = MountedArea::open(&root)?;
            return Ok(Opened { left: LeftNode::of(server, &as_it_is)?, image: None });
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
        // Its ledger may be all that is gone.
        let places = [self.settings.ledger(server.0), self.settings.shared_root(server.0)];
        if !places.iter().any(|place| place.exists()) {
            let why = format!("the storage of node {server} is not found here");
            return Err(Refused::because(Errno::NXIO.raw_os_error(), why));
        }
        self.open(server.0).map_err(|error| {
            let why = format!("the storage of node {server} can not be read: {error:#}");
            Refused::because(Errno::IO.raw_os_error(), why)
        })
    }
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
enum Unmounted {
    Done,
    /// It is busy, and no process has a file of it.
    Unseen,
}

/// Unmounts what no process uses.
fn unmount_unused(root: &Path) -> anyhow::Result<Unmounted> {
    let until = Instant::now() + UNSEEN_WAIT;
    loop {
        match unmount(root, UnmountFlags::empty()) {
            Ok(()) => return Ok(Unmounted::Done),
            Err(Errno::BUSY) if Instant::now() < until => std::thread::sleep(LET_GO_STEP),
            Err(Errno::BUSY) => return Ok(Unmounted::Unseen),
            Err(errno) => {
                return Err(errno).with_context(|| format!("unmount {}", root.display()));
            }
        }
    }
}

/// Waits until no process has a file of what is mounted at these places, whose bytes it may reach without any server.
///
/// # Errors
/// One still has after `patience`, and means to.
fn wait_until_unused(points: &[PathBuf], patience: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + patience;
    let mut is_told = false;
    loop {
        let users = open_files::holders(points);
        if users.is_empty() {
            return Ok(());
        }
        let who = holders::named(&users);
        if Instant::now() >= until {
            bail!("files of the job are still open in {who}: end these processes first");
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("waiting for {who}, with files of the job open");
        }
        std::thread::sleep(LET_GO_STEP);
    }
}

/// Waits for the programs of a killed job, and whoever else has files of its areas open.
///
/// # Errors
/// Who still has one after [`LET_GO_WAIT`].
pub(crate) fn wait_for_programs(settings: &Settings) -> anyhow::Result<()> {
    let points: Vec<_> = (0..settings.nodes).flat_map(|node| kept_places(settings, node)).collect();
    wait_until_unused(&points, LET_GO_WAIT)
}

/// Fails while a process has a file of a node's areas open, for whose end nobody waited.
///
/// # Errors
/// Who has one.
pub(crate) fn expect_unused(settings: &Settings, node: u16) -> anyhow::Result<()> {
    let points: Vec<_> = kept_places(settings, node).collect();
    wait_until_unused(&points, UNUSED_WAIT)
}

/// Where files of a node are seen whose bytes are kept; those of `local` are not.
fn kept_places(settings: &Settings, node: u16) -> impl Iterator<Item = PathBuf> {
    let mounts = iter::once(settings.shared_mount(node)).chain(settings.cache_mount(node));
    mounts.chain(iter::once(settings.shared_root(node)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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
        let mut holder = Command::new("cat").stdin(Stdio::piped()).stdout(held).spawn().unwrap();
        let stdin = holder.stdin.take();
        assert_eq!(unmount(root.path(), UnmountFlags::empty()), Err(Errno::BUSY));
        let points = [root.path().to_owned()];
        let who = wait_until_unused(&points, Duration::ZERO).unwrap_err().to_string();
        assert!(who.contains(&format!("{} (", holder.id())) && who.contains("end these"), "{who}");
        // It lets go while it is waited for, or before.
        let lets_go = std::thread::spawn(move || {
            std::thread::sleep(4 * LET_GO_STEP);
            drop(stdin);
        });
        wait_until_unused(&points, LET_GO_WAIT).unwrap();
        lets_go.join().unwrap();
        holder.wait().unwrap();
        assert_eq!(unmount_unused(root.path()).unwrap(), Unmounted::Done);
        let again = unmount_unused(root.path()).unwrap_err();
        assert_eq!(again.downcast_ref(), Some(&Errno::INVAL), "it is no mount any more");
    }

    #[test]
    fn what_no_process_holds_is_not_waited_for_without_end() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        let mounted = mount("resume", root.path(), "tmpfs", MountFlags::empty(), None);
        if let Err(errno) = mounted {
            return println!("SKIP what_no_process_holds: a tmpfs is not to be mounted: {errno}");
        }
        std::fs::create_dir(&inner).unwrap();
        mount("resume", &inner, "tmpfs", MountFlags::empty(), None).unwrap();
        assert_eq!(unmount_unused(root.path()).unwrap(), Unmounted::Unseen);
        unmount(&inner, UnmountFlags::empty()).unwrap();
        assert_eq!(unmount_unused(root.path()).unwrap(), Unmounted::Done);
    }
}
