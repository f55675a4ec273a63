//! Directories whose names are all kept at their home.
//!
//! Most directories are filled, read and emptied by the node that made them. So a directory begins with all its
//! names at its home, which is that node's server: there neither a new name nor the end of one needs another
//! server. A directory that grew large, or in which other nodes are busy, has its names *spread*: from then on, and as
//! long as it is there, each is at the shard that its hash tells (`spreading`).
//!
//! Who does not know better asks the home, and is told once that the names are spread ([`PeerReply::Spread`]). Since they
//! stay so it may remember that, and a shard that is asked for a name of such a directory believes who asks.
//!
//! Here: which directories are kept and which spread, who is busy with the names of a kept one, and when it is time.
//! Not here: how names are spread.
//! Source: Patil, Gibson: Scale and concurrency of GIGA+, FAST 2011 (a directory begins at one server, stale
//! knowledge is mended by who is asked); here with one split, from one server to all.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::InodeId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::limits::{KEPT_DIRECTORIES_MAX, SPREAD_KNOWN_MAX, SPREAD_PAUSE_DOUBLINGS};
use crate::request::Visit;

/// When the names of a directory are spread over the servers of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptUntil {
    /// It has about so many names.
    pub names: u32,
    /// Nodes other than its home's have made and taken away so many.
    pub changes: u32,
    /// They have looked so many up.
    pub lookups: u32,
}

impl Default for KeptUntil {
    fn default() -> Self {
        Self { names: 4096, changes: 16, lookups: 256 }
    }
}

/// A directory of this home that is not spread.
#[derive(Debug, Default)]
struct Kept {
    /// Requests that have its names in their hands.
    users: usize,
    /// About as many as it has: those of before this server's start are not counted.
    names: u32,
    changes: u32,
    lookups: u32,
    /// Its names are on their way: who comes waits.
    is_moving: bool,
    /// Somebody sees to it that it is spread.
    is_begun: bool,
    /// That was just tried in vain: not again before.
    rests_until: Option<Instant>,
    failures: u32,
}

impl Kept {
    fn count(&mut self, visit: Visit, is_elsewhere: bool) {
        match visit {
            Visit::Makes => self.names = self.names.saturating_add(1),
            Visit::Ends => self.names = self.names.saturating_sub(1),
            Visit::Looks | Visit::Moves | Visit::Finishes => {}
        }
        match visit {
            _ if !is_elsewhere => {}
            Visit::Looks => self.lookups = self.lookups.saturating_add(1),
            Visit::Finishes => {}
            _ => self.changes = self.changes.saturating_add(1),
        }
    }

    fn is_due(&self, until: &KeptUntil, now: Instant) -> bool {
        let is_busy = self.changes >= until.changes || self.lookups >= until.lookups;
        let rests = self.rests_until.is_some_and(|at| now < at);
        (is_busy || self.names >= until.names) && !self.is_begun && !rests
    }
}

/// What a server knows of the directories of its job.
pub(crate) struct KeptNames {
    until: KeptUntil,
    /// Directories of any home whose names are known to be spread.
    spread: RefCell<HashSet<InodeId>>,
    kept: Rc<Table>,
}

#[derive(Default)]
struct Table {
    by_directory: RefCell<HashMap<InodeId, Kept>>,
    /// A directory's last user has left, or it is not moving any more.
    changed: Notify,
}

/// Has a name of a kept directory in its hands: the names stay here until this is dropped.
pub(crate) struct NameUser {
    table: Rc<Table>,
    dir: InodeId,
}

impl Drop for NameUser {
    fn drop(&mut self) {
        if let Some(kept) = self.table.by_directory.borrow_mut().get_mut(&self.dir) {
            kept.users -= 1;
            if kept.users > 0 || !kept.is_moving {
                return;
            }
        }
        self.table.changed.notify_waiters();
    }
}

/// Where a name is.
pub(crate) enum Here {
    /// At this server, until this is dropped.
    Yes(Option<NameUser>),
    /// At its shard.
    No,
}

impl KeptNames {
    pub(crate) fn new(until: KeptUntil) -> Self {
        Self { until, spread: RefCell::default(), kept: Rc::default() }
    }

    /// From here on its shards are asked, wherever it is homed.
    pub(crate) fn know_spread(&self, dir: InodeId) {
        let mut spread = self.spread.borrow_mut();
        if spread.len() >= SPREAD_KNOWN_MAX {
            spread.clear(); // the homes tell it again
        }
        spread.insert(dir);
    }

    /// The directory is gone.
    pub(crate) fn forget(&self, dir: InodeId) {
        self.spread.borrow_mut().remove(&dir);
        let mut kept = self.kept.by_directory.borrow_mut();
        if kept.get(&dir).is_some_and(|kept| kept.users == 0 && !kept.is_moving) {
            kept.remove(&dir);
        }
    }

    /// Whether the names of a directory of any home are known to be spread.
    pub(super) fn is_known_spread(&self, dir: InodeId) -> bool {
        self.spread.borrow().contains(&dir)
    }

    /// Whether they are known to be here.
    pub(super) fn is_known_here(&self, dir: InodeId) -> bool {
        self.kept.by_directory.borrow().contains_key(&dir)
    }

