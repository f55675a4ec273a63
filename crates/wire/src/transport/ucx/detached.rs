//! What UCX still works on though nobody waits for it.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::rc::Rc;

use super::completion::Completion;
use super::context::Told;
use super::table::{Handle, IN_PROGRESS, Table};
use crate::buffer::Hold;

/// An operation that nobody waits for, with what it needs.
pub(super) struct Detached {
    table: &'static Table,
    request: Handle,
    kept: Option<Kept>,
}

/// What the library reads, fills or calls until an operation is done.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) completion: Rc<Completion>,
    pub(super) header: Vec<u8>,
    /// Registered memory that the data lies in.
    pub(super) memory: Option<Told>,
    pub(super) data: Option<Hold>,
}

impl Detached {
    /// An operation that is not done.
    pub(super) fn operation(table: &'static Table, request: Handle, kept: Kept) -> Self {
        Self { table, request, kept: Some(kept) }
    }

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
