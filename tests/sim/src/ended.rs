//! What programs did just before every node lost power, and what `hayase resume` makes of it: each story with every
//! kind of storage of every node that keeps all or nothing of what was not synced.
//!
//! Seeds of [`crate::flushing`] found them when a node that had lost power came back into a running job.

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_tier::{Key, ListRequest, Memory, Tier};
use tokio::task::LocalSet;

use crate::job::{Job, Unsynced};
use crate::mount::{Mount, Seat, VALUE_BYTES};
use crate::network::Network;
use crate::random::Random;
use crate::renamed::make;
use crate::resumed::resumed;
use crate::run::runtime;

const SERVERS: u16 = 3;
/// Longer than it takes to bring a file to the tier.
const SETTLING: Duration = Duration::from_secs(100);
/// Files that wait for each other in [`Story::InOrder`].
const FILES: u64 = 4;

const OLD: u64 = 1;
const NEW: u64 = 2;

/// What programs did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// A synced file was renamed over one that the tier has, and nothing after. (Seed 2173: a version was kept twice.)
    Renamed,
    /// The same, and the tier has the new one. (Seed 3095: it had a file that programs did not see.)
    RenamedAndSent,
    /// Several of one node, one after the other, while the tier fails. (Seed 255: each waited for another one, and none
    /// was sent.)
    InOrder,
    /// A new file was synced. (Seed 185: a name that the power took ended it.)
    Synced,
}

impl Story {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Renamed, Self::RenamedAndSent, Self::InOrder, Self::Synced];
}

/// Where it happened, and what storage kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// The node on which the old file was made, and the new one; node 0 renames.
    pub makers: (u16, u16),
    /// The node of which less was kept; the others kept all. `None`: all alike.
    pub of: Option<u16>,
    /// Whether what was not synced was kept: names, parts, ledger.
    pub kept: (bool, bool, bool),
}

impl Scene {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let makers = (0..SERVERS).flat_map(|old| (0..SERVERS).map(move |new| (old, new)));
        makers.flat_map(|makers| {
            let of = (0..SERVERS).map(Some).chain([None]);
            of.flat_map(move |of| {
                let kept = (0..8u8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0));
                kept.map(move |kept| Self { makers, of, kept })
            })
        })
    }

    fn left(&self, server: u16) -> Unsynced {
        let is_meant = self.of.is_none_or(|of| of == server);
        let (names, parts, ledger) = if is_meant { self.kept } else { (true, true, true) };
        Unsynced::Kept { names, parts, ledger }
    }
}

/// Plays a story, ends the job by a power cut, and resumes it.
///
/// # Errors
/// What the tier has then and must not, or the other way round.
///
/// # Panics
/// When what goes before does not succeed.
pub fn ended_by_power_cut(story: Story, scene: &Scene) -> Result<(), Vec<String>> {
    let wrong = LocalSet::new().block_on(&runtime(), async {
        let (random, tier) = (Random::new(1), Memory::new());
        let network = Network::new(random.split());
        let job = Job::up_before(Some(tier.clone()), SERVERS, network, random.split()).await;
        let seats: Vec<_> = (0..SERVERS).map(|node| Seat::new(&job, node)).collect();
        let mounts: Vec<_> = seats.iter().map(|seat| seat.mount()).collect();
        play(story, scene, &job, &mounts).await;
        job.end_by_power_cut(|server| scene.left(server)).await;
        let mut wrong = job.complaints();
        wrong.extend(resumed(&job, &tier).violations);
        wrong.extend(look(story, &tier));
        wrong
    });
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

async fn play(story: Story, scene: &Scene, job: &Rc<Job>, mounts: &[Rc<Mount>]) {
    let (old, new) = (usize::from(scene.makers.0), usize::from(scene.makers.1));
    let top = InodeId::CACHE_ROOT;
    if story == Story::Synced {
        make(&mounts[new], top, "f0", NEW).await.expect("nothing stands against it");
        return;
    }
    let files = if story == Story::InOrder { FILES } else { 1 };
    for file in 0..files {
        make(&mounts[old], top, &format!("f{file}"), OLD).await.expect("nothing stands against it");
    }
    tokio::time::sleep(SETTLING).await;
    for file in 0..files {
        let (name, temporary) = (format!("f{file}"), temporary(file));
        make(&mounts[new], top, &temporary, NEW).await.expect("nothing stands against it");
        mounts[0].rename_in(top, &temporary, &name).await.expect("renamed");
        if story == Story::InOrder {
            // From the first one on nothing is sent any more.
            (0..SERVERS).for_each(|server| job.before_tier(server).fail_writes());
        }
    }
    if story == Story::RenamedAndSent {
        tokio::time::sleep(SETTLING).await;
    }
}

fn temporary(file: u64) -> String {
    format!("f{file}.new-{NEW}")
}

/// The tier has each file once: the new one under its name, or under the one that it had, and the old one under the name
/// then.
fn look(story: Story, tier: &Memory) -> Vec<String> {
    let mut wrong = Vec::new();
    let files = if story == Story::InOrder { FILES } else { 1 };
    let mut expected = Vec::new();
    for file in 0..files {
        let (name, temporary) = (format!("f{file}"), temporary(file));
        let found = (in_tier(tier, &name), in_tier(tier, &temporary));
        let is_old = matches!(story, Story::Renamed | Story::InOrder);
        match found {
            (Some(NEW), None) => expected.push(name),
            (Some(OLD), Some(NEW)) if is_old => expected.extend([name, temporary]),
            _ => wrong.push(format!("{name} and {temporary} in the tier: {found:?}")),
        }
    }
    let page = tier.list(&ListRequest::all("")).expect("memory can be listed");
    let found: Vec<_> =
        page.entries.iter().map(|it| String::from_utf8_lossy(&it.name).into_owned()).collect();
    if found != expected && wrong.is_empty() {
        wrong.push(format!("the tier has {found:?}"));
    }
    wrong
}

fn in_tier(tier: &Memory, name: &str) -> Option<u64> {
    let reader = tier.open(&Key::new(name).expect("a name")).ok()?;
    let mut bytes = [0; VALUE_BYTES];
    let read = reader.read_at(0, &mut bytes).expect("memory can be read");
    (read == VALUE_BYTES).then(|| u64::from_le_bytes(bytes))
}
