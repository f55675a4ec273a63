//! Credits of a link, and the request ids that name them: the slots of NFSv4.1's sessions.
//!
//! A request holds a credit from before its id is drawn until it can not be sent again: it was
//! answered, or its caller has given it up and its connection has ended. So a receiver that keeps the
//! answer to the last request of each credit can answer every repetition, however long the request
//! was on its way, and a later request of the credit says that the answer is not needed any more.
//! Source: RFC 8881, section 2.10.6.1 (slots, sequence ids and the reply cache).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::handshake::Lane;
use crate::limits::{CREDITS_PER_LINK, CREDITS_PER_PEER};

/// Names a request among all of one incarnation of a server to the same peer; of two requests with
/// the same credit the later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

const CREDIT_BITS: u32 = CREDITS_PER_LINK.ilog2();
const _: () = assert!(CREDITS_PER_LINK.is_power_of_two() && CREDITS_PER_LINK <= 256);

impl RequestId {
    /// Of the request with this number, which grows, that holds this credit of its link.
    pub fn new(number: u64, credit: u8) -> Self {
        Self(number << CREDIT_BITS | u64::from(credit))
    }

    /// The credit that it holds; less than [`CREDITS_PER_LINK`].
    pub fn credit(self) -> u8 {
        (self.0 % CREDITS_PER_LINK as u64) as u8
    }
}

/// The credits of one lane.
pub(super) struct Credits {
    turns: Arc<Semaphore>,
    free: Rc<RefCell<Vec<u8>>>,
}

/// One of them, held until it is dropped.
pub(super) struct Credit {
    number: u8,
    free: Rc<RefCell<Vec<u8>>>,
    _turn: OwnedSemaphorePermit,
}

impl Credits {
    pub(super) fn of(lane: Lane) -> Self {
        let first = match lane {
            Lane::Small => 0,
            Lane::Bulk | Lane::Relay => CREDITS_PER_PEER as u8,
        };
        let free = (first..first + CREDITS_PER_PEER as u8).rev().collect();
        Self {
            turns: Arc::new(Semaphore::new(CREDITS_PER_PEER)),
            free: Rc::new(RefCell::new(free)),
        }
    }

    /// Waits for its turn.
    pub(super) async fn take(&self) -> Credit {
        let turn = self.turns.clone().acquire_owned().await.expect("never closed");
        let number = self.free.borrow_mut().pop().expect("a turn stands for a free credit");
        Credit { number, free: Rc::clone(&self.free), _turn: turn }
    }
}

impl Credit {
    pub(super) fn number(&self) -> u8 {
        self.number
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // Before the turn, which is dropped after this.
        self.free.borrow_mut().push(self.number);
    }
}
