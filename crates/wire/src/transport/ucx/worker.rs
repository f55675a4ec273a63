//! A worker of UCP: all endpoints of one transport, what comes for them, and the task that moves it on.
//!
//! Invariants:
//! 1. One thread: all of it lives in `Rc`s, so nobody else can call (`UCS_THREAD_MODE_SINGLE`).
//! 2. Callbacks run only inside [`Worker::progress`]. They touch [`Arrivals`] and inboxes, never call UCX, and
//!    nobody holds a borrow of either while the worker makes progress.
//! 3. No polling: the driver sleeps on the worker's event descriptor, which is armed only when there is nothing to
//!    do; who starts an operation wakes it ([`Worker::kick`]).
//! 4. Between two workers there is one endpoint, once. UCX 1.13 pairs the endpoints of two workers by counting them at
//!    both ends; where one end had to close its own and the other did not see it, the next pair may never come about.
//!    So a worker of which an endpoint is used up serves only the connections it has.
//! 5. A worker is never destroyed: UCX 1.13 ends the process (an assertion) when a peer is about to answer a worker that
//!    goes. Used-up ones sleep; there are at most [`crate::limits::UCX_WORKERS_MAX`].

#![expect(unsafe_code, reason = "functions of UCX")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::{c_uint, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::rc::{Rc, Weak};
use std::time::Instant;

use tokio::sync::Notify;

use super::context::Context;
use super::descriptor::Descriptor;
use super::detached::Detached;
use super::error::UcxError;
use super::inbox::Inbox;
use super::table::{
    AM_FLAG_WHOLE_MSG, AM_HANDLER_ARG, AM_HANDLER_CB, AM_HANDLER_FLAGS, AM_HANDLER_ID,
    AM_RECV_FLAG_RNDV, Code, Handle, HandlerParams, IN_PROGRESS, MessageCallback, MessageParam, OK,
    THREAD_MODE_SINGLE, Table, WORKER_PARAM_THREAD_MODE, WorkerParams, checked,
};
use crate::deadline::WORKER_END_WAIT;
use crate::header::HEADER_BYTES;

/// Messages: the head of a frame, its payload, how many frames were taken.
pub(super) const MESSAGE_HEAD: c_uint = 1;
pub(super) const MESSAGE_PAYLOAD: c_uint = 2;
pub(super) const MESSAGE_TAKEN: c_uint = 3;

/// Steps before others get their turn.
const STEPS_MAX: usize = 64;

/// An endpoint, as its worker knows it.
pub(super) trait Failing {
    /// It can carry no more.
    fn fail(&self, why: &str);
}

/// What the callbacks know.
#[derive(Default)]
pub(super) struct Arrivals {
    inboxes: RefCell<HashMap<u64, Weak<Inbox>>>,
    endpoints: RefCell<HashMap<usize, Weak<dyn Failing>>>,
    /// For descriptors; set once the worker is there.
    library: Cell<Option<(&'static Table, Handle)>>,
}

pub(super) struct Worker {
    pub(super) table: &'static Table,
    pub(super) context: Rc<Context>,
    pub(super) raw: Handle,
    address: Vec<u8>,
    events: RefCell<Option<OwnedFd>>,
    kick: Notify,
    pub(super) arrivals: Rc<Arrivals>,
    /// What goes on though nobody waits for it.
    detached: RefCell<Vec<Detached>>,
    is_worn: Cell<bool>,
    #[cfg(test)]
    steps: Cell<u64>,
}

impl Worker {
    pub(super) fn new(context: &Rc<Context>) -> Result<Rc<Self>, UcxError> {
        let table = context.table;
        let refused = |action| UcxError::refused(table, action);
        let raw = worker(table, context.raw).map_err(refused("make a worker"))?;
        context.has_worker();
        let arrivals = Rc::new(Arrivals::default());
        arrivals.library.set(Some((table, raw)));
        // The library keeps pointers to it as long as the worker lives: to the end of the process (invariant 5).
        std::mem::forget(Rc::clone(&arrivals));
        let mut worker = Self {
            table,
            context: Rc::clone(context),
            raw,
            address: Vec::new(),
            events: RefCell::default(),
            kick: Notify::new(),
            arrivals,
            detached: RefCell::default(),
            is_worn: Cell::new(false),
            #[cfg(test)]
            steps: Cell::default(),
        };
        worker.address = worker.own_address().map_err(refused("ask for the worker's address"))?;
        worker.events =
            RefCell::new(Some(worker.event_descriptor().map_err(refused("ask for its events"))?));
        for (id, callback) in [
            (MESSAGE_HEAD, head_came as MessageCallback),
            (MESSAGE_PAYLOAD, payload_came),
            (MESSAGE_TAKEN, taken_came),
        ] {
            worker.handle(id, callback).map_err(refused("take messages"))?;
        }
        Ok(Rc::new(worker))
    }

