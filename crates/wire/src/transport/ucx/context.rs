//! A context of UCP: its devices, and the memory that is registered with them once.
//!
//! An operation whose buffer lies in such memory tells the library so, and is spared the registration; all others
//! are as if there were none. Shared by all workers of a transport.
//!
//! Invariants:
//! 1. Memory is unmapped only when the library has given it back: [`Memory`] owns the region, and is kept by who
//!    registered it and by each operation that told its handle ([`super::operation`]), which ends no sooner than
//!    the library is done with the buffer.
//! 2. A handle is told only for memory that lies in it as a whole.
//! 3. No peer reads or writes behind the end of an operation. Of memory that UCX registers itself it makes the key
//!    void when an operation is given up; of ours it does not. What protects then is that the connection of the devices
//!    ends with the endpoint, so that where one is shared by all peers ([`Context::is_shared_target`]) nothing is sent
//!    from registered memory; and that receivers fetch, so that no peer ever writes.
//!
//! Source: UCX 1.13.1, `ucp_ep_req_purge_send` and `ucp_wireup_select_transport` (memory of the user is not
//! invalidated; connections between two devices need not be).

#![expect(unsafe_code, reason = "functions of UCX")]

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::rc::{Rc, Weak};

use super::error::UcxError;
use super::table::{
    API_VERSION, Code, FEATURE_AM, FEATURE_WAKEUP, Handle, MEMORY_PARAM_ADDRESS,
    MEMORY_PARAM_LENGTH, MEMORY_PARAM_TYPE, MEMORY_TYPE_HOST, MemoryParams, OK, PARAM_FEATURES,
    PARAM_NAME, Params, Table, checked,
};
use crate::limits::REGISTERED_BYTES_MAX;
use crate::region::Region;

pub(super) struct Context {
    pub(super) table: &'static Table,
    pub(super) raw: Handle,
    /// Peers reach memory by what all of them share, and not by a connection of their own.
    is_shared_target: bool,
    /// Something of it is never given back: it stays to the end of the process.
    is_kept: Cell<bool>,
    /// By the first address.
    memory: RefCell<BTreeMap<usize, Weak<Memory>>>,
    registered: Cell<usize>,
    refusal: RefCell<Option<String>>,
    /// The library did not take a handle: none is told any more.
    is_distrusted: Cell<bool>,
    #[cfg(test)]
    told: Cell<u64>,
}

impl Context {
    /// `settings`: names and values as in `UCX_NAME=value`, without the prefix.
    pub(super) fn new(
        table: &'static Table,
        settings: &[(&str, String)],
        is_shared_target: bool,
    ) -> Result<Rc<Self>, UcxError> {
        let raw = context(table, settings).map_err(UcxError::refused(table, "start"))?;
        Ok(Rc::new(Self {
            table,
            raw,
            is_shared_target,
            is_kept: Cell::default(),
            memory: RefCell::default(),
            registered: Cell::default(),
            refusal: RefCell::default(),
            is_distrusted: Cell::default(),
            #[cfg(test)]
            told: Cell::default(),
        }))
    }

    /// A worker was made, which is never destroyed: nor is the context.
    pub(super) fn has_worker(&self) {
        self.is_kept.set(true);
    }

    /// Memory that operations may use registered, in pieces of `piece` bytes; each is registered with its first use.
    pub(super) fn memory(self: &Rc<Self>, region: Region, piece: usize) -> Rc<Memory> {
        let (span, piece) = (region.span(), piece.max(1));
        let pieces = span.len().div_ceil(piece);
        let pieces = (0..pieces).map(|_| OnceCell::new()).collect();
        let (context, region) = (Rc::clone(self), Rc::new(region));
        let memory = Rc::new(Memory { context, region, piece, pieces });
        self.memory.borrow_mut().insert(span.start, Rc::downgrade(&memory));
        memory
    }

    /// Of bytes that are sent.
    pub(super) fn handle_to_send(&self, bytes: &[u8]) -> Option<Told> {
        if self.is_shared_target { None } else { self.handle_to_fill(bytes) }
    }

    /// Of room that is filled.
    pub(super) fn handle_to_fill(&self, bytes: &[u8]) -> Option<Told> {
        if bytes.is_empty() || self.is_distrusted.get() {
            return None;
        }
        let start = bytes.as_ptr().addr();
        let memory = self.memory.borrow();
        let memory = memory.range(..=start).next_back()?.1.upgrade()?;
        let handle = memory.handle(start, bytes.len())?;
        #[cfg(test)]
        self.told.set(self.told.get() + 1);
        Some(Told { handle, _memory: memory })
    }

    /// The library would not have a handle of ours: from now on all is as if nothing was registered.
    pub(super) fn distrust(&self, code: Code) {
        self.is_distrusted.set(true);
        self.refused(&format!("a handle was refused: {}", self.table.words(code)));
    }

    fn refused(&self, why: &str) {
        if self.refusal.borrow().is_none() {
            tracing::warn!(why, "UCX registers memory for each transfer");
            *self.refusal.borrow_mut() = Some(why.to_owned());
        }
    }

    /// Bytes that are registered now.
    pub(super) fn registered_bytes(&self) -> usize {
        self.registered.get()
    }

