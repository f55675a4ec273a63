//! The originals of a program that has its MPI library inside (feature `static`).
//!
//! Here: a table that the linker fills in: of each original its name, and its address or 0.
//! Not here: who asks ([`crate::real`]).
//!
//! A preload reaches no call of such a program. It is linked with `libhayase_mpiio.a` instead, whose `MPI_`
//! names come before those of the MPI library, which are weak. `PMPI_` names are the library's alone: they
//! are how the originals are reached. So what calls `PMPI_` names (parts of Fortran) is not taken.

#![expect(unsafe_code, reason = "a section that the linker puts together")]

use std::ffi::{CStr, c_char};

/// An entry of the table for each name, without `PMPI_`; the linker takes it from the library's archive.
macro_rules! originals {
    ($list:literal: $($name:ident)*) => {
        // Asked for by name below: the linker leaves out of an archive what nobody asks for.
        std::arch::global_asm!(
            ".pushsection hayase_originals, \"aw\"",
            concat!(".globl ", $list),
            concat!(".hidden ", $list),
            concat!($list, ":"),
            ".popsection",
        );
        $(std::arch::global_asm!(
            ".pushsection hayase_originals, \"aw\"",
            ".balign 8",
            ".8byte 77f",
            concat!(".8byte PMPI_", stringify!($name)),
            ".popsection",
            ".pushsection .rodata.hayase_names, \"a\"",
            concat!("77: .asciz \"PMPI_", stringify!($name), "\""),
            ".popsection",
        );)*
    };
}
pub(crate) use originals;

/// Of these, what not every library has: the address is 0 then, and nothing is taken from an archive for it.
macro_rules! may_be_missing {
    ($($name:ident)*) => {
        $(std::arch::global_asm!(concat!(".weak PMPI_", stringify!($name)));)*
    };
}
pub(crate) use may_be_missing;

originals!("hayase_originals_own": Get_library_version);

#[repr(C)]
struct Entry {
    name: *const c_char,
    address: usize,
}

unsafe extern "C" {
    // The linker's names for the two ends of a section.
    #[link_name = "__start_hayase_originals"]
    static FIRST: Entry;
    #[link_name = "__stop_hayase_originals"]
    static END: Entry;
    #[link_name = "hayase_originals_calls"]
    static CALLS: Entry;
    #[link_name = "hayase_originals_functions"]
    static FUNCTIONS: Entry;
}

/// The address of an original; `None` when the program does not have it.
pub(crate) fn symbol(name: &CStr) -> Option<usize> {
    std::hint::black_box((&raw const CALLS, &raw const FUNCTIONS));
    let (mut entry, end) = (&raw const FIRST, &raw const END);
    while entry < end {
        // SAFETY: entries of two words follow each other from the one end to the other; each name ends with a zero.
        let (found, address) = unsafe { (CStr::from_ptr((*entry).name), (*entry).address) };
        if found == name {
            return (address != 0).then_some(address);
        }
        // SAFETY: not behind the end, which was not reached.
        entry = unsafe { entry.add(1) };
    }
    None
}
