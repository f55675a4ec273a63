//! The endpoints of one worker, by the peer that they lead to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::endpoint::Endpoint;
use super::table::Code;
use super::worker::Worker;

/// Lives as long as new connections may be made on its worker.
pub(super) struct Peers {
    worker: Rc<Worker>,
    /// By the address of the peer's worker; also those that are used up.
    known: RefCell<HashMap<Vec<u8>, Weak<Endpoint>>>,
}

impl Peers {
    /// Of a new worker.
    pub(super) fn new(worker: Rc<Worker>) -> Rc<Self> {
        Rc::new(Self { worker, known: RefCell::default() })
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The endpoint towards the worker of that address, one for all connections to it. `None` when there was
    /// one that is used up (invariant 4 of [`super::worker`]): another worker has to be taken.
    pub(super) fn endpoint(&self, address: &[u8]) -> Result<Option<Rc<Endpoint>>, Code> {
        if let Some(known) = self.known.borrow().get(address) {
            return Ok(known.upgrade().filter(|endpoint| endpoint.is_good()));
        }
        let endpoint = Endpoint::new(&self.worker, address)?;
        self.known.borrow_mut().insert(address.to_vec(), Rc::downgrade(&endpoint));
        Ok(Some(endpoint))
    }
}
