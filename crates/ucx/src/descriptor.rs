//! What stands for a payload that has not been fetched yet.

#![expect(unsafe_code, reason = "functions of UCX")]

use std::ffi::c_void;

use super::table::{Handle, Table};

/// What the library keeps until we say where the bytes go.
pub(super) struct Descriptor {
    table: &'static Table,
    worker: Handle,
    raw: *mut c_void,
    len: usize,
}

impl Descriptor {
    /// Of `len` bytes.
    ///
    /// # Safety
    /// The library has left `raw` to us in a callback of `worker`, which lives as long as this, and nobody else gives it
    /// back.
    pub(super) unsafe fn new(
        table: &'static Table,
        worker: Handle,
        raw: *mut c_void,
        len: usize,
    ) -> Self {
        Self { table, worker, raw, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// It was handed back to the library.
    pub(super) fn into_raw(self) -> *mut c_void {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: as its maker has promised: kept for us since the callback answered that it is in progress, and not
        // given back yet. The worker lives: descriptors lie in inboxes, which are cleared by what holds the worker.
        unsafe { (self.table.ucp_am_data_release)(self.worker, self.raw) };
    }
}
