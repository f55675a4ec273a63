//! Moments and spans of time, as people and batch systems write them.
//!
//! Here: text to milliseconds, and back for people. Not here: where a deadline comes from
//! ([`crate::launch::deadline`]).
//! Source: spans like `1-02:30:00` after sbatch(1).

use hayase_tier::calendar::{DAY, civil, days};

/// Why a text is no moment.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MomentError {
    /// Neither a span nor a date.
    #[error(
        "invalid time `{0}`: expected a duration (5400, 90m, 1h30m, 1:30:00, 1-12:00:00) or a date with its time zone (2030-01-31T18:00:00+09:00, or Z for UTC)"
    )]
    Unreadable(String),
    /// A date without a zone.
    #[error("`{0}` has no time zone: add Z for UTC or an offset, as `date -Is` prints it")]
    NoZone(String),
    /// Gone.
    #[error("the time `{0}` is in the past")]
    Passed(String),
}

/// The moment that `text` means, in milliseconds since 1970: a span from `now_ms` on, or a date.
pub(crate) fn parse(text: &str, now_ms: u64) -> Result<u64, MomentError> {
    let text = text.trim();
    if let Some(seconds) = span_of(text) {
        return Ok(now_ms.saturating_add(seconds.saturating_mul(1000)));
    }
    let seconds = date(text)?;
    match u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000)) {
        Some(at_ms) if at_ms > now_ms => Ok(at_ms),
        _ => Err(MomentError::Passed(text.to_owned())),
    }
}

/// Seconds of a span: `5400`, `90m`, `1h30m`, `1:30:00`, `1-12:00:00`. Zero is none.
pub(crate) fn span_of(text: &str) -> Option<u64> {
    let seconds = if text.contains(':') {
        let (days, clock) = text.split_once('-').unwrap_or(("0", text));
        let mut fields = clock.split(':').map(number);
        let (hours, minutes, seconds) = (fields.next()??, fields.next()??, fields.next()??);
        if fields.next().is_some() || minutes > 59 || seconds > 59 {
            return None;
        }
        let hours = number(days)?.checked_mul(24)?.checked_add(hours)?;
        hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?
    } else {
        units(text)?
    };
    (seconds > 0).then_some(seconds)
}

/// `5400`, `90m`, `1h30m`.
fn units(text: &str) -> Option<u64> {
    if let Some(seconds) = number(text) {
        return Some(seconds);
    }
    let (mut total, mut rest, mut before) = (0_u64, text, u64::MAX);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = match rest.as_bytes()[end] {
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        // Larger units first, each once: `1m1h` is a slip.
        if unit >= before {
            return None;
        }
        total = total.checked_add(number(&rest[..end])?.checked_mul(unit)?)?;
        (before, rest) = (unit, &rest[end + 1..]);
    }
    (before != u64::MAX).then_some(total)
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// `2030-01-31T18:00:00+09:00`, as seconds since 1970.
fn date(text: &str) -> Result<i64, MomentError> {
    let unreadable = || MomentError::Unreadable(text.to_owned());
    let (date, rest) = text.split_at_checked(10).ok_or_else(unreadable)?;
    let (clock, zone) = rest.split_at_checked(9).ok_or_else(unreadable)?;
    let all = |text: &str, separator| -> Option<[i64; 3]> {
        let fields: Option<Vec<i64>> =
            text.split(separator).map(|field| Some(number(field)? as i64)).collect();
        fields?.try_into().ok()
    };
    let [year, month, day] = all(date, '-').ok_or_else(unreadable)?;
    let clock = clock.strip_prefix(['T', ' ']).ok_or_else(unreadable)?;
    let [hour, minute, second] = all(clock, ':').ok_or_else(unreadable)?;
    let days = days(year, month, day).ok_or_else(unreadable)?;
    if hour > 23 || minute > 59 || second > 60 {
        return Err(unreadable());
    }
    if zone.is_empty() {
        return Err(MomentError::NoZone(text.to_owned()));
    }
    let offset = offset(zone).ok_or_else(unreadable)?;
    Ok(days * DAY + hour * 3600 + minute * 60 + second - offset)
}

/// Seconds that a zone is ahead of UTC: `Z`, `+09:00`.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let (hours, minutes) = (number(hours)? as i64, number(minutes)? as i64);
    (hours <= 15 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// `2030-01-31 18:00:00 UTC`.
pub(crate) fn utc(at_ms: u64) -> String {
    let seconds = (at_ms / 1000) as i64;
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    format!("{year:04}-{month:02}-{day:02} {}", utc_clock(at_ms))
}

/// `18:00:00 UTC`.
pub(crate) fn utc_clock(at_ms: u64) -> String {
    let of_day = at_ms / 1000 % DAY as u64;
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02} UTC")
}

/// `45 s`, `12 min 05 s`, `3 h 20 min`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_are_read_as_batch_systems_write_them() {
        let check = |text: &str, seconds: u64| assert_eq!(span_of(text), Some(seconds), "{text}");
        check("5400", 5400);
        check("90m", 5400);
        check("1h30m", 5400);
        check("2d1s", 172_801);
        check("1:30:00", 5400);
        check("1-12:00:00", 129_600);
        for bad in [
            "",
            "0",
            "h",
            "m5",
            "1m1h",
            "1:30",
            "1:60:00",
            "-5",
            "5 m",
            "1-2",
            "99999999999999999999",
        ] {
            assert_eq!(span_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_need_a_zone_and_a_future() {
        let now = 1_700_000_000_000;
        let check =
            |text: &str, seconds: u64| assert_eq!(parse(text, now), Ok(seconds * 1000), "{text}");
        check("2030-01-31T18:00:00Z", 1_896_112_800);
        check("2030-01-31T18:00:00+09:00", 1_896_112_800 - 9 * 3600);
        check("2030-01-31 18:00:00-01:30", 1_896_112_800 + 5400);
        check("2032-02-29T18:00:00Z", 1_961_690_400);
        check("10s", 1_700_000_010);
        let fails = |text: &str, error: fn(String) -> MomentError| {
            assert_eq!(parse(text, now), Err(error(text.to_owned())));
        };
        fails("2030-01-31T18:00:00", MomentError::NoZone);
        fails("2020-01-31T18:00:00Z", MomentError::Passed);
        fails("2030-13-31T18:00:00Z", MomentError::Unreadable);
        fails("2030-02-31T18:00:00Z", MomentError::Unreadable);
        fails("2030-02-29T18:00:00Z", MomentError::Unreadable);
        fails("2030-04-31T18:00:00Z", MomentError::Unreadable);
        fails("tomorrow", MomentError::Unreadable);
        fails("2030-01-31T18:00:00 JST", MomentError::Unreadable);
        fails("äääääääääääää", MomentError::Unreadable);
    }

    #[test]
    fn people_read_them() {
        assert_eq!(utc(1_896_112_800_999), "2030-01-31 18:00:00 UTC");
        assert_eq!((span(59), span(725)), ("59 s".to_owned(), "12 min 05 s".to_owned()));
        assert_eq!(span(12_000), "3 h 20 min");
    }

    proptest! {
        #[test]
        fn dates_survive(seconds in 0..250_000_000_000_u64) {
            let text = utc(seconds * 1000).replace(" UTC", "Z");
            prop_assert_eq!(date(&text), Ok(seconds as i64));
        }
    }
}
