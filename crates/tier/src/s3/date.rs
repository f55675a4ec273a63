//! Dates as S3 writes them: in signatures, in HTTP headers and in XML. All UTC, all to the second.
//!
//! Source: RFC 9110, section 5.6.7 (IMF-fixdate); RFC 3339.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::calendar::{DAY, civil, days};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `20130524T000000Z`, the form of `x-amz-date`; its first eight letters are the date of the scope.
pub(super) fn compact(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let clock = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `Wed, 21 Oct 2015 07:28:00 GMT`.
pub(super) fn parse_http(text: &str) -> Option<SystemTime> {
    let mut fields = text.split_once(", ")?.1.split(' ');
    let day = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = fields.next()?.parse().ok()?;
    let clock = fields.next()?;
    (fields.next()? == "GMT").then(|| at(year, month, day, clock))?
}

/// `2009-10-12T17:50:30.000Z`; what is smaller than a second is dropped.
pub(super) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|field| field.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    at(year, month, day, clock.split('.').next()?)
}

fn at(year: i64, month: i64, day: i64, clock: &str) -> Option<SystemTime> {
    let mut clock = clock.split(':').map(|field| field.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60).contains(&second) {
        return None;
    }
    let seconds = days(year, month, day)? * DAY + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(time: Option<SystemTime>) -> Option<u64> {
        time.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn three_spellings_of_one_second() {
        assert_eq!(compact(UNIX_EPOCH + Duration::from_secs(1_369_353_600)), "20130524T000000Z");
        assert_eq!(seconds(parse_http("Fri, 24 May 2013 00:00:00 GMT")), Some(1_369_353_600));
        assert_eq!(seconds(parse_rfc3339("2013-05-24T00:00:00.999Z")), Some(1_369_353_600));
        assert_eq!(seconds(parse_rfc3339("2024-02-29T23:59:59Z")), Some(1_709_251_199));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in ["", "x", "Fri, 24 Mai 2013 00:00:00 GMT", "Fri, 99 May 2013 00:00:00 GMT"] {
            assert_eq!(parse_http(text), None, "{text}");
        }
        for text in ["", "2013", "2013-05-24", "2013-13-24T00:00:00Z", "9999999-01-01T00:00:00Z"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
