//! Versions and times between the tier, the ledger and messages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hayase_store::{TierVersion as Stored, Time};
use hayase_wire::message::{Succession, TierVersion};

use crate::convert::{stored_time, time};

pub(crate) fn wire_version(stored: Stored) -> TierVersion {
    let Stored { identity, size, mtime, mode } = stored;
    TierVersion { identity, size, mtime: time(mtime), mode }
}

pub(crate) fn stored_version(version: TierVersion) -> Stored {
    let TierVersion { identity, size, mtime, mode } = version;
    Stored { identity, size, mtime: stored_time(mtime), mode }
}

pub(crate) fn wire_place(stored: hayase_store::Succession) -> Succession {
    let hayase_store::Succession { first, number } = stored;
    Succession { first, number }
}

pub(crate) fn stored_place(place: Succession) -> hayase_store::Succession {
    let Succession { first, number } = place;
    hayase_store::Succession { first, number }
}

/// Seconds round down, so that the nanoseconds count upwards as the kernel wants them.
pub(crate) fn time_of(at: SystemTime) -> Time {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => Time { seconds: after.as_secs() as i64, nanos: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let seconds = -(before.as_secs() as i64);
            match before.subsec_nanos() {
                0 => Time { seconds, nanos: 0 },
                nanos => Time { seconds: seconds - 1, nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

pub(crate) fn system_time(at: Time) -> SystemTime {
    let whole = Duration::from_secs(at.seconds.unsigned_abs());
    let base = match at.seconds {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    let with_nanos = base.and_then(|base| base.checked_add(Duration::from_nanos(at.nanos.into())));
    with_nanos.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for (seconds, nanos) in [(0, 0), (1_700_000_000, 5), (-1, 999_999_999), (-86_400, 0)] {
            let at = Time { seconds, nanos };
            assert_eq!(time_of(system_time(at)), at);
        }
    }
}