    /// Where others reach it; opaque.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Starts the driver, once; inside a `LocalSet`.
    pub(super) fn ensure_driven(self: &Rc<Self>) {
        let Some(events) = self.events.borrow_mut().take() else { return };
        let me = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let Err(error) = me.drive(events).await;
            tracing::error!(%error, "UCX moves nothing any more");
            me.fail(&error.to_string());
        });
    }

    /// Moves all on while there is something to move, and sleeps else.
    async fn drive(&self, events: OwnedFd) -> std::io::Result<Infallible> {
        let events = crate::watch::readable(events)?;
        loop {
            let mut steps = 0;
            while steps < STEPS_MAX && self.progress() {
                steps += 1;
            }
            if steps == STEPS_MAX || !self.arm() {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.kick.notified() => {}
                ready = events.readable() => ready?,
            }
        }
    }

    /// All its connections end; new ones take another worker.
    fn fail(&self, why: &str) {
        self.wear_out();
        let endpoints: Vec<_> =
            self.arrivals.endpoints.borrow().values().filter_map(Weak::upgrade).collect();
        endpoints.iter().for_each(|endpoint| endpoint.fail(why));
    }

    /// Something was started: the driver looks after it.
    pub(super) fn kick(&self) {
        self.kick.notify_one();
    }

    pub(super) fn open_inbox(&self, id: u64, inbox: &Rc<Inbox>) {
        self.arrivals.inboxes.borrow_mut().insert(id, Rc::downgrade(inbox));
    }

    pub(super) fn close_inbox(&self, id: u64) {
        self.arrivals.inboxes.borrow_mut().remove(&id);
    }

    /// One of its endpoints is used up: new connections take another worker.
    pub(super) fn wear_out(&self) {
        self.is_worn.set(true);
    }

    pub(super) fn is_worn(&self) -> bool {
        self.is_worn.get()
    }

    /// Has `endpoint` told when it fails.
    pub(super) fn open_endpoint(&self, raw: Handle, endpoint: Weak<dyn Failing>) {
        self.arrivals.endpoints.borrow_mut().insert(raw as usize, endpoint);
    }

    pub(super) fn close_endpoint(&self, raw: Handle) {
        self.arrivals.endpoints.borrow_mut().remove(&(raw as usize));
    }

    /// Keeps it until it is done.
    pub(super) fn detach(&self, operation: Detached) {
        self.detached.borrow_mut().push(operation);
        self.kick();
    }

    /// Endpoints that are open.
    #[cfg(test)]
    pub(super) fn endpoints(&self) -> usize {
        self.arrivals.endpoints.borrow().len()
    }

    #[cfg(test)]
    pub(super) fn inboxes(&self) -> usize {
        self.arrivals.inboxes.borrow().len()
    }

    /// How often it was looked after.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// One step; whether anything moved.
    pub(super) fn progress(&self) -> bool {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        // SAFETY: the worker lives as long as this, on this thread, and no callback calls us.
        let moved = unsafe { (self.table.ucp_worker_progress)(self.raw) } > 0;
        self.detached.borrow_mut().retain(|operation| !operation.is_done());
        moved
    }

    /// Whether the event descriptor will tell what comes from now on; else there is more to do.
    fn arm(&self) -> bool {
        // SAFETY: as above.
        unsafe { (self.table.ucp_worker_arm)(self.raw) == OK }
    }

    fn own_address(&self) -> Result<Vec<u8>, Code> {
        let (mut address, mut len) = (null_mut(), 0);
        // SAFETY: the worker lives; the two places are filled on success.
        checked(unsafe {
            (self.table.ucp_worker_get_address)(self.raw, &raw mut address, &raw mut len)
        })?;
        // SAFETY: the library says that `len` bytes are there, until they are released.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec();
        // SAFETY: got from the same worker, and used no more.
        unsafe { (self.table.ucp_worker_release_address)(self.raw, address) };
        Ok(bytes)
    }

    /// A descriptor of our own for the worker's events.
    fn event_descriptor(&self) -> Result<OwnedFd, Code> {
        const NO_RESOURCE: Code = -2;
        let mut events = -1;
        // SAFETY: the worker lives, with the feature of wake-up.
        checked(unsafe { (self.table.ucp_worker_get_efd)(self.raw, &raw mut events) })?;
        // SAFETY: the worker keeps it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(events) }.try_clone_to_owned().map_err(|_| NO_RESOURCE)
    }

    fn handle(&self, id: c_uint, callback: MessageCallback) -> Result<(), Code> {
        let params = HandlerParams {
            field_mask: AM_HANDLER_ID | AM_HANDLER_FLAGS | AM_HANDLER_CB | AM_HANDLER_ARG,
            id,
            flags: AM_FLAG_WHOLE_MSG,
            callback: Some(callback),
            arg: Rc::as_ptr(&self.arrivals).cast_mut().cast(),
        };
        // SAFETY: the worker lives; `arrivals` is never dropped, since `new` keeps one for the library, and the
        // callbacks take it as what it is.
        checked(unsafe { (self.table.ucp_worker_set_am_recv_handler)(self.raw, &raw const params) })
    }
}

