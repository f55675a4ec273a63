//! Copies of the program's communicators, kept for the next file that is opened on one.
//!
//! A copy costs several collective rounds, so a communicator remembers, in an attribute, those that closed files have
//! left, as long as it lives. Each file that is open has a copy for itself: on one, the messages of two could be mixed
//! up. A copy has a place, which is the same on all processes: places are dealt out by opens, which happen in one order
//! on all that share the communicator. Which copy is idle need not be the same, as threads may close files in any
//! order: so whoever opens a file tells the others what is idle there, and all take one that is idle on all
//! ([`super::Communicator::of`]).
//!
//! The copies are freed when the program frees the communicator, or ends MPI; that is collective, as is freeing
//! them, and all processes have the same. A file that is still open then frees its own.
//! Source: MPI 4.1, section 7.7.2 (attributes of communicators).

#![expect(unsafe_code, reason = "the library's functions, and an Arc that it keeps")]

use std::{
    ffi::{c_int, c_void},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{done, functions as mpi};
use crate::{abi::Handle, error::Error};

/// Which copy of a communicator it is.
pub(super) type Place = u32;

/// More copies of one communicator are not kept.
const PLACES_MAX: Place = 62;
/// Their bits in a word.
pub(super) const PLACES: u64 = (1 << PLACES_MAX) - 1;

/// The store of one communicator.
#[derive(Debug, Default)]
pub(super) struct Copies {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By place; `None` where a file has it.
    idle: Vec<Option<Handle>>,
    /// The communicator is gone, or MPI at its end: nothing is kept any more.
    is_over: bool,
}

/// The key of the attribute, and all stores that there are, in the order of their making.
#[derive(Debug)]
struct Stores {
    keyval: Option<c_int>,
    all: Vec<Weak<Copies>>,
}

static STORES: Mutex<Stores> = Mutex::new(Stores { keyval: None, all: Vec::new() });

fn stores() -> MutexGuard<'static, Stores> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MPI is about to end: frees what is kept. Collective, as ending is.
pub(crate) fn end() {
    let Stores { keyval, all } =
        std::mem::replace(&mut *stores(), Stores { keyval: None, all: Vec::new() });
    for copies in all.iter().filter_map(Weak::upgrade) {
        copies.free_all();
    }
    if let Some(mut keyval) = keyval {
        // SAFETY: a variable of ours; communicators that hold an attribute of it give it back none the less.
        let _ = unsafe { mpi::Comm_free_keyval(&raw mut keyval) };
    }
}

impl Copies {
    /// Those of a communicator; `None` where nothing can be kept.
    pub(super) fn of(comm: Handle) -> Option<Arc<Self>> {
        let mut stores = stores();
        let keyval = match stores.keyval {
            Some(keyval) => keyval,
            None => *stores.keyval.insert(new_keyval()?),
        };
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
        stores.all.retain(|other| other.strong_count() > 0);
        stores.all.push(Arc::downgrade(&copies));
        Some(copies)
    }

    /// The places of the copies that nobody uses, as bits.
    pub(super) fn idle(&self) -> u64 {
        let kept = self.kept();
        let idle = kept.idle.iter().enumerate().filter(|(_, copy)| copy.is_some());
        idle.fold(0, |bits, (place, _)| bits | 1 << place)
    }

    /// The first of those that are idle on all processes; `None` where there is none.
    pub(super) fn take(&self, common: u64) -> Result<Option<(Handle, Place)>, Error> {
        if common == 0 {
            return Ok(None);
        }
        let place = common.trailing_zeros();
        let copy = self.kept().idle.get_mut(place as usize).and_then(Option::take);
        // What was idle when it was told to the others is taken by no other open: they are in one order.
        let copy =
            copy.ok_or(Error::internal("two files were opened at once on one communicator"))?;
        Ok(Some((copy, place)))
    }

    /// For a copy that was made for a file; `None` where it is not to be kept. The same on all processes, like
    /// [`Copies::take`].
    pub(super) fn place(&self) -> Option<Place> {
        let mut kept = self.kept();
        let place = Place::try_from(kept.idle.len()).ok().filter(|place| *place < PLACES_MAX);
        if place.is_some() {
            kept.idle.push(None);
        }
        place
    }

    /// For the next file, or to be freed; the same on all processes, like [`free`].
    pub(super) fn leave(&self, copy: Handle, place: Place) -> Result<(), Error> {
        {
            let mut kept = self.kept();
            if !kept.is_over
                && let Some(idle) = kept.idle.get_mut(place as usize)
            {
                *idle = Some(copy);
                return Ok(());
            }
        }
        free(copy)
    }

    /// Nothing is kept from here on; collective, as [`free`] is.
    fn free_all(&self) {
        let idle = {
            let mut kept = self.kept();
            kept.is_over = true;
            std::mem::take(&mut kept.idle)
        };
        for copy in idle.into_iter().flatten() {
            if let Err(error) = free(copy) {
                error.tell();
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collective.
pub(super) fn free(copy: Handle) -> Result<(), Error> {
    let mut handle = copy.raw();
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
    copies.free_all();
    0
}

/// `None` where the library gives none.
fn new_keyval() -> Option<c_int> {
    let mut keyval: c_int = 0;
    // SAFETY: a variable of ours; the functions live as long as this library.
    let answer = unsafe {
        mpi::Comm_create_keyval(keep_to_itself, forget, &raw mut keyval, std::ptr::null_mut())
    };
    (answer == Some(0)).then_some(keyval)
}
