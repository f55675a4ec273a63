//! How an operation of UCX ended, which a callback says.

#![expect(unsafe_code, reason = "callbacks of UCX")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::table::{Code, Handle};

/// What the callback of an operation says.
#[derive(Default)]
pub(super) struct Completion {
    code: Cell<Option<Code>>,
    waker: RefCell<Option<Waker>>,
}

impl Completion {
    /// What the library answered, when it does.
    pub(super) async fn wait(&self) -> Code {
        poll_fn(|cx| match self.code.get() {
            Some(code) => Poll::Ready(code),
            None => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    pub(super) fn is_done(&self) -> bool {
        self.code.get().is_some()
    }

    pub(super) fn complete(&self, code: Code) {
        self.code.set(Some(code));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
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
