//! What `pjstat` says of the time that a job of PJM (Fujitsu) has left.
//!
//! ```text
//! JOB_ID  JOB_NAME  MD  ST   USER   START_DATE      ELAPSE_LIM  NODE_REQUIRE  VNODE  CORE  V_MEM
//! 238     job.sh    NM  RUN  user1  11/17 09:01:41  0001:00:00  12:2x3x2      -      -     -
//! ```
//!
//! The start has no year, so it is the last day of that name. Other columns are the site's.
//! Source: the user's guide of Fugaku, displaying a job status.

use super::local::{YEAR_DAYS, fields_of, seconds_of};
use crate::moment;

/// Seconds. `job`: as `PJM_JOBID` or `PJM_SUBJOBID` names it; `now`: seconds of the local clock.
pub(super) fn left(text: &str, job: &str, now: i64) -> Option<u64> {
    let row = text.lines().map(str::trim).find(|line| line.split(' ').next() == Some(job))?;
    let words: Vec<&str> = row.split_ascii_whitespace().collect();
    // Names of jobs may look like anything, but not like a day with a clock and a limit behind it.
    words.windows(3).find_map(|some| {
        let &[day, clock, limit] = some else { return None };
        let (month, day) = day.split_once('/')?;
        let limit = limit_of(limit)?;
        let since = since((month.parse().ok()?, day.parse().ok()?), clock, now)?;
        Some(limit.saturating_sub(since))
    })
}

/// `0001:00:00`.
fn limit_of(text: &str) -> Option<u64> {
    if text.contains('-') { None } else { moment::span_of(text).filter(|_| text.contains(':')) }
}

/// How long a day of some year, and a clock on it, are behind `now`.
fn since((month, day): (i64, i64), clock: &str, now: i64) -> Option<u64> {
    let (year, ..) = fields_of(now);
    let this = seconds_of((year, month, day), clock);
    let begin = match this.filter(|this| *this <= now) {
        Some(this) => this,
        None => seconds_of((year - 1, month, day), clock)?,
    };
    let since = u64::try_from(now - begin).ok()?;
    // Next year's day: the clocks of this host and of PJM's differ.
    (since < (YEAR_DAYS - 1) * 86_400).then_some(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "JOB_ID     JOB_NAME   MD ST  USER     START_DATE      ELAPSE_LIM NODE_REQUIRE    VNODE  CORE V_MEM\n";

    fn check(rows: &str, job: &str, now: (i64, i64, i64), clock: &str, seconds: Option<u64>) {
        let text = format!("\n{HEAD}{rows}");
        assert_eq!(left(&text, job, seconds_of(now, clock).unwrap()), seconds, "{rows}");
    }

    #[test]
    fn what_is_left_is_the_limit_less_the_time_since_the_start() {
        let rows = "238     job.sh    NM  RUN  user1  11/17 09:01:41  0001:00:00  12:2x3x2  - - -\n\
                    239[1]  bulk.sh   BU  RUN  user1  11/17 09:01:42  0024:00:00  2         - - -\n\
                    240     step.sh   ST  RUN  user1  -               -           -         - - -\n";
        let day = (2026, 11, 17);
        check(rows, "238", day, "09:11:41", Some(3000));
        check(rows, "238", day, "19:11:41", Some(0));
        check(rows, "239[1]", (2026, 11, 18), "00:01:42", Some(9 * 3600));
        check(rows, "240", day, "09:11:41", None);
        check(rows, "23", day, "09:11:41", None);
        check(rows, "239", day, "09:11:41", None);
    }

    #[test]
    fn the_turn_of_the_year_is_in_between() {
        let rows = "7 a NM RUN u 12/31 23:00:00 0002:00:00 1 - - -\n";
        check(rows, "7", (2027, 1, 1), "00:30:00", Some(1800));
        // In the future, by a clock that differs: nobody knows.
        check(rows, "7", (2026, 12, 31), "22:59:00", None);
    }

    #[test]
    fn rows_that_say_nothing_are_no_limit() {
        let day = (2026, 11, 17);
        check("7 a NM QUE u (11/17 09:01) 0001:00:00 1 - - -\n", "7", day, "10:00:00", None);
        check("7 a NM RUN u 11/17 09:01:41 0001:00:00-0002:00:00 1\n", "7", day, "10:00:00", None);
        check("7 a NM RUN u 13/47 09:01:41 0001:00:00 1\n", "7", day, "10:00:00", None);
        check("", "7", day, "10:00:00", None);
    }
}
