//! A name that is linked and unlinked again and again while servers are killed in the middle: the count of the file
//! stays that of its names, so that it ends with the last of them and not before.

use std::time::Duration;

use tokio::task::LocalSet;

use crate::check::storage;
use crate::job::{Death, Job};
use crate::mount::Seat;
use crate::network::Network;
use crate::random::Random;
use crate::run::runtime;

const SERVERS: u16 = 3;
const ROUNDS: usize = 12;
/// No step of a link or an unlink commits more often at one server.
const COMMITS: u64 = 4;
const DEAD: Duration = Duration::from_millis(100);
/// Until the next round: from at once to after what a restart finds was finished.
const BETWEEN: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_secs(60);

/// In the root by odd seeds, in a directory by even ones. The nodes that make the file, and that link and unlink, follow from the seed, as do the servers that are killed and
/// at which of their commits.
///
/// # Errors
/// What was seen and must not be.
///
/// # Panics
/// When the file can not be made.
pub fn linked_while_servers_end(seed: u64) -> Result<(), Vec<String>> {
    let wrong = LocalSet::new().block_on(&runtime(), async {
        let random = Random::new(seed);
        let network = Network::new(random.split());
        let job = Job::up(SERVERS, network, random.split()).await;
        let seats: Vec<_> = (0..SERVERS).map(|node| Seat::new(&job, node)).collect();
        if seed.is_multiple_of(2) {
            job.work_in_a_new_directory(&random.pick(&seats).mount()).await;
        }
        let (name, other) = (format!("f{seed}"), format!("g{seed}"));
        let ino = random.pick(&seats).mount().create(&name, None).await;
        let ino = ino.expect("nothing stands against it");
        for _ in 0..ROUNDS {
            let server = random.below(SERVERS.into()) as u16;
            let death = Death { pause: Some(random.time(DEAD)), power: false };
            let commits = random.below(COMMITS);
            // One that is just started anew has something to commit before it is there.
            if job.is_up(server) {
                job.kill_at_commit(server, commits, death);
            }
            // Whatever the answer is: the count must be right.
            let _ = random.pick(&seats).mount().link(ino, job.top(), &other).await;
            if random.chance(70) {
                let _ = random.pick(&seats).mount().unlink(&other).await;
            }
            if random.chance(50) {
                tokio::time::sleep(random.time(BETWEEN)).await;
            }
        }
        (0..SERVERS).for_each(|server| job.disarm(server));
        job.all_ready().await;
        tokio::time::sleep(SETTLING).await;
        let mut wrong = job.complaints();
        wrong.extend(storage::check(&job));
        match seats[0].mount().lookup(&name).await {
            Ok(found) if found == ino => {}
            found => wrong.push(format!("{name}: {found:?}, not {ino}")),
        }
        wrong
    });
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
