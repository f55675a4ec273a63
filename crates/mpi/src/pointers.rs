//! What programs hand to MPI calls by address, as types.
//!
//! Here: texts, places for one result, addresses that are only passed on.
//! Not here: the memory that is written to the file and read from it ([`crate::memory`]).
//!
//! Values of these types come from the arguments of an MPI call, or are made of a variable of ours, and live as long:
//! nothing here makes one of a number. MPI obliges the caller to give valid addresses; a null pointer is told apart,
//! nothing else can be. An [`Address`] is a number, and trusted by nobody.

#![expect(unsafe_code, reason = "what C programs hand over")]

use std::{
    ffi::{CStr, c_char, c_void},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// An address that is passed on: buffers ([`crate::memory::Memory`]), callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) usize);

/// A `MPI_Count` argument of the calls that end with `_c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Count(pub(crate) i64);

impl From<Count> for i64 {
    fn from(count: Count) -> Self {
        count.0
    }
}

/// Where the library, or we, put a `Kind` of the library's, whose form only the library knows.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct OutObject<'a, Kind>(*mut c_void, PhantomData<&'a mut Kind>);

/// An `MPI_Status`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Status {}
/// An `MPI_Request`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {}
/// An `MPI_Datatype`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {}
/// An `MPI_Group`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Group {}

impl<Kind> OutObject<'_, Kind> {
    /// Of such an object; of a status maybe none, null or `MPI_STATUS_IGNORE`.
    pub(crate) fn address(&self) -> *mut c_void {
        self.0
    }
}

/// A text that ends with a zero.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// For a call of the library.
    pub(crate) fn of(text: &'a CStr) -> Self {
        Self(text.as_ptr(), PhantomData)
    }

    /// Its bytes; none of a null pointer.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.is_null() {
            return b"";
        }
        // SAFETY: MPI obliges the caller to give a text that ends with a zero and lives during the call.
        unsafe { CStr::from_ptr(self.0) }.to_bytes()
    }

    /// As the name of a file.
    pub(crate) fn to_path(self) -> PathBuf {
        Path::new(std::ffi::OsStr::from_bytes(self.bytes())).to_owned()
    }
}

/// Where one result goes, or a value that is replaced.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Clone for Out<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<'_, T> {}

impl<'a, T: Copy> Out<'a, T> {
    /// For a call of the library.
    pub(crate) fn of(place: &'a mut T) -> Self {
        Self(place, PhantomData)
    }

    /// Nothing happens at a null pointer.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: MPI obliges the caller to give the address of such a variable.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// `None` at a null pointer.
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: MPI obliges the caller to give the address of such a variable, with a value.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

/// `MPI_MAX_DATAREP_STRING` is 128 in every MPI.
const DATAREP_BYTES_MAX: usize = 128;

/// Where the name of a data representation goes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct DatarepOut<'a>(*mut c_char, PhantomData<&'a mut c_char>);

impl DatarepOut<'_> {
    /// `name` is cut to what the caller has room for; nothing happens at a null pointer.
    pub(crate) fn set(self, name: &str) {
        if self.0.is_null() {
            return;
        }
        let len = name.len().min(DATAREP_BYTES_MAX - 1);
        // SAFETY: MPI obliges the caller to give room for MPI_MAX_DATAREP_STRING characters.
        unsafe {
            name.as_ptr().copy_to_nonoverlapping(self.0.cast(), len);
            self.0.add(len).write(0);
        }
    }
}
