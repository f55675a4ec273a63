//! What happens to the job while programs run.

use std::rc::Rc;
use std::time::Duration;

use crate::job::{Death, Job};
use crate::kind::Kind;
use crate::mount::Seat;
use crate::random::Random;

/// Between two faults of links, at most.
const BETWEEN: Duration = Duration::from_millis(800);
/// Longest silences of a link in runs of links, gentle and harsh: shorter than a connection is
/// believed in (`PEER_LOSS_WAIT`, 2 s); gentle ones also when they follow each other.
const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_millis(1500);

/// Between two deaths, at most.
const BETWEEN_DEATHS: Duration = Duration::from_millis(1500);
/// Before a server that was killed is started again, at most.
const RESTART: Duration = Duration::from_millis(600);
/// A crash point is reached within this, or the server is killed between commits.
const CRASH_POINT_WAIT: Duration = Duration::from_millis(500);
const COMMITS: u64 = 6;

/// Between two nodes that are cut off, at most.
const BETWEEN_CUTS: Duration = Duration::from_secs(4);
/// Longest that a node is cut off or a link silent: some four times what it takes to be declared
/// lost.
const CUT: Duration = Duration::from_secs(14);

/// In which a node dies, or all lose power: before programs are done.
const FATE: Duration = Duration::from_secs(4);

/// Kinds of trouble go on until it is dropped. `harsh`: links are silent for longer.
pub(crate) async fn trouble(
    job: Rc<Job>,
    seats: Vec<Rc<Seat>>,
    (kind, harsh): (Kind, bool),
    random: Random,
) {
    match kind {
        Kind::Links => break_links(&job, harsh, &random).await,
        Kind::Restarts => restart(&job, &seats, &random).await,
        Kind::Cuts => cut_off(&job, &random).await,
        Kind::Losses => {
            let fate = lose(&job, &seats, random.split());
            tokio::join!(fate, restart(&job, &seats, &random));
        }
        Kind::PowerCut => {
            tokio::time::sleep(random.time(FATE)).await;
            power_cut(&job, &seats, &random);
        }
    }
}

async fn break_links(job: &Job, harsh: bool, random: &Random) {
    loop {
        tokio::time::sleep(random.time(BETWEEN)).await;
        let one = random.below(u64::from(job.servers())) as u16;
        let other = (one + 1) % job.servers();
        if random.chance(60) {
            job.network.break_connections(one, other);
        } else {
            job.network.silence(one, other);
            tokio::time::sleep(random.time(if harsh { LONG } else { SHORT })).await;
            job.network.heal(one, other);
        }
    }
}

/// Kills servers, mostly one at a time, and mounts; breaks connections.
async fn restart(job: &Job, seats: &[Rc<Seat>], random: &Random) {
    loop {
        tokio::time::sleep(random.time(BETWEEN_DEATHS)).await;
        let one = random.below(u64::from(job.servers())) as u16;
        if job.is_gone(one) {
            continue;
        }
        match random.below(10) {
            0..=5 if job.is_up(one) => {
                let death = Death { pause: Some(random.time(RESTART)), power: false };
                kill(job, one, death, random).await;
            }
            6 => seats[usize::from(one)].kill(),
            _ => job.network.break_connections(one, (one + 1) % job.servers()),
        }
        if random.chance(70) {
            job.all_ready().await;
        }
    }
}

async fn kill(job: &Job, server: u16, death: Death, random: &Random) {
    if random.chance(50) {
        job.kill_at_commit(server, random.below(COMMITS), death);
        tokio::time::sleep(random.time(CRASH_POINT_WAIT)).await;
        if !job.is_up(server) {
            return;
        }
    }
    job.kill(server, death);
}

/// Cuts nodes off, or two nodes from each other.
async fn cut_off(job: &Job, random: &Random) {
    loop {
        tokio::time::sleep(random.time(BETWEEN_CUTS)).await;
        let one = random.below(u64::from(job.servers())) as u16;
        if random.chance(70) {
            job.network.cut_off(one);
            tokio::time::sleep(random.time(CUT)).await;
            job.network.is_back(one);
        } else {
            let other = (one + 1) % job.servers();
            job.network.silence(one, other);
            tokio::time::sleep(random.time(CUT)).await;
            job.network.heal(one, other);
        }
    }
}

/// One node dies for good, not that of server 0: by a crash, so that others see its connections end,
/// or without a word.
async fn lose(job: &Job, seats: &[Rc<Seat>], random: Random) {
    tokio::time::sleep(random.time(FATE)).await;
    let one = 1 + random.below(u64::from(job.servers()) - 1) as u16;
    seats[usize::from(one)].end();
    job.kill(one, Death { pause: None, power: random.chance(50) });
}

/// All nodes at once; their programs die with them.
fn power_cut(job: &Job, seats: &[Rc<Seat>], random: &Random) {
    for (server, seat) in (0..job.servers()).zip(seats) {
        seat.kill();
        job.kill(server, Death { pause: Some(random.time(RESTART)), power: true });
    }
}

/// Nothing happens any more: links and servers work again, except those that are gone for good.
pub(crate) async fn over(job: &Job) {
    for one in 0..job.servers() {
        if !job.is_gone(one) {
            job.network.is_back(one);
        }
        for other in 0..one {
            job.network.heal(one, other);
        }
        job.disarm(one);
    }
    job.all_ready().await;
}
