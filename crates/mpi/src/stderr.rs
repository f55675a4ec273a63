//! Lines for people: the only code of this library that prints, and only to stderr, since stdout is the program's.

use std::io::Write;

/// One line to stderr, marked as ours.
pub(crate) fn say(text: &str) {
    // One write, so that lines of several processes stay whole. Where stderr is closed nobody can be notified.
    let line = format!("hayase mpiio: {text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