impl Drop for Worker {
    /// At the end of its thread. What is on its way gets a moment; the rest is left to the end of the process
    /// (invariant 5).
    fn drop(&mut self) {
        let until = Instant::now() + WORKER_END_WAIT;
        while !self.detached.borrow().is_empty() && Instant::now() < until {
            if !self.progress() {
                std::thread::yield_now();
            }
        }
        self.detached.take().into_iter().for_each(Detached::leave);
    }
}

fn worker(table: &Table, context: Handle) -> Result<Handle, Code> {
    let params = WorkerParams {
        field_mask: WORKER_PARAM_THREAD_MODE,
        thread_mode: THREAD_MODE_SINGLE,
        cpu_mask: [0; 16],
        events: 0,
        user_data: null_mut(),
        event_fd: -1,
        flags: 0,
        name: null(),
        am_alignment: 0,
        client_id: 0,
    };
    let mut raw = null_mut();
    // SAFETY: the context lives; the place is filled on success.
    checked(unsafe { (table.ucp_worker_create)(context, &raw const params, &raw mut raw) })?;
    Ok(raw)
}

/// Two numbers in front of each message: for which connection, and which frame or how many.
pub(super) const LABEL_BYTES: usize = 16;

/// As it travels.
pub(super) fn label(connection: u64, number: u64) -> [u8; LABEL_BYTES] {
    let mut label = [0; LABEL_BYTES];
    label[..8].copy_from_slice(&connection.to_le_bytes());
    label[8..].copy_from_slice(&number.to_le_bytes());
    label
}

/// The inbox, the number and the rest of a header; `None`: not for anybody here.
///
/// # Safety
/// As the library calls: `arg` is what [`Worker::handle`] gave, `header` has `len` bytes.
unsafe fn addressed<'a>(
    arg: *mut c_void,
    header: *const c_void,
    len: usize,
) -> Option<(Rc<Inbox>, u64, &'a [u8], &'a Arrivals)> {
    if len < LABEL_BYTES || header.is_null() {
        return None;
    }
    // SAFETY: the worker's, which is never dropped.
    let arrivals = unsafe { &*arg.cast::<Arrivals>() };
    // SAFETY: so many bytes, for as long as the callback runs.
    let header = unsafe { std::slice::from_raw_parts(header.cast::<u8>(), len) };
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let inbox = arrivals.inboxes.borrow().get(&number(0))?.upgrade()?;
    Some((inbox, number(8), &header[LABEL_BYTES..], arrivals))
}

/// # Safety
/// `data` has `len` bytes for as long as the answer is used, or is null.
unsafe fn bytes<'a>(data: *mut c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
}

unsafe extern "C" fn head_came(
    arg: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const MessageParam,
) -> Code {
    // SAFETY: the library calls as `addressed` and `bytes` want it; `param` is good during the call.
    unsafe {
        let Some((inbox, number, rest, _)) = addressed(arg, header, header_len) else { return OK };
        if (*param).recv_attr & AM_RECV_FLAG_RNDV != 0 || rest.len() != HEADER_BYTES {
            inbox.fail("a frame in another form".into());
            return OK;
        }
        inbox.put_head(number, rest, bytes(data, len));
    }
    OK
}

unsafe extern "C" fn payload_came(
    arg: *mut c_void,
    header: *const c_void,
    header_len: usize,
    data: *mut c_void,
    len: usize,
    param: *const MessageParam,
) -> Code {
    // SAFETY: as above; of a message by rendezvous `data` is the descriptor, ours from when we say so.
    unsafe {
        let Some((inbox, number, _, arrivals)) = addressed(arg, header, header_len) else {
            return OK;
        };
        if (*param).recv_attr & AM_RECV_FLAG_RNDV == 0 {
            inbox.put_bytes(number, bytes(data, len).to_vec());
            return OK;
        }
        let Some((table, worker)) = arrivals.library.get() else { return OK };
        let descriptor = Descriptor::new(table, worker, data, len);
        match inbox.put_descriptor(number, descriptor) {
            None => IN_PROGRESS,
            Some(unwanted) => {
                // Inside of its callback the library releases it itself.
                unwanted.into_raw();
                OK
            }
        }
    }
}

impl Arrivals {
    fn endpoint(&self, raw: Handle) -> Option<Rc<dyn Failing>> {
        self.endpoints.borrow().get(&(raw as usize))?.upgrade()
    }
}

unsafe extern "C" fn taken_came(
    arg: *mut c_void,
    header: *const c_void,
    header_len: usize,
    _: *mut c_void,
    _: usize,
    _: *const MessageParam,
) -> Code {
    // SAFETY: as above.
    if let Some((inbox, frames, ..)) = unsafe { addressed(arg, header, header_len) } {
        inbox.set_taken_by_peer(frames);
    }
    OK
}

/// For an endpoint: the library can not reach its peer any more.
pub(super) unsafe extern "C" fn endpoint_failed(arg: *mut c_void, raw: Handle, code: Code) {
    // SAFETY: the worker's arrivals, which are never dropped.
    let arrivals = unsafe { &*arg.cast::<Arrivals>() };
    if let (Some(endpoint), Some((table, _))) = (arrivals.endpoint(raw), arrivals.library.get()) {
        endpoint.fail(&table.words(code));
    }
}
