//! How fast bytes moved, from what servers remember of their counters.
//!
//! Here: the average and the highest rate of a counter, of one node or a sum. Not here: the rate to the tier at this
//! moment ([`crate::status::Drain`]), which servers measure.

use hayase_layout::ByteCount;

use super::series::Points;
use crate::wiring::status::Sample;

/// Between two looks that a rate is taken from: shorter ones are about as long as the looks themselves take.
const LEAST_MS: u64 = 1000;

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// Over the time between looks in which bytes moved.
    pub(super) average: u64,
    /// Over a second or more.
    pub(super) highest: u64,
}

/// What a counter of one node grew by since the first look. What was counted between a restart of the server and the next
/// look took an unknown time, and is left out.
pub(super) fn growth(history: &[Sample], value: impl Fn(&Sample) -> u64) -> Points {
    let mut before = history.first().map_or(0, &value);
    let mut grown = 0;
    let of = |sample: &Sample| {
        let now = value(sample);
        grown += now.saturating_sub(before);
        before = now;
        (sample.at_ms, grown as f64)
    };
    history.iter().map(of).collect()
}

/// Of what grew; `None` where nothing did, or where that took less than a second.
pub(super) fn rates(points: &Points) -> Option<Rates> {
    let (mut bytes, mut moved_ms) = (0.0, 0);
    for pair in points.windows(2) {
        let (ms, more) = (pair[1].0.saturating_sub(pair[0].0), pair[1].1 - pair[0].1);
        if more > 0.0 {
            bytes += more;
            moved_ms += ms;
        }
    }
    if moved_ms < LEAST_MS {
        return None;
    }
    let average = per_second(bytes, moved_ms);
    // Where no look follows a second after another one there is no highest rate above the average.
    let highest = steps(points).map(|(ms, more)| per_second(more, ms)).max().unwrap_or(average);
    Some(Rates { average, highest: highest.max(average) })
}

/// From each look to the first one that is a second or more behind it: milliseconds, bytes.
fn steps(points: &Points) -> impl Iterator<Item = (u64, f64)> {
    points.iter().enumerate().filter_map(|(index, (at, value))| {
        let later = |(other, _): &&(u64, f64)| other.saturating_sub(*at) >= LEAST_MS;
        let (end, grown) = points[index..].iter().find(later)?;
        Some((end - at, grown - value))
    })
}

fn per_second(bytes: f64, ms: u64) -> u64 {
    (bytes * 1000.0 / ms as f64) as u64
}

/// Bytes per second, for people.
pub(super) fn in_words(rate: u64) -> String {
    format!("{}/s", ByteCount(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(points: &[(u64, f64)], expected: Option<(u64, u64)>) {
        let rates = rates(&points.to_vec()).map(|rates| (rates.average, rates.highest));
        assert_eq!(rates, expected, "{points:?}");
    }

    #[test]
    fn a_rate_counts_only_the_time_in_which_bytes_moved() {
        check(&[(0, 0.0), (1000, 100.0), (61_000, 100.0), (62_000, 400.0)], Some((200, 300)));
        check(&[(5000, 0.0), (7000, 100.0)], Some((50, 50)));
    }

    #[test]
    fn there_is_no_rate_of_nothing_and_of_no_time() {
        check(&[], None);
        check(&[(0, 7.0)], None);
        check(&[(0, 7.0), (9000, 7.0)], None);
        check(&[(1000, 0.0), (1000, 100.0)], None);
        check(&[(0, 0.0), (999, 100.0)], None);
    }

    #[test]
    fn looks_close_together_make_no_highest_rate() {
        check(&[(0, 0.0), (2000, 100.0), (2001, 1100.0), (3000, 1100.0)], Some((549, 1000)));
        check(&[(0, 0.0), (600, 60.0), (1200, 120.0)], Some((100, 100)));
    }

    #[test]
    fn a_server_that_was_restarted_counts_from_nothing() {
        let look = |second: u64, bytes_written| Sample {
            at_ms: second * 1000,
            bytes_written,
            ..Sample::default()
        };
        let history = [look(0, 50), look(1, 150), look(60, 40), look(61, 240)];
        let grown = growth(&history, |sample| sample.bytes_written);
        assert_eq!(grown, [(0, 0.0), (1000, 100.0), (60_000, 100.0), (61_000, 300.0)]);
        assert_eq!(rates(&grown), Some(Rates { average: 150, highest: 200 }));
    }
}
