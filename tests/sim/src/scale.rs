//! How much of a node's work comes from there being other nodes.
//!
//! Every simulated node is the whole server, as a job runs it, with its names and parts in memory,
//! and one mount; what is missing is the kernel. Nobody dies, no link breaks. First nobody does
//! anything; then one program on each node makes, writes and closes files in a directory of its own,
//! so that nodes share nothing but the servers of names.
//!
//! Counted, never timed: frames that a node sends, and how often it is woken. The network of the
//! simulation wakes a sender once for each frame (it lets it wait for as long as the frame is on its
//! way), which no real one does.

use std::rc::Rc;
use std::time::Duration;

use hayase_wire::message::Access;
use tokio::task::{JoinSet, LocalSet};

use crate::job::Job;
use crate::mount::Seat;
use crate::network::Network;
use crate::random::Random;
use crate::run::runtime;

/// Until nothing of the start is left: grants that somebody might use are watched for some seconds.
const SETTLING: Duration = Duration::from_secs(45);

/// How long nobody does anything: some beats of each server.
const IDLE: Duration = Duration::from_secs(60);

/// Files that each node makes, and the pause after each.
const FILES: u64 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// What nodes did in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Frames that a node sent, on average over all but server 0.
    pub frames: f64,
    /// The most that one of them sent.
    pub frames_max: u64,
    /// Sent by server 0.
    pub frames_coordinator: u64,
    /// Times that a node was woken, on average over all but server 0.
    pub wakes: f64,
    /// Of server 0.
    pub wakes_coordinator: u64,
}

/// What a job of so many nodes did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Nodes of the job.
    pub nodes: u16,
    /// In [`Scale::IDLE_SECONDS`] in which nobody did anything.
    pub idle: Effort,
    /// While each node made [`Scale::FILES`] files of its own.
    pub busy: Effort,
}

impl Scale {
    /// Length of the idle phase.
    pub const IDLE_SECONDS: u64 = IDLE.as_secs();
    /// Files that each node makes in the busy phase.
    pub const FILES: u64 = FILES;
}

/// Runs a job of so many nodes, two at least. Takes some 100 KiB of memory a node, and seconds of
/// processor time for each hundred.
///
/// # Panics
/// When the machine has no memory or descriptors left, or a call fails.
pub fn scale(nodes: u16) -> Scale {
    let runtime = runtime();
    LocalSet::new().block_on(&runtime, job(nodes))
}

async fn job(nodes: u16) -> Scale {
    let random = Random::new(u64::from(nodes));
    let job = Job::up(nodes, Network::new(random.split()), random.split()).await;
    let seats: Vec<_> = (0..nodes).map(|node| Seat::new(&job, node)).collect();
    let mut homes = Vec::new();
    for seat in &seats {
        let name = format!("own-{}", seat.node);
        homes.push(seat.mount().make_directory(&name).await.expect("nothing fails here"));
    }
    tokio::time::sleep(SETTLING).await;
    let before = Counts::of(&job);
    tokio::time::sleep(IDLE).await;
    let idle = Counts::of(&job).since(&before);
    let before = Counts::of(&job);
    let mut programs = JoinSet::new();
    for (seat, home) in seats.into_iter().zip(homes) {
        let random = random.split();
        programs.spawn_local(async move {
            // Not all in step.
            tokio::time::sleep(random.time(PAUSE)).await;
            let mount = seat.mount();
            for file in 0..FILES {
                let made = mount.create_in(home, &format!("file-{file}"), None).await;
                let access = Access { read: false, write: true };
                let ino = made.expect("nothing fails here");
                let handle = mount.open(ino, access).await.expect("nothing fails here");
                mount.write(&handle, 0, file + 1).await.expect("nothing fails here");
                mount.close(handle).await.expect("nothing fails here");
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    while let Some(done) = programs.join_next().await {
        done.expect("programs do not panic");
    }
    Scale { nodes, idle, busy: Counts::of(&job).since(&before) }
}

struct Counts {
    frames: Vec<u64>,
    wakes: Vec<u64>,
}

impl Counts {
    fn of(job: &Rc<Job>) -> Self {
        let frames = (0..job.servers()).map(|server| job.network.frames_sent(server)).collect();
        Self { frames, wakes: job.wakes() }
    }

    fn since(&self, before: &Self) -> Effort {
        let grown = |now: &[u64], before: &[u64]| -> Vec<u64> {
            now.iter().zip(before).map(|(now, before)| now - before).collect()
        };
        let (frames, wakes) =
            (grown(&self.frames, &before.frames), grown(&self.wakes, &before.wakes));
        let mean =
            |counts: &[u64]| counts[1..].iter().sum::<u64>() as f64 / (counts.len() - 1) as f64;
        Effort {
            frames: mean(&frames),
            frames_max: frames[1..].iter().copied().max().unwrap_or(0),
            frames_coordinator: frames[0],
            wakes: mean(&wakes),
            wakes_coordinator: wakes[0],
        }
    }
}
