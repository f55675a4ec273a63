//! An endpoint: the way to the worker of one peer.
//!
//! Shared by all connections to that worker. It is given to no new connection once one of them has
//! ended, and closed with the last of them: in order when it is good, by force when it is not or when an operation
//! must let go of its buffer at once.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::cell::{Cell, RefCell};
use std::ptr::{null, null_mut};
use std::rc::{Rc, Weak};

use super::detached::Detached;
use super::inbox::Inbox;
use super::table::{
    Code, EP_CLOSE_FLAG_FORCE, EP_PARAM_ERR_HANDLER, EP_PARAM_ERR_HANDLING_MODE,
    EP_PARAM_REMOTE_ADDRESS, ERR_HANDLING_MODE_PEER, EndpointParams, Handle, RequestParams,
    SocketAddress, Started, checked,
};
use super::worker::{Failing, Worker, endpoint_failed};

pub(super) struct Endpoint {
    pub(super) worker: Rc<Worker>,
    /// Null once it is closed.
    raw: Cell<Handle>,
    failed: Cell<bool>,
    retired: Cell<bool>,
    /// Of its connections.
    inboxes: RefCell<Vec<Weak<Inbox>>>,
}

impl Endpoint {
    /// Towards the worker of that address, which a peer told that knows the job's secret. Connects when it is
    /// first used.
    pub(super) fn new(worker: &Rc<Worker>, address: &[u8]) -> Result<Rc<Self>, Code> {
        let nowhere = || SocketAddress { address: null(), len: 0 };
        let params = EndpointParams {
            field_mask: EP_PARAM_REMOTE_ADDRESS | EP_PARAM_ERR_HANDLING_MODE | EP_PARAM_ERR_HANDLER,
            address: address.as_ptr().cast(),
            err_mode: ERR_HANDLING_MODE_PEER,
            err_callback: Some(endpoint_failed),
            err_arg: Rc::as_ptr(&worker.arrivals).cast_mut().cast(),
            user_data: null_mut(),
            flags: 0,
            sockaddr: nowhere(),
            conn_request: null_mut(),
            name: null(),
            local_sockaddr: nowhere(),
        };
        let mut raw = null_mut();
        // SAFETY: the worker lives; the address is one of its kind and lives during the call; what the callback
        // is given outlives the worker.
        checked(unsafe {
            (worker.table.ucp_ep_create)(worker.raw, &raw const params, &raw mut raw)
        })?;
        let endpoint = Rc::new(Self {
            worker: Rc::clone(worker),
            raw: Cell::new(raw),
            failed: Cell::new(false),
            retired: Cell::new(false),
            inboxes: RefCell::default(),
        });
        let failing: Weak<dyn Failing> = Rc::downgrade(&endpoint) as Weak<dyn Failing>;
        worker.open_endpoint(raw, failing);
        worker.kick();
        Ok(endpoint)
    }

    /// Whether a new connection may use it.
    pub(super) fn is_good(&self) -> bool {
        !self.failed.get() && !self.retired.get() && !self.raw.get().is_null()
    }

    /// No new connection may use it.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.worker.wear_out();
    }

    /// The connection of that inbox is told when it fails.
    pub(super) fn join(&self, inbox: &Rc<Inbox>) {
        let mut inboxes = self.inboxes.borrow_mut();
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Rc::downgrade(inbox));
    }

    /// Null once it is closed.
    pub(super) fn raw(&self) -> Handle {
        self.raw.get()
    }

    /// Closes it by force: each operation on it ends soon, with an error where it was not done.
    pub(super) fn kill(&self) {
        self.fail("closed, since an operation was given up");
        self.close(EP_CLOSE_FLAG_FORCE);
    }

    fn close(&self, flags: u32) {
        let raw = self.raw.replace(null_mut());
        if raw.is_null() {
            return;
        }
        let params = RequestParams { flags, ..RequestParams::without_callback() };
        self.worker.close_endpoint(raw);
        // SAFETY: the endpoint is open, and nobody uses it from here on.
        let answer = unsafe { (self.worker.table.ucp_ep_close_nbx)(raw, &raw const params) };
        if let Started::Request(request) = Started::from_raw(answer) {
            self.worker.detach(Detached::close(self.worker.table, request));
        }
    }
}

impl Failing for Endpoint {
    /// Tells all its connections.
    fn fail(&self, why: &str) {
        self.failed.set(true);
        self.worker.wear_out();
        for inbox in self.inboxes.borrow().iter().filter_map(Weak::upgrade) {
            inbox.fail(why.to_owned());
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close(if self.failed.get() { EP_CLOSE_FLAG_FORCE } else { 0 });
    }
}
