//! Logs of the daemons, and warnings of commands: to standard error, which for a daemon the supervisor points at a file
//! of the job.
//!
//! Here: the subscribers. Not here: which file (`supervisor::children`).

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::sync::Mutex;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Lines that are remembered, to be written once. A command that has more to say than that repeats itself.
const LINES_MAX: usize = 1000;

/// Starts logging with `filter` (`HAYASE_LOG`); a filter that can not be read falls back to `info`
/// and says so in the log.
pub(crate) fn start(filter: &str) {
    let (chosen, trouble) = match EnvFilter::try_new(filter) {
        Ok(chosen) => (chosen, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(chosen)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    if let Some(error) = trouble {
        tracing::warn!("HAYASE_LOG={filter}: {error}; logging at info");
    }
}

/// Shows logs of the libraries to the user of the command, each line once: a command looks at the same files more than
/// once. `HAYASE_LOG` is for the daemons that it starts.
pub(crate) fn start_command(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(Mutex::new(EachOnce::new(io::stderr())))
        .init();
}

/// Writes what was not written before. One call writes one line, as `tracing_subscriber` does.
struct EachOnce<W> {
    to: W,
    hasher: RandomState,
    written: HashSet<u64>,
}

impl<W: Write> EachOnce<W> {
    fn new(to: W) -> Self {
        Self { to, hasher: RandomState::new(), written: HashSet::new() }
    }
}

impl<W: Write> Write for EachOnce<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let hash = self.hasher.hash_one(line);
        if self.written.contains(&hash) {
            return Ok(line.len());
        }
        if self.written.len() < LINES_MAX {
            self.written.insert(hash);
        }
        self.to.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_written_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = EachOnce::new(file.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().without_time().with_ansi(false);
        let subscriber = subscriber.with_writer(Mutex::new(lines)).finish();
        tracing::subscriber::with_default(subscriber, || {
            for number in [1, 2, 1, 2] {
                tracing::warn!(number, "of a file");
            }
        });
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("number=1") && text.contains("number=2"), "{text}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut lines = EachOnce::new(Vec::new());
        for _ in 0..2 {
            for line in 0..=LINES_MAX {
                writeln!(lines, "{line}").unwrap();
            }
        }
        assert_eq!(lines.written.len(), LINES_MAX);
    }
}
