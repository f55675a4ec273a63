//! The originals: the functions of the MPI library that this process uses.
//!
//! Here: finding that library and its symbols, telling which MPI it is.
//! Not here: what the functions are called with ([`crate::library`], [`crate::exports`]).
//!
//! `dlsym(RTLD_NEXT)` finds a library that the program was linked with. Where a program opened it by
//! itself, with local scope (Python does), it is looked for among all objects that are loaded. Only
//! `PMPI_` names are asked for: a tool that wraps `MPI_` names calls `PMPI_`, which may be ours.

#![expect(unsafe_code, reason = "symbols of other libraries")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    abi::{self, Abi, Handle, Objects, Predefined},
    stderr,
};

/// Which MPI was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// For dlsym: `RTLD_NEXT`, or the library that was opened with local scope.
    scope: usize,
    /// `None` when it is none that we know: everything passes through.
    pub(crate) abi: Option<&'static Abi>,
    /// Its predefined objects; `None` where there is no `abi`.
    pub(crate) objects: Option<Objects<Handle>>,
}

/// The library, looked for at the first call.
pub(crate) fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let scope = find_scope();
        let abi = tell_abi(scope);
        let objects = abi.and_then(|abi| objects(scope, &abi.objects));
        let abi = abi.filter(|_| objects.is_some());
        if abi.is_none() {
            stderr::say("this MPI library is none that is known here: every call passes through");
        }
        Found { scope, abi, objects }
    })
}

impl Found {
    /// The address of a symbol; `None` when the library does not have it, or when it is our own.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<usize> {
        symbol_in(self.scope, name)
    }
}

/// The handles of the predefined objects; `None` when the library does not export one.
///
/// Of an object the whole process has one address, which need not be the library's: a program that was
/// linked with it has a copy of its own, and everybody uses that (copy relocation). So `RTLD_DEFAULT`
/// is asked first.
fn objects(scope: usize, from: &Objects<Predefined>) -> Option<Objects<Handle>> {
    // SAFETY: the library's own numbers, and the addresses of its own objects.
    let made = |raw| unsafe { Handle::new(raw) };
    let handle = |predefined| match predefined {
        Predefined::Number(number) => Some(made(number)),
        Predefined::Symbol(name) => {
            let name = CString::new(name).ok()?;
            let global = symbol_in(libc::RTLD_DEFAULT as usize, &name);
            global.or_else(|| symbol_in(scope, &name)).map(made)
        }
    };
    Some(Objects {
        comm_null: handle(from.comm_null)?,
        comm_self: handle(from.comm_self)?,
        info_null: handle(from.info_null)?,
        file_null: handle(from.file_null)?,
        datatype_null: handle(from.datatype_null)?,
        byte: handle(from.byte)?,
    })
}

/// One original, looked up when it is called first.
#[derive(Debug)]
pub(crate) struct Original {
    address: AtomicUsize,
}

impl Original {
    /// Not looked up yet; no function lies at address 1.
    const UNKNOWN: usize = 1;

    pub(crate) const fn new() -> Self {
        Self { address: AtomicUsize::new(Self::UNKNOWN) }
    }

    /// The function; `None` when the library does not have it.
    ///
    /// # Safety
    /// `F` is the type of a pointer to a function in C, and the library's function of this name can be
    /// called so.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let address = self.address(name);
        // SAFETY: the caller says so.
        (address != 0).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    /// Its address; 0 when the library does not have it.
    fn address(&self, name: &CStr) -> usize {
        match self.address.load(Ordering::Relaxed) {
            Self::UNKNOWN => {
                let address = found().symbol(name).unwrap_or(0);
                self.address.store(address, Ordering::Relaxed);
                address
            }
            known => known,
        }
    }
}

/// A name with its zero, as a constant.
pub(crate) const fn symbol_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with its only zero"),
    }
}

const PROBE: &CStr = c"PMPI_File_open";

