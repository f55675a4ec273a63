//! A job in front of a tier that fails, whose servers are killed and whose nodes lose power in the middle of flushes.
//!
//! One program on each node writes versions of its own files as programs do that want to survive: beside the file,
//! fsync(2), rename over it, fsync(2). A version is two or three equal values, so that half of one is seen; those of a
//! striped one lie on different servers.
//!
//! What must be true: at any moment the tier shows whole versions, none after a newer one; in the end, when nothing
//! fails any more, it has of every file the last version that fsync(2) answered for, or a later one that was begun,
//! and the mount shows the same; and nothing else is there, no second version and no file that nobody made.
//! Where a power cut ends the job ([`Plan::is_cut`]), the end is that of `hayase resume`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{ByteCount, InodeId, StripePolicy};
use hayase_tier::{Key, ListRequest, Memory, Tier};
use hayase_wire::message::Access;
use tokio::task::{JoinSet, LocalSet};

use crate::job::{Death, Job, Unsynced};
use crate::mount::{Failure, Mount, Seat, VALUE_BYTES};
use crate::network::Network;
use crate::random::Random;
use crate::resumed::{Outcome, resumed};
use crate::run::runtime;

const FILES: u64 = 3;
/// Where values of a striped version lie, each on another server.
const STRIPE: u64 = 4096;
const VERSIONS: u64 = 12;

/// Between two versions, and between two troubles.
const PAUSE: Duration = Duration::from_millis(800);
const TROUBLES: u64 = 10;
/// Until a server that died is started again.
const DEAD: Duration = Duration::from_millis(300);
/// Of 100 calls to the tier, while there are troubles.
const FAILING: u64 = 15;
/// Moments of calls to the tier, one of which is that of a death.
const MOMENTS: u64 = 24;

/// Between two looks at the tier.
const LOOK: Duration = Duration::from_millis(20);
/// When nothing fails any more: longer than the longest pause before a flush is tried again.
const SETTLING: Duration = Duration::from_secs(200);
/// A call that does not succeed is made again so often.
const TRIES: usize = 400;

/// What a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Starts of servers after the first of each.
    pub restarts: u64,
    /// Versions that fsync(2) answered for.
    pub synced: u64,
    /// Versions that the tier was seen to have.
    pub seen: u64,
}

/// What programs know of a file.
#[derive(Clone, Debug, Default)]
struct File {
    /// The last version that is there whatever happens.
    synced: u64,
    /// The last one that was begun.
    begun: u64,
}

struct World {
    job: Rc<Job>,
    plan: Plan,
    tier: Memory,
    files: RefCell<BTreeMap<String, File>>,
    /// What the tier showed of each, last.
    shown: RefCell<BTreeMap<String, u64>>,
    told: RefCell<(Flushed, Vec<String>)>,
}

/// How many servers there are, how many of 100 versions are striped over them, and how the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Servers, each with a program of its own.
    pub servers: u16,
    /// Of 100 versions.
    pub striped: u64,
    /// Every node loses power, none comes back, and the job is resumed. Otherwise single nodes lose power and come
    /// back, until nothing fails any more.
    pub is_cut: bool,
}

/// Two nodes, and files that lie whole on one of them.
pub const WHOLE: Plan = Plan { servers: 2, striped: 0, is_cut: false };

/// Three nodes, and files of both kinds.
pub const STRIPED: Plan = Plan { servers: 3, striped: 60, is_cut: false };

/// The same, where a power cut ends the job.
pub const WHOLE_CUT: Plan = Plan { is_cut: true, ..WHOLE };
/// See [`WHOLE_CUT`].
pub const STRIPED_CUT: Plan = Plan { is_cut: true, ..STRIPED };

/// Runs one seed.
///
/// # Errors
/// With all that was seen and must not be.
///
/// # Panics
/// When the machine has no memory or descriptors left.
pub fn flushing(seed: u64, plan: Plan) -> Result<Flushed, Vec<String>> {
    let runtime = runtime();
    let (flushed, violations) = LocalSet::new().block_on(&runtime, run(seed, plan));
    if violations.is_empty() { Ok(flushed) } else { Err(violations) }
}

