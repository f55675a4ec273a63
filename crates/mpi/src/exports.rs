//! The symbols that are taken from the MPI library: one table of calls, each exported as `MPI_x` and `PMPI_x`
//! (with the feature `static` only as `MPI_x`: see `crate::linked`).
//!
//! Here: the table; what happens at the entry of each call. Not here: what the calls do ([`crate::calls`]),
//! where the originals are ([`crate::real`]).
//! Source: MPI 4.1, chapter 14 and annex A.2; Open MPI's Fortran layer calls `PMPI_` names, MPICH's calls
//! half of its `mpi_f08` through them: so both are exported, and no Fortran name is.
//!
//! A call that the library makes itself, while it works on another one, is passed on (`Entered`). A call
//! on a file that is no container is passed on with the same arguments in the same registers: it makes no
//! difference which MPI it is. Those that end with `_c` are exported also where the library has none (and a
//! program that asks for the symbol finds ours): they become the small call then, when the count allows.

#![expect(unsafe_code, reason = "functions that C programs call")]

use std::{
    ffi::{CStr, c_int},
    panic::AssertUnwindSafe,
};

use crate::{
    abi::{ErrorClass, Handle},
    calls::{admin, collective, independent, nonblocking, opening, seek, shared, split, views},
    entered::Entered,
    error::Error,
    handlers::raise,
    memory::Memory,
    open_files::{self, Split},
    pointers::{Address, Count, DatarepOut, Group, Out, OutObject, Request, Status, Text, Type},
    real::{self, Original, symbol_name},
    stderr,
    trace::{self, CallCounts},
};

/// The memory of a call in the table below.
fn memory(buffer: Address, count: impl Into<i64>, datatype: Handle) -> Memory {
    // SAFETY: arguments of a program in one call, in which MPI obliges it to leave the memory that they describe to us; it
    // is let go of before the call returns.
    unsafe { Memory::new(buffer, count, datatype) }
}

/// What a library has as `int` must fit there.
trait Fits {
    fn fits(&self) -> bool {
        true
    }
}

impl Fits for Handle {}
impl Fits for Address {}
impl Fits for Text<'_> {}
impl Fits for DatarepOut<'_> {}
impl<Kind> Fits for OutObject<'_, Kind> {}
impl Fits for c_int {}
impl Fits for i64 {} // an MPI_Offset or MPI_Aint, in both
impl<T> Fits for Out<'_, T> {}
impl Fits for Count {
    fn fits(&self) -> bool {
        c_int::try_from(self.0).is_ok()
    }
}

/// The library has no such function.
fn missing(call: Call) -> c_int {
    stderr::say(&format!("this MPI library has no MPI_{}", call.name()));
    let class = ErrorClass::UnsupportedOperation;
    real::found().abi.map_or(1, |abi| (abi.error_class)(class))
}

/// A call on a container; `None` when `fh` is none.
fn on_file(
    call: Call,
    fh: Handle,
    run: impl FnOnce(&open_files::OpenFile) -> Result<(), Error>,
) -> Option<c_int> {
    let file = open_files::find(fh)?;
    call.counts().count_taken();
    let answer = std::panic::catch_unwind(AssertUnwindSafe(|| run(&file)));
    let answer = answer.unwrap_or_else(|_| Err(Error::internal("a broken invariant")));
    Some(answer.map_or_else(|error| raise(fh, &error), |()| 0))
}

/// A call that is on no file, or ends one.
fn on_world(call: Call, run: impl FnOnce() -> Option<c_int>) -> Option<c_int> {
    let answer = std::panic::catch_unwind(AssertUnwindSafe(run));
    let internal =
        || Some(real::found().abi.map_or(1, |abi| (abi.error_class)(ErrorClass::Intern)));
    let answer = answer.unwrap_or_else(|_| internal());
    if answer.is_some() {
        call.counts().count_taken();
    }
    answer
}

