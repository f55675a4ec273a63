//! A file one of whose servers ends between the write and fsync(2): a striped one in front of a tier, and those of
//! `shared`.

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

/// What two fsync(2) say after a server took a write to a file of `shared` and ended: with the power of its node or
/// without. The file is whole, on that server, or striped over all of them.
///
/// # Panics
/// When what goes before does not succeed.
pub fn synced_after_end_of_another(
    seed: u64,
    is_striped: bool,
    power: bool,
) -> [Result<(), i32>; 2] {
    LocalSet::new().block_on(&runtime(), async {
        let random = Random::new(seed);
        let job = Job::up(SERVERS, Network::new(random.split()), random.split()).await;
        let (writer, other) = (Seat::new(&job, 0).mount(), Seat::new(&job, 1).mount());
        let policy = StripePolicy { stripe: ByteCount(STRIPE), width: 0 };
        // Who makes a whole file has it.
        let maker = if is_striped { &writer } else { &other };
        let made = maker.create("f", is_striped.then_some(policy)).await;
        let ino = made.expect("made");
        let handle = writer.open(ino, WRITING).await.expect("opened");
        for value in [6, 7] {
            for stripe in 0..u64::from(SERVERS) {
                writer.write(&handle, stripe * STRIPE, value).await.expect("written");
            }
            if value == 6 {
                writer.fsync(ino).await.expect("synced");
            }
        }
        // Not that of the writer's own node, and of a striped file not its home: that tells the others apart.
        let ends = if is_striped && ino.home().0 == 1 { 2 } else { 1 };
        job.kill(ends, Death { pause: Some(Duration::from_millis(300)), power });
        tokio::time::sleep(Duration::from_secs(2)).await;
        job.all_ready().await;
        let mut said = [Ok(()); 2];
        for one in &mut said {
            *one = match writer.fsync(ino).await {
                Err(Failure::Refused(errno)) => Err(errno),
                other => {
                    other.expect("the mount lives");
                    Ok(())
                }
            };
        }
        said
    })
}
