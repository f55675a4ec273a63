//! What the servers of one seed say, where `HAYASE_SIM_LOG` asks for it.

use std::sync::OnceLock;

/// Lines carry the time of the simulation.
struct Simulated;

impl tracing_subscriber::fmt::time::FormatTime for Simulated {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        static BEGAN: OnceLock<tokio::time::Instant> = OnceLock::new();
        let now = tokio::time::Instant::now();
        write!(w, "{:8.3}", (now - *BEGAN.get_or_init(|| now)).as_secs_f64())
    }
}

/// Shows it from here on: one log for all tests of this process, begun by the first that asks.
pub(crate) fn show_log() {
    let Ok(filter) = std::env::var("HAYASE_SIM_LOG") else { return };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_timer(Simulated);
    // Another test of the same seed has begun it already.
    let _ = log.try_init();
}
