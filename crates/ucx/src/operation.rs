//! An operation of UCX that may last longer than the call that started it.
//!
//! Invariant: an [`Operation`] ends only after the library has let go of its memory. Dropped earlier it closes
//! its endpoint by force and waits for that, which takes microseconds: then the peer can write no more either.
//! It holds that memory, and borrows none: of one that is forgotten the memory stays for ever.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::rc::Rc;
use std::time::Instant;

use hayase_wire::buffer::Hold;

use super::completion::Completion;
use super::context::Told;
use super::detached::{Detached, Kept};
use super::limits::LET_GO_WAIT;
use super::table::{Code, Handle, OK, Started};
use super::worker::Worker;

/// What an operation needs of its endpoint.
pub(super) trait Killable {
    /// Which moves the operation on.
    fn worker(&self) -> &Worker;

    /// Closes it by force: each operation on it ends soon.
    fn kill(&self);
}

pub(super) struct Operation {
    endpoint: Rc<dyn Killable>,
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
        endpoint: Rc<dyn Killable>,
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
        Self { endpoint, request, completion, header, memory, data }
    }

    pub(super) fn failed(endpoint: Rc<dyn Killable>, code: Code) -> Self {
        Self::new(endpoint, Started::Done(code), Rc::default(), Vec::new(), None, None)
    }

    /// Waits until it is done.
    pub(super) async fn done(self) -> Result<(), String> {
        let code = self.completion.wait().await;
        if code == OK { Ok(()) } else { Err(self.endpoint.worker().table.words(code)) }
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
            let worker = self.endpoint.worker();
            // SAFETY: the request is no longer ours, and goes with all that it needs.
            worker.detach(unsafe { Detached::new(worker.table, request, Some(kept)) });
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.request.is_null() {
            return;
        }
        let worker = self.endpoint.worker();
        if !self.completion.is_done() {
            self.endpoint.kill();
            let until = Instant::now() + LET_GO_WAIT;
            while !self.completion.is_done() {
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