async fn run(seed: u64, plan: Plan) -> (Flushed, Vec<String>) {
    let random = Random::new(seed);
    let tier = Memory::new();
    let network = Network::new(random.split());
    let job = Job::up_before(Some(tier.clone()), plan.servers, network, random.split()).await;
    let seats: Vec<_> = (0..plan.servers).map(|node| Seat::new(&job, node)).collect();
    let (files, shown, told) = (RefCell::default(), RefCell::default(), RefCell::default());
    let world = Rc::new(World { job, plan, tier, files, shown, told });
    let watching = tokio::task::spawn_local(Rc::clone(&world).watch());
    let mut programs = JoinSet::new();
    for seat in &seats {
        programs.spawn_local(Rc::clone(&world).write(Rc::clone(seat), random.split()));
    }
    let troubling = tokio::task::spawn_local(Rc::clone(&world).trouble(random.split()));
    if plan.is_cut {
        tokio::time::sleep(random.time(PAUSE * VERSIONS as u32)).await;
        world.job.end_by_power_cut(|_| Unsynced::Chance).await;
        programs.abort_all();
        troubling.abort();
        watching.abort();
        world.look();
        let Outcome { violations, conflicts } = resumed(&world.job, &world.tier);
        violations.into_iter().for_each(|what| world.violated(what));
        world.look();
        world.check_tier(&conflicts);
    } else {
        while let Some(ended) = programs.join_next().await {
            ended.expect("programs do not panic");
        }
        troubling.await.expect("no panic");
        for server in 0..plan.servers {
            world.job.before_tier(server).disarm();
        }
        world.job.all_ready().await;
        tokio::time::sleep(SETTLING).await;
        watching.abort();
        world.look();
        world.check_tier(&[]);
        world.check_mount(&seats[0].mount()).await;
    }
    for complaint in world.job.complaints() {
        world.violated(complaint);
    }
    let (mut flushed, violations) = world.told.take();
    flushed.restarts = world.job.lives() - u64::from(plan.servers);
    (flushed, violations)
}

impl World {
    fn violated(&self, what: impl Into<String>) {
        self.told.borrow_mut().1.push(what.into());
    }

    /// One program.
    async fn write(self: Rc<Self>, seat: Rc<Seat>, random: Random) {
        for _ in 0..VERSIONS {
            let name = format!("f{}-{}", seat.node, random.below(FILES));
            let version = {
                let mut files = self.files.borrow_mut();
                let file = files.entry(name.clone()).or_default();
                file.begun += 1;
                file.begun
            };
            let is_striped = self.plan.striped > 0 && random.chance(self.plan.striped);
            if self.replace(&seat.mount(), &name, version, is_striped).await.is_ok() {
                let mut files = self.files.borrow_mut();
                files.entry(name).or_default().synced = version;
                self.told.borrow_mut().0.synced += 1;
            }
            tokio::time::sleep(random.time(PAUSE)).await;
        }
    }

    /// A version beside the file, then over it. An error: nobody knows how far that came.
    async fn replace(
        &self,
        mount: &Mount,
        name: &str,
        version: u64,
        is_striped: bool,
    ) -> Result<(), Failure> {
        let (top, beside) = (InodeId::CACHE_ROOT, format!("{name}.new-{version}"));
        let policy = is_striped.then_some(StripePolicy { stripe: ByteCount(STRIPE), width: 0 });
        let places = if is_striped { STRIPED_PLACES } else { WHOLE_PLACES };
        let ino = mount.create_in(top, &beside, policy).await?;
        let handle = mount.open(ino, Access { read: false, write: true }).await?;
        let mut written = Ok(());
        for place in places {
            written = written.and(mount.write(&handle, *place, version).await.map(drop));
        }
        let written = written.and(mount.fsync(ino).await);
        mount.close(handle).await?;
        written?;
        mount.rename_in(top, &beside, name).await?;
        mount.fsync(ino).await
    }

    /// What happens to servers, nodes and calls to the tier meanwhile.
    async fn trouble(self: Rc<Self>, random: Random) {
        for server in 0..self.plan.servers {
            self.job.before_tier(server).fail(FAILING, random.split());
        }
        for _ in 0..TROUBLES {
            tokio::time::sleep(random.time(PAUSE)).await;
            let server = random.below(u64::from(self.plan.servers)) as u16;
            let death = Death { pause: Some(DEAD), power: random.chance(50) && !self.plan.is_cut };
            if random.chance(25) {
                self.job.kill(server, death);
            } else {
                self.job.kill_at_call(server, 1 + random.below(MOMENTS), death);
            }
        }
    }

    /// Looks at the tier as anybody may, again and again.
    async fn watch(self: Rc<Self>) {
        loop {
            self.look();
            tokio::time::sleep(LOOK).await;
        }
    }

    fn look(&self) {
        let names: Vec<String> = self.files.borrow().keys().cloned().collect();
        for name in names {
            let Some(bytes) = self.in_tier(&name) else { continue };
            let version = match version_of(&bytes) {
                Ok(version) => version,
                Err(what) => return self.violated(format!("{name} in the tier: {what}")),
            };
            let last = self.shown.borrow_mut().insert(name.clone(), version);
            match last {
                Some(last) if version < last => {
                    self.violated(format!("{name} in the tier: version {version} after {last}"));
                }
                Some(last) if version == last => {}
                _ => self.told.borrow_mut().0.seen += 1,
            }
        }
    }