    /// Returns when the last user of a directory has left, or one is not moving any more.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.kept.changed.notified()
    }

    /// `None` while the names are on their way. True: it is time to spread them, and who asked is to see to that.
    pub(super) fn visit(
        &self,
        dir: InodeId,
        visit: Visit,
        is_elsewhere: bool,
    ) -> Option<(NameUser, bool)> {
        let mut kept = self.kept.by_directory.borrow_mut();
        if kept.len() >= KEPT_DIRECTORIES_MAX && !kept.contains_key(&dir) {
            kept.retain(|_, kept| kept.users > 0 || kept.is_moving);
        }
        let kept = kept.entry(dir).or_default();
        if kept.is_moving {
            return None;
        }
        kept.users += 1;
        kept.count(visit, is_elsewhere);
        let is_due = kept.is_due(&self.until, Instant::now());
        kept.is_begun |= is_due;
        Some((NameUser { table: Rc::clone(&self.kept), dir }, is_due))
    }

    /// Nobody comes to its names any more; returns when nobody is there.
    pub(crate) async fn begin_move(&self, dir: InodeId) {
        loop {
            let changed = self.kept.changed.notified();
            {
                let mut kept = self.kept.by_directory.borrow_mut();
                let kept = kept.entry(dir).or_default();
                kept.is_moving = true;
                if kept.users == 0 {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Whether the names are on their way: they are neither here nor there.
    pub(crate) fn is_moving(&self, dir: InodeId) -> bool {
        self.kept.by_directory.borrow().get(&dir).is_some_and(|kept| kept.is_moving)
    }

    /// Waits for the end of that.
    pub(crate) async fn settled(&self, dir: InodeId) {
        loop {
            let changed = self.kept.changed.notified();
            if !self.is_moving(dir) {
                return;
            }
            changed.await;
        }
    }

    /// Who waits goes on: to the shards, or here if the names stay; then nobody tries again for `rest`, or
    /// twice as long after each failure.
    pub(crate) fn end_move(&self, dir: InodeId, is_spread: bool, rest: Duration) {
        {
            let mut kept = self.kept.by_directory.borrow_mut();
            match (is_spread, kept.get_mut(&dir)) {
                (true, _) => drop(kept.remove(&dir)),
                (false, Some(kept)) => {
                    let rest = rest * (1 << kept.failures.min(SPREAD_PAUSE_DOUBLINGS));
                    kept.failures = kept.failures.saturating_add(1);
                    (kept.is_begun, kept.is_moving) = (false, false);
                    kept.rests_until = Some(Instant::now() + rest);
                }
                (false, None) => {}
            }
        }
        if is_spread {
            self.know_spread(dir);
        }
        self.kept.changed.notify_waiters();
    }
}

/// Whether a new directory of this number has its names at its home. Not the root, where all nodes come
/// together; not in the cache area, whose names come from the tier; and the names of a private tree never leave it.
pub(crate) fn begins_kept(dir: InodeId) -> bool {
    dir != InodeId::ROOT && dir.owner().is_none() && !dir.is_cached()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(7);
    const UNTIL: KeptUntil = KeptUntil { names: 3, changes: 2, lookups: 4 };
    const REST: Duration = Duration::from_secs(2);

    /// Whether each of these is the one that sees to it.
    fn due(visits: &[(Visit, bool)]) -> Vec<bool> {
        let kept = KeptNames::new(UNTIL);
        let visit = |(visit, is_elsewhere): &(Visit, bool)| kept.visit(DIR, *visit, *is_elsewhere);
        visits.iter().map(|of| visit(of).expect("nothing moves").1).collect()
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn it_is_time_when_there_are_many_names_or_others_are_busy() {
        use Visit::{Ends, Finishes, Looks, Makes, Moves};
        let own = |visit| (visit, false);
        let other = |visit| (visit, true);
        assert_eq!(
            due(&[own(Makes), own(Makes), own(Makes), own(Makes)]),
            [false, false, true, false]
        );
        assert!(!due(&[own(Makes), own(Makes), own(Ends), own(Makes)]).contains(&true));
        assert_eq!(due(&[other(Makes), other(Ends)]), [false, true]);
        assert_eq!(due(&[other(Moves), own(Moves), other(Moves)]), [false, false, true]);
        assert_eq!(due(&[other(Looks); 4]), [false, false, false, true]);
        assert!(!due(&[own(Looks); 9]).contains(&true));
        assert!(!due(&[other(Finishes); 9]).contains(&true));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn names_that_could_not_be_spread_rest() {
        let kept = KeptNames::new(UNTIL);
        let is_due = || kept.visit(DIR, Visit::Moves, true).expect("nothing moves").1;
        assert_eq!([is_due(), is_due(), is_due()], [false, true, false]);
        kept.begin_move(DIR).await;
        kept.end_move(DIR, false, REST);
        assert!(!is_due());
        tokio::time::sleep(REST).await;
        assert!(is_due());
        kept.begin_move(DIR).await;
        kept.end_move(DIR, false, REST);
        tokio::time::sleep(REST).await;
        assert!(!is_due(), "twice as long");
        tokio::time::sleep(REST).await;
        assert!(is_due());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_move_waits_for_who_is_there_and_who_comes_waits_for_it() {
        let kept = KeptNames::new(UNTIL);
        let (user, _) = kept.visit(DIR, Visit::Makes, false).expect("nothing moves");
        let moving = kept.begin_move(DIR);
        tokio::pin!(moving);
        let early = tokio::time::timeout(REST, &mut moving).await;
        assert!(early.is_err(), "somebody has a name in hand");
        assert!(kept.visit(DIR, Visit::Looks, true).is_none(), "nobody else comes");
        assert!(kept.visit(InodeId(8), Visit::Looks, true).is_some(), "that is another one");
        drop(user);
        moving.await;
        assert!(tokio::time::timeout(REST, kept.settled(DIR)).await.is_err());
        kept.end_move(DIR, true, REST);
        kept.settled(DIR).await;
        assert!(kept.spread.borrow().contains(&DIR));
    }
}
