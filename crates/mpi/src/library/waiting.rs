//! Collective calls that are started, and waited for without keeping a processor from those they wait for.
//!
//! MPICH and some others spin in a blocking collective. Where there are more processes than cores, whoever is
//! waited for then gets its core only when the spinning one's time slice ends, milliseconds later, at each of
//! the few meetings of an open or a close. So collectives are started nonblocking and tested here, and between
//! two tests the processor is offered to whoever wants it: with a core for each process that costs a system
//! call of a fraction of a microsecond per test.
//! Source: MPI 4.1, section 6.12 (nonblocking collectives), 3.7.3 (MPI_Test); sched_yield(2).

#![expect(unsafe_code, reason = "the library's functions")]

use std::{
    ffi::{c_int, c_void},
    time::{Duration, Instant},
};

use super::{abi, done, functions as mpi};
use crate::error::Error;

/// Who waits for longer lets the processor rest: a rank may be busy for long with what only it does.
const PATIENCE: Duration = Duration::from_millis(5);
/// Between two tests from then on.
const REST: Duration = Duration::from_micros(50);

/// Calls `start`, with the address of a request, and waits for the request; where the library has no such call
/// it is `blocking`. `call` names it in errors.
pub(super) fn wait(
    call: &'static str,
    start: impl FnOnce(*mut usize) -> Option<c_int>,
    blocking: impl FnOnce() -> Option<c_int>,
) -> Result<(), Error> {
    let mut request = 0_usize;
    let started = start(&raw mut request);
    if started.is_none() {
        return done(blocking(), call);
    }
    done(started, call)?;
    let status = abi()?.status_ignore as *mut c_void;
    let began = Instant::now();
    loop {
        let mut is_complete: c_int = 0;
        // SAFETY: the request was started above, and is not used after it is complete; a variable of ours.
        let tested = unsafe { mpi::Test(&raw mut request, &raw mut is_complete, status) };
        done(tested, call)?;
        if is_complete != 0 {
            return Ok(());
        }
        if began.elapsed() < PATIENCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(REST);
        }
    }
}