    /// Why something is not registered that should be; the first reason.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.borrow().clone()
    }

    /// How often a handle was told.
    #[cfg(test)]
    pub(super) fn told(&self) -> u64 {
        self.told.get()
    }

    fn register(&self, start: *mut u8, len: usize) -> Option<Handle> {
        let sum = self.registered.get() + len;
        if sum > REGISTERED_BYTES_MAX {
            self.refused(&format!("no more than {} MiB at once", REGISTERED_BYTES_MAX >> 20));
            return None;
        }
        let params = MemoryParams {
            field_mask: MEMORY_PARAM_ADDRESS | MEMORY_PARAM_LENGTH | MEMORY_PARAM_TYPE,
            address: start.cast(),
            length: len,
            flags: 0,
            prot: 0,
            memory_type: MEMORY_TYPE_HOST,
        };
        let mut handle = null_mut();
        // SAFETY: the context lives; so many bytes are mapped from there on, and stay so until `give_back`. The place
        // is filled on success.
        let code =
            unsafe { (self.table.ucp_mem_map)(self.raw, &raw const params, &raw mut handle) };
        if code != OK {
            self.refused(&format!("{} MiB: {}", len.div_ceil(1 << 20), self.table.words(code)));
            return None;
        }
        self.registered.set(sum);
        Some(handle)
    }

    /// Whether the library let go of it.
    fn give_back(&self, handle: Handle, len: usize) -> bool {
        // SAFETY: of this context, given back once, and told to no operation that goes on (invariant 1).
        let code = unsafe { (self.table.ucp_mem_unmap)(self.raw, handle) };
        self.registered.set(self.registered.get() - len);
        // A context that is cleaned up before its memory is given back ends the process.
        self.is_kept.set(self.is_kept.get() || code != OK);
        code == OK
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // SAFETY: it is there, and nothing that was made of it is left.
            unsafe { (self.table.ucp_cleanup)(self.raw) };
        }
    }
}

/// Memory that is registered, or will be when it is used.
pub(super) struct Memory {
    context: Rc<Context>,
    region: Rc<Region>,
    piece: usize,
    /// `None`: the library refused it, and it is used as any other memory.
    pieces: Box<[OnceCell<Option<Handle>>]>,
}

impl Memory {
    /// Registers all of it; else each piece waits for its first use.
    pub(super) fn register_now(&self) {
        for start in self.region.span().step_by(self.piece) {
            self.handle(start, 1);
        }
    }

    /// The handle of the piece that has all `len` bytes from `start` on.
    fn handle(&self, start: usize, len: usize) -> Option<Handle> {
        let at = start.checked_sub(self.region.span().start)?;
        let index = at / self.piece;
        let piece = self.piece_at(index);
        let is_inside = at + len <= piece.end;
        let handle = self.pieces.get(index).filter(|_| is_inside)?;
        *handle.get_or_init(|| {
            let first = self.region.start().wrapping_add(piece.start);
            self.context.register(first, piece.len())
        })
    }

    /// Counted from the first byte.
    fn piece_at(&self, index: usize) -> std::ops::Range<usize> {
        let len = self.region.span().len();
        let start = (index * self.piece).min(len);
        start..(start + self.piece).min(len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let start = self.region.span().start;
        let mut known = self.context.memory.borrow_mut();
        // Another one may have been told of the same memory since.
        if known.get(&start).is_some_and(|memory| memory.strong_count() == 0) {
            known.remove(&start);
        }
        drop(known);
        for (index, handle) in self.pieces.iter().enumerate() {
            let Some(handle) = handle.get().copied().flatten() else { continue };
            if !self.context.give_back(handle, self.piece_at(index).len()) {
                tracing::error!("UCX does not let go of memory that was registered: it stays");
                std::mem::forget(Rc::clone(&self.region));
            }
        }
    }
}

/// A handle that an operation is told, and the memory, for as long as the operation goes on.
pub(super) struct Told {
    pub(super) handle: Handle,
    _memory: Rc<Memory>,
}

fn context(table: &Table, settings: &[(&str, String)]) -> Result<Handle, Code> {
    let mut config = null_mut();
    // SAFETY: no prefix and no file; the place is filled on success.
    checked(unsafe { (table.ucp_config_read)(null(), null(), &raw mut config) })?;
    let mut code = OK;
    for (name, value) in settings {
        let text = |text: &str| CString::new(text).expect("settings are texts of ours");
        let (name, value) = (text(name), text(value));
        if code == OK {
            // SAFETY: the configuration was read; both texts live during the call.
            code = unsafe { (table.ucp_config_modify)(config, name.as_ptr(), value.as_ptr()) };
        }
    }
    let params = Params {
        field_mask: PARAM_FEATURES | PARAM_NAME,
        features: FEATURE_AM | FEATURE_WAKEUP,
        request_size: 0,
        request_init: null(),
        request_cleanup: null(),
        tag_sender_mask: 0,
        mt_workers_shared: 0,
        estimated_num_eps: 0,
        estimated_num_ppn: 0,
        name: c"hayase".as_ptr(),
    };
    let mut context = null_mut();
    if code == OK {
        let (major, minor) = API_VERSION;
        // SAFETY: parameters and configuration live during the call; the place is filled on success.
        code = unsafe {
            (table.ucp_init_version)(major, minor, &raw const params, config, &raw mut context)
        };
    }
    // SAFETY: it was read, and is used no more.
    unsafe { (table.ucp_config_release)(config) };
    checked(code).map(|()| context)
}
