//! What is said to people: counts of calls at the end (`HAYASE_MPIIO_TRACE=1`), and news that somebody must
//! know of. The only code of this library that prints, and only to stderr: stdout is the program's.

use std::{
    io::Write,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::exports::Call;

/// How often each call came from the program.
static COUNTS: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];

/// And how often it was served here, not by the MPI library.
static TAKEN: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];

/// One line to stderr, marked as ours.
pub(crate) fn say(text: &str) {
    // One write, so that lines of several processes stay whole. Where stderr is closed there is nobody to tell.
    let line = format!("hayase mpiio: {text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether calls are to be counted.
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("HAYASE_MPIIO_TRACE").is_some_and(|value| value == "1"))
}

/// What collective reads have exchanged with other processes: rounds, bytes that came from them.
static EXCHANGED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

pub(crate) fn count_exchanged(bytes: u64) {
    EXCHANGED[0].fetch_add(1, Ordering::Relaxed);
    EXCHANGED[1].fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn count(call: Call) {
    if is_on() {
        COUNTS[call as usize].fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn count_taken(call: Call) {
    if is_on() {
        TAKEN[call as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Prints what was counted, when it is to be: `MPI_File_open 2 2`, the second number those served here; and
/// `exchanged 3 rounds 4096 bytes`, the bytes those that other processes read for this one.
pub(crate) fn report() {
    if !is_on() {
        return;
    }
    let library = crate::real::found().abi.map_or("an unknown MPI library", |abi| abi.name);
    say(&format!("trace of calls to {library}: calls, and those served here"));
    for (nth, call) in Call::ALL.iter().enumerate() {
        let count = COUNTS[nth].load(Ordering::Relaxed);
        if count > 0 {
            let taken = TAKEN[nth].load(Ordering::Relaxed);
            say(&format!("trace MPI_{} {count} {taken}", call.name()));
        }
    }
    let [rounds, bytes] = [0, 1].map(|nth: usize| EXCHANGED[nth].load(Ordering::Relaxed));
    if rounds > 0 {
        say(&format!("trace exchanged {rounds} rounds {bytes} bytes"));
    }
}
