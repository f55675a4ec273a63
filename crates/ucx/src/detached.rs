//! Operations of UCX that nobody waits for: the worker keeps them until they are done.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::rc::Rc;

use hayase_wire::buffer::Hold;

use super::completion::Completion;
use super::context::Told;
use super::table::{Handle, IN_PROGRESS, Table};

/// An operation that nobody waits for, with what it needs.
pub(super) struct Detached {
    table: &'static Table,
    request: Handle,
    kept: Option<Kept>,
}

/// What the library may still use.
pub(super) struct Kept {
    pub(super) _completion: Rc<Completion>,
    pub(super) _header: Vec<u8>,
    pub(super) _memory: Option<Told>,
    pub(super) _data: Option<Hold>,
}

impl Detached {
    /// An operation, with what it needs: a message, or the end of an endpoint, which needs nothing.
    ///
    /// # Safety
    /// `request` is one of the library that nobody else frees, and `kept` holds all that it may still use.
    pub(super) unsafe fn new(table: &'static Table, request: Handle, kept: Option<Kept>) -> Self {
        Self { table, request, kept }
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
