//! Bounds in time that grow with the load of the machine, so that they tell a hang from a wait for a processor.
//!
//! A bound of a test is meant for a machine that has nothing else to do. Where more is ready to run than there are
//! processors, everything takes as many times longer.

use std::time::Duration;

/// However busy the machine is.
const FACTOR_MAX: f64 = 20.0;

/// As long as `bound` would be if this process and what it waits for had the machine for themselves. To be asked when
/// `bound` is over: the load is that of the last minute.
pub fn patient(bound: Duration) -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    bound.mul_f64(factor(&text, processors))
}

/// From `load1 load5 load15 running/all last`.
fn factor(loadavg: &str, processors: usize) -> f64 {
    let mut words = loadavg.split_whitespace();
    let minute: f64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let now = words.nth(2).and_then(|word| word.split('/').next()?.parse().ok()).unwrap_or(0.0);
    (minute.max(now) / processors as f64).clamp(1.0, FACTOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_waited_for() {
        let check = |text, processors, expected| assert_eq!(factor(text, processors), expected);
        check("0.10 0.20 0.30 1/200 77", 2, 1.0);
        check("8.00 0.20 0.30 1/200 77", 2, 4.0);
        check("0.50 0.20 0.30 10/200 77", 2, 5.0);
        check("900.0 0.20 0.30 1/200 77", 2, FACTOR_MAX);
        check("", 2, 1.0);
    }
}
