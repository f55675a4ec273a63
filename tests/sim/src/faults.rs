//! What happens to the network while programs run.

use std::rc::Rc;
use std::time::Duration;

use crate::job::Job;
use crate::random::Random;

/// Between two faults, at most.
const BETWEEN: Duration = Duration::from_millis(800);
/// Silences that nobody declares dead, and longer ones.
const SHORT: Duration = Duration::from_millis(800);
const LONG: Duration = Duration::from_millis(1500);

/// Breaks connections and silences links until it is dropped. `harsh`: longer than servers wait.
pub(crate) async fn trouble(job: Rc<Job>, harsh: bool, random: Random) {
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

/// All links work again.
pub(crate) fn over(job: &Job) {
    for one in 0..job.servers() {
        for other in 0..one {
            job.network.heal(one, other);
        }
    }
}