/// By the order of [`Call::ALL`].
static COUNTS: [CallCounts; Call::ALL.len()] = [const { CallCounts::new() }; Call::ALL.len()];

/// Always passed on.
fn finalize() -> Option<c_int> {
    opening::finalize();
    let library = real::found().abi.map_or("an unknown MPI library", |abi| abi.name);
    trace::report(library, Call::ALL.iter().map(|call| (call.name(), call.counts())));
    None
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) $(or $small:ident)?
        => $kind:ident $(with $file:ident)? $(: $body:expr)?;)*) => {
        /// A call that is taken, by its name without `MPI_`.
        #[expect(non_camel_case_types, reason = "the names are MPI's")]
        #[derive(Clone, Copy, Debug)]
        enum Call { $($name),* }

        impl Call {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// Without `MPI_`.
            fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }

            fn counts(self) -> &'static CallCounts {
                &COUNTS[self as usize]
            }
        }

        /// The originals, by the names of the calls. What buffers they are given nobody checks: so the rest of the crate
        /// has [`crate::library::files`].
        #[expect(non_snake_case, reason = "the names are MPI's")]
        mod originals {
            use super::*;

            $(
                /// `None` when the library does not have it.
                pub(super) fn $name($($arg: $ty),*) -> Option<c_int> {
                    static ORIGINAL: Original = Original::new();
                    const NAME: &CStr = symbol_name(concat!("PMPI_", stringify!($name), "\0"));
                    // SAFETY: the library's function of this name has these parameters: an integer or one pointer each.
                    let function = unsafe { ORIGINAL.function::<extern "C" fn($($ty),*) -> c_int>(NAME) };
                    match function {
                        Some(function) => Some(function($($arg),*)),
                        None => calls!(@instead $name($($arg),*) $(or $small)?),
                    }
                }
            )*

            /// The same arguments for the call without `_c`: a count that fits is the same register.
            mod small {
                use super::*;

                $(calls!(@small $name($($arg: $ty),*) $(or $small)?);)*
            }
        }

        #[cfg(feature = "static")]
        mod linked {
            crate::linked::originals!("hayase_originals_calls": $($name)*);
            crate::linked::may_be_missing!(Register_datarep_c);
            $(calls!(@may_be_missing $name $(or $small)?);)*
        }

        $(const _: () = {
            fn enter($($arg: $ty),*) -> c_int {
                let pass = || originals::$name($($arg),*).unwrap_or_else(|| missing(Call::$name));
                let Some(_entered) = Entered::new() else { return pass() };
                Call::$name.counts().count();
                calls!(@$kind $name($($arg),*) $(with $file)? $(: $body)?).unwrap_or_else(pass)
            }

            // SAFETY: the name is that of an MPI function with these parameters, to be called instead.
            #[unsafe(export_name = concat!("MPI_", stringify!($name)))]
            extern "C" fn named($($arg: $ty),*) -> c_int {
                enter($($arg),*)
            }

            // SAFETY: as above, by the name of the profiling interface.
            #[cfg(not(feature = "static"))]
            #[unsafe(export_name = concat!("PMPI_", stringify!($name)))]
            extern "C" fn profiled($($arg: $ty),*) -> c_int {
                enter($($arg),*)
            }
        };)*
    };
    (@may_be_missing $name:ident) => {};
    (@may_be_missing $name:ident or $small:ident) => { crate::linked::may_be_missing!($name); };
    (@instead $name:ident($($arg:ident),*)) => { None };
    (@instead $name:ident($($arg:ident),*) or $small:ident) => {
        if true $(&& $arg.fits())* { small::$small($($arg),*) } else { None }
    };
    (@small $name:ident($($arg:ident: $ty:ty),*)) => {};
    (@small $name:ident($($arg:ident: $ty:ty),*) or $small:ident) => {
        pub(super) fn $small($($arg: $ty),*) -> Option<c_int> {
            static ORIGINAL: Original = Original::new();
            const NAME: &CStr = symbol_name(concat!("PMPI_", stringify!($small), "\0"));
            // SAFETY: as above, but for a count that is an `int` there: the lower half of its register, which it fits in.
            let function = unsafe { ORIGINAL.function::<extern "C" fn($($ty),*) -> c_int>(NAME) };
            function.map(|function| function($($arg),*))
        }
    };
    (@pass $name:ident($($arg:ident),*)) => { None };
    (@file $name:ident($fh:ident $(, $arg:ident)*) with $file:ident: $body:expr) => {
        on_file(Call::$name, $fh, |$file| $body)
    };
    (@world $name:ident($($arg:ident),*): $body:expr) => { on_world(Call::$name, || $body) };
}

