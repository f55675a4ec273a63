//! An operation of UCX that may go on behind the call that started it.
//!
//! Invariant: an [`Operation`] ends only after the library has let go of its memory. Dropped earlier it closes
//! its endpoint by force and waits for that, which takes microseconds: then the peer can write no more either.
//! It holds that memory, and borrows none: of one that is forgotten the memory stays for ever.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::context::Told;
use super::endpoint::Endpoint;
use super::table::{Code, Handle, IN_PROGRESS, OK, Started, Table};
use crate::buffer::Hold;
use crate::deadline::LET_GO_WAIT;

/// What its callback tells.
#[derive(Default)]
pub(super) struct Completion {
    code: Cell<Option<Code>>,
    waker: RefCell<Option<Waker>>,
}

impl Completion {
    fn complete(&self, code: Code) {
        self.code.set(Some(code));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(super) struct Operation {
    endpoint: Rc<Endpoint>,
    /// Null when there is none (any more).
    request: Handle,
    completion: Rc<Completion>,
    /// What the library may still read.
    header: Vec<u8>,
    /// Registered memory that the data lies in.
    memory: Option<Told>,
    /// What the library reads or fills.
    data: Option<Hold>,
}

impl Operation {
    pub(super) fn new(
        endpoint: &Rc<Endpoint>,
        started: Started,
        completion: Rc<Completion>,
        header: Vec<u8>,
        memory: Option<Told>,
        data: Option<Hold>,
    ) -> Self {
        let request = match started {
            Started::Request(request) => request,
            Started::Done(code) => {
                completion.complete(code);
                std::ptr::null_mut()
            }
        };
        let endpoint = Rc::clone(endpoint);
        Self { endpoint, request, completion, header, memory, data }
    }

    pub(super) fn failed(endpoint: &Rc<Endpoint>, code: Code) -> Self {
        Self::new(endpoint, Started::Done(code), Rc::default(), Vec::new(), None, None)
    }

    /// Waits until it is done.
    pub(super) async fn done(self) -> Result<(), String> {
        let code = poll_fn(|cx| match self.completion.code.get() {
            Some(code) => Poll::Ready(code),
            None => {
                *self.completion.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
        if code == OK { Ok(()) } else { Err(self.endpoint.worker.table.words(code)) }
    }

    /// Leaves it to the worker, which keeps what it needs.
    pub(super) fn detach(mut self) {
        let request = std::mem::replace(&mut self.request, std::ptr::null_mut());
        if !request.is_null() {
            let kept = Kept {
                _completion: Rc::clone(&self.completion),
                _header: std::mem::take(&mut self.header),
                _memory: self.memory.take(),
                _data: self.data.take(),
            };
            let worker = &self.endpoint.worker;
            worker.detach(Detached { table: worker.table, request, kept: Some(kept) });
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.request.is_null() {
            return;
        }
        let worker = &self.endpoint.worker;
        if self.completion.code.get().is_none() {
            self.endpoint.kill();
            let until = Instant::now() + LET_GO_WAIT;
            while self.completion.code.get().is_none() {
                worker.progress();
                if Instant::now() > until {
                    // Its memory is about to be used for something else.
                    tracing::error!(
                        "UCX does not let go of a buffer: the process ends, before bytes go wrong"
                    );
                    std::process::abort();
                }
            }
        }
        // SAFETY: the request is done, and ours to free.
        unsafe { (worker.table.ucp_request_free)(self.request) };
    }
}

/// An operation that nobody waits for, with what it needs.
pub(super) struct Detached {
    table: &'static Table,
    request: Handle,
    kept: Option<Kept>,
}

struct Kept {
    _completion: Rc<Completion>,
    _header: Vec<u8>,
    _memory: Option<Told>,
    _data: Option<Hold>,
}

impl Detached {
    /// The orderly or forced end of an endpoint.
    pub(super) fn close(table: &'static Table, request: Handle) -> Self {
        Self { table, request, kept: None }
    }

    /// Whether it is done; then it can be dropped.
    pub(super) fn is_done(&self) -> bool {
        // SAFETY: the request lives until it is freed.
        unsafe { (self.table.ucp_request_check_status)(self.request) != IN_PROGRESS }
    }

    /// It is not, and nobody will look at it again: at the end of the worker's thread.
    pub(super) fn leave(self) {
        // SAFETY: ours to free; the library does so once it is done, and what its callback touches stays.
        unsafe { (self.table.ucp_request_free)(self.request) };
        std::mem::forget(self);
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        debug_assert!(self.is_done(), "dropped when done");
        drop(self.kept.take());
        // SAFETY: done, and ours to free.
        unsafe { (self.table.ucp_request_free)(self.request) };
    }
}

/// `ucp_send_nbx_callback_t`.
pub(super) unsafe extern "C" fn message_sent(_: Handle, code: Code, completion: *mut c_void) {
    // SAFETY: of an operation, which keeps it until it is done.
    unsafe { &*completion.cast::<Completion>() }.complete(code);
}

/// `ucp_am_recv_data_nbx_callback_t`.
pub(super) unsafe extern "C" fn message_received(
    _: Handle,
    code: Code,
    _len: usize,
    completion: *mut c_void,
) {
    // SAFETY: as above.
    unsafe { &*completion.cast::<Completion>() }.complete(code);
}
