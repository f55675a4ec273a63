//! Room in the `shared` area, here and on the other servers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::{AreaUse, PeerReply, ServerRequest};
use tokio::time::Instant;

use hayase_store::Area;

use crate::convert;
use crate::limits::{PEER_USAGE_FRESH, USAGE_FRESH};
use crate::node::Node;

/// Below this share of free room the other servers are asked for theirs, and what is removed goes at
/// once.
const ROOMY_PERCENT: u64 = 20;

type Table = Vec<(ServerId, AreaUse)>;

/// What is known of everybody's room.
#[derive(Default)]
pub(crate) struct Usage {
    here: Cell<Option<(Instant, AreaUse)>>,
    all: RefCell<Option<(Instant, Table)>>,
    /// What the file system and our own records take of an empty area: never the user's.
    overhead: u64,
}

impl Usage {
    /// Of an area that holds no part yet, what is taken is overhead; `df` does not count it.
    pub(crate) fn new(area: &dyn Area, is_empty: bool) -> Self {
        let taken = area.usage().map(|usage| usage.total - usage.free.min(usage.total));
        let overhead = if is_empty { taken.unwrap_or(0) } else { 0 };
        Self { overhead, ..Self::default() }
    }
}

impl Node {
    /// This server's room, at most [`USAGE_FRESH`] old.
    pub(crate) fn usage_here(&self) -> AreaUse {
        if let Some((at, known)) = self.usage.here.get()
            && at.elapsed() < USAGE_FRESH
        {
            return known;
        }
        let known = match self.area.usage() {
            Ok(usage) => {
                let mut known = convert::area_use(&usage);
                known.total = known.total.saturating_sub(self.usage.overhead).max(known.free);
                known
            }
            Err(error) => {
                tracing::error!(%error, "the free space of the area cannot be read");
                AreaUse::default()
            }
        };
        self.usage.here.set(Some((Instant::now(), known)));
        known
    }

    /// This server's room at this moment: for who would fill it before [`USAGE_FRESH`] has passed.
    pub(crate) fn usage_now(&self) -> AreaUse {
        self.usage.here.set(None);
        self.usage_here()
    }

    /// Whether so much is left here that nobody needs to be careful.
    pub(crate) fn is_roomy(&self) -> bool {
        let here = self.usage_here();
        here.free.saturating_mul(100) > here.total.saturating_mul(ROOMY_PERCENT)
    }

    /// The room of every living server with storage, at most [`PEER_USAGE_FRESH`] old.
    pub(crate) async fn usage_of_all(self: &Rc<Self>) -> Table {
        if self.servers == 1 {
            return vec![(self.me, self.usage_here())];
        }
        if let Some((at, known)) = &*self.usage.all.borrow()
            && at.elapsed() < PEER_USAGE_FRESH
        {
            return known.clone();
        }
        let questions: Vec<_> = self
            .groups
            .servers()
            .iter()
            .map(|&server| {
                (server, tokio::task::spawn_local(self.ask(server, ServerRequest::StatFs)))
            })
            .collect();
        let mut known = Vec::new();
        for (server, question) in questions {
            if let Ok(Ok(PeerReply::StatFs(usage))) = question.await {
                known.push((server, usage));
            }
        }
        *self.usage.all.borrow_mut() = Some((Instant::now(), known.clone()));
        known
    }

    /// A file was removed or filled: ask again next time.
    pub(crate) fn usage_changed(&self) {
        self.usage.here.set(None);
        *self.usage.all.borrow_mut() = None;
    }
}
