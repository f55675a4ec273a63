//! Copies of the program's communicators, kept for the next file that is opened on one.
//!
//! A copy costs several collective rounds, so a communicator remembers those that closed files have left, as long
//! as it lives. Each file that is open has a copy for itself: on one, the messages of two could be mixed up.
//! All processes must find the same in store, without a word: they do where each of them opens and closes files on
//! one communicator in the same order, which collective calls of one thread at a time do. With
//! MPI_THREAD_MULTIPLE two threads may close one file and open another; then nothing is kept.
//! Source: MPI 4.1, section 7.7.2 (attributes of communicators); 11.4.3 (levels of threads).

#![expect(unsafe_code, reason = "the library's functions, and an Arc that it keeps")]

use std::{
    ffi::{c_int, c_void},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{abi, done, functions as mpi};
use crate::{abi::Handle, error::Error};

/// Copies that are kept of one communicator, at most: programs have few files open at a time.
const KEPT_MAX: usize = 4;

/// The store of one communicator.
#[derive(Debug, Default)]
pub(super) struct Copies {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Handle>,
    /// The communicator is gone: nothing is kept any more.
    is_over: bool,
}

/// The library is about to end: what it forgets then needs no call of ours.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// MPI_Finalize begins.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::Release);
}

impl Copies {
    /// Those of a communicator; `None` where nothing can be kept.
    pub(super) fn of(comm: Handle) -> Option<Arc<Self>> {
        let keyval = keyval()?;
        let (mut value, mut is_there) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: two variables of ours.
        let answer = unsafe { mpi::Comm_get_attr(comm, keyval, &raw mut value, &raw mut is_there) };
        if answer != Some(0) {
            return None;
        }
        if is_there != 0 {
            let copies = value.cast::<Self>().cast_const();
            // SAFETY: made from an Arc below, which the communicator holds; this is one holder more.
            return Some(unsafe {
                Arc::increment_strong_count(copies);
                Arc::from_raw(copies)
            });
        }
        let copies = Arc::new(Self::default());
        let value = Arc::into_raw(Arc::clone(&copies));
        // SAFETY: `forget` takes the value back. Where it can not be set, nobody else has it.
        unsafe {
            if mpi::Comm_set_attr(comm, keyval, value.cast_mut().cast()) != Some(0) {
                drop(Arc::from_raw(value));
                return None;
            }
        }
        Some(copies)
    }

    /// One that nobody uses; the same on all processes.
    pub(super) fn take(&self) -> Option<Handle> {
        self.kept().idle.pop()
    }

    /// For the next file, or to be freed; the same on all processes, like [`free`].
    pub(super) fn leave(&self, copy: Handle) -> Result<(), Error> {
        {
            let mut kept = self.kept();
            if !kept.is_over && kept.idle.len() < KEPT_MAX {
                kept.idle.push(copy);
                return Ok(());
            }
        }
        free(copy)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collective.
pub(super) fn free(copy: Handle) -> Result<(), Error> {
    let mut handle = copy.0;
    // SAFETY: the handle was made by MPI_Comm_dup, and is used no more.
    done(unsafe { mpi::Comm_free(&raw mut handle) }, "MPI_Comm_free")
}

/// A communicator that is copied has no copies in store.
extern "C" fn keep_to_itself(
    _comm: Handle,
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

/// The program frees the communicator, which is collective. Files that are still open keep their copies.
extern "C" fn forget(
    _comm: Handle,
    _keyval: c_int,
    value: *mut c_void,
    _state: *mut c_void,
) -> c_int {
    // SAFETY: `Copies::of` made it from an Arc, and the library lets go of it here.
    let copies = unsafe { Arc::from_raw(value.cast::<Copies>().cast_const()) };
    let idle = {
        let mut kept = copies.kept();
        kept.is_over = true;
        std::mem::take(&mut kept.idle)
    };
    if !IS_ENDING.load(Ordering::Acquire) {
        for copy in idle {
            if let Err(error) = free(copy) {
                error.tell();
            }
        }
    }
    0
}

/// The key under which communicators hold theirs; `None` where the library gives none, and where threads may call
/// at a time.
fn keyval() -> Option<c_int> {
    static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();
    *KEYVAL.get_or_init(|| {
        if !is_one_thread_at_a_time() {
            return None;
        }
        let mut keyval: c_int = 0;
        // SAFETY: a variable of ours; the functions live as long as this library.
        let answer = unsafe {
            mpi::Comm_create_keyval(keep_to_itself, forget, &raw mut keyval, std::ptr::null_mut())
        };
        (answer == Some(0)).then_some(keyval)
    })
}

fn is_one_thread_at_a_time() -> bool {
    let (mut is_initialized, mut level): (c_int, c_int) = (0, 0);
    // SAFETY: variables of ours. A program of sessions alone has no level that could be asked for.
    let answers = unsafe {
        match mpi::Initialized(&raw mut is_initialized) {
            Some(0) if is_initialized != 0 => mpi::Query_thread(&raw mut level),
            _ => None,
        }
    };
    answers == Some(0) && abi().is_ok_and(|abi| level <= abi.thread_serialized)
}
