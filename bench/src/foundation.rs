//! The goals of the first usable version: one job on a few nodes.

mod library;
mod lifecycle;
mod memory;
mod metadata;
mod minimal;
mod passthrough;
mod remote;
mod scaling;
mod striped;

use crate::report::summary::Summary;
use crate::run::{Compared, Group};

/// The first paragraph of the page.
pub(crate) const SUMMARY: Summary = Summary {
    measured: "Programs on one to three simulated nodes read and write files, make and remove names, start \
               and end jobs; the same is done on XFS, by a bare TCP loop, and by a minimal FUSE daemon.",
    found: &[
        "files on their own node, in the page cache, are read at {local file, sequential read, of native} and newly written at \
         {local file, new write, of native} of the rate of XFS",
        "files on another node are read at {remote file, read, of a TCP loop} and written at {remote file, \
         write, of a TCP loop} of the rate of the loop",
        "metadata is the weak side: a program makes {Names, one node|create+close|mount} thousand files a second through a mount, {Names, one node|create+close|native} on XFS, {Names, one node|create+close|minimal} through the minimal daemon",
    ],
};

/// How it was measured.
pub(crate) const INTRO: &str = "\
Written by `./bench.sh foundation --write-docs`.
All nodes are simulated on one machine, so they share its processors, its memory and one disk.
Absolute figures are this machine's; the ratios are the result.
A and B take turns in every round and figures are medians over rounds; \"A against A\" is the baseline's
median ratio to itself over two rounds in which its two runs changed places, and no goal is judged when it
is outside of 0.9 to 1.1.
Raw samples are written to `bench/out/`.";

/// In the order in which they run.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "passthrough",
        title: "Files on their own node",
        compared: Compared::Work(&["native"]),
        run: passthrough::run,
    },
    Group {
        name: "remote",
        title: "Files on another node",
        compared: Compared::Work(&["tcp"]),
        run: remote::run,
    },
    Group {
        name: "striped",
        title: "Striped files on disks of equal speed",
        compared: Compared::Work(&[]),
        run: striped::run,
    },
    Group {
        name: "metadata",
        title: "Names, one node",
        compared: Compared::Work(&["native", "minimal"]),
        run: metadata::run_on_one_node,
    },
    Group {
        name: "metadata3",
        title: "Names, three nodes",
        compared: Compared::Work(&["native", "minimal"]),
        run: metadata::run_on_three_nodes,
    },
    Group {
        name: "spread",
        title: "Names, three nodes, a directory in which others are busy",
        compared: Compared::Work(&["native", "minimal"]),
        run: metadata::run_in_a_spread_directory,
    },
    Group {
        name: "scaling",
        title: "Names from 1, 2 and 3 nodes",
        compared: Compared::Work(&[]),
        run: scaling::run,
    },
    Group {
        name: "library",
        title: "New files by the client library",
        compared: Compared::Work(&[]),
        run: library::run,
    },
    Group {
        name: "lifecycle",
        title: "Start, rest and end",
        compared: Compared::Work(&[]),
        run: lifecycle::run,
    },
    Group {
        name: "memory",
        title: "Memory under load",
        compared: Compared::Figures,
        run: memory::run,
    },
];
