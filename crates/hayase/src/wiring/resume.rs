//! The storage of a node without its server: its ledger and parts, and the tier.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hayase_server::ResumedJob;
use hayase_store::{Area, CountedArea, FileState, ImageArea, LedgerRecord, Parts};
use hayase_tier::Tier;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::places;
use crate::job::{Settings, ledgers};
use crate::launch::holders;
use crate::launch::mounts::is_mount_point;

pub(crate) use hayase_server::{Resumed, Resuming};

/// Parts that are kept open at once.
const PARTS_OPEN_MAX: usize = 64;

/// Processes that were killed a moment ago let go of their files within this.
const LET_GO_WAIT: Duration = Duration::from_secs(10);
const LET_GO_STEP: Duration = Duration::from_millis(50);

/// What a job left on the nodes of this machine.
pub(crate) struct Left<'a> {
    settings: &'a Settings,
    tier: Arc<dyn Tier>,
    job: ResumedJob,
    /// Tombstones of all nodes that are here.
    pub(crate) removals: u64,
}

impl<'a> Left<'a> {
    pub(crate) fn find(settings: &'a Settings) -> anyhow::Result<Self> {
        let tier = settings.tier.as_ref().context("the job had no tier")?;
        let tier = places::open_tier(tier).context("open the tier")?.tier;
        let records = ledgers::all(settings)?;
        let is_removal = |record: &&LedgerRecord| record.state == FileState::Removed;
        let removals = records.iter().filter(is_removal).count() as u64;
        Ok(Self { settings, tier, job: ResumedJob::new(records), removals })
    }

    /// Flushes what the ledger of `node` says is not durable; an image is mounted meanwhile.
    pub(crate) fn files(&mut self, node: u16, told: impl FnMut(Resumed)) -> anyhow::Result<()> {
        let left = ledgers::not_durable(self.settings, node)?;
        if left.iter().all(|record| record.state == FileState::Removed) {
            return Ok(());
        }
        let root = self.settings.shared_root(node);
        if !self.settings.image {
            return self.flush(node, &CountedArea::open(&root, self.settings.shared)?, told);
        }
        if is_mount_point(&root) {
            // Its servers were killed, or are not of this job's record. Not by force: who uses it stays.
            unmount_when_free(&root).with_context(|| {
                let who = holders::named(&holders::of(&root));
                format!("{} is mounted and used by {who}", root.display())
            })?;
        }
        let image = ImageArea::open(&root.with_extension("img"), &root)?;
        let flushed = self.flush(node, &image, told);
        image.unmount()?;
        flushed
    }

    fn flush(
        &mut self,
        node: u16,
        area: &dyn Area,
        told: impl FnMut(Resumed),
    ) -> anyhow::Result<()> {
        let tier = self.settings.tier.as_ref().context("the job had no tier")?;
        let owner = self.settings.owner_in_tier(node);
        let own = places::open_owned(tier, &owner).context("open the tier")?;
        let mut ledger = ledgers::open(self.settings, node)?;
        let parts = Parts::open(area.parts()?, PARTS_OPEN_MAX);
        Ok(self.job.files(&mut ledger, &parts, &*own.tier, told)?)
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
