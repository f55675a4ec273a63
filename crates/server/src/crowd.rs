//! Whether many callers ask at once: then their answers leave together.
//!
//! To wake a caller whose processor sleeps costs this server's processor as much as a small call. When
//! several are answered one right after the other, the first wakes the processor and the others find it
//! awake. Who is alone, or one of few, is answered at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::time::Instant;

use crate::limits::{CROWD, CROWD_TIME};

/// Who was served last.
#[derive(Default)]
pub(crate) struct Crowd {
    callers: Cell<u64>,
    /// The newest of each caller, at most [`CROWD`] of them, the oldest first.
    last: RefCell<VecDeque<(Caller, Instant)>>,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(u64);

impl Crowd {
    /// One that was not there before.
    pub(crate) fn caller(&self) -> Caller {
        self.callers.set(self.callers.get() + 1);
        Caller(self.callers.get())
    }

    /// A call of `caller` was served; whether [`CROWD`] callers were within [`CROWD_TIME`], it among them.
    pub(crate) fn is_one_with(&self, caller: Caller, now: Instant) -> bool {
        let mut last = self.last.borrow_mut();
        if let Some(at) = last.iter().position(|(other, _)| *other == caller) {
            last.remove(at);
        } else if last.len() == CROWD {
            last.pop_front();
        }
        last.push_back((caller, now));
        let oldest = last[0].1;
        last.len() == CROWD && now.saturating_duration_since(oldest) <= CROWD_TIME
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether any of these callers, who take turns, is one of a crowd.
    fn is_crowd(callers: usize, between: Duration) -> bool {
        let (crowd, start) = (Crowd::default(), Instant::now());
        let callers: Vec<_> = (0..callers).map(|_| crowd.caller()).collect();
        let calls = callers.iter().cycle().take(100).zip(0..);
        calls.fold(false, |is, (caller, at)| is | crowd.is_one_with(*caller, start + between * at))
    }

    #[test]
    fn many_in_a_short_time() {
        let (short, long) = (CROWD_TIME / CROWD as u32, CROWD_TIME);
        assert!(is_crowd(CROWD, short) && is_crowd(4 * CROWD, short));
        assert!(!is_crowd(CROWD, long) && !is_crowd(4 * CROWD, long));
        assert!(!is_crowd(CROWD - 1, Duration::ZERO) && !is_crowd(1, Duration::ZERO));
    }

    #[test]
    fn who_stays_alone_is_no_crowd_any_more() {
        let (crowd, now) = (Crowd::default(), Instant::now());
        let callers: Vec<_> = (0..CROWD).map(|_| crowd.caller()).collect();
        let were = callers.iter().map(|caller| crowd.is_one_with(*caller, now)).collect::<Vec<_>>();
        assert_eq!(were, [false, false, false, true]);
        assert!(crowd.is_one_with(callers[0], now + CROWD_TIME));
        assert!(!crowd.is_one_with(callers[0], now + CROWD_TIME * 2));
    }
}
