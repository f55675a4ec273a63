//! The clock on the wall, in which batch systems write when a job began.
//!
//! Moments are seconds since 1970 by the local clock, as if its zone were UTC: good for differences, but for
//! an hour when the clocks are changed in between.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use hayase_tier::calendar::{DAY, civil, days};

use crate::system::program;

/// Days of a year, about.
pub(super) const YEAR_DAYS: u64 = 365;

const PATIENCE: Duration = Duration::from_secs(5);

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Now, as date(1) says, which knows the zone.
pub(super) fn now(path: &OsStr) -> Option<i64> {
    let mut asking = Command::new(program::find("date", path)?);
    asking.arg("+%Y %m %d %H:%M:%S");
    let text = program::told_within(&mut asking, PATIENCE)?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let &[year, month, day, clock] = fields.as_slice() else { return None };
    seconds_of((year.parse().ok()?, month.parse().ok()?, day.parse().ok()?), clock)
}

/// Of a year, a month and a day, and `HH:MM:SS`.
pub(super) fn seconds_of((year, month, day): (i64, i64, i64), clock: &str) -> Option<i64> {
    let fields: Option<Vec<i64>> = clock.split(':').map(|field| field.parse().ok()).collect();
    let &[hour, minute, second] = fields?.as_slice() else { return None };
    let is_clock =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    is_clock.then_some(days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second)
}

/// Year, month and day of a moment.
pub(super) fn fields_of(seconds: i64) -> (i64, i64, i64) {
    civil(seconds.div_euclid(DAY))
}

/// `Jan` is 1.
pub(super) fn month(name: &str) -> Option<i64> {
    MONTHS.iter().position(|month| *month == name).map(|at| at as i64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_clock_is_within_a_day_of_utc() {
        let here = now(OsStr::new("/usr/bin:/bin")).unwrap();
        let utc = (crate::moment::now_ms() / 1000) as i64;
        assert!((here - utc).abs() <= 15 * 3600, "{here} {utc}");
        assert_eq!(now(OsStr::new("/nowhere")), None);
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(seconds_of((1970, 1, 2), "00:00:01"), Some(86_401));
        assert_eq!(seconds_of((1970, 2, 30), "00:00:01"), None);
        assert_eq!(seconds_of((1970, 1, 2), "24:00:01"), None);
        assert_eq!(seconds_of((1970, 1, 2), "00:01"), None);
        assert_eq!((month("Dec"), month("Mai")), (Some(12), None));
    }
}
