//! A worker and the endpoints that it has: one towards each peer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use super::context::Context;
use super::endpoint::Endpoint;
use super::error::UcxError;
use super::table::Code;
use super::worker::Worker;

/// The endpoints of one worker.
pub(super) struct Peers {
    pub(super) worker: Rc<Worker>,
    /// By the address of the peer's worker; also those that are used up.
    endpoints: RefCell<HashMap<Vec<u8>, Weak<Endpoint>>>,
}

impl Peers {
    /// A new worker, with no peer yet.
    pub(super) fn new(context: &Rc<Context>) -> Result<Rc<Self>, UcxError> {
        let worker = Worker::new(context)?;
        Ok(Rc::new(Self { worker, endpoints: RefCell::default() }))
    }

    /// The endpoint towards the worker of that address, one for all connections to it. `None` when there was
    /// one that is used up (invariant 4 of [`super::worker`]): another worker has to be taken.
    pub(super) fn endpoint(&self, address: &[u8]) -> Result<Option<Rc<Endpoint>>, Code> {
        if let Some(known) = self.endpoints.borrow().get(address) {
            return Ok(known.upgrade().filter(|endpoint| endpoint.is_good()));
        }
        let endpoint = Endpoint::new(&self.worker, address)?;
        self.endpoints.borrow_mut().insert(address.to_vec(), Rc::downgrade(&endpoint));
        Ok(Some(endpoint))
    }
}
