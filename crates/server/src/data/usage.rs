//! Room in the `shared` area, here and on the other servers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::AreaUse;
use tokio::time::Instant;

use hayase_store::Area;

use crate::convert;
use crate::limits::{PEER_USAGE_FRESH, USAGE_FRESH};

/// Below this share of free room the other servers are asked for theirs, and what is removed goes at
/// once.
const ROOMY_PERCENT: u64 = 20;

pub(crate) type Table = Vec<(ServerId, AreaUse)>;

/// What is known of everybody's room.
pub(crate) struct Usage {
    here: Cell<Option<(Instant, AreaUse)>>,
    all: RefCell<Option<(Instant, Table)>>,
    /// What the file system and our own records take of an empty area: never the user's.
    overhead: u64,
    area: Rc<dyn Area>,
}

impl Usage {
    /// Of an area that holds no part yet, what is taken is overhead; `df` does not count it.
    pub(crate) fn new(area: &Rc<dyn Area>, is_empty: bool) -> Self {
        let taken = area.usage().map(|usage| usage.total - usage.free.min(usage.total));
        let overhead = if is_empty { taken.unwrap_or(0) } else { 0 };
        Self { here: Cell::default(), all: RefCell::default(), overhead, area: Rc::clone(area) }
    }

    /// This server's room, at most [`USAGE_FRESH`] old.
    pub(crate) fn here(&self) -> AreaUse {
        if let Some((at, known)) = self.here.get()
            && at.elapsed() < USAGE_FRESH
        {
            return known;
        }
        let known = match self.area.usage() {
            Ok(usage) => {
                let mut known = convert::area_use(&usage);
                known.total = known.total.saturating_sub(self.overhead).max(known.free);
                known
            }
            Err(error) => {
                tracing::error!(%error, "the free space of the area cannot be read");
                AreaUse::default()
            }
        };
        self.here.set(Some((Instant::now(), known)));
        known
    }

    /// This server's room at this moment: for who would fill it before [`USAGE_FRESH`] has passed.
    pub(crate) fn now(&self) -> AreaUse {
        self.here.set(None);
        self.here()
    }

    /// Whether so much is left here that nobody needs to be careful.
    pub(crate) fn is_roomy(&self) -> bool {
        let here = self.here();
        here.free.saturating_mul(100) > here.total.saturating_mul(ROOMY_PERCENT)
    }

    /// A file was removed or filled: ask again next time.
    pub(crate) fn changed(&self) {
        self.here.set(None);
        *self.all.borrow_mut() = None;
    }

    /// What is known of all servers, if that is at most [`PEER_USAGE_FRESH`] old.
    pub(crate) fn known(&self) -> Option<Table> {
        let known = self.all.borrow();
        known.as_ref().filter(|(at, _)| at.elapsed() < PEER_USAGE_FRESH).map(|(_, all)| all.clone())
    }

    /// All servers were asked.
    pub(crate) fn learned(&self, all: &Table) {
        *self.all.borrow_mut() = Some((Instant::now(), all.clone()));
    }
}
