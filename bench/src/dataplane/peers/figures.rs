//! What the samples say: CPU seconds for each GiB, on either node, ours against theirs.

use super::{KINDS, OURS, elsewhere};
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Sample, Samples};
use crate::stats;

const WANTED: f64 = 0.5;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// CPU of node 0 for the same bytes, against the peer that has the least.
pub(super) fn goal(samples: &Samples, what: &str, peers: &[&str]) -> Goal {
    let cost = |peer: &&&str| samples.cpu_per_amount(what, peer).1;
    let best = peers.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).copied().unwrap_or("peer");
    let figure = stats::median(&shares(samples, what, best)).unwrap_or(f64::NAN);
    let [ours, again] = OURS.map(|variant| costs(samples, what, variant));
    let same = stats::of_neighbours(&stats::ratios(&ours, &again));
    let name = format!("CPU of the node that has the file, remote {what}, of the best peer");
    Goal::new(name, figure, "", Wanted::AtMost(WANTED)).same_as(same)
}

/// Our cost of that of a peer, round by round.
fn shares(samples: &Samples, what: &str, peer: &str) -> Vec<f64> {
    let [ours, again] = OURS.map(|variant| costs(samples, what, variant));
    stats::ratios_in_between(&costs(samples, what, peer), &ours, &again)
        .into_iter()
        .map(f64::recip)
        .collect()
}

/// CPU seconds of the processes for each byte, round by round.
fn costs(samples: &Samples, what: &str, variant: &str) -> Vec<f64> {
    let cost = |sample: &Sample| sample.served_cpu / sample.measured.amount;
    samples.of(what, variant).map(cost).collect()
}

pub(super) fn table(samples: &Samples, peers: &[&str]) -> Table {
    let head = [
        "1 MiB calls",
        "through",
        "MiB/s",
        "half between",
        "CPU s/GiB: node 0",
        "node 1",
        "programs",
        "all",
        "our CPU of it: node 0",
        "node 1",
    ];
    let mut table = Table::new("Files of another node, 4 programs", &head);
    for (what, ..) in KINDS {
        for system in std::iter::once(&OURS[0]).chain(peers) {
            table.row(row(samples, what, system));
        }
    }
    table
}

fn row(samples: &Samples, what: &str, system: &str) -> Vec<String> {
    let rates: Vec<f64> = samples.rates(what, system).iter().map(|rate| rate / MIB).collect();
    let (low, high) = stats::quartiles(&rates).unwrap_or((f64::NAN, f64::NAN));
    let node_1 = elsewhere(what);
    let (programs, here) = samples.cpu_per_amount(what, system);
    let there = samples.cpu_per_amount(&node_1, system).1;
    let of_it = |what: &str| match system == OURS[0] {
        true => "1".to_owned(),
        false => number(stats::median(&shares(samples, what, system)).unwrap_or(f64::NAN)),
    };
    let mut cells = vec![what.to_owned(), system.to_owned()];
    cells.push(number(stats::median(&rates).unwrap_or(f64::NAN)));
    cells.push(format!("{}-{}", number(low), number(high)));
    cells.extend([here, there, programs, here + there + programs].map(|cost| number(cost * GIB)));
    cells.extend([of_it(what), of_it(&node_1)]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::goal::Verdict;
    use crate::sample::Measured;

    #[test]
    fn the_cheapest_peer_is_the_one_to_beat() {
        let mut samples = Samples::default();
        for (variant, served_cpu) in
            [(OURS[0], 1.0), (OURS[1], 4.0), ("dear", 100.0), ("cheap", 5.0)]
        {
            for round in 0..4 {
                let measured = Measured { amount: GIB, seconds: 1.0, own_cpu: 0.0 };
                let (what, variant) = ("read".to_owned(), variant.to_owned());
                let sample = Sample { what, variant, round, measured, ..Sample::default() };
                samples.0.push(Sample { served_cpu, ..sample });
            }
        }
        let found = goal(&samples, "read", &["dear", "cheap"]);
        assert!((found.figure - 0.4).abs() < 1e-9, "{found}");
        assert_eq!(found.verdict(), Verdict::Noisy, "1 is not 4: {found}");
        assert_eq!(goal(&samples, "read", &[]).verdict(), Verdict::Failed);
        assert!((shares(&samples, "read", "dear")[0] - 0.02).abs() < 1e-9);
    }
}
