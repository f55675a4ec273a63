//! Times as file systems keep them: seconds since 1970, and nanoseconds that count upwards.

use std::time::{Duration, SystemTime};

/// Times that the clock can not tell become 1970.
pub(crate) fn system_time(seconds: i64, nanos: impl TryInto<u32>) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
        _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
    };
    let nanos = Duration::from_nanos(u64::from(nanos.try_into().unwrap_or(0)));
    base.and_then(|base| base.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Seconds and nanoseconds.
pub(crate) fn seconds_and_nanos(time: SystemTime) -> (i64, u32) {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            // Seconds round down, so that the nanoseconds count upwards as the kernel wants them.
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (-seconds, 0),
                nanos => (-seconds - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_to_the_file_system_and_back() {
        for time in [(0_i64, 0_u32), (1_700_000_000, 5), (-1, 999_999_999), (-86_400, 0)] {
            assert_eq!(seconds_and_nanos(system_time(time.0, time.1)), time);
        }
    }
}
