//! The grace period of a server that was started anew: who holds opens and locks here tells them
//! again before anything new is granted.
//!
//! It ends when every other server and the node's own mounts have told, and the links are taken that an earlier
//! incarnation left ([`crate::left_links`]), or after [`GRACE`]. Locks are
//! granted only when every other server has told or was declared lost: a silent one may still write
//! under a lock that it holds. A first start has none.
//! Source: RFC 8881, 8.4.2 (server failure and recovery).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use hayase_layout::ServerId;
use tokio::sync::Notify;

use crate::limits::GRACE;

/// Who has not told yet.
pub(crate) struct Grace {
    over: Cell<bool>,
    own_known: Cell<bool>,
    /// Mounts of this node, and which of them have told.
    mounts: usize,
    own_told: RefCell<BTreeSet<u64>>,
    waits_for: RefCell<BTreeSet<ServerId>>,
    /// Servers that have not said which links were left here: those are counted too long.
    links_left_at: RefCell<BTreeSet<ServerId>>,
    changed: Notify,
}

impl Grace {
    /// `others`: who may hold something here; `None` at a first start. so may `mounts` of this node.
    pub(crate) fn new(others: Option<BTreeSet<ServerId>>, mounts: u16) -> Self {
        let (is_first, others) = (others.is_none(), others.unwrap_or_default());
        Self {
            over: Cell::new(is_first),
            own_known: Cell::new(is_first || mounts == 0),
            mounts: mounts.into(),
            own_told: RefCell::default(),
            links_left_at: RefCell::new(others.clone()),
            waits_for: RefCell::new(others),
            changed: Notify::new(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Whether nobody who has not told may hold a lock.
    pub(crate) fn are_locks_known(&self) -> bool {
        self.over.get() && self.waits_for.borrow().is_empty()
    }

    /// Waits until that is so.
    pub(crate) async fn locks_known(&self) {
        self.until(|| self.are_locks_known()).await;
    }

    pub(crate) fn is_own_known(&self) -> bool {
        self.own_known.get()
    }

    /// Whether another server may hold something here and has not told.
    pub(crate) fn waits_for(&self, server: ServerId) -> bool {
        self.waits_for.borrow().contains(&server)
    }

    /// Another server has told. Which links were left it says apart from that, and perhaps later.
    pub(crate) fn told(&self, by: ServerId) {
        self.waits_for.borrow_mut().remove(&by);
        self.changed.notify_waiters();
    }

    /// Another server is lost: it says nothing any more.
    pub(crate) fn lost(&self, server: ServerId) {
        self.told(server);
        self.links_told(server);
    }

    /// The links that a shard's removals left here are taken.
    pub(crate) fn links_told(&self, by: ServerId) {
        self.links_left_at.borrow_mut().remove(&by);
        self.changed.notify_waiters();
    }

    /// Waits until links are as removed names left them.
    pub(crate) async fn links_known(&self) {
        self.until(|| self.over.get() || self.links_left_at.borrow().is_empty()).await;
    }

    /// A mount of this node, by its process, has told.
    pub(crate) fn own_told(&self, process: u64) {
        let mut told = self.own_told.borrow_mut();
        told.insert(process);
        if told.len() >= self.mounts {
            self.all_own_told();
        }
    }

    fn all_own_told(&self) {
        self.own_known.set(true);
        self.changed.notify_waiters();
    }

    /// Waits until everybody has told, at most [`GRACE`], and ends it.
    pub(crate) async fn run(&self) {
        let all_told = || {
            let are_links_known = self.links_left_at.borrow().is_empty();
            self.own_known.get() && self.waits_for.borrow().is_empty() && are_links_known
        };
        if tokio::time::timeout(GRACE, self.until(all_told)).await.is_err() {
            let silent: Vec<_> = self.waits_for.borrow().iter().copied().collect();
            let links_left_at: Vec<_> = self.links_left_at.borrow().iter().copied().collect();
            tracing::warn!(
                own = self.own_known.get(),
                ?silent,
                ?links_left_at,
                "the grace period is over, and these nodes have not said what they hold, or which links they left here"
            );
        }
        self.over.set(true);
        self.all_own_told();
    }

    /// Waits for its end.
    pub(crate) async fn over(&self) {
        self.until(|| self.over.get()).await;
    }

    /// Waits until it is known what the processes of this node hold.
    pub(crate) async fn own_known(&self) {
        self.until(|| self.own_known.get()).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn links_are_known_before_opens() {
        let grace = Grace::new(Some([ServerId(1), ServerId(2)].into()), 1);
        grace.links_told(ServerId(1));
        let known = tokio::time::timeout(GRACE / 2, grace.links_known()).await;
        assert!(known.is_err(), "one has not said");
        grace.links_told(ServerId(2));
        grace.links_known().await;
        assert!(!grace.is_over() && grace.waits_for(ServerId(1)));
        // What it holds can be told before, and does not end the wait for the links.
        let both = Grace::new(Some([ServerId(1)].into()), 0);
        both.told(ServerId(1));
        let steps = async {
            let known = tokio::time::timeout(GRACE / 2, both.links_known()).await;
            assert!(known.is_err() && !both.is_over(), "a link is counted too long");
            both.links_told(ServerId(1));
            both.links_known().await;
            tokio::time::timeout(GRACE / 4, both.over()).await.expect("all is known");
        };
        tokio::join!(both.run(), steps);
        let silent = Grace::new(Some([ServerId(1)].into()), 0);
        tokio::join!(silent.run(), silent.links_known());
        assert!(silent.is_over(), "who says nothing is not waited for longer");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_first_start_has_none() {
        let grace = Grace::new(None, 1);
        assert!(grace.is_over());
        grace.own_known().await;
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn it_ends_when_all_have_told_and_at_its_limit_otherwise() {
        for (tells, expected) in [(true, 0), (false, GRACE.as_millis())] {
            let grace = Grace::new(Some([ServerId(1), ServerId(2)].into()), 2);
            let begin = tokio::time::Instant::now();
            let telling = async {
                grace.links_told(ServerId(1));
                grace.links_told(ServerId(2));
                grace.told(ServerId(1));
                assert!(!grace.is_over());
                grace.own_told(7);
                grace.own_told(7);
                assert!(!grace.is_own_known(), "the other mount has not told");
                grace.own_told(8);
                if tells {
                    grace.lost(ServerId(2));
                }
                grace.over().await;
            };
            tokio::join!(grace.run(), telling);
            assert_eq!(begin.elapsed().as_millis(), expected);
            assert_eq!(grace.are_locks_known(), tells, "who is silent may hold one");
            grace.told(ServerId(2));
            grace.locks_known().await;
        }
    }
}