#[cfg(feature = "static")]
fn symbol_in(_scope: usize, name: &CStr) -> Option<usize> {
    crate::linked::symbol(name)
}

#[cfg(not(feature = "static"))]
fn symbol_in(scope: usize, name: &CStr) -> Option<usize> {
    // SAFETY: `scope` is RTLD_NEXT or a handle that is never closed; the name ends with a zero.
    let address = unsafe { libc::dlsym(scope as *mut c_void, name.as_ptr()) } as usize;
    (address != 0 && object_of(address) != object_of(own_address())).then_some(address)
}

#[cfg(not(feature = "static"))]
fn own_address() -> usize {
    find_scope as *const () as usize
}

/// Where the shared object begins that an address lies in; 0 when in none.
#[cfg(not(feature = "static"))]
fn object_of(address: usize) -> usize {
    object_info(address).map_or(0, |info| info.dli_fbase as usize)
}

fn object_info(address: usize) -> Option<libc::Dl_info> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills what it is given when it answers other than 0.
    let answer = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) };
    // SAFETY: filled, and all zeros are a valid value too.
    (answer != 0).then(|| unsafe { info.assume_init() })
}

fn find_scope() -> usize {
    let next = libc::RTLD_NEXT as usize;
    if symbol_in(next, PROBE).is_some() {
        return next;
    }
    for path in loaded_mpi_objects() {
        // SAFETY: the name ends with a zero; RTLD_NOLOAD runs no code of the library.
        let scope = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !scope.is_null() && symbol_in(scope as usize, PROBE).is_some() {
            return scope as usize;
        }
    }
    next
}

/// Paths of the loaded objects whose names begin with `libmpi`.
fn loaded_mpi_objects() -> Vec<CString> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr gives a valid `info`, and `data` is the list below.
        let (info, paths) = unsafe { (&*info, &mut *data.cast::<Vec<CString>>()) };
        if !info.dlpi_name.is_null() {
            // SAFETY: the name of a loaded object ends with a zero and lives during the call.
            let path = unsafe { CStr::from_ptr(info.dlpi_name) };
            let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
            if name.starts_with(b"libmpi") {
                paths.push(path.to_owned());
            }
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: `visit` has the type that is wanted, and `paths` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut paths).cast()) };
    paths
}

/// The ABI of the library in `scope`: by the name of its file, by what it says of itself.
fn tell_abi(scope: usize) -> Option<&'static Abi> {
    let info = object_info(symbol_in(scope, PROBE)?)?;
    if !info.dli_fname.is_null() {
        // SAFETY: the file name of a loaded object ends with a zero and lives as long as the object.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
        if path.rsplit(|byte| *byte == b'/').next().unwrap_or(b"").starts_with(b"libmpi_abi") {
            return Some(&abi::mpi5::ABI);
        }
    }
    let version = library_version(symbol_in(scope, c"PMPI_Get_library_version")?);
    let begins = |name: &str| version.starts_with(name.as_bytes());
    if begins("Open MPI") {
        return Some(&abi::ompi::ABI);
    }
    // All of the MPICH ABI initiative.
    let names = ["MPICH", "Intel(R) MPI", "MVAPICH", "CRAY MPICH", "Cray MPICH", "ParaStation"];
    names.into_iter().any(begins).then_some(&abi::mpich::ABI)
}

fn library_version(address: usize) -> Vec<u8> {
    /// MPI_MAX_LIBRARY_VERSION_STRING is 8192 in MPICH and the ABI, 256 in Open MPI.
    const VERSION_BYTES: usize = 16384;
    let mut text = vec![0_u8; VERSION_BYTES];
    let mut len: c_int = 0;
    // SAFETY: PMPI_Get_library_version has this type in every MPI, and may be called at any time.
    let get: extern "C" fn(*mut c_char, *mut c_int) -> c_int =
        unsafe { std::mem::transmute::<usize, _>(address) };
    get(text.as_mut_ptr().cast(), &raw mut len);
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(0));
    text
}
