//! When a daemon that ended is started again: after growing pauses, and not for ever.
//!
//! Pure: time is a parameter.

use std::time::{Duration, Instant};

use hayase_wire::times::{SILENCE, UNREACHABLE};

/// Before the first restart, and the longest pause.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(400);
const _: () = assert!(
    PAUSE_MAX.as_millis() * 4 < SILENCE.as_millis(),
    "with what a start takes, a server is back long before it is declared lost"
);
const _: () = assert!(
    PAUSE_MAX.as_millis() * 4 < UNREACHABLE.as_millis(),
    "calls that allow more wait for longer than a restart takes"
);

/// So many restarts within [`WINDOW`]; then it is left as it is.
pub(crate) const RESTARTS_MAX: usize = 24;
const WINDOW: Duration = Duration::from_secs(120);

/// What can not be started before a person has done something is tried again so often, for ever.
const PUT_OFF: Duration = Duration::from_secs(10);

/// The restarts of one daemon.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    lately: Vec<Instant>,
    total: u32,
    due: Option<Instant>,
}

impl Restarts {
    /// It ended: when it is to be started again; `None` when it ended too often.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<Instant> {
        self.lately.retain(|at| now.duration_since(*at) < WINDOW);
        if self.lately.len() >= RESTARTS_MAX {
            self.due = None;
            return None;
        }
        let doubled = u32::try_from(self.lately.len()).unwrap_or(u32::MAX);
        let pause = PAUSE_MIN.saturating_mul(2u32.saturating_pow(doubled)).min(PAUSE_MAX);
        self.due = Some(now + pause);
        self.due
    }

    /// When it is to be started again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether that is now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It is being started again now.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due = None;
        self.lately.push(now);
        self.total += 1;
    }

    /// It can not be started now; counts as no restart.
    pub(crate) fn put_off(&mut self, now: Instant) {
        self.due = Some(now + PUT_OFF);
    }

    /// Nobody wants it any more.
    pub(crate) fn cancel(&mut self) {
        self.due = None;
    }

    /// How often it was started again, ever.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        let mut pauses = Vec::new();
        while let Some(due) = restarts.ended(now) {
            pauses.push((due - now).as_millis());
            now = due;
            assert_eq!(restarts.due(), Some(due));
            restarts.begin(now);
        }
        assert_eq!(pauses[..5], [50, 100, 200, 400, 400]);
        assert!(pauses[5..].iter().all(|pause| *pause == 400));
        assert_eq!((restarts.total(), restarts.due()), (RESTARTS_MAX as u32, None));
        assert!(restarts.ended(now + WINDOW).is_some(), "what is long past does not count");
        for _ in 0..=RESTARTS_MAX {
            restarts.put_off(now);
        }
        assert_eq!((restarts.total(), restarts.due()), (RESTARTS_MAX as u32, Some(now + PUT_OFF)));
    }
}
