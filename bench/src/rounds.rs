//! Taking turns: in every round each variant is measured once, directly after the others.
//!
//! A round begins and ends with the baseline, so that a machine that becomes slower meanwhile slows
//! both sides, and the two tell how even the round was (A against A). The two change places from
//! round to round, so that neither always has the better one; so do the variants between them.

use std::time::Duration;

use crate::process_times::{CpuTimes, read_write_calls, settle};
use crate::sample::{Measured, Sample, Samples};

/// The variants of one round in the order of time: one of `baseline`, the others, its other one.
pub(crate) fn order<'a>(round: usize, baseline: [&'a str; 2], others: &[&'a str]) -> Vec<&'a str> {
    let [first, last] = if round.is_multiple_of(2) { baseline } else { [baseline[1], baseline[0]] };
    let mut order = vec![first];
    let start = if others.is_empty() { 0 } else { round % others.len() };
    order.extend(others.iter().cycle().skip(start).take(others.len()));
    order.push(last);
    order
}

/// What our daemons put off is done after this: closes that travel together, parts that are removed.
/// It must not fall into the next measurement, nor the memory be missing there that it frees.
pub(crate) const PUT_OFF: Duration = Duration::from_millis(150);

/// Runs a block, and counts the CPU time that the processes `served` spend on it until they rest, and their calls.
pub(crate) fn measure(
    samples: &mut Samples,
    (what, variant, round): (&str, &str, usize),
    served: &[u32],
    block: impl FnOnce() -> anyhow::Result<Measured>,
) -> anyhow::Result<()> {
    let calls_before = read_write_calls(served);
    let before = CpuTimes::of(served);
    let measured = block()?;
    let meanwhile_cpu = CpuTimes::of(served).since(&before);
    if variant.starts_with("mount") {
        std::thread::sleep(PUT_OFF);
    }
    settle(served);
    let served_cpu = CpuTimes::of(served).since(&before);
    let (what, variant) = (what.to_owned(), variant.to_owned());
    let calls_after = read_write_calls(served).filter(|_| !served.is_empty());
    let calls = calls_before.zip(calls_after).map(|(before, after)| after.saturating_sub(before));
    samples.0.push(Sample {
        what,
        variant,
        round,
        measured,
        meanwhile_cpu,
        served_cpu,
        calls,
        ..Sample::default()
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_around_the_others() {
        let check = |round, expected: &[&str]| {
            assert_eq!(order(round, ["a", "z"], &["b", "c"]), expected);
        };
        check(0, &["a", "b", "c", "z"]);
        check(1, &["z", "c", "b", "a"]);
        check(2, &["a", "b", "c", "z"]);
        assert_eq!(order(3, ["a", "z"], &[]), ["z", "a"]);
    }
}
