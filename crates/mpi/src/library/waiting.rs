//! Opens and closes are waited for without keeping a processor from those who are waited for.
//!
//! MPICH and some others spin in a blocking collective. Where there are more processes than cores, whoever is
//! waited for then gets its core only when the spinning one's time slice ends, milliseconds later, at each of
//! the few meetings of an open or a close. So these are started nonblocking and tested here, and after a while
//! the processor is offered to whoever wants it. Not for what reads and writes exchange: who yields to other
//! programs gets the core back a time slice later, which many small exchanges would add up.
//! Source: MPI 4.1, section 6.12 (nonblocking collectives), 3.7.3 (MPI_Test); sched_yield(2).

#![expect(unsafe_code, reason = "the library's functions")]

use std::{
    ffi::{c_int, c_void},
    ptr::NonNull,
    time::{Duration, Instant},
};

use super::{abi, done, functions as mpi};
use crate::error::Error;

/// Tested without a pause for so long: two processes that have a core each are done sooner.
const SPIN: Duration = Duration::from_micros(20);
/// Who waits for longer lets the processor rest: a rank may be busy for long with what only it does.
const PATIENCE: Duration = Duration::from_millis(5);
/// Between two tests from then on: a hundredth of what it has waited, so that it hardly waits longer, within these bounds.
const REST_MIN: Duration = Duration::from_micros(50);
const REST_MAX: Duration = Duration::from_millis(2);

/// A collective that was begun, with the memory that it moves.
///
/// The memory is that of a leaked box until the library says that the call is over: where that is never known (an error,
/// or this was forgotten) nobody frees what the library may still use.
#[derive(Debug)]
#[must_use = "`wait` returns its error"]
pub(super) struct Begun<T> {
    call: &'static str,
    /// `None` when it is over.
    request: Option<usize>,
    /// From a box; `None` after the wait.
    memory: Option<NonNull<T>>,
}

/// Calls `start`, with `memory` and the address of a request; where the library has no such call it is `blocking`, which
/// is over at once. `call` names it in errors.
///
/// # Safety
/// The calls are given what is valid for what they do: of memory that they use after `start` has returned only what lies
/// in `memory` or is owned by it.
pub(super) unsafe fn begin<T>(
    call: &'static str,
    memory: T,
    start: impl FnOnce(*mut T, *mut usize) -> Option<c_int>,
    blocking: impl FnOnce(*mut T) -> Option<c_int>,
) -> Result<Begun<T>, Error> {
    let memory = NonNull::from(Box::leak(Box::new(memory)));
    let mut request = 0_usize;
    let started = start(memory.as_ptr(), &raw mut request);
    let (answer, request) = match started {
        None => (blocking(memory.as_ptr()), None),
        started => (started, Some(request)),
    };
    done(answer, call).map(|()| Begun { call, request, memory: Some(memory) })
}

impl<T> Begun<T> {
    /// Until it is over; its memory.
    pub(super) fn wait(mut self) -> Result<T, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<T, Error> {
        let memory =
            self.memory.take().ok_or(Error::internal("a call that is waited for twice"))?;
        if let Some(request) = self.request.take() {
            test(request, self.call)?;
        }
        // SAFETY: from a box, taken once, and the library has let go of it.
        Ok(*unsafe { Box::from_raw(memory.as_ptr()) })
    }
}

/// Until the request of a call is complete.
fn test(mut request: usize, call: &'static str) -> Result<(), Error> {
    let status = abi()?.status_ignore as *mut c_void;
    let began = Instant::now();
    let mut resumed = began;
    loop {
        let mut is_complete: c_int = 0;
        // SAFETY: the request was started by `begin`, and is not used after it is complete; a variable of ours.
        let tested = unsafe { mpi::Test(&raw mut request, &raw mut is_complete, status) };
        done(tested, call)?;
        if is_complete != 0 {
            return Ok(());
        }
        let waited = began.elapsed();
        if waited >= PATIENCE {
            std::thread::sleep((waited / 100).clamp(REST_MIN, REST_MAX));
        } else if resumed.elapsed() >= SPIN {
            std::thread::yield_now();
            resumed = Instant::now();
        }
    }
}

/// An early return after another error still waits: the other processes are in the same calls.
impl<T> Drop for Begun<T> {
    fn drop(&mut self) {
        if self.memory.is_some() {
            // An error of the library: the memory stays.
            let _ = self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Here is no MPI library, so nobody can say that what `start` began is over.
    fn begun(memory: &Rc<()>, start: Option<c_int>) -> Result<Begun<Rc<()>>, Error> {
        // SAFETY: nothing uses the memory.
        unsafe { begin("MPI_Nothing", Rc::clone(memory), |_, _| start, |_| Some(0)) }
    }

    #[test]
    fn memory_stays_until_the_library_says_that_it_is_over() {
        let memory = Rc::new(());
        assert!(begun(&memory, Some(0)).unwrap().wait().is_err());
        assert_eq!(Rc::strong_count(&memory), 2, "waited for in vain");
        drop(begun(&memory, Some(0)).unwrap());
        assert_eq!(Rc::strong_count(&memory), 3, "dropped");
        std::mem::forget(begun(&memory, Some(0)).unwrap());
        assert_eq!(Rc::strong_count(&memory), 4, "forgotten");
        assert!(begun(&memory, Some(1)).is_err());
        assert_eq!(Rc::strong_count(&memory), 5, "refused");
        // Without a nonblocking call it is over at once.
        let held = begun(&memory, None).unwrap().wait().unwrap();
        assert_eq!(Rc::strong_count(&memory), 6);
        drop((held, begun(&memory, None).unwrap()));
        assert_eq!(Rc::strong_count(&memory), 5);
    }
}
