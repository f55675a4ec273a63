//! The trace of a program (`HAYASE_MPIIO_TRACE=1`): how often each call was made, and what collective reads exchanged.
//!
//! Here: counters, and what is printed of them at the end. Not here: which calls there are (`crate::exports`).

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use crate::stderr::say;

/// Whether calls are to be counted.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("HAYASE_MPIIO_TRACE").is_some_and(|value| value == "1"))
}

/// How often one call was made. Nothing is counted where the trace is off.
#[derive(Debug)]
pub(crate) struct CallCounts {
    from_program: AtomicU64,
    /// Served here, not by the MPI library.
    taken: AtomicU64,
}

impl CallCounts {
    pub(crate) const fn new() -> Self {
        Self { from_program: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// The program made it.
    pub(crate) fn count(&self) {
        if is_on() {
            self.from_program.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It was served here.
    pub(crate) fn count_taken(&self) {
        if is_on() {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What collective reads have exchanged with other processes: rounds, bytes that came from them.
static EXCHANGED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

pub(crate) fn count_exchanged(bytes: u64) {
    EXCHANGED[0].fetch_add(1, Ordering::Relaxed);
    EXCHANGED[1].fetch_add(bytes, Ordering::Relaxed);
}

/// Prints what was counted, when it is to be: `MPI_File_open 2 2`, the second number those served here; and
/// `exchanged 3 rounds 4096 bytes`, the bytes those that other processes read for this one.
///
/// `library` is what people call it; `calls` are named without `MPI_`.
pub(crate) fn report<'a>(
    library: &str,
    calls: impl IntoIterator<Item = (&'static str, &'a CallCounts)>,
) {
    if !is_on() {
        return;
    }
    say(&format!("trace of calls to {library}: calls, and those served here"));
    for (name, counts) in calls {
        let count = counts.from_program.load(Ordering::Relaxed);
        if count > 0 {
            let taken = counts.taken.load(Ordering::Relaxed);
            say(&format!("trace MPI_{name} {count} {taken}"));
        }
    }
    let [rounds, bytes] = [0, 1].map(|nth: usize| EXCHANGED[nth].load(Ordering::Relaxed));
    if rounds > 0 {
        say(&format!("trace exchanged {rounds} rounds {bytes} bytes"));
    }
}
