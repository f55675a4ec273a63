//! A tier that is slow and fails at times, for tests of the whole product (`up --tier-faults`).
//!
//! Only what brings files to the tier fails, before it is done or after (the answer is lost); what programs read
//! never does. Whether a call fails is drawn from a seed and the number of the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hayase_layout::ByteCount;
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::throttled::Pace;
use hayase_tier::{Action, Flaky, Throttled, Tier};
use serde::{Deserialize, Serialize};

use crate::size;

/// How bad the tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TierFaults {
    seed: u64,
    /// One call in so many fails; 0: none.
    one_in: u64,
    latency_us: u64,
    bytes_per_second: Option<u64>,
}

/// Why a text does not say that.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected seed=N,one-in=N,latency-us=N,rate=SIZE, each optional")]
pub(crate) struct TierFaultsError(String);

/// `seed=7,one-in=20,latency-us=500,rate=100MiB`.
pub(crate) fn parse(text: &str) -> Result<TierFaults, TierFaultsError> {
    let wrong = || TierFaultsError(text.to_owned());
    let mut faults = TierFaults { seed: 0, one_in: 0, latency_us: 0, bytes_per_second: None };
    for word in text.split(',') {
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let number = || value.parse().map_err(|_| wrong());
        match key {
            "seed" => faults.seed = number()?,
            "one-in" => faults.one_in = number()?,
            "latency-us" => faults.latency_us = number()?,
            "rate" => {
                faults.bytes_per_second = Some(size::parse(value).map_err(|_| wrong())?.get());
            }
            _ => return Err(wrong()),
        }
    }
    Ok(faults)
}

impl TierFaults {
    /// `tier`, as bad as this says.
    pub(crate) fn around(self, tier: Arc<dyn Tier>) -> Arc<dyn Tier> {
        let pace = Pace {
            bytes_per_second: self.bytes_per_second.map(ByteCount),
            latency: Duration::from_micros(self.latency_us),
        };
        let calls = AtomicU64::new(0);
        let flaky = Flaky::new(tier, move |call| {
            let (Call::Begun(action) | Call::Done(action)) = call;
            let may_fail = matches!(action, Action::Begin | Action::Write | Action::Commit);
            may_fail.then(|| self.fault(calls.fetch_add(1, Ordering::Relaxed)))?
        });
        Arc::new(Throttled::new(flaky, pace))
    }

    fn fault(self, call: u64) -> Option<Fault> {
        let drawn = mixed(self.seed ^ mixed(call));
        if self.one_in == 0 || !drawn.is_multiple_of(self.one_in) {
            return None;
        }
        Some(match drawn / self.one_in % 3 {
            0 => Fault::Io,
            1 => Fault::Unavailable,
            _ => Fault::Quota,
        })
    }
}

/// Any number as one that looks random. Source: SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_as_many_as_asked_for_and_the_same_for_a_seed() {
        let faults = parse("seed=7,one-in=20,latency-us=5,rate=1MiB").unwrap();
        let drawn = |faults: TierFaults| (0..20_000).map(move |call| faults.fault(call));
        let count = drawn(faults).flatten().count();
        assert!((800..1200).contains(&count), "{count}");
        assert!(drawn(faults).eq(drawn(faults)));
        assert!(!drawn(faults).eq(drawn(TierFaults { seed: 8, ..faults })));
        assert_eq!(drawn(parse("seed=1").unwrap()).flatten().count(), 0);
        for bad in ["", "one-in", "one-in=x", "often=1", "rate=fast"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
