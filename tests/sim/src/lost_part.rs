//! A striped file in front of a tier, one of whose servers ends between the write and fsync(2).

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_tier::{Key, Memory, Tier};
use hayase_wire::message::Access;
use tokio::task::LocalSet;

use crate::job::{Death, Job};
use crate::mount::{Failure, Mount, Seat};
use crate::network::Network;
use crate::random::Random;
use crate::run::runtime;

const SERVERS: u16 = 3;
const STRIPE: u64 = 4096;
const WRITING: Access = Access { read: false, write: true };
/// Longer than the longest pause before a flush is tried again.
const SETTLING: Duration = Duration::from_secs(100);

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterEnd {
    /// fsync(2) answered that all is durable.
    pub is_synced: bool,
    /// The tier has the file.
    pub is_in_tier: bool,
}

/// Ends one server of a file that is being written, not its home: with the power of its node or without.
///
/// # Panics
/// When what goes before does not succeed.
pub fn server_ends_before_fsync(seed: u64, power: bool) -> AfterEnd {
    LocalSet::new().block_on(&runtime(), async {
        let scene = Scene::new(seed, power).await;
        let is_synced = scene.is_synced(power).await;
        scene.after(is_synced).await
    })
}

/// The same with the power, and then the file is emptied and written again.
///
/// # Panics
/// When that does not succeed.
pub fn emptied_after_power_cut(seed: u64) -> AfterEnd {
    LocalSet::new().block_on(&runtime(), async {
        let scene = Scene::new(seed, true).await;
        assert!(!scene.is_synced(true).await, "some of it is lost");
        let Scene { mount, ino, .. } = &scene;
        mount.empty(*ino).await.expect("emptied");
        let handle = mount.open(*ino, WRITING).await.expect("opened");
        mount.write(&handle, 0, 8).await.expect("written");
        mount.close(handle).await.expect("closed");
        let is_synced = scene.is_synced(true).await;
        scene.after(is_synced).await
    })
}

/// A file some of whose bytes a server has acknowledged that ended then, and is there again.
struct Scene {
    _job: Rc<Job>,
    tier: Memory,
    mount: Rc<Mount>,
    ino: InodeId,
}

impl Scene {
    async fn new(seed: u64, power: bool) -> Self {
        let (random, tier) = (Random::new(seed), Memory::new());
        let network = Network::new(random.split());
        let job = Job::up_before(Some(tier.clone()), SERVERS, network, random.split()).await;
        let mount = Seat::new(&job, 0).mount();
        let ino = write(&job, &mount, power).await.expect("nothing stands against it");
        Self { _job: job, tier, mount, ino }
    }

    /// fsync(2), asked until it is answered; a refusal is an answer where it `may_fail`.
    async fn is_synced(&self, may_fail: bool) -> bool {
        loop {
            match self.mount.fsync(self.ino).await {
                Ok(()) => return true,
                Err(Failure::Refused(_)) if may_fail => return false,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn after(&self, is_synced: bool) -> AfterEnd {
        tokio::time::sleep(SETTLING).await;
        let is_in_tier = self.tier.stat(&Key::new("f").expect("a name")).is_ok();
        AfterEnd { is_synced, is_in_tier }
    }
}

async fn write(job: &Rc<Job>, mount: &Mount, power: bool) -> Result<InodeId, Failure> {
    let policy = Some(StripePolicy { stripe: ByteCount(STRIPE), width: 0 });
    let ino = mount.create_in(InodeId::CACHE_ROOT, "f", policy).await?;
    let handle = mount.open(ino, WRITING).await?;
    for stripe in 0..u64::from(SERVERS) {
        mount.write(&handle, stripe * STRIPE, 7).await?;
    }
    let other = (ino.home().0 + 1) % SERVERS;
    // Its node's own mount is no part of this.
    let other = if other == 0 { (ino.home().0 + 2) % SERVERS } else { other };
    job.kill(other, Death { pause: Some(Duration::from_millis(300)), power });
    tokio::time::sleep(Duration::from_secs(2)).await;
    job.all_ready().await;
    mount.close(handle).await?;
    Ok(ino)
}
