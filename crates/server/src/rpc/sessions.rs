//! Sessions: what a node holds at a home is valid between one incarnation of each.
//!
//! Before all else a node tells an incarnation that it meets for the first time what it holds there
//! ([`MemberRequest::Reclaim`]); until then it is served nothing that depends on it. So a home that was
//! restarted learns its opens and locks, and one whose peer was restarted learns which of them
//! are over.
//! Source: `docs/design/001-coherence.md`, "Sessions and restarts".

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use hayase_layout::{InodeId, ServerId};
use hayase_wire::PeerIdentity;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::keyed_lock::KeyedLock;
use crate::limits::HOME_IN_USE;
use crate::locks::LockOwner;

/// No incarnation is called so: a server that has met this one begins again with every other.
pub(super) const NOBODY: u64 = 0;

/// Both directions.
pub(crate) struct Sessions {
    /// Incarnations that have told what they hold here.
    theirs: RefCell<HashMap<ServerId, u64>>,
    /// Incarnations that were told what is held there.
    pub(super) ours: RefCell<HashMap<ServerId, u64>>,
    pub(super) telling: KeyedLock<ServerId>,
    /// When each server was asked something, and when it answered, last.
    asked: RefCell<HashMap<ServerId, Instant>>,
    used: Notify,
    answered: RefCell<HashMap<ServerId, Instant>>,
    /// Whether processes know what they lost because this node was declared lost.
    pub(super) own_loss: Mutex<bool>,
    /// What was listed so far by servers that have not finished.
    listed: RefCell<HashMap<ServerId, Listed>>,
}

/// What an incarnation holds here, as it has said.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) opens: HashSet<InodeId>,
    pub(crate) owners: HashSet<LockOwner>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self {
            theirs: RefCell::default(),
            ours: RefCell::default(),
            telling: KeyedLock::new(),
            asked: RefCell::default(),
            used: Notify::new(),
            answered: RefCell::default(),
            own_loss: Mutex::default(),
            listed: RefCell::default(),
        }
    }

    /// The start of a server that has heard what is held there: another one when it was restarted since.
    pub(crate) fn start_of(&self, server: ServerId) -> Option<u64> {
        self.ours.borrow().get(&server).copied().filter(|start| *start != NOBODY)
    }

    /// A request is sent that may be granted something.
    pub(super) fn asks(&self, server: ServerId) {
        self.asked.borrow_mut().insert(server, Instant::now());
        self.used.notify_one();
    }

    /// Returns when something is asked for after there was nothing in use.
    pub(crate) async fn until_in_use(&self) {
        while self.in_use().is_empty() {
            self.used.notified().await;
        }
    }

    pub(crate) fn heard(&self, server: ServerId) {
        self.answered.borrow_mut().insert(server, Instant::now());
        // What it granted with its first answer is in use now.
        self.used.notify_one();
    }

    /// Homes that may have granted something that is still used, and since when they are silent.
    pub(crate) fn in_use(&self) -> Vec<(ServerId, Instant)> {
        let asked = self.asked.borrow();
        let lately = asked.iter().filter(|(_, at)| at.elapsed() < HOME_IN_USE);
        let answered = self.answered.borrow();
        let mut in_use: Vec<_> =
            lately.filter_map(|(server, _)| Some((*server, *answered.get(server)?))).collect();
        in_use.sort_unstable();
        in_use
    }

    /// A node is lost: what its incarnation says does not count any more.
    pub(crate) fn end(&self, server: ServerId) {
        self.theirs.borrow_mut().remove(&server);
    }

    /// Whether a later incarnation than this has told what it holds here: start ids grow.
    pub(crate) fn has_newer(&self, server: ServerId, start_id: u64) -> bool {
        self.theirs.borrow().get(&server).is_some_and(|known| *known > start_id)
    }

    /// Which incarnation of a server has told what it holds here.
    pub(crate) fn who_told(&self, server: ServerId) -> Option<u64> {
        self.theirs.borrow().get(&server).copied()
    }

    /// A server says that its node holds these here, and maybe more.
    pub(crate) fn lists(
        &self,
        server: ServerId,
        opens: impl Iterator<Item = InodeId>,
        owners: impl Iterator<Item = LockOwner>,
    ) {
        let mut all = self.listed.borrow_mut();
        let listed = all.entry(server).or_default();
        listed.opens.extend(opens);
        listed.owners.extend(owners);
    }

    /// All that it has listed since it began.
    pub(crate) fn all_listed(&self, server: ServerId) -> Listed {
        self.listed.borrow_mut().remove(&server).unwrap_or_default()
    }

    /// This incarnation has told what it holds here; which one had before.
    pub(crate) fn has_told(&self, from: PeerIdentity) -> Option<u64> {
        self.theirs.borrow_mut().insert(from.server, from.start_id)
    }

    /// Whether a server is being told what this node holds there.
    pub(crate) fn is_telling(&self, server: ServerId) -> bool {
        self.telling.is_locked(&server)
    }

    /// Whether this incarnation has told what it holds here.
    pub(crate) fn has(&self, peer: PeerIdentity) -> bool {
        self.theirs.borrow().get(&peer.server) == Some(&peer.start_id)
    }
}
