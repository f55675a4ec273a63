//! The goals of many nodes: start, failures, locks, names through many servers, rest.

mod library;
mod locks;
mod loss;
mod rest;
mod restart;
mod start;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "Jobs of up to 64 servers on one machine start, lose nodes and servers, pass locks between \
               nodes, make names through one to eight servers, and rest.",
    found: &[
        "64 servers are up after {up of 64 servers, the slowest}, the lock of a killed node is another's \
         after {from kill -9 of a node to its lock in another's hands, median}, a killed server with \
         100,000 files answers again after {from kill -9 of a server with 100,000 files to its first \
         answer}",
        "a lock passes between two nodes in {contended hand-over between two nodes}",
        "a name costs more CPU with more servers, at most {CPU per create through 1, 2, 4, 8 servers, \
         largest over smallest} times for a create",
    ],
};

/// How it was measured.
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
