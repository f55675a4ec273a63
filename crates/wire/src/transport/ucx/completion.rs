//! The end of an operation, as its callback tells it.

#![expect(unsafe_code, reason = "callbacks of UCX")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::task::Waker;

use super::table::{Code, Handle};

/// What the callback of an operation tells.
#[derive(Default)]
pub(super) struct Completion {
    code: Cell<Option<Code>>,
    waker: RefCell<Option<Waker>>,
}

impl Completion {
    pub(super) fn complete(&self, code: Code) {
        self.code.set(Some(code));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The status, once it is done.
    pub(super) fn code(&self) -> Option<Code> {
        self.code.get()
    }

    /// Wakes `waker` when it is done.
    pub(super) fn wake(&self, waker: Waker) {
        *self.waker.borrow_mut() = Some(waker);
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
