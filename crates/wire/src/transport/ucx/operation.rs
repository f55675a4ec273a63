//! An operation of UCX that may go on behind the call that started it.
//!
//! Invariant: an [`Operation`] ends only after the library has let go of its memory. Dropped earlier it closes
//! its endpoint by force and waits for that, which takes microseconds: then the peer can write no more either.
//! It holds that memory, and borrows none: of one that is forgotten the memory stays for ever.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::ffi::{c_uint, c_void};
use std::future::poll_fn;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use super::completion::{Completion, message_received, message_sent};
use super::context::Told;
use super::descriptor::Descriptor;
use super::detached::{Detached, Kept};
use super::endpoint::Endpoint;
use super::table::{
    AM_SEND_FLAG_EAGER, AM_SEND_FLAG_RNDV, CANCELED, Code, Handle, INVALID_PARAM, OK, OP_CALLBACK,
    OP_FLAGS, OP_MEMH, OP_USER_DATA, RequestParams, Started,
};
use crate::buffer::Loan;
use crate::deadline::LET_GO_WAIT;

/// How the bytes of a message travel.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// With it: copied on the other side.
    Along,
    /// By rendezvous: into their place when the other side says where that is.
    Fetched,
}

pub(super) struct Operation {
    endpoint: Rc<Endpoint>,
    /// Null when there is none (any more).
    request: Handle,
    kept: Kept,
}

impl Operation {
    fn new(endpoint: &Rc<Endpoint>, started: Started, kept: Kept) -> Self {
        let request = match started {
            Started::Request(request) => request,
            Started::Done(code) => {
                kept.completion.complete(code);
                null_mut()
            }
        };
        Self { endpoint: Rc::clone(endpoint), request, kept }
    }

    fn failed(endpoint: &Rc<Endpoint>, code: Code) -> Self {
        Self::new(endpoint, Started::Done(code), Kept::default())
    }

    /// Starts to send a message.
    pub(super) fn send(
        endpoint: &Rc<Endpoint>,
        id: c_uint,
        header: Vec<u8>,
        loan: &Loan,
        way: Way,
    ) -> Self {
        let data = loan.bytes();
        let completion = Rc::new(Completion::default());
        let raw = endpoint.raw();
        if raw.is_null() {
            return Self::failed(endpoint, CANCELED);
        }
        let memory = endpoint.worker.context.handle_to_send(data);
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
            (endpoint.worker.table.ucp_am_send_nbx)(
                raw,
                id,
                header.as_ptr().cast(),
                header.len(),
                buffer.cast(),
                data.len(),
                &raw const params,
            )
        };
        let kept = Kept { completion, header, memory, data: Some(loan.hold()) };
        Self::started(endpoint, answer, kept)
    }

    /// Starts to fetch what `from` stands for to behind the first `at` bytes of `into`, where it has room. Fails where
    /// another operation holds on to these.
    pub(super) fn fetch(
        endpoint: &Rc<Endpoint>,
        from: Descriptor,
        into: &mut Loan,
        at: usize,
    ) -> Self {
        let Some(room) = into.bytes_mut().filter(|_| !endpoint.raw().is_null()) else {
            return Self::failed(endpoint, CANCELED);
        };
        let room = &mut room[at..];
        assert!(from.len() <= room.len(), "a payload has room where it is fetched to");
        let completion = Rc::new(Completion::default());
        let len = from.len();
        let memory = endpoint.worker.context.handle_to_fill(&room[..len]);
        let target = room.as_mut_ptr();
        let hold = into.hold();
        let params = request(message_received as *const c_void, &completion, memory.as_ref());
        // SAFETY: the worker lives. The descriptor is ours, and the library's again from here on. The operation holds the
        // room, which nobody else has meanwhile, and the handle of the memory, and ends only after the library is done
        // with them.
        let answer = unsafe {
            (endpoint.worker.table.ucp_am_recv_data_nbx)(
                endpoint.worker.raw,
                from.into_raw(),
                target.cast(),
                len,
                &raw const params,
            )
        };
        let kept = Kept { completion, header: Vec::new(), memory, data: Some(hold) };
        Self::started(endpoint, answer, kept)
    }

    /// An operation that is given a handle and refused for it is not tried without: the library may keep a half of
    /// it. The connection ends, and all that comes later goes without.
    fn started(endpoint: &Rc<Endpoint>, answer: Handle, kept: Kept) -> Self {
        let started = Started::from_raw(answer);
        if kept.memory.is_some() && matches!(started, Started::Done(INVALID_PARAM)) {
            endpoint.worker.context.distrust(INVALID_PARAM);
        }
        endpoint.worker.kick();
        Self::new(endpoint, started, kept)
    }

    /// Sends a message of a header alone, and does not wait for it.
    pub(super) fn tell(endpoint: &Rc<Endpoint>, id: c_uint, header: Vec<u8>) {
        Self::send(endpoint, id, header, &Loan::from(Vec::new()), Way::Along).detach();
    }

    /// Waits until it is done.
    pub(super) async fn done(self) -> Result<(), String> {
        let code = poll_fn(|cx| match self.kept.completion.code() {
            Some(code) => Poll::Ready(code),
            None => {
                self.kept.completion.wake(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
        if code == OK { Ok(()) } else { Err(self.endpoint.worker.table.words(code)) }
    }

    /// Leaves it to the worker, which keeps what it needs.
    pub(super) fn detach(mut self) {
        let request = std::mem::replace(&mut self.request, null_mut());
        if !request.is_null() {
            let kept = &mut self.kept;
            let kept = Kept {
                completion: Rc::clone(&kept.completion),
                header: std::mem::take(&mut kept.header),
                memory: kept.memory.take(),
                data: kept.data.take(),
            };
            let worker = &self.endpoint.worker;
            worker.detach(Detached::operation(worker.table, request, kept));
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.request.is_null() {
            return;
        }
        let worker = &self.endpoint.worker;
        if self.kept.completion.code().is_none() {
            self.endpoint.kill();
            let until = Instant::now() + LET_GO_WAIT;
            while self.kept.completion.code().is_none() {
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
        ..RequestParams::without_callback()
    }
}
