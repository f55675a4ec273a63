//! Long pauses that wake the process once each.
//!
//! The runtime's own timer wakes it up to three times for a pause of seconds, as it hands it down from wheel to wheel:
//! most of what an idle server costs. A timer of the kernel (timerfd_create(2)) does not, and one that is kept from
//! pause to pause costs one system call for each.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hayase_wire::watch::Watched;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Pauses of one task; those of several at once work as well, and share nothing.
#[derive(Default)]
pub(crate) struct Alarm {
    timer: Cell<Option<Watched<OwnedFd>>>,
}

impl Alarm {
    /// Returns when `pause` has passed; by the runtime's timer where the kernel has none to give. When it is given up,
    /// its end may still wake the process once, unless there is another one before that.
    pub(crate) async fn rest(&self, pause: Duration) {
        if let Err(error) = self.ring_after(pause).await {
            tracing::debug!(%error, "the kernel has no timer to give");
            tokio::time::sleep(pause).await;
        }
    }

    async fn ring_after(&self, pause: Duration) -> io::Result<()> {
        let until = Instant::now() + pause;
        let lent = Lent { timer: Some(self.timer.take().map_or_else(timer, Ok)?), alarm: self };
        let Some(timer) = &lent.timer else { return Ok(()) };
        set(timer.get_ref(), pause)?;
        // Nobody reads how often it rang: setting it begins that anew. That it rang before may be heard only now.
        loop {
            timer.readable().await?;
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

/// The timer of a rest, which the next one has.
struct Lent<'a> {
    timer: Option<Watched<OwnedFd>>,
    alarm: &'a Alarm,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.alarm.timer.set(self.timer.take());
    }
}

fn timer() -> io::Result<Watched<OwnedFd>> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    hayase_wire::watch::readable(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

fn set(timer: &OwnedFd, pause: Duration) -> io::Result<()> {
    let it_value = Timespec {
        tv_sec: pause.as_secs() as i64,
        // All zeros would mean never.
        tv_nsec: i64::from(pause.subsec_nanos().max(1)),
    };
    let once = Itimerspec { it_interval: Timespec::default(), it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn each_rest_lasts_as_long_as_it_should() {
        let alarm = Alarm::default();
        for millis in [0, 30, 5, 0, 20] {
            let (began, pause) = (Instant::now(), Duration::from_millis(millis));
            alarm.rest(pause).await;
            assert!(began.elapsed() >= pause && began.elapsed() < pause + Duration::from_secs(5));
        }
        let number = |alarm: &Alarm| {
            let timer = alarm.timer.take().expect("kept");
            (timer.get_ref().as_raw_fd(), alarm.timer.set(Some(timer))).0
        };
        let before = number(&alarm);
        alarm.rest(Duration::from_millis(1)).await;
        assert_eq!(number(&alarm), before, "one timer rings for all");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_rest_that_is_given_up_shortens_no_other() {
        let alarm = Alarm::default();
        let long = Duration::from_secs(3600);
        for given_up in [long, Duration::from_millis(11), Duration::from_millis(10)] {
            alarm.rest(Duration::from_millis(1)).await;
            let _given_up =
                tokio::time::timeout(Duration::from_millis(10), alarm.rest(given_up)).await;
        }
        let (short, began) = (Duration::from_millis(30), Instant::now());
        tokio::join!(alarm.rest(short), alarm.rest(2 * short));
        assert!(began.elapsed() >= 2 * short, "two at once");
    }
}
