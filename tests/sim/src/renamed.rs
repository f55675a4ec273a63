//! A file that is renamed over another one, and nodes that lose power right after the answer: nothing was synced
//! after the rename, and its new name stays. And one that is made, and not synced before that.

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_tier::Memory;
use hayase_wire::message::Access;
use tokio::task::LocalSet;

use crate::check::storage;
use crate::job::{Death, Job};
use crate::mount::{EIO, Failure, Mount, Seat};
use crate::network::Network;
use crate::random::Random;
use crate::run::runtime;

const SERVERS: u16 = 3;
const DEAD: Duration = Duration::from_millis(300);
/// Longer than it takes to finish what a restart finds, and to bring a file to the tier.
const SETTLING: Duration = Duration::from_secs(100);
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(500);

const OLD: u64 = 1;
const NEW: u64 = 2;

/// Node 0 renames; the nodes that made the two files follow from the seed, as the shards of their names do, but the
/// new one is not made there: what is all on one node goes with it, and with the process. Then the
/// nodes of `ends` lose power. With `is_cached` in front of a tier.
///
/// # Errors
/// What was seen and must not be.
///
/// # Panics
/// When what goes before does not succeed.
pub fn renamed_before_power_cut(
    seed: u64,
    ends: &[u16],
    is_cached: bool,
) -> Result<(), Vec<String>> {
    let wrong = LocalSet::new().block_on(&runtime(), async {
        let (random, tier) = (Random::new(seed), is_cached.then(Memory::new));
        let network = Network::new(random.split());
        let job = Job::up_before(tier, SERVERS, network, random.split()).await;
        let seats: Vec<_> = (0..SERVERS).map(|node| Seat::new(&job, node)).collect();
        let top = if is_cached { InodeId::CACHE_ROOT } else { InodeId::ROOT };
        let (name, beside) = (format!("f{seed}"), format!("f{seed}.new"));
        let maker = |at: u64| seats[at as usize].mount();
        make(&maker(random.below(3)), top, &name, OLD).await.expect("nothing stands against it");
        let renamed = make(&maker(1 + random.below(2)), top, &beside, NEW)
            .await
            .expect("nothing stands against it");
        seats[0].mount().rename_in(top, &beside, &name).await.expect("renamed");
        for server in ends {
            job.kill(*server, Death { pause: Some(DEAD), power: true });
        }
        tokio::time::sleep(DEAD * 2).await;
        job.all_ready().await;
        tokio::time::sleep(SETTLING).await;
        look(&job, &seats[0], top, (&name, renamed, &beside)).await
    });
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// A file of `shared` that is renamed over another one, both made on node 0, before node `lost` is gone for good: where
/// the name can still be looked up, it can be removed. Tells whether it could.
///
/// # Errors
/// When it can not be removed.
///
/// # Panics
/// When what goes before does not succeed.
pub fn renamed_before_loss(seed: u64, lost: u16) -> Result<bool, String> {
    LocalSet::new().block_on(&runtime(), async {
        let random = Random::new(seed);
        let network = Network::new(random.split());
        let job = Job::up(SERVERS, network, random.split()).await;
        let (seat, top) = (Seat::new(&job, 0), InodeId::ROOT);
        let (name, beside) = (format!("f{seed}"), format!("f{seed}.new"));
        make(&seat.mount(), top, &name, OLD).await.expect("nothing stands against it");
        make(&seat.mount(), top, &beside, NEW).await.expect("nothing stands against it");
        seat.mount().rename(&beside, &name).await.expect("renamed");
        job.kill(lost, Death { pause: None, power: true });
        tokio::time::sleep(SETTLING).await;
        if read(&seat, top, &name).await.is_err() {
            return Ok(false); // its shard is lost
        }
        match seat.mount().unlink(&name).await {
            Ok(_) => Ok(true),
            Err(failure) => Err(format!("{name} can not be removed: {failure:?}")),
        }
    })
}

/// A new file of `shared` whose fsync(2) comes after a power cut of another node than its own: answered with success it
/// is there under its name. Tells whether it was.
///
/// # Errors
/// When it is not.
///
/// # Panics
/// When what goes before does not succeed.
pub fn made_before_power_cut(seed: u64, ends: u16) -> Result<bool, String> {
    LocalSet::new().block_on(&runtime(), async {
        let random = Random::new(seed);
        let network = Network::new(random.split());
        let job = Job::up(SERVERS, network, random.split()).await;
        let (seat, name) = (Seat::new(&job, 0), format!("f{seed}"));
        let ino = seat.mount().create(&name, None).await.expect("nothing stands against it");
        job.kill(ends, Death { pause: Some(DEAD), power: true });
        tokio::time::sleep(DEAD * 2).await;
        job.all_ready().await;
        let synced = seat.mount().fsync(ino).await;
        let found = read(&seat, InodeId::ROOT, &name).await.map(|(ino, _)| ino);
        match (synced, found) {
            (Ok(()), Ok(found)) if found == ino => Ok(true),
            (Err(Failure::Refused(EIO)), Err(_)) => Ok(false),
            other => Err(format!("{name}, which is {ino}: {other:?}")),
        }
    })
}

/// A file that is synced.
pub(crate) async fn make(
    mount: &Mount,
    top: InodeId,
    name: &str,
    value: u64,
) -> Result<InodeId, Failure> {
    let ino = mount.create_in(top, name, None).await?;
    let handle = mount.open(ino, Access { read: false, write: true }).await?;
    mount.write(&handle, 0, value).await?;
    mount.fsync(ino).await?;
    mount.close(handle).await?;
    Ok(ino)
}

/// What is there in the end and must not be, or the other way round.
async fn look(
    job: &Rc<Job>,
    seat: &Seat,
    top: InodeId,
    (name, renamed, beside): (&str, InodeId, &str),
) -> Vec<String> {
    let mut wrong = job.complaints();
    match read(seat, top, name).await {
        Ok((ino, NEW)) if ino == renamed => {}
        other => wrong.push(format!("{name}: {other:?}, not {renamed} with {NEW}")),
    }
    if let Ok(found) = read(seat, top, beside).await {
        wrong.push(format!("{beside} is still there: {found:?}"));
    }
    wrong.extend(storage::check(job));
    wrong
}

async fn read(seat: &Seat, top: InodeId, name: &str) -> Result<(InodeId, u64), Failure> {
    let mut found = Err(Failure::Gone);
    for _ in 0..TRIES {
        found = read_once(&seat.mount(), top, name).await;
        match found {
            Err(failure) if failure.is_unknown() => tokio::time::sleep(PAUSE).await,
            _ => break,
        }
    }
    found
}

async fn read_once(mount: &Mount, top: InodeId, name: &str) -> Result<(InodeId, u64), Failure> {
    let ino = mount.lookup_in(top, name).await?;
    let handle = mount.open(ino, Access { read: true, write: false }).await?;
    let value = mount.read(&handle, 0).await;
    mount.close(handle).await?;
    Ok((ino, value?))
}
