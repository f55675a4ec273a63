//! The cache area of a node that is told to end by a signal: as much as fits into the time that batch
//! systems give comes to the tier, the rest is kept.

use std::time::{Duration, Instant};

use super::keeper::Keeper;
use crate::job::ledgers;
use crate::wiring::status::server_status;

/// Slurm kills 30 s after it told (`KillWait`): some are left for the rest.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(20);

/// How often the server is asked, and how long it may take to answer.
const LOOK: Duration = Duration::from_millis(100);
const ANSWER: Duration = Duration::from_secs(2);

impl Keeper {
    /// Ends the programs, and waits while the server goes on flushing.
    pub(super) fn drain_for_a_while(&mut self) {
        if self.settings.tier.is_none() {
            return;
        }
        self.unmount(None);
        let begin = Instant::now();
        while begin.elapsed() < SIGNAL_PATIENCE {
            let status = server_status(&self.node_dir().server_socket(), ANSWER);
            let left = status.ok().and_then(|served| served.cache).map(|cache| cache.dirty_files);
            if left.is_none_or(|left| left == 0) {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether this node's storage has to stay, since the tier does not have all of it, or of what parts of are here.
    pub(super) fn has_undurable(&self) -> bool {
        ledgers::not_durable(&self.settings, self.node).map_or(true, |left| !left.is_empty())
            || ledgers::keeps_for_others(&self.settings, self.node)
    }
}
