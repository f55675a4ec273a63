//! What a type selects, remembered with the type itself, in an attribute.
//!
//! The library drops it when the type is freed, so a handle that is used again for another type can not be mistaken for it.
//! Source: MPI 4.1, section 7.7.4 (attributes of datatypes).

#![expect(unsafe_code, reason = "the library's functions, and an Arc that it keeps")]

use std::{
    ffi::{c_int, c_void},
    sync::{Arc, OnceLock},
};

use super::Parsed;
use crate::{abi::Handle, library::functions as mpi};

/// The key under which types hold what they select; `None` where the library gives none.
fn keyval() -> Option<c_int> {
    extern "C" fn copy(
        _datatype: Handle,
        _keyval: c_int,
        _state: *mut c_void,
        _value: *mut c_void,
        _copied: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        // SAFETY: the library gives the address of an `int`.
        unsafe { flag.write(0) };
        0
    }
    extern "C" fn delete(
        _datatype: Handle,
        _keyval: c_int,
        value: *mut c_void,
        _state: *mut c_void,
    ) -> c_int {
        // SAFETY: `remember` made it from an Arc, and the library lets go of it here.
        drop(unsafe { Arc::from_raw(value.cast::<Parsed>()) });
        0
    }
    static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();
    *KEYVAL.get_or_init(|| {
        let mut keyval: c_int = 0;
        // SAFETY: a variable of ours; the functions live as long as this library.
        let answer =
            unsafe { mpi::Type_create_keyval(copy, delete, &raw mut keyval, std::ptr::null_mut()) };
        (answer == Some(0)).then_some(keyval)
    })
}

/// What was remembered with `datatype`.
pub(super) fn recall(datatype: Handle) -> Option<Arc<Parsed>> {
    let keyval = keyval()?;
    let (mut value, mut is_there) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: two variables of ours.
    let answer = unsafe { mpi::Type_get_attr(datatype, keyval, &raw mut value, &raw mut is_there) };
    if answer != Some(0) || is_there == 0 {
        return None;
    }
    let parsed = value.cast::<Parsed>().cast_const();
    // SAFETY: `remember` made it from an Arc that the type holds; this is one holder more.
    unsafe {
        Arc::increment_strong_count(parsed);
        Some(Arc::from_raw(parsed))
    }
}

/// Remembers what `datatype` selects, as long as it lives.
pub(super) fn remember(datatype: Handle, parsed: &Arc<Parsed>) {
    let Some(keyval) = keyval() else { return };
    let value = Arc::into_raw(Arc::clone(parsed));
    // SAFETY: `delete` above takes the value back. Where it can not be set, nobody else has it.
    unsafe {
        if mpi::Type_set_attr(datatype, keyval, value.cast_mut().cast()) != Some(0) {
            drop(Arc::from_raw(value));
        }
    }
}
