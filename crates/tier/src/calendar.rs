//! Days and civil dates, in UTC.
//!
//! Source: after Howard Hinnant, "chrono-compatible low-level date algorithms".

/// Seconds.
pub const DAY: i64 = 86_400;

/// Year, month (1 to 12) and day of the month of a day since 1970-01-01.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a civil date from 1970 to 9999; `None` of a day that there is not.
pub fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    // Before anything is computed: numbers of any size come from outside.
    let is_near = (1970..10_000).contains(&year) && (1..13).contains(&month);
    if !is_near || !(1..32).contains(&day) {
        return None;
    }
    // The 31st of February is a day of March.
    Some(days_of(year, month, day)).filter(|days| civil(*days) == (year, month, day))
}

/// Of a date as [`civil`] tells it.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn days_and_dates_agree(day in -1_000_000..3_000_000_i64) {
            let (year, month, of_month) = civil(day);
            prop_assert_eq!(days_of(year, month, of_month), day);
            let is_near = (1970..10_000).contains(&year);
            prop_assert_eq!(days(year, month, of_month), is_near.then_some(day));
            prop_assert!(civil(day + 1) > (year, month, of_month));
        }
    }

    #[test]
    fn days_that_there_are_not_are_none() {
        for (year, month, day) in [
            (2030, 2, 29),
            (2030, 2, 31),
            (2030, 4, 31),
            (2100, 2, 29),
            (2030, 0, 1),
            (2030, 13, 1),
            (2030, 1, 0),
            (1969, 12, 31),
            (i64::MAX, i64::MAX, i64::MAX),
        ] {
            assert_eq!(days(year, month, day), None, "{year}-{month}-{day}");
        }
        assert_eq!((days(1970, 1, 1), days(2032, 2, 29)), (Some(0), Some(22_704)));
    }
}