calls! {
    // --- opening and closing ---
    File_open(comm: Handle, filename: Text<'_>, amode: c_int, info: Handle, fh: Out<'_, Handle>)
        => world: opening::open(comm, filename, amode, info, fh);
    File_close(fh: Out<'_, Handle>)
        => world: opening::close(fh);
    File_delete(filename: Text<'_>, info: Handle)
        => world: opening::delete(filename, info);
    Finalize()
        => world: finalize();
    Abort(comm: Handle, code: c_int)
        => world: opening::abort();

    // --- the file as a whole ---
    File_set_size(fh: Handle, size: i64)
        => file with file: admin::set_size(file, size);
    File_preallocate(fh: Handle, size: i64)
        => file with file: admin::preallocate(file, size);
    File_get_size(fh: Handle, size: Out<'_, i64>)
        => file with file: admin::get_size(file, size);
    File_get_amode(fh: Handle, amode: Out<'_, c_int>)
        => file with file: admin::get_amode(file, amode);
    File_sync(fh: Handle)
        => file with file: admin::sync(file);
    File_set_atomicity(fh: Handle, flag: c_int)
        => file with file: admin::set_atomicity(file, flag);
    File_get_atomicity(fh: Handle, flag: Out<'_, c_int>)
        => file with file: admin::get_atomicity(file, flag);
    File_get_group(fh: Handle, group: OutObject<'_, Group>)
        => file with file: file.comm.give_group(group);
    // The handle of a container is one of the library's own, of its stub: what is about the handle is right there.
    File_set_info(fh: Handle, info: Handle) => pass;
    File_get_info(fh: Handle, info: Address) => pass;
    File_set_errhandler(fh: Handle, errhandler: Handle) => pass;
    File_get_errhandler(fh: Handle, errhandler: Address) => pass;
    File_create_errhandler(function: Address, errhandler: Address) => pass;
    File_call_errhandler(fh: Handle, code: c_int) => pass;
    Register_datarep(
        name: Text<'_>, read: Address, write: Address, extent: Address, state: Address
    ) => pass;
    Register_datarep_c(
        name: Text<'_>, read: Address, write: Address, extent: Address, state: Address
    ) => pass;

    // --- views and pointers ---
    File_set_view(
        fh: Handle, displacement: i64, etype: Handle, filetype: Handle, datarep: Text<'_>, info: Handle
    ) => file with file: views::set_view(file, displacement, etype, filetype, datarep, info);
    File_get_view(
        fh: Handle, displacement: Out<'_, i64>, etype: OutObject<'_, Type>, filetype: OutObject<'_, Type>, datarep: DatarepOut<'_>
    ) => file with file: views::get_view(file, displacement, etype, filetype, datarep);
    File_get_type_extent(fh: Handle, datatype: Handle, extent: Out<'_, i64>)
        => file with file: views::get_type_extent(file, datatype, extent);
    File_get_type_extent_c(fh: Handle, datatype: Handle, extent: Out<'_, i64>) or File_get_type_extent
        => file with file: views::get_type_extent(file, datatype, extent);
    File_seek(fh: Handle, offset: i64, whence: c_int)
        => file with file: seek::seek(file, offset, whence);
    File_get_position(fh: Handle, offset: Out<'_, i64>)
        => file with file: seek::get_position(file, offset);
    File_get_byte_offset(fh: Handle, offset: i64, displacement: Out<'_, i64>)
        => file with file: seek::get_byte_offset(file, offset, displacement);
    File_seek_shared(fh: Handle, offset: i64, whence: c_int)
        => file with file: shared::seek_shared(file, offset, whence);
    File_get_position_shared(fh: Handle, offset: Out<'_, i64>)
        => file with file: shared::get_position_shared(file, offset);

    // --- data ---
    File_read_at(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: independent::read_at(file, offset, memory(buf, count, datatype), status);
    File_read_at_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read_at
        => file with file: independent::read_at(file, offset, memory(buf, count, datatype), status);
    File_read(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: independent::read(file, memory(buf, count, datatype), status);
    File_read_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read
        => file with file: independent::read(file, memory(buf, count, datatype), status);
    File_read_at_all(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: collective::read_at_all(file, offset, memory(buf, count, datatype), status);
    File_read_at_all_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read_at_all
        => file with file: collective::read_at_all(file, offset, memory(buf, count, datatype), status);
    File_read_all(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: collective::read_all(file, memory(buf, count, datatype), status);
    File_read_all_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read_all
        => file with file: collective::read_all(file, memory(buf, count, datatype), status);
    File_read_shared(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: shared::read_shared(file, memory(buf, count, datatype), status);
    File_read_shared_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read_shared
        => file with file: shared::read_shared(file, memory(buf, count, datatype), status);
    File_read_ordered(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: shared::read_ordered(file, memory(buf, count, datatype), status);
    File_read_ordered_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_read_ordered
        => file with file: shared::read_ordered(file, memory(buf, count, datatype), status);
    File_iread_at(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iread_at(file, offset, memory(buf, count, datatype), request);
    File_iread_at_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iread_at
        => file with file: nonblocking::iread_at(file, offset, memory(buf, count, datatype), request);
    File_iread(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iread(file, memory(buf, count, datatype), request);
    File_iread_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iread
        => file with file: nonblocking::iread(file, memory(buf, count, datatype), request);
    File_iread_at_all(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iread_at(file, offset, memory(buf, count, datatype), request);
    File_iread_at_all_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iread_at_all
        => file with file: nonblocking::iread_at(file, offset, memory(buf, count, datatype), request);
    File_iread_all(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iread(file, memory(buf, count, datatype), request);
    File_iread_all_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iread_all
        => file with file: nonblocking::iread(file, memory(buf, count, datatype), request);
    File_iread_shared(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iread_shared(file, memory(buf, count, datatype), request);
    File_iread_shared_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iread_shared
        => file with file: nonblocking::iread_shared(file, memory(buf, count, datatype), request);
    File_read_at_all_begin(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::read_at_all_begin(file, offset, memory(buf, count, datatype));
    File_read_at_all_begin_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle) or File_read_at_all_begin
        => file with file: split::read_at_all_begin(file, offset, memory(buf, count, datatype));
    File_read_all_begin(fh: Handle, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::read_all_begin(file, memory(buf, count, datatype));
    File_read_all_begin_c(fh: Handle, buf: Address, count: Count, datatype: Handle) or File_read_all_begin
        => file with file: split::read_all_begin(file, memory(buf, count, datatype));
    File_read_ordered_begin(fh: Handle, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::read_ordered_begin(file, memory(buf, count, datatype));
    File_read_ordered_begin_c(fh: Handle, buf: Address, count: Count, datatype: Handle) or File_read_ordered_begin
        => file with file: split::read_ordered_begin(file, memory(buf, count, datatype));
    File_read_at_all_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::ReadAtAll, buf, status);
    File_read_all_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::ReadAll, buf, status);
    File_read_ordered_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::ReadOrdered, buf, status);
    File_write_at(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: independent::write_at(file, offset, memory(buf, count, datatype), status);
    File_write_at_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write_at
        => file with file: independent::write_at(file, offset, memory(buf, count, datatype), status);
    File_write(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: independent::write(file, memory(buf, count, datatype), status);
    File_write_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write
        => file with file: independent::write(file, memory(buf, count, datatype), status);
    File_write_at_all(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: collective::write_at_all(file, offset, memory(buf, count, datatype), status);
    File_write_at_all_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write_at_all
        => file with file: collective::write_at_all(file, offset, memory(buf, count, datatype), status);
    File_write_all(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: collective::write_all(file, memory(buf, count, datatype), status);
    File_write_all_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write_all
        => file with file: collective::write_all(file, memory(buf, count, datatype), status);
    File_write_shared(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: shared::write_shared(file, memory(buf, count, datatype), status);
    File_write_shared_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write_shared
        => file with file: shared::write_shared(file, memory(buf, count, datatype), status);
    File_write_ordered(fh: Handle, buf: Address, count: c_int, datatype: Handle, status: OutObject<'_, Status>)
        => file with file: shared::write_ordered(file, memory(buf, count, datatype), status);
    File_write_ordered_c(fh: Handle, buf: Address, count: Count, datatype: Handle, status: OutObject<'_, Status>) or File_write_ordered
        => file with file: shared::write_ordered(file, memory(buf, count, datatype), status);
    File_iwrite_at(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iwrite_at(file, offset, memory(buf, count, datatype), request);
    File_iwrite_at_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iwrite_at
        => file with file: nonblocking::iwrite_at(file, offset, memory(buf, count, datatype), request);
    File_iwrite(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iwrite(file, memory(buf, count, datatype), request);
    File_iwrite_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iwrite
        => file with file: nonblocking::iwrite(file, memory(buf, count, datatype), request);
    File_iwrite_at_all(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iwrite_at(file, offset, memory(buf, count, datatype), request);
    File_iwrite_at_all_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iwrite_at_all
        => file with file: nonblocking::iwrite_at(file, offset, memory(buf, count, datatype), request);
    File_iwrite_all(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iwrite(file, memory(buf, count, datatype), request);
    File_iwrite_all_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iwrite_all
        => file with file: nonblocking::iwrite(file, memory(buf, count, datatype), request);
    File_iwrite_shared(fh: Handle, buf: Address, count: c_int, datatype: Handle, request: OutObject<'_, Request>)
        => file with file: nonblocking::iwrite_shared(file, memory(buf, count, datatype), request);
    File_iwrite_shared_c(fh: Handle, buf: Address, count: Count, datatype: Handle, request: OutObject<'_, Request>) or File_iwrite_shared
        => file with file: nonblocking::iwrite_shared(file, memory(buf, count, datatype), request);
    File_write_at_all_begin(fh: Handle, offset: i64, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::write_at_all_begin(file, offset, memory(buf, count, datatype));
    File_write_at_all_begin_c(fh: Handle, offset: i64, buf: Address, count: Count, datatype: Handle) or File_write_at_all_begin
        => file with file: split::write_at_all_begin(file, offset, memory(buf, count, datatype));
    File_write_all_begin(fh: Handle, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::write_all_begin(file, memory(buf, count, datatype));
    File_write_all_begin_c(fh: Handle, buf: Address, count: Count, datatype: Handle) or File_write_all_begin
        => file with file: split::write_all_begin(file, memory(buf, count, datatype));
    File_write_ordered_begin(fh: Handle, buf: Address, count: c_int, datatype: Handle)
        => file with file: split::write_ordered_begin(file, memory(buf, count, datatype));
    File_write_ordered_begin_c(fh: Handle, buf: Address, count: Count, datatype: Handle) or File_write_ordered_begin
        => file with file: split::write_ordered_begin(file, memory(buf, count, datatype));
    File_write_at_all_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::WriteAtAll, buf, status);
    File_write_all_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::WriteAll, buf, status);
    File_write_ordered_end(fh: Handle, buf: Address, status: OutObject<'_, Status>)
        => file with file: split::end(file, Split::WriteOrdered, buf, status);
}
