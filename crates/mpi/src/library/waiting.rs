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
    marker::PhantomData,
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

/// A collective that was begun, with buffers of such a life.
#[derive(Debug)]
#[must_use = "`wait` returns its error"]
pub(super) struct Begun<'a> {
    call: &'static str,
    /// `None` when it is over.
    request: Option<usize>,
    buffers: PhantomData<&'a mut [u8]>,
}

/// Calls `start`, with the address of a request; where the library has no such call it is `blocking`, which is over
/// at once. `call` names it in errors.
///
/// # Safety
/// What the calls are given is valid for the life `'a`, and the answer is not forgotten: until it was waited for, which its
/// end does otherwise, the library uses the buffers.
pub(super) unsafe fn begin<'a>(
    call: &'static str,
    start: impl FnOnce(*mut usize) -> Option<c_int>,
    blocking: impl FnOnce() -> Option<c_int>,
) -> Result<Begun<'a>, Error> {
    let mut request = 0_usize;
    let begun = |request| Begun { call, request, buffers: PhantomData };
    let started = start(&raw mut request);
    if started.is_none() {
        return done(blocking(), call).map(|()| begun(None));
    }
    done(started, call).map(|()| begun(Some(request)))
}

impl Begun<'_> {
    /// Until it is over.
    pub(super) fn wait(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        let Some(mut request) = self.request.take() else { return Ok(()) };
        let status = abi()?.status_ignore as *mut c_void;
        let began = Instant::now();
        let mut resumed = began;
        loop {
            let mut is_complete: c_int = 0;
            // SAFETY: the request was started by `begin`, and is not used after it is complete; a variable of ours.
            let tested = unsafe { mpi::Test(&raw mut request, &raw mut is_complete, status) };
            done(tested, self.call)?;
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
}

/// An early return after another error still waits: the buffers are freed right after.
impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // An error of the library: it has let go of them, or the process is lost with it.
        let _ = self.finish();
    }
}