    fn in_tier(&self, name: &str) -> Option<Vec<u8>> {
        let reader = self.tier.open(&Key::new(name).expect("a name")).ok()?;
        let mut bytes = vec![0; 4 * STRIPE as usize];
        let read = reader.read_at(0, &mut bytes).expect("memory can be read");
        bytes.truncate(read);
        Some(bytes)
    }

    /// What is in the tier when all is over. `conflicts`: second versions of which `hayase resume` told.
    fn check_tier(&self, conflicts: &[String]) {
        let files = self.files.borrow().clone();
        for (name, file) in &files {
            let found = match self.in_tier(name).map(|bytes| version_of(&bytes)) {
                Some(Ok(version)) => version,
                Some(Err(_)) => continue, // It is among the violations already.
                None => 0,
            };
            let is_later = (file.synced..=file.begun).contains(&found);
            if !is_later && !self.is_under_former_name(name, file.synced) {
                self.violated(format!("{name} in the tier: version {found} where {file:?}"));
            }
        }
        let known: BTreeSet<String> = files.keys().cloned().collect();
        let page = self.tier.list(&ListRequest::all("")).expect("memory can be listed");
        for entry in page.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let of = name.split(".new-").next().unwrap_or_default();
            let is_told = conflicts.contains(&name) && self.is_spare(&name);
            // What was being written when its node died has another name than its file, and only that.
            if !known.contains(of) || name.contains("hayase") && !is_told {
                self.violated(format!("{name} is in the tier, and nobody made it"));
            }
        }
    }

    /// Whether a second version is of a name that no fsync(2) after a rename has answered for. A create that was made again,
    /// since a server was killed in its middle, leaves two files of one name, and the power went before one of them
    /// ended: there is no promise which one gets the name, if it is no worse than the other.
    fn is_spare(&self, name: &str) -> bool {
        let is_whole =
            |name: &str| self.in_tier(name).is_some_and(|found| version_of(&found).is_ok());
        let Some((of, _)) = name.split_once(".hayase-conflict-") else { return false };
        of.contains(".new-") && self.in_tier(of).is_some() && (is_whole(of) || !is_whole(name))
    }

    /// The tier failed while the version was renamed over the former one, and then all nodes lost power.
    fn is_under_former_name(&self, name: &str, version: u64) -> bool {
        let temporary = self.in_tier(&format!("{name}.new-{version}"));
        self.plan.is_cut && temporary.is_some_and(|bytes| version_of(&bytes) == Ok(version))
    }

    /// Programs see what the tier has.
    async fn check_mount(&self, mount: &Mount) {
        let names: Vec<String> = self.files.borrow().keys().cloned().collect();
        for name in names {
            let found = match self.in_tier(&name).map(|bytes| version_of(&bytes)) {
                Some(Ok(version)) => version,
                Some(Err(_)) => continue, // That was told.
                None => 0,
            };
            match self.in_mount(mount, &name).await {
                Ok(shown) if shown == found => {}
                Err(_) if found == 0 => {}
                shown => self.violated(format!("{name}: {shown:?} here, {found} in the tier")),
            }
        }
    }

    async fn in_mount(&self, mount: &Mount, name: &str) -> Result<u64, Failure> {
        let mut last = Err(Failure::Gone);
        for _ in 0..TRIES {
            last = Self::read(mount, name).await;
            match last {
                Err(failure) if failure.is_unknown() => tokio::time::sleep(LOOK).await,
                _ => break,
            }
        }
        last
    }

    async fn read(mount: &Mount, name: &str) -> Result<u64, Failure> {
        let ino = mount.lookup_in(InodeId::CACHE_ROOT, name).await?;
        let handle = mount.open(ino, Access { read: true, write: false }).await?;
        let first = mount.read(&handle, 0).await;
        mount.close(handle).await?;
        first
    }
}

/// Where the values of a version are.
const WHOLE_PLACES: &[u64] = &[0, VALUE_BYTES as u64];
const STRIPED_PLACES: &[u64] = &[0, STRIPE, 2 * STRIPE];

/// Equal values in all places, and nothing else, make a version.
fn version_of(bytes: &[u8]) -> Result<u64, String> {
    let is_striped = bytes.len() as u64 > STRIPE;
    let places = if is_striped { STRIPED_PLACES } else { WHOLE_PLACES };
    let mut expected = vec![0; places[places.len() - 1] as usize + VALUE_BYTES];
    let half = || {
        let values = bytes.iter().filter(|byte| **byte != 0).collect::<Vec<_>>();
        format!("half of a version: {} bytes, {values:?}", bytes.len())
    };
    let value = bytes.first_chunk::<VALUE_BYTES>().ok_or_else(half)?;
    for place in places {
        expected[*place as usize..][..VALUE_BYTES].copy_from_slice(value);
    }
    if bytes == expected { Ok(u64::from_le_bytes(*value)) } else { Err(half()) }
}
