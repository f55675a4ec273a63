//! An endpoint: the way to the worker of one peer.
//!
//! Shared by all connections to that worker. It is given to no new connection once one of them has
//! ended, and closed with the last of them: in order when it is good, by force when it is not or when an operation
//! must let go of its buffer at once.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::cell::{Cell, RefCell};
use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};
use std::rc::{Rc, Weak};

use hayase_wire::buffer::{Hold, Loan};

use super::completion::{Completion, message_received, message_sent};
use super::context::Told;
use super::descriptor::Descriptor;
use super::detached::Detached;
use super::error::checked;
use super::inbox::Inbox;
use super::operation::{Killable, Operation};
use super::table::{
    AM_SEND_FLAG_EAGER, AM_SEND_FLAG_RNDV, CANCELED, Code, EP_CLOSE_FLAG_FORCE,
    EP_PARAM_ERR_HANDLER, EP_PARAM_ERR_HANDLING_MODE, EP_PARAM_REMOTE_ADDRESS,
    ERR_HANDLING_MODE_PEER, EndpointParams, Handle, INVALID_PARAM, OP_CALLBACK, OP_FLAGS, OP_MEMH,
    OP_USER_DATA, RequestParams, SocketAddress, Started,
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

/// How the bytes of a message travel.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// With it: copied on the other side.
    Along,
    /// By rendezvous: into their place when the other side says where that is.
    Fetched,
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
        let known: Rc<dyn Failing> = Rc::<Self>::clone(&endpoint);
        worker.open_endpoint(raw, Rc::downgrade(&known));
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

    /// Starts to send a message.
    pub(super) fn send(
        self: &Rc<Self>,
        id: c_uint,
        header: Vec<u8>,
        loan: &Loan,
        way: Way,
    ) -> Operation {
        let data = loan.bytes();
        let completion = Rc::new(Completion::default());
        let raw = self.raw.get();
        if raw.is_null() {
            return Operation::failed(self.as_killable(), CANCELED);
        }
        let memory = self.worker.context.handle_to_send(data);
        let params = RequestParams {
            flags: match way {
                Way::Along => AM_SEND_FLAG_EAGER,
                Way::Fetched => AM_SEND_FLAG_RNDV,
            },
            ..request(message_sent as *const c_void, &completion, memory.as_ref())
        };
        let buffer = if data.is_empty() { null() } else { data.as_ptr() };
        // SAFETY: the endpoint is open. Header, completion, the handle of the memory and a hold on the data belong to the
        // operation, which ends only after the library is done with them.
        let answer = unsafe {
            (self.worker.table.ucp_am_send_nbx)(
                raw,
                id,
                header.as_ptr().cast(),
                header.len(),
                buffer.cast(),
                data.len(),
                &raw const params,
            )
        };
        self.started(answer, completion, header, memory, Some(loan.hold()))
    }

    /// Starts to fetch what `from` stands for to behind the first `at` bytes of `into`, where it has room. Fails where
    /// another operation holds on to these.
    pub(super) fn fetch(
        self: &Rc<Self>,
        from: Descriptor,
        into: &mut Loan,
        at: usize,
    ) -> Operation {
        let Some(room) = into.bytes_mut().filter(|_| !self.raw.get().is_null()) else {
            return Operation::failed(self.as_killable(), CANCELED);
        };
        let room = &mut room[at..];
        assert!(from.len() <= room.len(), "a payload has room where it is fetched to");
        let completion = Rc::new(Completion::default());
        let len = from.len();
        let memory = self.worker.context.handle_to_fill(&room[..len]);
        let target = room.as_mut_ptr();
        let hold = into.hold();
        let params = request(message_received as *const c_void, &completion, memory.as_ref());
        // SAFETY: the worker lives. The descriptor is ours, and the library's again from here on. The operation holds the
        // room, which nobody else has meanwhile, and the handle of the memory, and ends only after the library is done
        // with them.
        let answer = unsafe {
            (self.worker.table.ucp_am_recv_data_nbx)(
                self.worker.raw,
                from.into_raw(),
                target.cast(),
                len,
                &raw const params,
            )
        };
        self.started(answer, completion, Vec::new(), memory, Some(hold))
    }

    /// An operation that is given a handle and refused for it is not tried without: the library may keep a half of
    /// it. The connection ends, and all that comes later goes without.
    fn started(
        self: &Rc<Self>,
        answer: Handle,
        completion: Rc<Completion>,
        header: Vec<u8>,
        memory: Option<Told>,
        data: Option<Hold>,
    ) -> Operation {
        let started = Started::from_raw(answer);
        if memory.is_some() && matches!(started, Started::Done(INVALID_PARAM)) {
            self.worker.context.distrust(INVALID_PARAM);
        }
        self.worker.kick();
        Operation::new(self.as_killable(), started, completion, header, memory, data)
    }

    /// Sends a message of a header alone, and does not wait for it.
    pub(super) fn tell(self: &Rc<Self>, id: c_uint, header: Vec<u8>) {
        self.send(id, header, &Loan::from(Vec::new()), Way::Along).detach();
    }

    fn as_killable(self: &Rc<Self>) -> Rc<dyn Killable> {
        Rc::<Self>::clone(self)
    }

    fn close(&self, flags: u32) {
        let raw = self.raw.replace(null_mut());
        if raw.is_null() {
            return;
        }
        let params = RequestParams { flags, ..no_callback() };
        self.worker.close_endpoint(raw);
        // SAFETY: the endpoint is open, and nobody uses it from here on.
        let answer = unsafe { (self.worker.table.ucp_ep_close_nbx)(raw, &raw const params) };
        if let Started::Request(request) = Started::from_raw(answer) {
            // SAFETY: just begun, by us, and it uses nothing of ours.
            self.worker.detach(unsafe { Detached::new(self.worker.table, request, None) });
        }
    }
}

impl Failing for Endpoint {
    fn fail(&self, why: &str) {
        self.failed.set(true);
        self.worker.wear_out();
        for inbox in self.inboxes.borrow().iter().filter_map(Weak::upgrade) {
            inbox.fail(why.to_owned());
        }
    }
}

impl Killable for Endpoint {
    fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Operations on it end with an error where they were not done.
    fn kill(&self) {
        self.fail("closed, since an operation was given up");
        self.close(EP_CLOSE_FLAG_FORCE);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close(if self.failed.get() { EP_CLOSE_FLAG_FORCE } else { 0 });
    }
}

fn no_callback() -> RequestParams {
    RequestParams {
        op_attr_mask: OP_FLAGS,
        flags: 0,
        request: null_mut(),
        callback: null(),
        datatype: 0,
        user_data: null_mut(),
        reply_buffer: null_mut(),
        memory_type: 0,
        recv_info: null_mut(),
        memh: null_mut(),
    }
}

/// With what tells `completion`, which outlives the request, and in which registered memory the data lies.
fn request(
    callback: *const c_void,
    completion: &Rc<Completion>,
    memory: Option<&Told>,
) -> RequestParams {
    let registered = if memory.is_some() { OP_MEMH } else { 0 };
    RequestParams {
        op_attr_mask: OP_CALLBACK | OP_USER_DATA | OP_FLAGS | registered,
        memh: memory.map_or(null_mut(), |memory| memory.handle),
        callback,
        user_data: Rc::as_ptr(completion).cast_mut().cast(),
        ..no_callback()
    }
}
