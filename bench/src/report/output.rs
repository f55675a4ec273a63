//! The only place that writes to standard output.

use std::io::Write;

/// One or more lines.
pub(crate) fn line(text: &str) {
    // A reader that has gone away is no reason to stop measuring.
    let _ = writeln!(std::io::stdout(), "{text}");
}
