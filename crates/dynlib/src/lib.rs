//! Libraries of the system, loaded when they are wanted: nothing of them is needed to build, or to run without them.
//!
//! Here: [`functions!`], which makes a table of a library's functions, and `dlopen` behind it. Not here: which
//! functions a library has, and what may be passed to them (who declares the table).
//! Source: dlopen(3), dlsym(3).

#![expect(unsafe_code, reason = "libraries are loaded")]

use std::ffi::{CStr, CString, c_void};

/// Why a library can not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It can not be loaded; in the words of dlopen(3).
    Library(String),
    /// It lacks this function.
    Function(&'static str),
}

/// A library that was loaded, for the life of the process.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
}

impl Library {
    /// Loads it, all of its own libraries with it; its symbols are for those who ask for them.
    pub fn load(name: &CStr) -> Result<Self, Missing> {
        // SAFETY: the name ends with a zero. The library's initialisers run; it is made to be loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror answers null or a text that lives until the next call on this thread.
            let text = unsafe {
                let text = libc::dlerror();
                if text.is_null() { c"dlopen failed" } else { CStr::from_ptr(text) }
            };
            return Err(Missing::Library(text.to_string_lossy().into_owned()));
        }
        Ok(Self { handle })
    }

    /// Where a function is; never null.
    pub fn function(&self, name: &'static str) -> Result<*mut c_void, Missing> {
        let symbol = CString::new(name).expect("names of functions have no zeros");
        // SAFETY: the handle is never closed; the name ends with a zero.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        if address.is_null() { Err(Missing::Function(name)) } else { Ok(address) }
    }
}

/// Declares a structure with a pointer for each of a library's functions, and its `load`, which finds all of them or
/// says which is [`Missing`]. Calling them is as unsafe as it is in C; that what is declared is what the library has
/// is the promise of who declares it.
///
/// ```
/// # #![allow(unsafe_code, reason = "an example")]
/// hayase_dynlib::functions! {
///     /// Of the C library.
///     struct Table;
///     abs(std::ffi::c_int) -> std::ffi::c_int;
/// }
/// let table = Table::load(c"libc.so.6").unwrap();
/// // SAFETY: abs(3) takes any number but the smallest.
/// assert_eq!(unsafe { (table.abs)(-5) }, 5);
/// ```
#[macro_export]
macro_rules! functions {
    (
        $(#[$attribute:meta])* $visibility:vis struct $table:ident;
        $($name:ident($($arg:ty),* $(,)?) $(-> $answer:ty)?;)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        $visibility struct $table {
            $($visibility $name: unsafe extern "C" fn($($arg),*) $(-> $answer)?,)*
        }

        impl $table {
            /// Loads the library, for the life of the process, and finds every function.
            $visibility fn load(name: &::std::ffi::CStr) -> Result<Self, $crate::Missing> {
                let library = $crate::Library::load(name)?;
                Ok(Self {
                    $($name: {
                        let address = library.function(stringify!($name))?;
                        // SAFETY: the library's function of this name has these parameters.
                        unsafe {
                            ::std::mem::transmute::<
                                *mut ::std::ffi::c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $answer)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;

    use super::*;

    functions! {
        struct Known;
        abs(c_int) -> c_int;
    }

    #[test]
    fn what_is_found_can_be_called() {
        let table = Known::load(c"libc.so.6").unwrap();
        // SAFETY: abs(3) takes any number but the smallest.
        assert_eq!(unsafe { (table.abs)(-5) }, 5);
    }

    #[test]
    fn what_is_missing_is_told() {
        let Err(Missing::Library(why)) = Known::load(c"libhayase-no-such.so.1") else {
            panic!("loaded")
        };
        assert!(why.contains("libhayase-no-such.so.1"), "{why}");
        let library = Library::load(c"libc.so.6").unwrap();
        let name = "hayase_has_no_such_function";
        assert_eq!(library.function(name).unwrap_err(), Missing::Function(name));
    }
}
