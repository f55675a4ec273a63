//! The goals of many nodes: start, failures, locks, names through many servers, rest.

mod library;
mod locks;
mod loss;
mod rest;
mod restart;
mod start;

use crate::run::{Compared, Group};

/// What a reader of the page must know first.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh nodes --write-docs`.
All nodes are simulated on one machine, so they share its processors, its memory and one disk.
\"A against A\" compares consecutive rounds of the same measurement; no goal is judged when its median is outside of \
0.9 to 1.1.
That a silent node 0 never lets two nodes hold one lock is not a figure: `coherence_36_without_a_coordinator_nothing_is_released` \
and the simulation show it.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "start",
        title: "Start of 64 servers",
        compared: Compared::Work(&[]),
        run: start::run,
    },
    Group {
        name: "loss",
        title: "A node that is lost",
        compared: Compared::Work(&[]),
        run: loss::run,
    },
    Group {
        name: "restart",
        title: "A server that is killed",
        compared: Compared::Work(&[]),
        run: restart::run,
    },
    Group {
        name: "locks",
        title: "Locks from another node",
        compared: Compared::Work(&[]),
        run: locks::run,
    },
    Group {
        name: "library",
        title: "Names through 1, 2, 4 and 8 servers",
        compared: Compared::Work(&[]),
        run: library::run,
    },
    Group {
        name: "rest",
        title: "Rest, and an estimate for many nodes",
        compared: Compared::Figures,
        run: rest::run,
    },
];
