//! Workload programs, and the set of options with which gfarm2fs does best.

use std::process::Command;

use anyhow::Context;

use crate::bench::Bench;
use crate::sample::Measured;
use crate::stats;
use crate::worker::Worker;

/// Starts so many. Mounts are visible from everywhere, so a program is of the node whose mount it uses.
pub(crate) fn start(bench: &Bench, count: usize) -> anyhow::Result<Vec<Worker>> {
    let one = |_| {
        let worker = Worker::start(Command::new(bench.program()).arg("worker"))?;
        bench.give_precedence(worker.process())?;
        Ok(worker)
    };
    (0..count).map(one).collect()
}

/// The kind with the highest rate: the median of some tries each, which take turns.
pub(crate) fn fastest<'a>(
    kinds: &[&'a str],
    tries: usize,
    mut measure: impl FnMut(&'a str, usize) -> anyhow::Result<Measured>,
) -> anyhow::Result<&'a str> {
    let mut rates = vec![Vec::new(); kinds.len()];
    for attempt in 0..tries {
        for (kind, rates) in kinds.iter().zip(&mut rates) {
            let found = measure(kind, attempt)?;
            rates.push(found.amount / found.seconds);
        }
    }
    let rate = |rates: &Vec<f64>| stats::median(rates).unwrap_or(0.0);
    let best = kinds.iter().zip(&rates).max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)));
    best.map(|(kind, _)| *kind).context("nothing to choose from")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lucky_try_wins_nothing() {
        let rates = |kind, attempt| match (kind, attempt) {
            ("a", _) => 3.0,
            ("b", 1) => 9.0,
            _ => 1.0,
        };
        let measure = |kind, attempt| {
            Ok(Measured { amount: rates(kind, attempt), seconds: 1.0, own_cpu: 0.0 })
        };
        assert_eq!(fastest(&["a", "b"], 3, measure).unwrap(), "a");
        assert_eq!(fastest(&["a", "b"], 2, measure).unwrap(), "b", "the mean of two");
    }
}
