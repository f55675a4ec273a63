//! Logs of the daemons, and warnings of commands: to standard error, which for a daemon the supervisor points at a file
//! of the job.
//!
//! Here: the subscribers. Not here: which file (`supervisor::children`).

use tracing_subscriber::EnvFilter;

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

/// Shows warnings of the libraries to whoever typed the command. `HAYASE_LOG` is for the daemons that it starts.
pub(crate) fn start_warnings() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
